"""Who may push conversations out of an engine's KV cache.

Once the conversations of a fleet need more room than its caches have, every prompt that is let in takes the
room of one that comes back soon, and is itself gone when it comes back: all is computed again and again, and
no order of the queue helps (`docs/routing.md`). So a prompt that an engine does not hold waits while what it
would displace is likely to be used again; conversations that end make room. It does not wait for ever: a
small part of an engine's time goes into taking turns.
"""

import math
from enum import Enum

from gateway.core.engine import Engine
from gateway.core.index import Index
from gateway.core.request import Request
from gateway.core.router import DEFAULT_PREFILL_TOKENS_PER_S
from gateway.core.turns import Turns

LIKELY = 0.5
"""Share of conversations so old that still go on, from which they are not displaced."""

TURN_TAKING = 0.1
"""Part of an engine's time that may be spent on prefilling prompts in the place of others. Chosen on the
development cells (`docs/routing.md`)."""

_MOSTLY = 0.5
"""A prompt of which an engine holds more than that is one that is resident."""

RECHECK_S = 1.0


class Swaps:
    def __init__(self, index: Index) -> None:
        self.turns = Turns()
        self._index = index
        self._next_at: dict[str, float] = {}

    def keeps_out(self, engine: Engine, request: Request, uncached: float, now: float) -> bool:
        """Whether a request had better wait than be computed on the engine now. `uncached`: the share of its
        prompt that is not there."""
        displaced = self._displaced(engine, request, uncached, now)
        return displaced is _RUNNING or (displaced is _LIVE and now < self._next_at.get(engine.name, now))

    def granted(
        self, engine: Engine, request: Request, uncached: float, uncached_tokens: int, now: float
    ) -> None:
        """To be called before the request counts as running there."""
        if self._displaced(engine, request, uncached, now) is not _NOTHING:
            rate = engine.prefill_tokens_per_s or DEFAULT_PREFILL_TOKENS_PER_S
            self._next_at[engine.name] = now + uncached_tokens / rate / TURN_TAKING

    def _displaced(self, engine: Engine, request: Request, uncached: float, now: float) -> "_Displaced":
        if not engine.leases or uncached < _MOSTLY:
            return _NOTHING
        used_s = self._index.displaces(engine.name, uncached * request.prompt_bytes)
        if used_s is None:
            return _NOTHING
        if used_s == math.inf:
            return _RUNNING
        likely = self.turns.return_share(max(0.0, now - used_s), now) >= LIKELY
        return _LIVE if likely else _NOTHING


class _Displaced(Enum):
    """What goes if a prompt comes: nothing that is likely to be used again; something that is; or what runs
    now, so that the engine could only queue the prompt."""

    NOTHING = 0
    LIVE = 1
    RUNNING = 2


_NOTHING, _LIVE, _RUNNING = _Displaced
