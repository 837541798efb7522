"""A comparison in words: what changed, whether by more than chance, or because the mix of requests did."""

from collections.abc import Iterator

from gateway.core.compare import Change, Comparison, Figures
from gateway.core.intervals import Estimate

FEW_REQUESTS = 30
"""Of fewer requests on a side the sentence says so."""

_LEAST_POINTS = 0.0005
"""Smaller changes of a hit rate are shown as none."""


def sentence(it: Comparison, before_s: float, after_s: float) -> str:
    """`before_s` and `after_s`: how long the spans are."""
    sides = ((it.before, before_s, "before"), (it.after, after_s, "after"))
    empty = [f"in the {span(seconds)} {name}" for of, seconds, name in sides if not of.requests]
    if empty:
        return f"Nothing to compare: no request {' and none '.join(empty)}."
    return " ".join([*_hits(it), *_first_tokens(it), *_requests(it, before_s, after_s)])


def _hits(it: Comparison) -> Iterator[str]:
    before, after, change = it.before.hit_rate, it.after.hit_rate, it.changes.hit_rate
    if before.value is None or after.value is None:
        name, why = ("before", before.why) if before.value is None else ("after", after.why)
        yield f"The hit rate {name} is unknown: {why}."
        return
    yield f"Hit rate {percent(before.value)} before, {percent(after.value)} after: {_points(change.all)}."
    if _is_mix(change) and abs(change.mix or 0) >= _LEAST_POINTS:
        told = _points(change.same_mix)
        yield f"The mix of classes moved it by more than the rest: at one mix it is {told}."


def _first_tokens(it: Comparison) -> Iterator[str]:
    if not it.before.ttft_requests or not it.after.ttft_requests:
        yield "TTFT is not known on both sides."
        return
    for name in ("p50", "p90"):
        before, after = (getattr(of, f"ttft_{name}_ms") for of in (it.before, it.after))
        change: Change = getattr(it.changes, f"ttft_{name}_ms")
        told = f"{duration(before.value)} before, {duration(after.value)} after"
        yield f"TTFT {name} {told}{_overlap(before, after)}."
        if _is_mix(change):
            yield f"At one mix of classes the {name} is {_longer(change.same_mix.value or 0.0)}."


def _requests(it: Comparison, before_s: float, after_s: float) -> Iterator[str]:
    few = ", which is few" if min(it.before.requests, it.after.requests) < FEW_REQUESTS else ""
    before, after = _counted(it.before, before_s), _counted(it.after, after_s)
    yield f"{before} before, {after} after{few}."
    if it.changes.hit_rate.all.value is None:
        return
    unknown = it.before.unknown_requests + it.after.unknown_requests
    if unknown:
        yield f"The engine reported no cached tokens for {unknown:,} of them: they are in no hit rate."
    failed = it.before.failed_requests + it.after.failed_requests
    if failed:
        which = "was left by its client: it is" if failed == 1 else "were left by their clients: they are"
        yield f"{failed:,} of them failed or {which} in no hit rate."


def _points(it: Estimate) -> str:
    """A change of a hit rate, and whether it is more than chance."""
    value = it.value or 0.0
    told = f"{abs(value) * 100:.1f} points {'higher' if value > 0 else 'lower'}"
    if it.low is None or it.high is None:
        chance, ends = ", perhaps by chance", it.why
    else:
        chance = ", which may be chance" if it.low <= 0 <= it.high else ", more than chance"
        ends = f"95 %: {it.low * 100:+.1f} to {it.high * 100:+.1f}"
    return f"the same ({ends})" if abs(value) < _LEAST_POINTS else f"{told}{chance} ({ends})"


def _is_mix(it: Change) -> bool:
    """Whether the mix moved the figure more than what changed within the classes."""
    return it.mix is not None and it.same_mix.value is not None and abs(it.mix) > abs(it.same_mix.value)


def _overlap(before: Estimate, after: Estimate) -> str:
    if before.low is None or before.high is None or after.low is None or after.high is None:
        return ""
    return (
        ", more than chance"
        if before.high < after.low or after.high < before.low
        else ", which may be chance"
    )


def _longer(by_ms: float) -> str:
    if abs(by_ms) < 1:
        return "the same"
    return f"{duration(abs(by_ms))} {'longer' if by_ms > 0 else 'shorter'}"


def _counted(it: Figures, seconds: float) -> str:
    return f"{it.requests:,} request{'' if it.requests == 1 else 's'} in {span(seconds)}"


def percent(share: float) -> str:
    return f"{share * 100:.1f} %"


def duration(ms: float) -> str:
    return f"{ms / 1000:.2f} s" if ms >= 1000 else f"{ms:.0f} ms"


def span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
