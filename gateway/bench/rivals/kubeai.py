"""KubeAI: consistent hashing with bounded loads."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from random import Random

from xxhash import xxh64_intdigest

from gateway.bench.rivals.base import Rival
from gateway.bench.router import Sight
from gateway.bench.workload import Ask

REPLICATION = 256
LOAD_FACTOR = 1.25


class Kubeai(Rival):
    """substratusai/kubeai:internal/loadbalancer/balance_chwbl.go: from the key's place on a ring of 256
    points per engine, the first engine with `in flight + 1 <= 1.25 x (total + 1) / engines`; if there is
    none, the key's own.

    The key is the first 100 characters of the first user message, without tools and system prompt. A chain
    of blocks does not tell where that message begins, so the session is the key: the same in all its turns,
    another one for others. That is in its favour, since coding agents open with the same words, and then
    all have one key (kubeai#519).
    """

    source = "substratusai/kubeai:internal/loadbalancer/balance_chwbl.go (Jul 2025), ring 256, bound 1.25"

    def __init__(self, sights: Sequence[Sight], block_tokens: int, random: Random) -> None:
        super().__init__(sights, block_tokens, random)
        self._ring = sorted(
            (_hash(f"engine-{engine}:8000{point}"), engine)
            for engine in range(len(sights))
            for point in range(REPLICATION)
        )

    def choose(self, ask: Ask, matched: Sequence[int], ups: Sequence[int], now: float) -> int:
        limit = LOAD_FACTOR * (sum(self.in_flight[engine] for engine in ups) + 1) / len(ups)
        order = self.order(ask.session, ups)
        own = next(order)
        if self.in_flight[own] + 1 <= limit:
            return own
        return next((engine for engine in order if self.in_flight[engine] + 1 <= limit), own)

    def order(self, session: int, ups: Sequence[int]) -> Iterator[int]:
        """The engines in the order in which the ring meets them from the session's key on."""
        start = bisect_left(self._ring, (_hash(str(session)), -1))
        left = set(ups)
        for step in range(len(self._ring)):
            _, engine = self._ring[(start + step) % len(self._ring)]
            if engine in left:
                left.remove(engine)
                yield engine
                if not left:
                    return


def _hash(text: str) -> int:
    return xxh64_intdigest(text.encode())
