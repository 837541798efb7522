"""The demo's engine processes: started together on free ports, and always ended."""

import asyncio
import contextlib
import os
import signal
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO

import aiohttp

from gateway.demo.recipes import DemoError, Recipe, find
from gateway.sim.ports import free_port

_READY_S = 120.0
"""A cold disk reads the model in this time."""

_LOADED_S = 30.0
"""An engine that has not ended by then will not end of loading the model."""

_POLL_S = 0.1
_STOP_S = 5.0
_TAIL_LINES = 12


class EngineEnded(DemoError):
    """An engine ended before it had answered."""


class EngineProcess:
    """One running engine. `url` has no trailing slash; `log` is what it writes."""

    def __init__(self, name: str, port: int, log: Path, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.url = f"http://127.0.0.1:{port}"
        self.log = log
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ready(self) -> None:
        """Raises `EngineEnded` if it ends, `DemoError` if it does not answer in time."""
        try:
            async with asyncio.timeout(_READY_S), aiohttp.ClientSession() as http:
                while not await self._answers(http):
                    if self._process.returncode is not None:
                        raise EngineEnded(f"{self.name} ended as it started.\n{self.tail()}")
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise DemoError(f"{self.name} was not ready within {_READY_S:.0f} s.\n{self.tail()}") from None

    async def stop(self) -> None:
        """Ask the whole process group to end, then make it."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._process.returncode is not None:
                return
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STOP_S):
                    await self._process.wait()

    def tail(self) -> str:
        """The last lines of its log."""
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(lines[-_TAIL_LINES:])

    async def _answers(self, http: aiohttp.ClientSession) -> bool:
        try:
            async with http.get(f"{self.url}/health") as response:
                return response.status == 200
        except (aiohttp.ClientError, OSError):
            return False


def find_running() -> Recipe:
    """`find`, without an engine that dies as it loads the model: a wheel built for another processor starts
    and then meets an instruction that this one does not have."""
    return find(_loads)


@contextlib.asynccontextmanager
async def fleet(recipe: Recipe, count: int, logs: Path) -> AsyncIterator[list[EngineProcess]]:
    """`count` ready engines, named engine-1 and so on, which log to files in `logs`. Raises `DemoError`."""
    engines: list[EngineProcess] = []
    try:
        for number in range(1, count + 1):
            engine = await _start(recipe, f"engine-{number}", logs)
            engines.append(engine)
        await _all_ready(engines)
        yield engines
    finally:
        await asyncio.gather(*(engine.stop() for engine in engines))


def _loads(recipe: Recipe) -> bool:
    """A model that cannot be prepared is not the engine's fault: whoever starts the recipe is told of it."""
    try:
        recipe.prepare()
    except DemoError:
        return True
    return asyncio.run(_stays_up(recipe))


async def _stays_up(recipe: Recipe) -> bool:
    """Whether one answers, or at least does not end, within `_LOADED_S`."""
    with tempfile.TemporaryDirectory() as logs, contextlib.suppress(TimeoutError):
        try:
            async with asyncio.timeout(_LOADED_S), fleet(recipe, 1, Path(logs)):
                pass
        except EngineEnded:
            return False
    return True


async def _all_ready(engines: list[EngineProcess]) -> None:
    try:
        async with asyncio.TaskGroup() as group:
            for engine in engines:
                group.create_task(engine.ready())
    except* DemoError as failed:
        raise failed.exceptions[0] from None


async def _start(recipe: Recipe, name: str, logs: Path) -> EngineProcess:
    port, log = free_port(), logs / f"{name}.log"
    with _opened(log) as stream:
        try:
            # Its own group: Ctrl-C in a terminal is for us, and we end it in order.
            process = await asyncio.create_subprocess_exec(
                *recipe.command(port),
                env=recipe.env,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
            )
        except OSError as error:
            raise DemoError(f"{name} cannot be started: {error}") from error
    return EngineProcess(name, port, log, process)


def _opened(log: Path) -> BinaryIO:
    log.parent.mkdir(parents=True, exist_ok=True)
    return log.open("wb")
