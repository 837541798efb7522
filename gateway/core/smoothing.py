"""Learning a figure from samples."""

_WEIGHT = 0.2


def smoothed(old: float | None, sample: float) -> float:
    """Exponential moving average; the first sample stands for itself."""
    return sample if old is None else old + _WEIGHT * (sample - old)
