"""SkyWalker: selective pushing. The one rival that queues at the router."""

from collections import deque
from collections.abc import Sequence
from random import Random

from gateway.bench.rivals.base import CHARS_PER_TOKEN, Approximate
from gateway.bench.router import Sent, Sight
from gateway.bench.workload import Ask, EngineSpec

CACHE_THRESHOLD = 0.5
TREE_CHARS = 2**24
PROBE_S = 0.1


class Skywalker(Approximate):
    """arXiv 2505.24095 (EuroSys'26) and its `prefix_tree` policy in SkyPilot (sky/serve).

    Engines with a pending request, that is one in the engine's own queue, get nothing. Among the others the
    one of the longest match, if that is more than half of the prompt, else the fewest in flight. If all have
    one, requests wait here, first in, first out; the load balancer asks the engines every 100 ms. One region.
    In its favour: queues are seen as they are at the push, with what the same push has added.
    """

    source = "arXiv 2505.24095 (EuroSys'26), selective pushing by pending requests, prefix tree 0.5 / 2^24"

    def __init__(self, sights: Sequence[Sight], block_tokens: int, random: Random) -> None:
        super().__init__(sights, block_tokens, random)
        self._queue: deque[Ask] = deque()
        self._probe_s: float | None = None

    def index_tokens(self, spec: EngineSpec) -> int | None:
        return TREE_CHARS // CHARS_PER_TOKEN

    def choose(self, ask: Ask, matched: Sequence[int], ups: Sequence[int], now: float) -> int:
        depth = max(matched[engine] for engine in ups)
        if depth * self.block_tokens > CACHE_THRESHOLD * ask.prompt_tokens:
            return self.least_in_flight([engine for engine in ups if matched[engine] == depth])
        return self.least_in_flight(ups)

    def place(self, ask: Ask, now: float) -> list[Sent]:
        self._queue.append(ask)
        return self.freed(now)

    def freed(self, now: float) -> list[Sent]:
        pushed = [0] * len(self.sights)
        sents: list[Sent] = []
        while self._queue:
            ready = [engine for engine in self.ups() if not self._pending(engine, pushed[engine])]
            if not ready:
                break
            ask = self._queue.popleft()
            matched = self.match(ask, ready, now)
            engine = self.choose(ask, matched, ready, now)
            pushed[engine] += 1
            sents.append(self.send(ask, engine, matched[engine], now))
        self._probe_s = now + PROBE_S if self._queue else None
        return sents

    def due_s(self) -> float | None:
        return self._probe_s

    def wake(self, now: float) -> Sequence[Sent]:
        return self.freed(now)

    def _pending(self, engine: int, pushed: int) -> int:
        sight = self.sights[engine]
        return sight.waiting + max(0, sight.running + pushed - sight.spec.slots)
