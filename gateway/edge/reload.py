"""Another configuration while the gateway runs: when one is tried, and what came of it."""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path

from msgspec import Struct

from gateway.config import Config, ConfigError, Problem, TlsProblem, changes

POLL_S = 1.0
"""How often the file is looked at."""

SETTLE_S = 0.5
"""A file that has changed is used once it has stayed the same for so long: half of an edit may be valid, and
without half of the engines."""

_NOT_RELOADED = "configuration not reloaded, the old one stays in force"


class CannotReload(Exception):
    """There is nothing to reload, whatever the configuration says."""


class ConfigFile:
    """The file that a gateway was started with. Make it before the file is first read: what changes after
    that is a change.

    `read` gives the configuration to replace the one it gets, with what the command line overrides; it raises
    `ConfigError`. The content is what counts: a Kubernetes ConfigMap swaps a symbolic link, an editor renames
    another file over it.
    """

    def __init__(
        self,
        path: Path,
        read: Callable[[Config | None], Config],
        *,
        poll_s: float = POLL_S,
        settle_s: float = SETTLE_S,
    ) -> None:
        self.read = read
        self.poll_s = poll_s
        self.settle_s = settle_s
        self._path = path
        self.digest = self.look()

    def look(self) -> bytes | None:
        """What is there now; None for nothing, and for a pipe, which can be read only once."""
        try:
            return hashlib.sha256(self._path.read_bytes()).digest() if self._path.is_file() else None
        except OSError:
            return None


class Reload(Struct, frozen=True, kw_only=True):
    """How the last one went; `last_at` is None before the first, an ISO time after."""

    last_at: str | None = None
    ok: bool = True
    problems: Sequence[Problem] = ()


class Reloader:
    """Tries the file when told to and when it has changed.

    `prepare` gets a valid configuration, in a thread, and returns what puts it in force; it raises
    `TlsProblem` where a file has changed since it was checked. `changed` is told what is another from now on.
    """

    def __init__(
        self,
        file: ConfigFile | None,
        config: Config,
        prepare: Callable[[Config], Callable[[], None]],
        timestamp: Callable[[], str],
        log: logging.Logger,
        changed: Callable[[Sequence[str]], object] = lambda _: None,
    ) -> None:
        self.status = Reload()
        self._file = file
        self._config = config
        self._prepare = prepare
        self._timestamp = timestamp
        self._log = log
        self._changed = changed
        self._closed = False
        self._one_at_a_time = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Watch the file from now on."""
        if self._file is not None:
            self._begin(self._watch(self._file))

    async def close(self) -> None:
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def soon(self) -> None:
        """Somebody asked for it who waits for no answer."""
        self._begin(self._try())

    async def reload(self) -> list[str]:
        """What has changed, a line each. Raises `ConfigError`, after which the old one is still in force, and
        `CannotReload`."""
        file = self._file
        if file is None:
            raise CannotReload("The gateway was started without --config: there is no file to reload.")
        async with self._one_at_a_time:
            if self._closed:
                raise CannotReload("The gateway is shutting down.")
            # Before it is read, so that a change meanwhile is seen by the next look; noted only after
            # that, as whoever asked may leave.
            seen = await asyncio.to_thread(file.look)
            try:
                new, put_in_force = await asyncio.to_thread(self._read, file)
            except ConfigError as error:
                file.digest = seen
                self._failed(error.problems)
                raise
            except Exception as error:
                file.digest = seen
                self._failed([_fault(error)])
                raise
            file.digest = seen
            return self._use(new, put_in_force)

    def _read(self, file: ConfigFile) -> tuple[Config, Callable[[], None]]:
        new = file.read(self._config)
        try:
            return new, self._prepare(new)
        except TlsProblem as error:
            raise ConfigError([Problem("engines", f"{error.key}: {error}", "")]) from None

    def _use(self, new: Config, put_in_force: Callable[[], None]) -> list[str]:
        if self._closed:
            raise CannotReload("The gateway is shutting down.")
        changed = changes(self._config, new)
        try:
            put_in_force()
        except Exception as error:
            problem = _fault(error, "; what changed is in force in part only")
            self._failed([problem], "configuration reloaded in part")
            raise
        self._config = new
        self.status = Reload(last_at=self._timestamp())
        self._changed(changed)
        self._log.info("configuration reloaded: %s", "; ".join(changed) or "nothing has changed")
        return changed

    def _failed(self, problems: Sequence[Problem], what: str = _NOT_RELOADED) -> None:
        self.status = Reload(last_at=self._timestamp(), ok=False, problems=problems)
        text = "; ".join(str(problem).replace("\n", " ") for problem in problems)
        self._log.error("%s: %s", what, text)

    async def _try(self) -> None:
        try:
            await self.reload()
        except ConfigError:
            pass
        except CannotReload as error:
            self._log.warning("configuration not reloaded: %s", error)
        except Exception:
            self._log.exception("the configuration could not be reloaded")

    async def _watch(self, file: ConfigFile) -> None:
        while True:
            await asyncio.sleep(file.poll_s)
            seen = await asyncio.to_thread(file.look)
            if seen == file.digest:
                continue
            await asyncio.sleep(file.settle_s)
            if await asyncio.to_thread(file.look) == seen:
                await self._try()

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _fault(error: Exception, more: str = "") -> Problem:
    """The gateway's own. Without the error's text, which may quote a credential."""
    return Problem("", f"the gateway failed: {type(error).__name__}{more}", "")
