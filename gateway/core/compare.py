"""Two spans of time compared: what came from cache, how long first tokens took, what was computed.

Between two spans the mix of requests may change, too. Every change is therefore also given for one mix of
workload classes: class by class, each weighed by its share of both spans on average. What is left of the
change is the mix. After Kitagawa, Journal of the American Statistical Association 50 (1955).
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from math import inf

from msgspec import Struct

from gateway.core.intervals import Estimate, Ratio, interval, quantile, ratio, too_few, weighted_quantile
from gateway.core.samples import Sample, Untold

MOST_REQUESTS = 10_000
"""So many of each span are compared, those next to the mark: more would hardly change a figure."""


_UNKNOWN = Estimate(why="not known on both sides")
_NO_CLASS = Estimate(why="no class has requests on both sides")
_NOT_REPORTED = "no engine reported cached tokens"
_NO_REPORT = "no request ended with a report of cached tokens"

_Times = Mapping[str, Sequence[float]]
"""Milliseconds by class; only classes of which some are known."""


class Prefill(Struct, frozen=True):
    """Prompt tokens that were computed, of requests whose engine told; None where it told of none."""

    per_request: Estimate
    total: int | None


class Figures(Struct, frozen=True, kw_only=True):
    """Of one span or one class in it. `unknown_requests` ended ok without a report of cached tokens,
    `failed_requests` failed or were left before there was one. Tokens are those of reported requests: None
    where no request is one. `ttft_requests`: it is known when their first token came. `sessions`: those that
    clients named."""

    requests: int
    sessions: int
    unknown_requests: int
    failed_requests: int
    prompt_tokens: int | None
    cached_tokens: int | None
    hit_rate: Estimate
    prefill_tokens: Prefill
    ttft_requests: int
    ttft_p50_ms: Estimate
    ttft_p90_ms: Estimate


class Change(Struct, frozen=True):
    """From before to after. `same_mix` is what it would be at one mix of classes, `mix` the rest."""

    all: Estimate
    same_mix: Estimate
    mix: float | None = None


class Pair(Struct, frozen=True):
    before: Figures
    after: Figures


class Changes(Struct, frozen=True, kw_only=True):
    """For quantiles no interval of the change is known: those of before and after must do."""

    hit_rate: Change
    prefill_tokens_per_request: Change
    ttft_p50_ms: Change
    ttft_p90_ms: Change


class Comparison(Struct, frozen=True):
    before: Figures
    after: Figures
    classes: Mapping[str, Pair]
    changes: Changes


class _Span:
    """One span's requests, in all and by class, and the ratios of each."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self.samples = samples
        self.by_class: defaultdict[str, list[Sample]] = defaultdict(list)
        for it in samples:
            self.by_class[it.kind.workload].append(it)
        self.hits, self.hits_by = self._ratios(_hit_rate)
        self.prefill, self.prefill_by = self._ratios(_prefill)

    def _ratios(
        self, of: Callable[[Sequence[Sample]], Ratio | None]
    ) -> tuple[Ratio | None, Mapping[str, Ratio]]:
        by_class = {name: made for name, samples in self.by_class.items() if (made := of(samples))}
        return of(self.samples), by_class

    def figures(self) -> Figures:
        return _figures(self.samples, self.hits, self.prefill)

    def figures_of(self, name: str) -> Figures:
        return _figures(self.by_class.get(name, ()), self.hits_by.get(name), self.prefill_by.get(name))

    def first_tokens(self) -> _Times:
        told = {name: _ttfts(samples) for name, samples in self.by_class.items()}
        return {name: values for name, values in told.items() if values}


def compared(before: Sequence[Sample], after: Sequence[Sample]) -> Comparison:
    a, b = _Span(before), _Span(after)
    names = sorted({*a.by_class, *b.by_class})
    changes = Changes(
        hit_rate=_change(a.hits, b.hits, a.hits_by, b.hits_by, most=1.0),
        prefill_tokens_per_request=_change(a.prefill, b.prefill, a.prefill_by, b.prefill_by),
        ttft_p50_ms=_slower(a.first_tokens(), b.first_tokens(), 0.5),
        ttft_p90_ms=_slower(a.first_tokens(), b.first_tokens(), 0.9),
    )
    classes = {name: Pair(a.figures_of(name), b.figures_of(name)) for name in names}
    return Comparison(a.figures(), b.figures(), classes, changes)


