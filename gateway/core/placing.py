"""Who could serve a request, and at what cost. Grants nothing; keeps only how long a request has waited
beside a free slot."""

from collections.abc import Callable, Mapping

from msgspec import Struct

from gateway.core import router
from gateway.core.admission import Waiting
from gateway.core.engine import DEFAULT_SLOT_S, Engine
from gateway.core.index import Index
from gateway.core.request import Grant, Request
from gateway.core.router import Candidate, Policy

MIN_PATIENCE_S = 0.05
"""A slot that frees at once is worth this much, whatever it saves."""

NOBODY: Mapping[str, int] = {}


class Entry(Struct, eq=False):
    """One request between its offer and its finish."""

    request: Request
    turn: int
    waits_since: float = 0.0
    grant: Grant | None = None
    attempts: int = 0
    resent: bool = False
    queued_s: float = 0.0
    excluded: frozenset[str] = frozenset()


class Placing:
    def __init__(
        self, engines: Mapping[str, Engine], index: Index, policy: Policy, random: Callable[[], float]
    ) -> None:
        self._engines = engines
        self._index = index
        self.policy: Policy = policy
        self._random = random
        self._spell = 0

    def is_served(self, entry: Entry) -> bool:
        """Whether an engine that takes requests now may have this one."""
        model, excluded = entry.request.model, entry.excluded
        return any(it.serves(model) and it.name not in excluded for it in self._engines.values())

    def may_come(self, entry: Entry) -> bool:
        """Whether one that is not ready yet may have it later."""
        model, excluded = entry.request.model, entry.excluded
        return any(it.may_serve(model) and it.name not in excluded for it in self._engines.values())

    def candidates(self, entry: Entry, ahead: Mapping[str, int] = NOBODY) -> list[Candidate]:
        """Every engine that may have the request now. `ahead`: width that waits for an engine before it."""
        request = entry.request
        out: list[Candidate] = []
        for name, engine in self._engines.items():
            if not engine.serves(request.model) or name in entry.excluded:
                continue
            prompt, resident, pending = self._index.match_tokens(engine, request)
            out.append(
                Candidate(
                    engine=engine,
                    prompt_tokens=prompt,
                    resident_tokens=resident,
                    pending_tokens=pending,
                    reserved=engine.reserved_from(request.blocks, ahead.get(name, 0)),
                )
            )
        return out

    def choose(self, entry: Entry, candidates: list[Candidate], waiting: int) -> Candidate:
        """The best of `candidates`, with everyone's score set. `waiting`: how many others wait."""
        rate = router.default_prefill_rate([it.engine for it in candidates])
        router.weigh(self.policy, entry.request, entry.turn, candidates, waiting, rate)
        return router.pick(candidates, self._random)

    def overdue(
        self, waiting: Waiting, candidates: list[Candidate], best: Candidate, now: float
    ) -> Candidate | None:
        """Another engine for a request whose `best` one is full, if it has waited long enough beside a free
        slot there: for as long as the prefill takes that `best` would save it. Only such time counts, so
        that patience does not run out in a queue where nobody has a choice. `candidates` are weighed.
        """
        width = waiting.request.width
        room = [it for it in candidates if it.engine.has_room(width, it.reserved)]
        if self.policy != "cost" or not room:
            waiting.idle_since = waiting.patience_until = None
            return None
        other = router.pick(room, self._random)
        if waiting.idle_since is None or waiting.idle_spell != self._spell:
            waiting.idle_since, waiting.idle_spell = now, self._spell
        waiting.patience_until = waiting.idle_since + max(MIN_PATIENCE_S, other.prefill_s - best.prefill_s)
        return other if now >= waiting.patience_until else None

    def all_are_full(self) -> None:
        """Nobody waits beside a free slot now: what has been counted of that is over."""
        self._spell += 1

    def open_models(self, ahead: Mapping[str, int]) -> set[str]:
        """Models of which some engine has a free slot beside those kept for who waits `ahead`."""
        return {
            model
            for name, engine in self._engines.items()
            if engine.accepting and engine.free > ahead.get(name, 0)
            for model in engine.facts.models
        }

    def drain_s(self, waiting: int) -> float:
        """Seconds until a queue of `waiting` has drained, from the learned slot times; between 1 and 60."""
        rate = sum(it.usable / (it.slot_s or DEFAULT_SLOT_S) for it in self._engines.values() if it.accepting)
        return min(60.0, max(1.0, (waiting + 1) / rate)) if rate else 10.0


def earlier(a: float | None, b: float | None) -> float | None:
    """The earlier of two times, where None is never."""
    if a is None or b is None:
        return b if a is None else a
    return min(a, b)
