"""Rules that know nothing of prefixes."""

from collections.abc import Sequence
from random import Random

from gateway.bench.rivals.base import Rival
from gateway.bench.router import Sight
from gateway.bench.workload import Ask


class RoundRobin(Rival):
    source = "what a plain load balancer does: each request to the next engine that is up"

    def __init__(self, sights: Sequence[Sight], block_tokens: int, random: Random) -> None:
        super().__init__(sights, block_tokens, random)
        self._next = 0

    def choose(self, ask: Ask, matched: Sequence[int], ups: Sequence[int], now: float) -> int:
        engine = next((engine for engine in ups if engine >= self._next), ups[0])
        self._next = engine + 1
        return engine


class LeastLoaded(Rival):
    source = "least outstanding requests: the engine with the fewest in flight, ties at random"

    def choose(self, ask: Ask, matched: Sequence[int], ups: Sequence[int], now: float) -> int:
        return self.least_in_flight(ups)


class Sticky(Rival):
    """As `sticky_least_loaded` of vllm-project/router and `manual` of the SGLang gateway, without their time
    limits of 2 and 4 hours, which no run reaches."""

    source = "session affinity: a session's first request to the least loaded engine, the others after it"

    def __init__(self, sights: Sequence[Sight], block_tokens: int, random: Random) -> None:
        super().__init__(sights, block_tokens, random)
        self._homes: dict[int, int] = {}

    def choose(self, ask: Ask, matched: Sequence[int], ups: Sequence[int], now: float) -> int:
        home = self._homes.get(ask.session)
        if home is None or home not in ups:
            home = self._homes[ask.session] = self.least_in_flight(ups)
        return home
