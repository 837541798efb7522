"""Preble's E2: exploitation and exploration."""

from collections import deque
from collections.abc import Sequence
from random import Random

from gateway.bench.rivals.base import Approximate, declared_tokens
from gateway.bench.router import Sight
from gateway.bench.workload import Ask, EngineSpec

WINDOW_S = 180.0
REBALANCE_ABOVE = 1.5
REBALANCE_AFTER = 50
FIRST_OUTPUT_TOKENS = 45


class Preble(Approximate):
    """arXiv 2407.00023 and WukLab/preble:multi_node/global_scheduler_with_time.py.

    Exploit if more of the prompt is matched than is not: the engine of least load among those that match
    deepest, except that after 50 requests the heaviest one hands over to the lightest if its load is above
    1.5 times that one's and not below what that one would then have. Else explore: least load + own
    prefill. Load in seconds: the prefill sent there within 3 minutes, plus the answers in flight at the
    mean output so far (45 tokens before the first answer). It profiles its engines beforehand, so their
    speeds are known here.

    Left out, as they are in the code by default: the cost of what a request would evict. Also its
    replication of a prefix whose TTFT doubles, which the code has switched off.
    """

    source = "arXiv 2407.00023 and WukLab/preble:multi_node/global_scheduler_with_time.py, 3 min, 1.5x"

    def __init__(self, sights: Sequence[Sight], block_tokens: int, random: Random) -> None:
        super().__init__(sights, block_tokens, random)
        self._window: list[deque[tuple[float, float]]] = [deque() for _ in sights]
        self._prefill_s = [0.0] * len(sights)
        self._sent = 0
        self._answers = 0
        self._output_tokens = 0

    def index_tokens(self, spec: EngineSpec) -> int | None:
        return declared_tokens(spec)

    def choose(self, ask: Ask, matched: Sequence[int], ups: Sequence[int], now: float) -> int:
        loads_s = {engine: self._load_s(engine, now) for engine in ups}
        depth = max(matched[engine] for engine in ups)
        own_s = {engine: self._own_prefill_s(ask, engine, matched[engine]) for engine in ups}
        if depth * self.block_tokens > self.uncached_tokens(ask, depth):
            engine = self._exploit([e for e in ups if matched[e] == depth], loads_s, own_s)
        else:
            engine = self.least(ups, lambda engine: loads_s[engine] + own_s[engine])
        self._sent += 1
        self._window[engine].append((now, own_s[engine]))
        self._prefill_s[engine] += own_s[engine]
        return engine

    def ended(self, ask: Ask, engine: int, answered: bool) -> None:
        if answered:
            self._answers += 1
            self._output_tokens += ask.output_tokens

    def cleared(self, engine: int) -> None:
        super().cleared(engine)
        self._window[engine].clear()
        self._prefill_s[engine] = 0.0

    def _exploit(self, holders: Sequence[int], loads_s: dict[int, float], own_s: dict[int, float]) -> int:
        engine = self.least(holders, loads_s.__getitem__)
        load_s = loads_s[engine]
        if self._sent < REBALANCE_AFTER or load_s < max(loads_s.values()):
            return engine
        lightest = self.least(list(loads_s), loads_s.__getitem__)
        lightest_s = loads_s[lightest]
        hands_over = load_s > REBALANCE_ABOVE * lightest_s and load_s >= lightest_s + own_s[lightest]
        return lightest if hands_over else engine

    def _own_prefill_s(self, ask: Ask, engine: int, matched_blocks: int) -> float:
        rate = self.sights[engine].spec.prefill_tokens_per_s
        return self.uncached_tokens(ask, matched_blocks) / rate

    def _load_s(self, engine: int, now: float) -> float:
        window = self._window[engine]
        while window and window[0][0] < now - WINDOW_S:
            self._prefill_s[engine] -= window.popleft()[1]
        output_tokens = self._output_tokens / self._answers if self._answers else FIRST_OUTPUT_TOKENS
        return (
            self._prefill_s[engine]
            + self.in_flight[engine] * output_tokens * self.sights[engine].spec.decode_s
        )
