"""`cache_aware` of the SGLang gateways and of the vLLM router that was forked from them."""

from collections.abc import Sequence

from gateway.bench.rivals.base import CHARS_PER_TOKEN, Approximate
from gateway.bench.workload import Ask, EngineSpec

CACHE_THRESHOLD = 0.3
BALANCE_ABS = 64
BALANCE_REL = 1.5
TREE_CHARS = 2**26


class _Tree(Approximate):
    """The tree of characters, one tenant per engine. `max_tree_size` 2^26 is compared with the characters of
    one tenant; eviction runs every 120 s there and at once here."""

    def index_tokens(self, spec: EngineSpec) -> int | None:
        return TREE_CHARS // CHARS_PER_TOKEN

    def holders(self, ask: Ask, matched: Sequence[int], ups: Sequence[int]) -> list[int]:
        """The engines at the deepest matched node, none if too little of the prompt is matched."""
        depth = max(matched[engine] for engine in ups)
        if depth * self.block_tokens <= CACHE_THRESHOLD * ask.prompt_tokens:
            return []
        return [engine for engine in ups if matched[engine] == depth]

    def first_least(self, engines: Sequence[int]) -> int:
        """As Rust's `min_by_key`: of equals the first."""
        return min(engines, key=self.in_flight.__getitem__)


class SglangOld(_Tree):
    """sgl-project/sglang:sgl-model-gateway/src/policies/cache_aware.rs with the constants of its command line
    (0.3 / 64 / 1.5). Above the imbalance gate every request goes to the shortest queue, whatever it matches
    (sglang#32195); below the threshold likewise since sglang#14532, where the smallest tree was taken before.
    A node's tenants are in a map and one of them is taken: at random here."""

    source = "sgl-project/sglang:sgl-model-gateway/src/policies/cache_aware.rs, 0.3 / 64 / 1.5, after #14532"

    def choose(self, ask: Ask, matched: Sequence[int], ups: Sequence[int], now: float) -> int:
        if self.imbalanced([self.in_flight[engine] for engine in ups]):
            return self.first_least(ups)
        holders = self.holders(ask, matched, ups)
        return self.random.choice(holders) if holders else self.first_least(ups)

    def imbalanced(self, loads: Sequence[int]) -> bool:
        most, fewest = max(loads), min(loads)
        return most - fewest > BALANCE_ABS and most > BALANCE_REL * fewest


class VllmRouter(SglangOld):
    """vllm-project/router:src/policies/cache_aware.rs: the same rule and command line constants. Its gate
    counts engines that are down too, as 0 in flight. Its session map needs a session header, which these
    clients do not send."""

    source = "vllm-project/router:src/policies/cache_aware.rs, 0.3 / 64 / 1.5"

    def imbalanced(self, loads: Sequence[int]) -> bool:
        return super().imbalanced(self.in_flight)


class SglangNew(_Tree):
    """smg-project/smg:model_gateway/src/policies/cache_aware.rs, August 2026 (smg#2161): no gate for all.

    Among the holders of the deepest match those stay that are not both 1.5 times and 64 requests above the
    mean of the fleet. Where none stays the request spills to the others that are not, and is inserted there,
    so that a hot prefix replicates. The pick within either group, and on a miss, is least expected wait:
    `tokens queued / 2000 per s + 0.15 k / (1 - k)`, with k the use of the KV cache; a 10 s old snapshot plus
    own sends there, exact here. Overlap decay, temperature and KV triggers are off by default.
    """

    source = "smg-project/smg:model_gateway/src/policies/cache_aware.rs (Aug 2026, #2161), 0.3 / 64 / 1.5"
    throughput_tokens_per_s = 2000.0
    kv_weight_s = 0.15

    def choose(self, ask: Ask, matched: Sequence[int], ups: Sequence[int], now: float) -> int:
        holders = self.holders(ask, matched, ups)
        if not holders:
            return self.least(ups, self._expected_wait_s)
        mean = sum(self.in_flight[engine] for engine in ups) / len(ups)
        stay = [engine for engine in holders if not self._is_over(engine, mean)]
        if not stay:
            stay = [engine for engine in ups if not self._is_over(engine, mean)] or list(ups)
        return self.least(stay, self._expected_wait_s)

    def _is_over(self, engine: int, mean: float) -> bool:
        load = self.in_flight[engine]
        return load > mean * BALANCE_REL and load > mean + BALANCE_ABS

    def _expected_wait_s(self, engine: int) -> float:
        used = min(self.sights[engine].kv_usage, 0.999)
        queue_s = self.prefill_tokens[engine] / self.throughput_tokens_per_s
        return queue_s + self.kv_weight_s * used / (1 - used)
