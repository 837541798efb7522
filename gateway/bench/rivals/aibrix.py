"""AIBrix's `prefix-cache`."""

from collections.abc import Sequence
from math import sqrt

from gateway.bench.rivals.base import CHARS_PER_TOKEN, Approximate
from gateway.bench.workload import Ask, EngineSpec

INDEX_BLOCKS = 200_000
BLOCK_CHARS = 128


class Aibrix(Approximate):
    """vllm-project/aibrix:pkg/plugins/gateway/algorithms/prefix_cache.go.

    The best match in whole percent, then the fewest running, among engines that run at most mean + 1 sigma;
    without any, the fewest running. If `max - min running > 8` only engines with the fewest running are
    looked at. Counts are the gateway's own. Newer code asks for a gap of 8 and `max > 2 x (mean + 1)`; where
    all prompts share a prefix that can leave half of four engines without any request, so the former gate is
    taken, in its favour.

    Index: LRU of 200,000 blocks, 20 minutes. A block is 4 bytes in the code (then less than one agent's
    prompts fit), 128 in the README; 128 is taken, for each engine instead of for all, both in its favour.
    """

    source = "vllm-project/aibrix:pkg/plugins/gateway/algorithms/prefix_cache.go, gap 8, mean + 1 sigma"
    ttl_s = 20 * 60.0
    gap = 8
    sigmas = 1.0

    def index_tokens(self, spec: EngineSpec) -> int | None:
        return INDEX_BLOCKS * BLOCK_CHARS // CHARS_PER_TOKEN

    def choose(self, ask: Ask, matched: Sequence[int], ups: Sequence[int], now: float) -> int:
        loads = [self.in_flight[engine] for engine in ups]
        candidates: Sequence[int] = ups
        if max(loads) - min(loads) > self.gap:
            candidates = [engine for engine in ups if self.in_flight[engine] == min(loads)]
        mean = sum(loads) / len(loads)
        limit = mean + self.sigmas * sqrt(sum((load - mean) ** 2 for load in loads) / len(loads))
        candidates = [e for e in candidates if matched[e] and self.in_flight[e] <= limit]
        if not candidates:
            return self.least_in_flight(ups)
        percent = {engine: 100 * matched[engine] // len(ask.blocks) for engine in candidates}
        best = max(percent.values())
        return self.least_in_flight([engine for engine in candidates if percent[engine] == best])
