"""The limit of an engine whose cap nobody told is a working one: while requests wait, one more than it may be
sent, and if that produces while all others still run, the limit was too low."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.core.caps import SLACK_S
from gateway.core.facts import SlotSource
from gateway.core.lease import LoadReport

if TYPE_CHECKING:
    from gateway.core.engine import Engine

BACKOFF_S, MAX_BACKOFF_S = 30.0, 600.0
"""So long nothing is tried after the engine held one up; twice as long each time."""

DOUBTS = 8
"""So many tries that say nothing, as another request ended before the one beyond produced, count as one that
was held up."""

PASSED_S = 0.5
"""So long nobody is looked for again where none of those who wait could be sent."""

_NEVER = float("-inf")


class Growth:
    """One engine's. `key` is the request sent beyond the limit, until it is known what came of it."""

    __slots__ = ("_backoff_s", "_doubts", "_due", "_ended", "_engine", "key")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.reset()

    def reset(self) -> None:
        """It is another engine, or has another cap."""
        self.key: int | None = None
        self._due = _NEVER
        self._ended = 0
        self._doubts = 0
        self._backoff_s = BACKOFF_S

    def may(self, now: float) -> bool:
        """Whether one more than the limit may be sent, if some wait: all that runs produces, and nothing says
        that the engine is full."""
        engine = self._engine
        caps, quota = engine.caps, engine.quota
        return (
            engine.is_soft
            and engine.in_flight == engine.usable
            and self.key is None
            and now >= self._due
            and not caps.waiters
            and (caps.producing > 0 or caps.is_told)
            and not (engine.cooling_width or engine.foreign or engine.holds or caps.wide)
            and engine.accepting
            and (quota is None or quota > engine.slots)
        )

    def begin(self, key: int) -> None:
        """The request has been sent there."""
        self.key, self._ended = key, self._engine.caps.ended

    def passed(self, now: float) -> None:
        """Nobody who waits can be sent there: not asked again for each event."""
        self._due = now + PASSED_S

    def has_started(self, key: int, now: float, *, was_held: bool) -> None:
        """A first token; `was_held`: it waited until another request ended."""
        engine = self._engine
        if self.key == key:
            engine.beyond = 0
            # What cools has left, and its slot may be the one that this one got.
            if engine.caps.ended + engine.cooling_width == self._ended:
                self._grow()
            elif was_held:
                self._stay(now)
            else:
                self._doubt(now)
        self._follow()

    def refused(self, key: int, now: float) -> bool:
        """The engine would not take a request. Returns whether it was the one beyond: then it may go there
        again, since it had not been sent otherwise."""
        if self.key != key:
            return False
        self._engine.beyond = 0
        self._stay(now)
        return True

    def ended(self, key: int) -> None:
        """A request has ended: nobody is sent in the place of the one beyond."""
        if self._engine.beyond:
            self._engine.beyond = 0
        if self.key == key:
            self.key = None

    def reported(self, report: LoadReport, now: float) -> None:
        """The engine's own count."""
        engine = self._engine
        lease = engine.leases.get(self.key) if self.key is not None else None
        running, waiting = report.running, report.waiting
        if lease is not None and running is not None and waiting is not None:
            if running + waiting > engine.in_flight + engine.cooling_width:
                # Others use it.
                self.key, engine.beyond = None, 0
            elif running > engine.slots:
                self._grow()
            elif waiting and report.asked_at - lease.granted_at > SLACK_S:
                engine.beyond = 0
                self._stay(now)
        self._follow()

    def _grow(self) -> None:
        engine = self._engine
        self.reset()
        engine.caps.exceeded(engine.slots + 1)
        engine.limit(engine.slots + 1, SlotSource.INFERRED)

    def _stay(self, now: float) -> None:
        self.key, self._doubts = None, 0
        self._due = now + self._backoff_s
        self._backoff_s = min(MAX_BACKOFF_S, self._backoff_s * 2)
        self._engine.caps.proved(self._engine.slots)

    def _doubt(self, now: float) -> None:
        self.key = None
        self._doubts += 1
        if self._doubts >= DOUBTS:
            self._stay(now)

    def _follow(self) -> None:
        engine = self._engine
        inferred = engine.caps.inferred
        if inferred is not None and (
            inferred != engine.slots or engine.slots_source is not SlotSource.INFERRED
        ):
            engine.limit(inferred, SlotSource.INFERRED)
