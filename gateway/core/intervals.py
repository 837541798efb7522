"""Ratios and quantiles of requests with 95 % intervals, where requests of one session are alike.

What one session sends shares prompts and an engine, so that its hundred requests tell less than one each of a
hundred sessions. Every interval here takes a session for one observation, however many requests it has. A
request that names no session is one of its own.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import accumulate
from math import ceil, exp, floor, lgamma, log, sqrt

from msgspec import Struct

MIN_SESSIONS = 5
"""Of fewer the spread says nothing: with four, one odd session is a quarter of all."""

_TAIL = 0.025
_Z = 1.959963984540054
"""The normal distribution's 97.5 % quantile."""

_ROUNDING = 1e-9


class Estimate(Struct, frozen=True):
    """`low` and `high` are the ends of a 95 % interval. None is what cannot be told; `why` says why not."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    why: str = ""


class Ratio(Struct, frozen=True):
    """A ratio of sums. `below` is the lower one; `variance` is None where there are too few `sessions`."""

    value: float
    below: float
    variance: float | None
    sessions: int

    def estimate(self, highest: float | None = None) -> Estimate:
        """Neither end is below zero, nor above `highest`."""
        made = interval(self.value, self.variance, self.sessions)
        if made.low is None or made.high is None:
            return made
        high = made.high if highest is None else min(highest, made.high)
        return Estimate(made.value, max(0.0, made.low), high)


def interval(value: float, variance: float | None, sessions: int) -> Estimate:
    """By Student's t with `sessions` - 1 degrees of freedom."""
    if variance is None:
        return Estimate(value, why=too_few(sessions))
    half = student_t(sessions - 1) * sqrt(variance)
    return Estimate(value, value - half, value + half)


def too_few(sessions: int) -> str:
    count = f"{sessions} session{'' if sessions == 1 else 's'}"
    return f"{count}: an interval needs at least {MIN_SESSIONS}, or requests that name none"


def ratio(
    above: Iterable[float], below: Sequence[float], sessions: Iterable[int], highest: float | None = None
) -> Ratio | None:
    """The sum of `above` by that of `below`, request by request; None where that is none. `highest` is the
    most that it can be: with it, sessions that are all alike have a variance, too.

    The variance is that of the ratio estimator for clusters by linearisation, the delta method: Cochran,
    Sampling Techniques, 3rd ed. 1977, chapters 6 and 9A.
    """
    above, total = list(above), sum(below)
    if total <= 0:
        return None
    value = sum(above) / total
    rests = _by_session((a - value * b for a, b in zip(above, below, strict=True)), sessions)
    variance = _variance(rests, total)
    if variance is not None and highest is not None and sqrt(variance) <= _ROUNDING * highest:
        variance = _variance_of_alike(max(value, highest - value), len(rests))
    return Ratio(value, total, variance, len(rests))


def quantile(values: Sequence[float], sessions: Sequence[int], share: float) -> Estimate:
    """The value that a `share` of all do not exceed, with an interval between two of the values, by rank.

    Such intervals hold whatever the distribution (Conover, Practical Nonparametric Statistics, 3rd ed. 1999,
    section 3.2). Ranks are those of as many independent values as these are worth: their number by the design
    effect of sessions, and by what Student's t adds for few of these (Korn and Graubard, Survey Methodology
    24, 1998).
    """
    if not values:
        return Estimate(why="no request told it")
    order = sorted(values)
    count = len(order)
    value = order[ceil(count * share) - 1]
    worth = _worth(values, sessions, value, count)
    if isinstance(worth, str):
        return Estimate(value, why=worth)
    low, high = _ranks(worth, share)
    at_low, at_high = floor(low * count / worth), ceil(high * count / worth)
    return Estimate(
        value,
        order[at_low - 1] if at_low >= 1 else None,
        order[at_high - 1] if high <= worth else None,
        "" if at_low >= 1 and high <= worth else f"{count} requests are too few for both ends",
    )


def weighted_quantile(weighted: Iterable[tuple[float, float]], share: float) -> float:
    """Of (value, weight), at least one."""
    order = sorted(weighted)
    sums = list(accumulate(weight for _, weight in order))
    return order[bisect_left(sums, share * sums[-1] * (1 - _ROUNDING))][0]


def student_t(freedom: int) -> float:
    """The 97.5 % quantile for at least four degrees of freedom, to 0.001: Abramowitz and Stegun 26.7.5."""
    z, v = _Z, freedom
    return (
        z
        + (z**3 + z) / (4 * v)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)
        + (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / (92160 * v**4)
    )


def _by_session(rests: Iterable[float], sessions: Iterable[int]) -> list[float]:
    sums: defaultdict[int, float] = defaultdict(float)
    alone: list[float] = []
    for rest, session in zip(rests, sessions, strict=True):
        if session:
            sums[session] += rest
        else:
            alone.append(rest)
    return [*alone, *sums.values()]


def _variance(rests: Sequence[float], total: float) -> float | None:
    count = len(rests)
    if count < MIN_SESSIONS:
        return None
    return count / (count - 1) * sum(it * it for it in rests) / total**2


def _variance_of_alike(away: float, count: int) -> float:
    """That no session of `count` differed does not say that none does: by the exact binomial limit (Clopper
    and Pearson, Biometrika 26, 1934; the rule of three is near it) a share of them may, by up to `away`."""
    return (away * (1 - exp(log(_TAIL) / count)) / student_t(count - 1)) ** 2


def _worth(values: Sequence[float], sessions: Sequence[int], value: float, count: int) -> int | str:
    """As many independent values as `values` are worth for the share that does not exceed `value`; or why
    that cannot be told."""
    below = ratio([1.0 if it <= value else 0.0 for it in values], [1.0] * count, sessions)
    assert below is not None
    if below.variance is None:
        return too_few(below.sessions)
    alone = below.value * (1 - below.value) / (count - 1)
    effect = below.variance / alone if alone else 1.0
    # Sessions that differ less than chance would have them are no reason for a narrower interval.
    if effect <= 1 + _ROUNDING:
        return count
    effect *= (student_t(below.sessions - 1) / _Z) ** 2
    return max(1, int(count / effect))


def _ranks(count: int, share: float) -> tuple[int, int]:
    """Of `count` independent values those, counted from 1, between which the quantile lies in 95 % of cases;
    0 and `count` + 1 where none is low or high enough."""
    first, sums = _sums(count, share)
    return first + bisect_right(sums, _TAIL), first + bisect_left(sums, 1 - _TAIL) + 1


def _sums(count: int, share: float) -> tuple[int, list[float]]:
    """The binomial distribution function from the first place on where it is not next to nothing."""
    spread = 10 * sqrt(count * share * (1 - share))
    first, last = max(0, int(count * share - spread)), min(count, ceil(count * share + spread))
    return first, list(accumulate(_binomial(count, at, share) for at in range(first, last + 1)))


def _binomial(count: int, at: int, share: float) -> float:
    ways = lgamma(count + 1) - lgamma(at + 1) - lgamma(count - at + 1)
    return exp(ways + at * log(share) + (count - at) * log(1 - share))
