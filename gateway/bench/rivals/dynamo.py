"""NVIDIA Dynamo's KV router."""

from collections.abc import Sequence
from random import Random

from gateway.bench.engine import common_blocks, matched_blocks
from gateway.bench.rivals.base import Approximate, Precise, Rival
from gateway.bench.router import Sight
from gateway.bench.workload import Ask, EngineSpec


class _Cost(Rival):
    """ai-dynamo/dynamo:lib/kv-router/src/scheduling/selector.rs, least cost, ties at random (#9516):

    `1.0 x max(prefill blocks active + incoming - overlap, 0) + blocks that decoding would hold`, the latter
    with shared blocks counted once and without what is generated (`--router-track-output-blocks` is off by
    default). Temperature 0, overlap decay 0, the queue and predict-on-route are off by default.
    """

    prefill_load_scale = 1.0

    def __init__(self, sights: Sequence[Sight], block_tokens: int, random: Random) -> None:
        super().__init__(sights, block_tokens, random)
        self._prompts: list[dict[int, tuple[int, ...]]] = [{} for _ in sights]
        self._active: list[set[int]] = [set() for _ in sights]

    def choose(self, ask: Ask, matched: Sequence[int], ups: Sequence[int], now: float) -> int:
        def cost(engine: int) -> float:
            tokens = self.prefill_tokens[engine] + ask.prompt_tokens - matched[engine] * self.block_tokens
            active = self._active[engine]
            decode_blocks = len(active) + len(ask.blocks) - matched_blocks(ask.blocks, active)
            return self.prefill_load_scale * max(0, tokens) / self.block_tokens + decode_blocks

        return self.least(ups, cost)

    def sent(self, ask: Ask, engine: int, now: float) -> None:
        super().sent(ask, engine, now)
        self._prompts[engine][ask.key] = ask.blocks
        self._active[engine].update(ask.blocks)

    def ended(self, ask: Ask, engine: int, answered: bool) -> None:
        prompts = self._prompts[engine]
        del prompts[ask.key]
        shared = max((common_blocks(ask.blocks, blocks) for blocks in prompts.values()), default=0)
        self._active[engine].difference_update(ask.blocks[shared:])


class DynamoEvents(_Cost, Precise):
    """With KV events, its default: overlap is what the engine holds."""

    source = "ai-dynamo/dynamo:lib/kv-router/src/scheduling/selector.rs, KV events (default)"


class DynamoApprox(_Cost, Approximate):
    """`--no-router-kv-events`: what was sent in the last 120 s (`--router-ttl-secs`), not bounded
    otherwise."""

    source = "ai-dynamo/dynamo:lib/kv-router/src/scheduling/selector.rs, --no-router-kv-events, TTL 120 s"
    ttl_s = 120.0

    def index_tokens(self, spec: EngineSpec) -> int | None:
        return None
