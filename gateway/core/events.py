"""What an engine's probes tell the scheduler. Each event names no engine: it is handed over beside one."""

from msgspec import Struct

from gateway.core.engine import Facts, LoadReport, Probe


class Discovered(Struct, frozen=True, kw_only=True):
    """Detection has finished, the first time or again after a restart; `facts` replace all earlier ones."""

    facts: Facts


class Probed(Struct, frozen=True, kw_only=True):
    """One health probe came to an end, with or without an answer. `why`: in words, where that is known."""

    probe: Probe
    why: str = ""


class Reported(Struct, frozen=True, kw_only=True):
    """The engine's own counters were read."""

    report: LoadReport


class Restarted(Struct, frozen=True):
    """The engine process is another one: what was in its KV cache and in its slots is gone.

    Comes before the `Probed`, `Reported` or `Discovered` that showed it.
    """


EngineEvent = Discovered | Probed | Reported | Restarted


class ProberHint(Struct, frozen=True):
    """What the receiver of an event wants next: `interval_s` seconds until the engine's next probe.

    The defaults by state: 2.0 when it serves, 0.5 while it is unknown, loading or down, and 0.1 while
    slots are cooling, since each of those probes may free one.
    """

    interval_s: float = 2.0


class Stored(Struct, frozen=True, gc=False):
    """KV blocks that an engine can serve from now on: a chain below `parent`, None at a prompt's start.

    Hashes are unsigned 64-bit, the engine's own, and mean nothing to another engine or process of it.
    """

    hashes: list[int]
    parent: int | None = None


class Removed(Struct, frozen=True, gc=False):
    """KV blocks that an engine has no longer. One that it stored twice it has until it removed it twice."""

    hashes: list[int]


class Cleared(Struct, frozen=True):
    """The engine's KV cache is empty."""


BlockEvent = Stored | Removed | Cleared
