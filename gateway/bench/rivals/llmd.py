"""llm-d-router: weighted scorers, the greatest sum wins, ties at random."""

from collections.abc import Sequence
from typing import ClassVar

from gateway.bench.rivals.base import Approximate, Precise, Rival, declared_tokens
from gateway.bench.workload import Ask, EngineSpec


class _Scorers(Rival):
    """llm-d/llm-d-router:pkg/epp/framework/plugins/scheduling/scorer/: `queuedepth` is 1 for the shortest
    queue, 0 for the longest, 1 for all where they are equal; `kvcacheutilization` is 1 - use; `prefix` is
    matched / total blocks."""

    queue_weight: ClassVar[float]
    kv_weight: ClassVar[float]
    prefix_weight: ClassVar[float]

    def choose(self, ask: Ask, matched: Sequence[int], ups: Sequence[int], now: float) -> int:
        waiting = [self.sights[engine].waiting for engine in ups]
        longest, span = max(waiting), max(waiting) - min(waiting)
        total = self.total_blocks(ask)

        def cost(engine: int) -> float:
            sight = self.sights[engine]
            queue = (longest - sight.waiting) / span if span else 1.0
            prefix = matched[engine] / total if total else 0.0
            return -(
                self.queue_weight * queue
                + self.kv_weight * (1.0 - sight.kv_usage)
                + self.prefix_weight * prefix
            )

        return self.least(ups, cost)

    def total_blocks(self, ask: Ask) -> int:
        return len(ask.blocks)


class LlmdApprox(_Scorers, Approximate):
    """The Helm chart's default weights (config/charts/routerlib/templates/_config.yaml): queue 2, kv 2,
    prefix 3.

    The approximate producer keeps blocks of 64 tokens of a prompt's first 131,072 tokens, per engine in an
    LRU of 31,250 blocks that is auto-tuned to the KV size that the engine tells.
    """

    source = "llm-d/llm-d-router (Aug 2026) chart default: queue 2, kv 2, prefix 3, approximate index"
    queue_weight = 2.0
    kv_weight = 2.0
    prefix_weight = 3.0
    prompt_limit_tokens = 131_072

    def index_tokens(self, spec: EngineSpec) -> int | None:
        return declared_tokens(spec)

    def match(self, ask: Ask, ups: Sequence[int], now: float) -> Sequence[int]:
        total = self.total_blocks(ask)
        return [min(blocks, total) for blocks in super().match(ask, ups, now)]

    def sent(self, ask: Ask, engine: int, now: float) -> None:
        self.index.insert(engine, ask.blocks[: self.total_blocks(ask)], now)

    def total_blocks(self, ask: Ask) -> int:
        return min(len(ask.blocks), self.prompt_limit_tokens // self.block_tokens)


class LlmdPrecise(_Scorers, Precise):
    """The precise sample: prefix 2, kv 1, queue 1, content from KV events. Speculative entries are off by
    default."""

    source = "llm-d/llm-d-router (Aug 2026) precise sample: prefix 2, kv 1, queue 1, KV events"
    queue_weight = 1.0
    kv_weight = 1.0
    prefix_weight = 2.0
