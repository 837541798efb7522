"""Learning a figure from samples."""

_WEIGHT = 0.2


def smoothed(old: float | None, sample: float) -> float:
    """Exponential moving average; the first sample stands for itself."""
    return sample if old is None else old + _WEIGHT * (sample - old)


class Rate:
    """A rate as a ratio of sums that fade: a short sample, mostly overhead, counts by its length. `keep` is
    what each sample leaves of those before it."""

    __slots__ = ("_amount", "_keep", "_seconds")

    def __init__(self, keep: float = 0.9) -> None:
        self._keep = keep
        self._amount = 0.0
        self._seconds = 0.0

    def add(self, amount: float, seconds: float) -> float:
        """Amount per second after one more sample of `seconds` above 0."""
        self._amount = self._keep * self._amount + amount
        self._seconds = self._keep * self._seconds + seconds
        return self._amount / self._seconds
