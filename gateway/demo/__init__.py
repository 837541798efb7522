"""`prefix-gateway demo`: six agents talk through the gateway, and then round robin to compare."""

import asyncio
import contextlib
import itertools
import logging
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, TextIO

import click
import uvloop

from gateway import config
from gateway.app import Gateway
from gateway.core.engine import Health
from gateway.demo import recipes, report
from gateway.demo.agents import Played, Size, Target, play
from gateway.demo.fleet import EngineProcess, find_running, fleet
from gateway.demo.recipes import DemoError, Recipe
from gateway.sim.ports import is_free

API_PORT, ADMIN_PORT = 8900, 8901
_KNOWN_S = 30.0
_POLL_S = 0.1
_GRACE_S = 2.0
"""The demo has no clients to wait for but its own, which have gone by then."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@click.command()
@click.option("--once", is_flag=True, help="Stop after the summary.")
@click.option("--engines", type=click.IntRange(1, 16), default=2, show_default=True, metavar="N")
def demo(once: bool, engines: int) -> None:
    """Play a short conversation of six agents on real engines, with the gateway and without it.

    Exit 0 if every request succeeded and all later turns hit the cache.
    """
    sys.exit(run(find_running(), engines=engines, once=once, size=Size()))


def run(recipe: Recipe, *, engines: int, once: bool, size: Size) -> int:
    """The whole demo; the exit code. Ends its engines however it ends itself."""
    count = f"{engines} x " if engines > 1 else ""
    click.echo(f"Engines: {count}{recipe.what}, {recipes.SLOTS} slots each.")
    try:
        recipe.prepare()
    except DemoError as error:
        click.echo(f"The demo cannot start: {error}", err=True)
        return 1
    logs = Path(tempfile.mkdtemp(prefix="prefix-gateway-demo-"))
    demonstration = _Demo(recipe, engines, once, size, logs)
    stopped = False
    try:
        stopped = uvloop.run(_interruptible(demonstration.run()))
    except (DemoError, OSError) as error:
        click.echo(f"The demo failed: {error}", err=True)
        demonstration.code = 1
    if demonstration.code and not stopped:
        click.echo(f"Logs of the engines and the gateway: {logs}", err=True)
    else:
        shutil.rmtree(logs, ignore_errors=True)
    return demonstration.code


class _Demo:
    """`code` is 1 until the summary says otherwise."""

    def __init__(self, recipe: Recipe, engines: int, once: bool, size: Size, logs: Path) -> None:
        self.code = 1
        self._recipe = recipe
        self._engines = engines
        self._once = once
        self._size = size
        self._logs = logs

    async def run(self) -> None:
        async with contextlib.AsyncExitStack() as first:
            engines = await first.enter_async_context(self._fleet("gateway"))
            log = self._logs / "gateway.log"
            gateway = await first.enter_async_context(_gateway(engines, log, ephemeral=self._once))
            api = Target(f"http://{gateway.listen}")
            click.echo(
                f"API http://{gateway.listen}/v1, live dashboard http://{gateway.admin}/\n"
                "TTFT: time to first token. Predicted, delivered: prompt tokens that the gateway expected\n"
                "to come from the engine's cache, and that the engine says did. A dash: no such figure."
            )
            ours, ours_s = await self._play("Through the gateway", lambda: api)
            if self._once:
                # Two more engines need their memory.
                await first.aclose()
            async with self._fleet("round-robin") as fresh:
                turn = itertools.cycle([Target(engine.url, engine.name) for engine in fresh])
                title = "Round robin, straight to fresh engines"
                theirs, theirs_s = await self._play(title, lambda: next(turn))
            self._conclude(ours, ours_s, theirs, theirs_s)
            if not self._once:
                await self._stay(gateway)

    def _fleet(self, logs: str) -> AbstractAsyncContextManager[list[EngineProcess]]:
        return fleet(self._recipe, self._engines, self._logs / logs)

    async def _play(self, title: str, target: Callable[[], Target]) -> tuple[list[Played], float]:
        size = self._size
        click.echo(f"\n{title}: {size.agents} agents x {size.turns} turns\n{report.HEADER}")
        clock = asyncio.get_running_loop().time
        started_at = clock()
        turns = await play(size, self._recipe.model, target, lambda played: click.echo(report.line(played)))
        return turns, clock() - started_at

    def _conclude(
        self, ours: Sequence[Played], ours_s: float, theirs: Sequence[Played], theirs_s: float
    ) -> None:
        click.echo()
        summaries = report.summarise(ours, ours_s), report.summarise(theirs, theirs_s)
        report.render(*summaries, report.console())
        failed = report.problems(ours, theirs)
        for problem in failed:
            click.echo(f"FAILED  {problem}", err=True)
        self.code = 1 if failed else 0

    async def _stay(self, gateway: Gateway) -> None:
        click.echo(
            f"\nThe gateway and its engines stay up until Ctrl-C:\n"
            f"  API        http://{gateway.listen}/v1   (model {self._recipe.model})\n"
            f"  dashboard  http://{gateway.admin}/"
        )
        await asyncio.Event().wait()


@contextlib.asynccontextmanager
async def _gateway(
    engines: Sequence[EngineProcess], log_file: Path, *, ephemeral: bool
) -> AsyncIterator[Gateway]:
    """The product itself in front of `engines`, which it knows when this is entered."""
    ports = [0 if ephemeral or not is_free(port) else port for port in (API_PORT, ADMIN_PORT)]
    settings = config.from_args(
        [f"{engine.url},name={engine.name}" for engine in engines],
        listen=f"127.0.0.1:{ports[0]}",
        admin=f"127.0.0.1:{ports[1]}",
    )
    limits = settings.limits.model_copy(update={"shutdown_grace_s": _GRACE_S})
    settings = settings.model_copy(update={"limits": limits})
    with log_file.open("w", encoding="utf-8") as stream:
        log = _log_to(stream)
        # Each request has its line on the terminal already.
        gateway = Gateway(settings, log, access_log=stream)
        await gateway.start()
        try:
            await _known(gateway)
            yield gateway
        finally:
            await gateway.stop()


async def _known(gateway: Gateway) -> None:
    """Wait until every engine is ready for requests."""
    try:
        async with asyncio.timeout(_KNOWN_S):
            while any(it.health is not Health.READY for it in gateway.dispatcher.snapshot().engines):
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        raise DemoError(f"the gateway did not find its engines ready within {_KNOWN_S:.0f} s") from None


def _log_to(stream: TextIO) -> logging.Logger:
    """The gateway's own lines in a file, not between the demo's."""
    log = logging.Logger("prefix_gateway")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log.addHandler(handler)
    return log


async def _interruptible(work: Coroutine[Any, Any, None]) -> bool:
    """Whether a signal ended `work`. Only the first one does: a second must not cut its cleaning up short."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    stopping = False

    def stop() -> None:
        nonlocal stopping
        if not stopping:
            stopping = True
            click.echo("\nStopping.")
            task.cancel()

    for number in _SIGNALS:
        loop.add_signal_handler(number, stop)
    try:
        await task
    except asyncio.CancelledError:
        if not stopping:
            raise
    return stopping
