"""vLLM production-stack: `src/vllm_router/routers/routing_logic.py`."""

from collections.abc import Sequence

from gateway.bench.rivals.base import Approximate, Precise
from gateway.bench.workload import Ask, EngineSpec


class StackPrefix(Approximate):
    """`prefixaware` with `prefix/hashtrie.py`: at random among the engines that match deepest, or among all
    if none matches, whatever their load (#957). The trie assumes no eviction and forgets nothing (#687), an
    engine that died included."""

    source = "vllm-project/production-stack:src/vllm_router/routers/routing_logic.py prefixaware (Aug 2026)"

    def index_tokens(self, spec: EngineSpec) -> int | None:
        return None

    def cleared(self, engine: int) -> None:
        """Nothing is removed."""

    def choose(self, ask: Ask, matched: Sequence[int], ups: Sequence[int], now: float) -> int:
        depth = max(matched[engine] for engine in ups)
        return self.random.choice([engine for engine in ups if matched[engine] == depth])


class StackLoad(Precise):
    """`loadaware` (#1035): greatest `matched / prompt - (load - mean) / max(1, mean)`, ties to the first by
    name; load is the own requests in flight. Content comes from the LMCache controller, so it is true here.
    If nobody holds anything it takes the lowest rate of requests, here the fewest in flight, which is in
    its favour (#1073: a slow engine looks idle)."""

    source = "vllm-project/production-stack#1035 loadaware, beta 1, content from the LMCache controller"
    beta = 1.0

    def choose(self, ask: Ask, matched: Sequence[int], ups: Sequence[int], now: float) -> int:
        mean = sum(self.in_flight[engine] for engine in ups) / len(ups)

        def score(engine: int) -> float:
            benefit = min(1.0, matched[engine] * self.block_tokens / max(1, ask.prompt_tokens))
            return benefit - self.beta * (self.in_flight[engine] - mean) / max(1.0, mean)

        return max(ups, key=score)
