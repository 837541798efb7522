"""What engines tell of themselves, so that nobody asks each of them at each request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.core.concurrency import Concurrency

if TYPE_CHECKING:
    from gateway.core.engine import Engine


class Watch:
    """What the engines of a fleet tell of themselves, so that nobody asks each of them at each request.

    `is_stale`: one takes requests or does not otherwise than before, or its facts are others. `timed` has all
    engines that keep a slot or let one cool, and perhaps some that did. `resized` are those that have another
    limit than before. `concurrency` hears of every lease.
    """

    __slots__ = ("concurrency", "is_stale", "resized", "timed")

    def __init__(self) -> None:
        self.concurrency = Concurrency()
        self.is_stale = True
        self.resized: set[Engine] = set()
        self.timed: set[Engine] = set()

    def join(self, engine: Engine) -> None:
        engine.watch = self
        self.is_stale = True
        if engine.holds or engine.cooling:
            self.timed.add(engine)
