"""How long slots stood free beside requests that would be put there (too wide for what was free, or before
a slot that is kept for somebody else)."""

from collections.abc import Mapping

from gateway.core.engine import Engine


class IdleClock:
    """Between two looks at the queue nothing changes: what was so at one is so until the next."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._since = 0.0

    def note(self, name: str) -> None:
        """A slot of the engine is free, and a request that would be put there waits."""
        self._names.add(name)

    def close(self, engines: Mapping[str, Engine], now: float) -> None:
        """Another look at the queue begins."""
        if self._names:
            for name in self._names:
                engines[name].slot_idle_while_waiting_s += now - self._since
            self._names.clear()
        self._since = now

    def total_s(self, engine: Engine, now: float) -> float:
        open_s = now - self._since if engine.name in self._names else 0.0
        return engine.slot_idle_while_waiting_s + open_s
