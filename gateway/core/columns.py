"""What every engine of a set of models costs, side by side: the arithmetic of `router.Terms` for many waiting
requests at once, since it runs for each of them whenever a slot frees."""

from collections.abc import Callable, Sequence
from operator import add, mul

from gateway.core.engine import Engine
from gateway.core.router import AGAIN, Terms, terms, usual

Taker = tuple[Engine, str]
"""An engine and the model that it would be asked for."""


class Row:
    """A request's uncached tokens on each engine of some columns, as of a version of the index each."""

    __slots__ = ("columns", "tokens", "versions")

    def __init__(self) -> None:
        self.columns: Columns | None = None
        self.tokens: list[int] = []
        self.versions: list[int] = []


class Columns:
    """`share` others wait for each engine. A request of one slot costs `base_s[i] + tokens * token_s[i]` on
    engine i, and `again_s[i]` for each token that another engine holds; slots are free there while `spare[i]`
    is above 0."""

    def __init__(self, takers: Sequence[Taker], version_of: Callable[[str], int]) -> None:
        self.takers = list(takers)
        self.at = {engine.name: place for place, (engine, _) in enumerate(takers)}
        self._version_of = version_of
        self._share = 0.0
        count = len(takers)
        self.terms: list[Terms] = []
        self.versions = [0] * count
        self.base_s = [0.0] * count
        self.token_s = [0.0] * count
        self.again_s = [0.0] * count
        self.spare = [0] * count
        self._reserved = [0] * count

    def begin(self, waiting: int) -> None:
        """Everything anew: `waiting` requests wait, none of them before another yet."""
        figures = usual([engine for engine, _ in self.takers])
        self.terms = [terms(engine, model, figures) for engine, model in self.takers]
        self._share = waiting / max(1, len(self.takers))
        self._reserved = [0] * len(self.takers)
        for place in range(len(self.takers)):
            self._fill(place)

    def reserve(self, place: int, width: int) -> None:
        """Somebody waits for `width` slots of this engine."""
        self._reserved[place] += width
        self._fill(place)

    def changed(self, place: int) -> None:
        """The engine has one request more."""
        self.terms[place].refresh()
        self._fill(place)

    def costs_s(self, row: Row) -> list[float]:
        least = min(row.tokens)
        again = map(mul, map(least.__rsub__, row.tokens), self.again_s)
        return list(map(add, self.base_s, map(add, map(mul, row.tokens, self.token_s), again)))

    def prefill_s(self, row: Row, place: int) -> float:
        """The cost without the wait for a slot."""
        return self.terms[place].cost_s(row.tokens[place], 0, self._share, min(row.tokens))

    def cheapest(self, costs_s: Sequence[float], random: Callable[[], float]) -> int:
        """The place of the lowest cost; ties are broken at random."""
        least = min(costs_s)
        ties = costs_s.count(least)
        place = costs_s.index(least)
        for _ in range(int(random() * ties) if ties > 1 else 0):
            place = costs_s.index(least, place + 1)
        return place

    def _fill(self, place: int) -> None:
        it = self.terms[place]
        self.spare[place] = it.free - self._reserved[place]
        short = 1 - self.spare[place]
        self.base_s[place] = it.cost_s(0, short, self._share)
        self.again_s[place] = AGAIN / it.rate_tokens_per_s
        self.token_s[place] = (it.busy + self._share) / it.rate_tokens_per_s
        self.versions[place] = self._version_of(it.engine.name)
