"""What a distribution of concurrency comes to: percentiles, the metric's buckets, and one sentence.

A team tuned its engines for eight requests at once and found production at one to three: that is what the
sentence is for.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate

from msgspec import Struct

from gateway.core.concurrency import HIGHEST, Spent

MORE = "more"
LABELS = ("0", "1", "2", "3", "4", "6", "8", "12", "16", "24", "32", "48", "64", MORE)
"""Of `concurrency_seconds_total{n}` (contract); a number counts to the first label that is not below it."""

_TOPS = tuple(int(label) for label in LABELS[:-1])


class AtMost(Struct, frozen=True):
    """So many requests at most in 50, 90 and 99 % of the time, and ever; one more than `HIGHEST` stands for
    all above it. None where there was no time."""

    p50: int | None
    p90: int | None
    p99: int | None
    max: int | None


def busy(seconds: Sequence[float]) -> list[float]:
    """The same without the time at 0: a fleet that sleeps at night is not idle at noon."""
    return [0.0, *seconds[1:]]


def at_most(seconds: Sequence[float]) -> AtMost:
    """Exact percentiles: the least number that is not exceeded for such a share of the time."""
    sums = list(accumulate(seconds))
    total_s = sums[-1]
    if total_s <= 0:
        return AtMost(None, None, None, None)
    p50, p90, p99, top = (bisect_left(sums, total_s * share) for share in (0.5, 0.9, 0.99, 1.0))
    return AtMost(p50, p90, p99, top)


def by_label(seconds: Sequence[float]) -> dict[str, float]:
    """`seconds` at each of `LABELS`."""
    out = dict.fromkeys(LABELS, 0.0)
    labels = iter(zip(_TOPS, LABELS, strict=False))
    top, label = next(labels)
    for n, spent_s in enumerate(seconds[:-1]):
        if n > top:
            top, label = next(labels)
        out[label] += spent_s
    out[MORE] = seconds[-1]
    return out


def by_number(seconds: Sequence[float]) -> dict[str, float]:
    """Seconds at each number that there was, rounded to microseconds."""
    named = ((MORE if n > HIGHEST else str(n), spent_s) for n, spent_s in enumerate(seconds))
    return {name: round(spent_s, 6) for name, spent_s in named if spent_s > 0}


def shown(count: int | None) -> int | str | None:
    """As the endpoint tells a number of requests: `">64"` above what is told apart."""
    return f">{HIGHEST}" if count is not None and count > HIGHEST else count


def figures(it: AtMost) -> Mapping[str, int | str | None]:
    return {name: shown(getattr(it, name)) for name in it.__struct_fields__}


def share_of(seconds: Sequence[float]) -> float | None:
    """The share of time with a request in flight; None where there was no time."""
    total = sum(seconds)
    return sum(seconds[1:]) / total if total > 0 else None


def sentence(spent: Spent, slots: int, assumed: int) -> str:
    """What was in flight in words, what was wanted if that was more, and the `slots` that there are, of which
    nobody told `assumed`."""
    seconds = spent.in_flight
    whole, worked, share = at_most(seconds), at_most(busy(seconds)), share_of(seconds)
    if whole.p99 is None or whole.p50 is None or share is None:
        return "Nothing measured yet."
    if worked.p50 is None or worked.p99 is None:
        return f"No request has been in flight yet, in {sum(seconds):.0f} s. {_slots(slots, assumed)}"
    most = _mostly(whole.p99, "of the time ").capitalize()
    parts = [f"{most} in flight; the median is {shown(whole.p50)}; {_peak(whole)}."]
    if (worked.p50, worked.p99) != (whole.p50, whole.p99):
        parts.append(
            f"Of the time with any in flight, {_percent(share)} of all: {_mostly(worked.p99)}, "
            f"the median is {shown(worked.p50)}."
        )
    wanted_p99 = at_most(spent.wanted).p99 or 0
    if wanted_p99 > whole.p99:
        parts.append(f"With those that waited in the queue: {_mostly(wanted_p99, 'of the time ')}.")
    return " ".join([*parts, _slots(slots, assumed)])


def _mostly(p99: int, of: str = "") -> str:
    if p99 > HIGHEST:
        return f"over 1 % {of}more than {HIGHEST} requests"
    return f"99 % {of}{f'at most {p99}' if p99 else 'no'} request{'s' if p99 > 1 else ''}"


def _peak(it: AtMost) -> str:
    return f"at times more than {HIGHEST}" if (it.max or 0) > HIGHEST else f"never more than {it.max}"


def _percent(share: float) -> str:
    return "under 0.1 %" if share < 0.001 else f"{share * 100:.1f} %"


def _slots(slots: int, assumed: int) -> str:
    return f"Slots: {slots}{f', {assumed} of them assumed' if assumed else ''}."