def _figures(samples: Sequence[Sample], hits: Ratio | None, prefill: Ratio | None) -> Figures:
    known = _known(samples)
    timed = [it for it in samples if it.ttft_ms is not None]
    ttft_ms, its_sessions = _ttfts(samples), [it.session for it in timed]
    prompt, cached = sum(p for p, _, _ in known), sum(c for _, c, _ in known)
    is_told = bool(known) or not samples
    computed = prompt - cached if is_told else None
    unknown, failed = (sum(it.untold is why for it in samples) for why in (Untold.UNKNOWN, Untold.FAILED))
    nobody = Estimate(why=_NOT_REPORTED if unknown else _NO_REPORT if samples else "no requests")
    return Figures(
        requests=len(samples),
        sessions=len({it.session for it in samples if it.session}),
        unknown_requests=unknown,
        failed_requests=failed,
        prompt_tokens=prompt if is_told else None,
        cached_tokens=cached if is_told else None,
        hit_rate=hits.estimate(1.0) if hits else nobody,
        prefill_tokens=Prefill(prefill.estimate() if prefill else nobody, computed),
        ttft_requests=len(timed),
        ttft_p50_ms=quantile(ttft_ms, its_sessions, 0.5),
        ttft_p90_ms=quantile(ttft_ms, its_sessions, 0.9),
    )


def _known(samples: Sequence[Sample]) -> list[tuple[int, int, int]]:
    """Prompt tokens, cached tokens, session, where all is told. No more is cached than there is."""
    return [
        (it.prompt_tokens, min(it.cached_tokens, it.prompt_tokens), it.session)
        for it in samples
        if it.prompt_tokens is not None and it.cached_tokens is not None
    ]


def _ttfts(samples: Sequence[Sample]) -> list[float]:
    return [it.ttft_ms for it in samples if it.ttft_ms is not None]


def _hit_rate(samples: Sequence[Sample]) -> Ratio | None:
    known = _known(samples)
    sessions = (it for _, _, it in known)
    return ratio((c for _, c, _ in known), [p for p, _, _ in known], sessions, 1.0)


def _prefill(samples: Sequence[Sample]) -> Ratio | None:
    known = _known(samples)
    sessions = (it for _, _, it in known)
    mean_prompt = sum(p for p, _, _ in known) / max(1, len(known))
    return ratio((p - c for p, c, _ in known), [1] * len(known), sessions, mean_prompt)


def _change(
    before: Ratio | None,
    after: Ratio | None,
    by_before: Mapping[str, Ratio],
    by_after: Mapping[str, Ratio],
    most: float = inf,
) -> Change:
    """`most` is the largest change that there can be, up or down."""
    if before is None or after is None:
        return Change(_UNKNOWN, _UNKNOWN)
    raw = _difference([(before, after, 1.0)], most)
    both = _on_both_sides(by_before, by_after)
    if not both:
        return Change(raw, _NO_CLASS)
    shares = _shares({it: by_before[it].below for it in both}, {it: by_after[it].below for it in both})
    same_mix = _difference([(by_before[it], by_after[it], share) for it, share in shares.items()], most)
    assert raw.value is not None
    assert same_mix.value is not None
    return Change(raw, same_mix, raw.value - same_mix.value)


def _on_both_sides(before: Mapping[str, Ratio], after: Mapping[str, Ratio]) -> Collection[str]:
    """Classes to weigh: those with an interval if there are any, or a few requests of one would take that of
    all."""
    both = before.keys() & after.keys()
    firm = {name for name in both if before[name].variance is not None and after[name].variance is not None}
    return firm or both


def _difference(pairs: Sequence[tuple[Ratio, Ratio, float]], most: float) -> Estimate:
    """Weighed. Before and after count as independent, also for a session that goes on."""
    value = sum(share * (after.value - before.value) for before, after, share in pairs)
    variance = 0.0
    for before, after, share in pairs:
        if before.variance is None or after.variance is None:
            return Estimate(value, why=too_few(min(before.sessions, after.sessions)))
        variance += share**2 * (before.variance + after.variance)
    fewest = min(min(before.sessions, after.sessions) for before, after, _ in pairs)
    made = interval(value, variance, fewest)
    assert made.low is not None
    assert made.high is not None
    return Estimate(value, max(-most, made.low), min(most, made.high))


def _shares(before: Mapping[str, float], after: Mapping[str, float]) -> Mapping[str, float]:
    """What each is of all, before and after on average."""
    of_before, of_after = sum(before.values()), sum(after.values())
    return {name: before[name] / of_before / 2 + after[name] / of_after / 2 for name in sorted(before)}


def _slower(before: _Times, after: _Times, share: float) -> Change:
    if not before or not after:
        return Change(_UNKNOWN, _UNKNOWN)
    raw = _at(after, share) - _at(before, share)
    both = sorted(before.keys() & after.keys())
    if not both:
        return Change(Estimate(raw), _NO_CLASS)
    of_each = _shares({it: len(before[it]) for it in both}, {it: len(after[it]) for it in both})
    same_mix = _at(after, share, of_each) - _at(before, share, of_each)
    return Change(Estimate(raw), Estimate(same_mix), raw - same_mix)


def _at(times: _Times, share: float, of_each: Mapping[str, float] | None = None) -> float:
    """The value that a `share` of all do not exceed, each class being `of_each` of all; None: what it is."""
    weights = of_each or {name: float(len(values)) for name, values in times.items()}
    weighted = ((it, weight / len(times[name])) for name, weight in weights.items() for it in times[name])
    return weighted_quantile(weighted, share)
