"""Who may push conversations out of an engine's KV cache.

Once the conversations of a fleet need more room than its caches have, every prompt that is let in takes
the room of one that comes back soon, and is itself gone when it comes back: all is computed again and
again, and the order of the queue helps only in part (`docs/routing.md`). So a prompt that an engine does
not hold waits while what it would displace is likely to be used again; conversations that end make room.
It does not wait for ever: a small part of an engine's time goes into taking turns.
"""

import math
from collections.abc import Container
from enum import Enum

from gateway.core.engine import Engine
from gateway.core.index import DEFAULT_BYTES_PER_TOKEN, Index
from gateway.core.request import Request
from gateway.core.router import DEFAULT_PREFILL_TOKENS_PER_S
from gateway.core.turns import Turns

LIKELY = 0.3
"""Share of conversations so old that still go on, from which they are not displaced."""

TURN_S = 0.25
"""Part of an engine's time that may go into prefilling prompts in the place of others, in seconds per second
of such a prefill: a quarter of it for prefills of 1 s, 3 % for those of 9 s, which hold up everybody there.
Both constants were chosen on the development cells (`docs/routing.md`)."""

MAX_TURN_S = 120.0
"""No engine waits longer for the next turn: as long as a request waits by default (`admission.max_wait`)."""

SQUEEZE_AFTER_S = 30.0
"""Who has waited longer may take a turn though it does not fit beside what runs: the engine queues it."""

MOSTLY = 0.5
"""A prompt of which an engine holds more than that is one that is resident."""

RECHECK_S = 1.0


class Swaps:
    def __init__(self, index: Index) -> None:
        self.turns = Turns()
        self._index = index
        self._next_at: dict[str, float] = {}

    def keeps_out(
        self, engine: Engine, request: Request, uncached: float, wanted: Container[object], now: float
    ) -> bool:
        """Whether a prompt that has not waited yet had better wait than be computed on the engine now.
        `uncached`: the share of it that is not there; `wanted`: what other waiting requests go on from.
        """
        displaced = self._displaced(engine, request, uncached, wanted, now)
        return displaced is not _NOTHING and not self._has_turn(engine, displaced, 0.0, now)

    def lets_in(
        self,
        engine: Engine,
        request: Request,
        uncached: float,
        wanted: Container[object],
        now: float,
        *,
        waited_s: float = 0.0,
    ) -> bool:
        """Not `keeps_out`, for a prompt that is granted then: if it takes a turn, that is noted."""
        displaced = self._displaced(engine, request, uncached, wanted, now)
        if displaced is _NOTHING:
            return True
        if not self._has_turn(engine, displaced, waited_s, now):
            return False
        rate = engine.prefill_tokens_per_s or DEFAULT_PREFILL_TOKENS_PER_S
        prefill_s = uncached * request.prompt_bytes / DEFAULT_BYTES_PER_TOKEN / rate
        self._next_at[engine.name] = now + min(MAX_TURN_S, prefill_s**2 / TURN_S)
        return True

    def restarted(self, engine: str) -> None:
        """Nothing is in its cache to be displaced."""
        self._next_at.pop(engine, None)

    def _has_turn(self, engine: Engine, displaced: "_Displaced", waited_s: float, now: float) -> bool:
        fits = displaced is _Displaced.LIVE or waited_s >= SQUEEZE_AFTER_S
        return fits and now >= self._next_at.get(engine.name, now)

    def _displaced(
        self, engine: Engine, request: Request, uncached: float, wanted: Container[object], now: float
    ) -> "_Displaced":
        if not engine.leases or uncached < MOSTLY:
            return _NOTHING
        used_s = self._index.displaces(engine.name, uncached * request.prompt_bytes, wanted, now)
        if used_s is None:
            return _NOTHING
        if used_s == math.inf:
            return _Displaced.RUNNING
        likely = used_s > now or self.turns.return_share(now - used_s, now) >= LIKELY
        return _Displaced.LIVE if likely else _NOTHING


class _Displaced(Enum):
    """What goes if a prompt comes: nothing that is likely to be used again; something that is; or what runs
    now, so that the engine could only queue the prompt."""

    NOTHING = 0
    LIVE = 1
    RUNNING = 2


# Looked up through its class a member costs 0.2 us on Python 3.11.
_NOTHING = _Displaced.NOTHING
