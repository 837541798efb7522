"""What every engine of a set of models costs, side by side: the arithmetic of `router.Terms` for many
requests at once. It runs for each new request, and for each of those that wait whenever a slot frees."""

from collections.abc import Callable, Sequence
from operator import add, attrgetter, mul

from msgspec import Struct

from gateway.core.engine import Engine, Residency
from gateway.core.matches import Versioned
from gateway.core.router import WAITING, Terms, again_s, all_again_s, terms, usual_rate

Taker = tuple[Engine, str]
"""An engine and the model that it would be asked for."""

_version = attrgetter("version")
_load = attrgetter(
    "in_flight",
    "cooling_width",
    "usable",
    "in_flight_average",
    "pending_prefill_tokens",
    "slot_s",
    "prefill_tokens_per_s",
)
"""What of an engine its terms depend on, its rate last, but for its facts: with those the columns are made
anew."""


class Row(Struct, eq=False):
    """A request's uncached, resident and matched tokens on each engine of some columns, as of a version of
    the index each."""

    columns: "Columns"
    tokens: list[int]
    resident: list[int]
    matched: list[int]
    versions: list[int]


class Columns:
    """A request of one slot costs `base_s[i] + tokens * token_s[i]` on engine i, and `again_s` of the tokens
    that another engine holds more; slots are free there while `spare[i]` is above 0. `has_slot_caches`: some
    engine keeps a prompt in each slot, where nobody has the use of it while the slot is busy.

    An engine's figures are taken anew where what they depend on has changed: on a fleet of hundreds most of
    it is as it was at the last request.
    """

    def __init__(self, takers: Sequence[Taker], versioned: Callable[[str], Versioned]) -> None:
        self.takers = list(takers)
        self.at = {engine.name: place for place, (engine, _) in enumerate(takers)}
        self.engines = [engine for engine, _ in takers]
        self.has_slot_caches = any(it.residency is Residency.SLOTS for it in self.engines)
        self._versioned = list(map(versioned, self.at))
        self._share = 0.0
        self._loads = list(map(_load, self.engines))
        self._usual_rate = usual_rate(self.engines)
        self._reserved = [0] * len(takers)
        self._is_reserved = False
        self.terms: list[Terms] = [terms(engine, self._usual_rate) for engine in self.engines]
        self.versions: list[int] = []
        self.base_s = [0.0] * len(takers)
        self.token_s = [0.0] * len(takers)
        self.spare = [0] * len(takers)
        for place in range(len(takers)):
            self._fill(place)

    def begin(self, waiting: int) -> None:
        """Everything as it is now: `waiting` requests wait, none of them before another yet."""
        self.versions = list(map(_version, self._versioned))
        before = self._usual_rate
        changed = self._changed()
        for place in changed:
            self.terms[place].refresh()
        if self._is_reserved:
            self._is_reserved = False
            changed.update(place for place, width in enumerate(self._reserved) if width)
        share = waiting / len(self.takers)
        if share != self._share or self._usual_rate != before:
            self._share = share
            self.token_s = [it.token_s(share) for it in self.terms]
        for place in changed:
            self._reserved[place] = 0
            self._fill(place)

    def reserve(self, place: int, width: int) -> None:
        """Somebody waits for `width` slots of this engine."""
        self._reserved[place] += width
        self._is_reserved = True
        self._fill(place)

    def changed(self, place: int) -> None:
        """The engine has one request more."""
        engine = self.engines[place]
        self._loads[place] = _load(engine)
        self.versions[place] = self._versioned[place].version
        self.terms[place].refresh()
        self._fill(place)

    def costs_s(self, row: Row) -> list[float]:
        most = max(row.resident)
        own_s = map(mul, row.tokens, self.token_s)
        if most:
            own_s = map(add, own_s, all_again_s(row.resident, most, self._usual_rate))
        return list(map(add, self.base_s, own_s))

    def prefill_s(self, row: Row, place: int) -> float:
        """The part of the cost that does not pass while a request waits: its own prefill and what is computed
        again."""
        again = max(row.resident) - row.resident[place]
        return row.tokens[place] * self.token_s[place] + again_s(again, self._usual_rate)

    def cheapest(self, costs_s: Sequence[float], random: Callable[[], float]) -> int:
        """The place of the lowest cost; ties are broken at random."""
        least = min(costs_s)
        ties = costs_s.count(least)
        place = costs_s.index(least)
        for _ in range(int(random() * ties) if ties > 1 else 0):
            place = costs_s.index(least, place + 1)
        return place

    def _changed(self) -> set[int]:
        """Engines whose terms have changed."""
        loads, before = list(map(_load, self.engines)), self._loads
        changed: set[int] = set()
        if loads == before:
            return changed
        self._loads = loads
        has_new_rate = False
        for place, load in enumerate(loads):
            if load != before[place]:
                changed.add(place)
                has_new_rate = has_new_rate or load[-1] != before[place][-1]
        if has_new_rate:
            changed |= self._follow(usual_rate(self.engines))
        return changed

    def _follow(self, rate: float) -> set[int]:
        """Engines that have shown no prefill rate of their own, if `rate` is another than before."""
        if rate == self._usual_rate:
            return set()
        self._usual_rate = rate
        for it in self.terms:
            it.usual_rate = rate
        return {place for place, engine in enumerate(self.engines) if not engine.prefill_tokens_per_s}

    def _fill(self, place: int) -> None:
        it = self.terms[place]
        self.spare[place] = spare = it.free - self._reserved[place]
        base_s = it.ahead_s + it.crowding_s
        self.base_s[place] = base_s if spare > 0 else base_s + (1 - spare) * it.slot_wait_s * WAITING
        self.token_s[place] = it.token_s(self._share)
