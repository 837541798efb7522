"""What a run came to, in figures."""

import math
from collections.abc import Sequence

from msgspec import Struct

from gateway.bench.workload import Done, EngineSpec

TTFT_BOUND_S = 2.0
"""A good answer begins within this and its own prefill."""

ITL_BOUND = 5.0
"""A good answer's mean time between tokens, in decode steps of the fastest engine."""


class Figures(Struct, frozen=True, kw_only=True):
    """One run, over the requests that arrived from `warm_s` on.

    Left out are those still running at the end that were within all bounds until then: nothing can be said
    of them. One that waits for its first token for longer than it may is not good, and what it has waited
    enters the TTFT figures as the least that it can be. One that was refused is not good and has no TTFT.

    `hit_share`, `best_share`, `ideal_share` and `regret_tokens_share` are parts of the prompt tokens of all
    whose prefill was done: what engines took from their caches; what the best engine held at the arrival;
    what a single cache without limit would have held; and what an oracle that knows the caches would have got
    more, request by request.

    An answer is good if its TTFT is at most `TTFT_BOUND_S` and its own prefill, and its mean time between
    tokens at most `ITL_BOUND` decode steps, both on the fastest engine. Its own prefill is of the tokens that
    the single cache without limit would not have held: nobody could have had them, so the bound is the same
    for every policy.

    `imbalance` is what the busiest engine computed, prompt and answer tokens, over the mean of all; it is
    above 1 by right where engines are unequal. `longest_wait_s` counts everybody who was not refused.
    """

    requests: int
    refused: int
    undecided: int
    hit_share: float
    best_share: float
    ideal_share: float
    regret_tokens_share: float
    ttft_p50_s: float
    ttft_p90_s: float
    ttft_p99_s: float
    ttft_mean_s: float
    answers_per_s: float
    goodput_per_s: float
    good_share: float
    imbalance: float
    longest_wait_s: float


def measure(done: Sequence[Done], specs: Sequence[EngineSpec], *, warm_s: float, until_s: float) -> Figures:
    """Raises ValueError if no request arrived from `warm_s` on of which anything can be said."""
    bounds = _Bounds(specs, until_s)
    arrived = [it for it in done if it.ask.arrived_s >= warm_s]
    verdicts = [bounds.is_good(it) for it in arrived]
    decided = [it for it, verdict in zip(arrived, verdicts, strict=True) if verdict is not None]
    ttfts_s = sorted(bounds.ttft_s(it) for it in decided if not it.refused)
    filled = [it for it in decided if it.first_token_s is not None]
    if not filled:
        raise ValueError(
            f"no request that arrived between warm_s={warm_s:g} and until_s={until_s:g} got an answer: "
            "run for longer"
        )
    prompts = sum(it.ask.prompt_tokens for it in filled)
    good = sum(1 for verdict in verdicts if verdict)
    return Figures(
        requests=len(decided),
        refused=sum(1 for it in decided if it.refused),
        undecided=len(arrived) - len(decided),
        hit_share=sum(it.cached_tokens for it in filled) / prompts,
        best_share=sum(it.best_tokens for it in filled) / prompts,
        ideal_share=sum(it.seen_tokens for it in filled) / prompts,
        regret_tokens_share=sum(max(0, it.best_tokens - it.cached_tokens) for it in filled) / prompts,
        ttft_p50_s=_percentile(ttfts_s, 0.5),
        ttft_p90_s=_percentile(ttfts_s, 0.9),
        ttft_p99_s=_percentile(ttfts_s, 0.99),
        ttft_mean_s=sum(ttfts_s) / len(ttfts_s),
        answers_per_s=sum(1 for it in arrived if it.finished_s is not None) / (until_s - warm_s),
        goodput_per_s=good / (until_s - warm_s),
        good_share=good / len(decided),
        imbalance=_imbalance(filled, len(specs)),
        longest_wait_s=max(bounds.ttft_s(it) for it in arrived if not it.refused),
    )


class _Bounds:
    def __init__(self, specs: Sequence[EngineSpec], until_s: float) -> None:
        self._until_s = until_s
        self._prefill_tokens_per_s = max(spec.prefill_tokens_per_s for spec in specs)
        self._itl_s = ITL_BOUND * min(spec.decode_s for spec in specs)

    def ttft_s(self, it: Done) -> float:
        """At least, if there was no first token."""
        first_s = self._until_s if it.first_token_s is None else it.first_token_s
        return first_s - it.ask.arrived_s

    def is_good(self, it: Done) -> bool | None:
        """None: it runs on and has broken no bound yet."""
        own_prefill_s = (it.ask.prompt_tokens - it.seen_tokens) / self._prefill_tokens_per_s
        if it.refused or self.ttft_s(it) > TTFT_BOUND_S + own_prefill_s:
            return False
        if it.first_token_s is None:
            return None
        decoding_s = (self._until_s if it.finished_s is None else it.finished_s) - it.first_token_s
        if decoding_s > self._itl_s * (it.ask.output_tokens - 1):
            return False
        return None if it.finished_s is None else True


def _percentile(ordered: Sequence[float], part: float) -> float:
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]


def _imbalance(filled: Sequence[Done], engines: int) -> float:
    computed = [0] * engines
    for it in filled:
        computed[it.engine] += it.ask.prompt_tokens - it.cached_tokens + it.ask.output_tokens
    return max(computed) * engines / sum(computed)
