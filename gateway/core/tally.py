"""Evidence for a cap: at how many running requests an engine was seen held up, beside all that it was seen
running."""

OUTLIERS = 16
"""So many times held up at a number excuse one time above it: two requests may change places on their way to
the engine, and the one that overtook then looks as if it were one more."""


MOST = 2
"""At least one of so many times must have been at the cap. Simulated engines with one show 83 to 100 %."""


class Tally:
    """`needed`: times held up that make a cap of a number."""

    __slots__ = ("_held", "_last", "_needed", "_seen", "held")

    def __init__(self, needed: int) -> None:
        self._needed = needed
        self._seen: dict[int, int] = {}
        self._held: dict[int, int] = {}
        self._last = (-1, 0)
        self.held = 0

    def saw(self, running: int) -> None:
        self._seen[running] = self._seen.get(running, 0) + 1

    def hold(self, running: int, ended: int) -> None:
        """With so many running, which have been counted by `saw`, others waited, when `ended` had ended. More
        that start after the same end, as in a batch, come to one time: at the number of the last."""
        before, number = self._last
        if before == ended:
            self._held[number] -= 1
            self.held -= 1
        self._last = (ended, running)
        self._held[running] = self._held.get(running, 0) + 1
        self.held += 1

    def cap(self) -> int | None:
        """The largest number at which or above it was held up often, and which it next to never exceeded; if
        most of the times were there. Others that use the engine, or prompts of all sizes in a full KV memory,
        hold up at one number now and at another then, and the largest of those is no cap."""
        held = beyond = 0
        for running in sorted(self._seen, reverse=True):
            held += self._held.get(running, 0)
            if held >= self._needed and beyond * OUTLIERS <= held:
                return running if held * MOST >= self.held else None
            beyond += self._seen[running]
            if beyond * OUTLIERS > self.held:
                return None
        return None

    def is_exceeded(self, cap: int) -> bool:
        """Whether more than `cap` ran so often that it is none."""
        beyond = sum(times for running, times in self._seen.items() if running > cap)
        return beyond * OUTLIERS > max(self.held, OUTLIERS)
