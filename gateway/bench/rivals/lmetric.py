"""LMetric: multiplication."""

from collections.abc import Sequence

from gateway.bench.rivals.base import Approximate, declared_tokens
from gateway.bench.workload import Ask, EngineSpec


class Lmetric(Approximate):
    """arXiv 2603.15202: least `P-token x batch size`, both as they would be with the request: its uncached
    tokens and those that wait for their prefill, times the requests running and queued. (The `lmetric-scorer`
    of llm-d-router leaves out the waiting tokens, Dynamo's option has them.)

    Equal products: the paper finds that it fails only where both factors vanish; here the smaller batch wins,
    then chance. Its guard against a prefix so hot that the product does not spread it has never fired on the
    paper's traces and is left out. The paper's index mirrors the caches; here what was sent, within the KV
    size that an engine tells.
    """

    source = "arXiv 2603.15202 (OSDI'26): uncached and waiting prefill tokens x (requests in flight + 1)"

    def index_tokens(self, spec: EngineSpec) -> int | None:
        return declared_tokens(spec)

    def choose(self, ask: Ask, matched: Sequence[int], ups: Sequence[int], now: float) -> int:
        products = {
            engine: (self.prefill_tokens[engine] + self.uncached_tokens(ask, matched[engine]))
            * (self.in_flight[engine] + 1)
            for engine in ups
        }
        lowest = min(products.values())
        return self.least_in_flight([engine for engine in ups if products[engine] == lowest])
