"""Whether a slot that has just become free is kept for the session that left it (`holds`)."""

from gateway.core import router
from gateway.core.admission import Queue
from gateway.core.engine import Engine, Lease
from gateway.core.holds import PATIENCE_S, Hold, Returns
from gateway.core.index import Index
from gateway.core.request import Request


class Keeper:
    def __init__(self, queue: Queue, index: Index, returns: Returns) -> None:
        self._queue = queue
        self._index = index
        self._returns = returns

    def keep_slot(self, engine: Engine, request: Request, model: str, lease: Lease, now: float) -> None:
        """`request` has ended well on an engine that keeps one prompt in each slot; perhaps hold its slot."""
        blocks, width = request.blocks, lease.width
        if not (blocks and width):
            return
        self._returns.ended(blocks, now)
        firsts = self._queue.firsts(set(engine.facts.models))
        if not firsts or any(it.lane < request.priority or now - it.since >= PATIENCE_S for it in firsts):
            return
        rate = engine.prefill_tokens_per_s or router.DEFAULT_PREFILL_TOKENS_PER_S
        hold_s = self._returns.worth_s(self._index.unshared_tokens(engine.name, request, model) / rate)
        if hold_s:
            engine.hold(Hold(blocks[-1], len(blocks), width, now + hold_s))
