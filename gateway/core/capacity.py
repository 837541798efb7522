"""How many blocks an engine holds, learned from which of them it turned out to have and to have lost.

A miss shows a size that the engine does not have, a hit on what was believed gone one that it has. What is
sent to an engine is chosen by what is believed: those just inside the belief are served soon, those outside
only when they are long gone. So neither kind of evidence comes from the middle, and a belief that only
follows it creeps: on Mooncake's chats with half of the declared cache it took 15 minutes to come down
(`docs/routing.md`, "Predicted and delivered").
"""

FIRST_OVERSHOOT = 1 / 32
"""By how much of itself the belief goes below what a second miss has shown: by twice as much at each further
one, until a hit near its edge says that it is about right."""

MOST_OVERSHOOT = 1 / 8

EDGE = 8
"""One part in so many of what is believed is near its edge: that which was not used for longest."""

RISE = 64
"""New blocks for which the belief in a full cache grows by one: 2 % each time that all of it is replaced.
One that is too small may never be told so, since what is outside of it is not asked for."""


class Capacity:
    """`bound` is what the engine says, `believed`, never more, what it has shown; in blocks. `overshoot` is
    the part by which the next miss takes it below that."""

    __slots__ = ("_came", "believed", "bound", "overshoot")

    def __init__(self, bound: int) -> None:
        self.bound = bound
        self.forget()

    def forget(self) -> None:
        """Another engine: what it says is believed until it shows otherwise."""
        self.believed = self.bound
        self.overshoot = 0.0
        self._came = 0

    def rebound(self, bound: int) -> None:
        """What was learned keeps its share of the bound: both are counted in blocks of bytes, and both move
        when the bytes in a token are learned."""
        before, self.bound = self.bound, bound
        if before:
            self._believe(round(bound * self.believed / before))
        else:
            self.believed = bound

    def is_below(self, shown: int) -> None:
        """A block was lost that as many had been used after as are `shown`."""
        if shown < self.believed:
            self._believe(shown - int(shown * self.overshoot))
            self.overshoot = min(MOST_OVERSHOOT, 2 * self.overshoot or FIRST_OVERSHOOT)

    def is_at_least(self, shown: int) -> None:
        """A block was there that was believed gone, with `shown` in all."""
        self.overshoot = 0.0
        self._believe(max(self.believed, shown))

    def is_about_right(self) -> None:
        """What was last used before nearly all else that is believed was there."""
        self.overshoot = 0.0

    def overflows(self, blocks: int) -> None:
        """So many new ones have come, and others have to go for them."""
        self._came += blocks
        if self._came >= RISE:
            self._believe(self.believed + self._came // RISE)
            self._came %= RISE

    def _believe(self, blocks: int) -> None:
        self.believed = min(self.bound, max(1, blocks))
