"""Who could serve a request, and at what cost. Grants nothing; keeps only how long a request has waited
beside a free slot."""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from operator import attrgetter

from gateway.core import router
from gateway.core.admission import Waiting
from gateway.core.columns import Columns, Row, Taker
from gateway.core.engine import DEFAULT_SLOT_S, Engine, Watch
from gateway.core.entry import Choice, Entry, Look
from gateway.core.index import Index, Prompt, Seen
from gateway.core.pools import Affinity
from gateway.core.request import Request, Route
from gateway.core.router import Candidate, Policy

MIN_PATIENCE_S = 0.05
"""A slot that frees at once is worth this much, whatever it saves."""

MAX_PATIENCE_S = 30.0
"""Nobody waits longer than this beside a free slot, however long the prompt that another engine holds."""

NOBODY: Mapping[str, int] = {}

_ONLY = Route.ONLY
_serving = attrgetter("draining", "health", "facts")
_holds = attrgetter("holds")


class Placing:
    def __init__(
        self, engines: Mapping[str, Engine], index: Index, policy: Policy, random: Callable[[], float]
    ) -> None:
        self.watch = Watch()
        self._engines = engines
        self._index = index
        self.policy: Policy = policy
        self._random = random
        self._spell = 0
        self._columns: dict[tuple[str, ...], Columns] = {}
        self._sole: dict[tuple[str, ...], Taker | None] = {}
        self._serving: Sequence[object] = []
        self._waiting = 0
        self._affinity = Affinity()
        self._watch_all()

    def entry(self, request: Request, turn: int, now: float = 0.0) -> Entry:
        if not request.pool:
            return Entry(request, turn, now, (request.model,))
        made = Entry(request, turn, now, request.models)
        kept = self._affinity.model_of(request)
        if kept is not None:
            made.models = (kept,)
            self.widen(made)
        return made

    def widen(self, entry: Entry) -> bool:
        """Let a session leave its model if nobody serves that any more; whether somebody may have it."""
        if self.is_served(entry) or self.may_come(entry):
            return True
        entry.models = entry.request.models
        return self.is_served(entry) or self.may_come(entry)

    def fleet_changed(self) -> None:
        """Engines have come or gone."""
        self._columns.clear()
        self._sole.clear()
        self._serving = []
        self._watch_all()

    def _watch_all(self) -> None:
        for engine in self._engines.values():
            self.watch.join(engine)

    def placed(self, entry: Entry, model: str) -> None:
        """The request was granted an engine that is asked for `model`."""
        self._affinity.placed(entry.request, model)

    def may_keep_out(self, request: Request) -> bool:
        """Whether it may be made to wait for room in an engine's cache (`swaps`)."""
        return self.policy == "cost" and request.width > 0

    def is_served(self, entry: Entry) -> bool:
        """Whether an engine that takes requests now may have this one."""
        return any(True for _ in self._takers(entry.models, entry.excluded))

    def may_come(self, entry: Entry) -> bool:
        """Whether one that is not ready yet may have it later."""
        return any(
            engine.may_serve(model) and engine.name not in entry.excluded
            for engine in self._engines.values()
            for model in entry.models
        )

    def candidates(self, entry: Entry, ahead: Mapping[str, int] = NOBODY) -> list[Candidate]:
        """Every engine that may have the request now. `ahead`: width that waits for an engine before it."""
        out: list[Candidate] = []
        prompts: dict[str, Prompt] = {}
        for engine, model in self._takers(entry.models, entry.excluded):
            seen = self._see(entry, engine, model, self._index.version(engine.name), prompts)
            out.append(
                Candidate(
                    engine=engine,
                    model=model,
                    prompt_tokens=seen.prompt_tokens,
                    resident_tokens=seen.resident_tokens,
                    pending_tokens=seen.pending_tokens,
                    reserved=engine.reserved_from(entry.request.blocks, ahead.get(engine.name, 0)),
                )
            )
        return out

    def choose(self, entry: Entry, candidates: Sequence[Candidate], waiting: int) -> Candidate:
        """The best of `candidates`, with everyone's score set. `waiting`: how many others wait."""
        rate = router.usual_rate([it.engine for it in candidates])
        router.weigh(self.policy, entry.request, entry.turn, candidates, waiting, rate)
        return router.pick(candidates, self._random)

    def chosen(self, entry: Entry, it: Candidate, candidates: Sequence[Candidate]) -> Choice:
        """`it` of all the `candidates` that the entry has just been given."""
        route = router.reason(self.policy, entry.request, it, candidates)
        seen = [entry.seen[other.engine.name] for other in candidates]
        best_tokens, known_tokens = max(of.held_tokens for of in seen), max(of.known_tokens for of in seen)
        width = entry.request.width
        could_have_it = (
            other.resident_tokens >= best_tokens and other.engine.has_room(width, other.reserved)
            for other in candidates
        )
        its = entry.seen[it.engine.name]
        return Choice(it.engine, it.model, its, route, best_tokens, known_tokens, not any(could_have_it))

    def first(self, entry: Entry) -> Choice | None:
        """For a request that nobody waits before: the best engine, unless none has it or that one is full."""
        if self.policy == "cost" and entry.request.width == 1 and not entry.excluded:
            if self.watch.is_stale:
                self._check_serving()
            models = entry.models
            sole = self._sole[models] if models in self._sole else self._sole_taker(models)
            if sole is not None and not sole[0].holds:
                engine, model = sole
                if engine.usable - engine.in_flight <= engine.cooling_width:
                    return None
                seen = self._index.match(engine, self._index.prompt(entry.request, model))
                return Choice(engine, model, seen, _ONLY, seen.resident_tokens, seen.known_tokens)
            columns = self._columns_of(models, 0)
            if columns is not None:
                row = self._row(entry, columns)
                place = router.lowest(columns.costs_s(row), self._random)
                return self._choice(entry, columns, row, place) if columns.spare[place] > 0 else None
        candidates = self.candidates(entry)
        if not candidates:
            return None
        it = self.choose(entry, candidates, 0)
        has_room = it.engine.has_room(entry.request.width, it.reserved)
        return self.chosen(entry, it, candidates) if has_room else None

    def _sole_taker(self, models: tuple[str, ...]) -> Taker | None:
        """The engine that nothing but its slots decides about, as it alone takes requests for `models`."""
        takers = list(self._takers(models))
        sole = takers[0] if len(takers) == 1 else None
        if takers:
            self._sole[models] = sole
        return sole

    def looked_at(self, entry: Entry, engine: Engine) -> Choice:
        """`engine` for a request of which a `look` told it."""
        columns = self._usual_columns(entry)
        if columns is not None:
            return self._choice(entry, columns, self._row(entry, columns), columns.at[engine.name])
        candidates = self.candidates(entry)
        return self.chosen(entry, next(it for it in candidates if it.engine is engine), candidates)

    def with_room(self, entry: Entry, ahead: Mapping[str, int]) -> list[Choice]:
        """Every engine that could start on the request now, the cheapest first."""
        candidates = self.candidates(entry, ahead)
        self.choose(entry, candidates, self._waiting)
        room = [it for it in candidates if it.engine.has_room(entry.request.width, it.reserved)]
        return [self.chosen(entry, it, candidates) for it in sorted(room, key=attrgetter("score"))]

    def begin_looks(self, waiting: int) -> None:
        """`waiting` requests wait. What engines cost is taken anew; until the next time `look` knows only of
        what `reserve` and `changed` tell."""
        self._waiting = waiting
        if self.watch.is_stale:
            self._check_serving()
        for columns in self._columns.values():
            columns.begin(waiting)

    def reserve(self, engine: Engine, width: int) -> None:
        """Somebody waits for the engine: those looked at after it come after it."""
        for columns in self._columns.values():
            if engine.name in columns.at:
                columns.reserve(columns.at[engine.name], width)

    def changed(self, engine: Engine) -> None:
        """The engine was granted a request."""
        for columns in self._columns.values():
            if engine.name in columns.at:
                columns.changed(columns.at[engine.name])

    def look(self, entry: Entry, ahead: Mapping[str, int]) -> Look | None:
        """Where a waiting request would go now; None while no engine may have it. Most take one slot wherever
        their cost is least, which needs no more than a look at the columns."""
        columns = self._usual_columns(entry)
        if columns is None:
            return self._look_closely(entry, ahead)
        row = self._row(entry, columns)
        costs_s = columns.costs_s(row)
        best = columns.cheapest(costs_s, self._random)
        it = columns.terms[best]
        own_s = row.tokens[best] / it.rate_tokens_per_s
        if columns.spare[best] > 0:
            return Look(it.engine, True, own_s)
        room = [place for place, spare in enumerate(columns.spare) if spare > 0]
        if not room:
            return Look(it.engine, False, own_s)
        place = min(room, key=costs_s.__getitem__)
        other = columns.terms[place]
        saves_s = costs_s[place] - columns.prefill_s(row, best)
        return Look(it.engine, False, own_s, other.engine, max(0.0, saves_s))

    def overdue(self, waiting: Waiting, look: Look, now: float) -> Engine | None:
        """Another engine for a request whose best one is full, if it has waited long enough beside a free
        slot there: for as long as the prefill takes that its best one would save it. Only such time counts,
        so that patience does not run out in a queue where nobody has a choice.
        """
        if look.other is None:
            waiting.idle_since = waiting.patience_until = None
            return None
        if waiting.idle_since is None or waiting.idle_spell != self._spell:
            waiting.idle_since, waiting.idle_spell = now, self._spell
        patience_s = min(MAX_PATIENCE_S, max(MIN_PATIENCE_S, look.saves_s))
        waiting.patience_until = waiting.idle_since + patience_s
        return look.other if now >= waiting.patience_until else None

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

    def _look_closely(self, entry: Entry, ahead: Mapping[str, int]) -> Look | None:
        candidates = self.candidates(entry, ahead)
        if not candidates:
            return None
        best = self.choose(entry, candidates, self._waiting)
        width = entry.request.width
        if best.engine.has_room(width, best.reserved):
            return Look(best.engine, True, best.own_prefill_s)
        room = [it for it in candidates if it.engine.has_room(width, it.reserved)]
        if self.policy != "cost" or not room:
            return Look(best.engine, False, best.own_prefill_s)
        other = router.pick(room, self._random)
        saves_s = max(0.0, router.saves_s(best, other))
        return Look(best.engine, False, best.own_prefill_s, other.engine, saves_s)

    def _usual_columns(self, entry: Entry) -> Columns | None:
        """The columns that tell all of where a request may go: None where its policy, width or history makes
        it a special case, too."""
        is_usual = self.policy == "cost" and entry.request.width == 1 and not entry.excluded
        return self._columns_of(entry.models) if is_usual else None

    def _columns_of(self, models: tuple[str, ...], anew_for: int | None = None) -> Columns | None:
        """None where a slot is kept for somebody, and where nobody serves the models. They are as of the last
        `begin_looks`, or as of now while `anew_for` requests wait."""
        columns = self._columns.get(models)
        if columns is None:
            takers = list(self._takers(models))
            if not takers:
                return None
            columns = self._columns[models] = Columns(takers, self._index.versioned)
            columns.begin(self._waiting if anew_for is None else anew_for)
        elif anew_for is not None:
            columns.begin(anew_for)
        return None if self.watch.timed and any(map(_holds, columns.engines)) else columns

    def _check_serving(self) -> None:
        """Columns are of the engines that take requests, with their facts and caches as they are."""
        self.watch.is_stale = False
        versioned = self._index.versioned
        serving = [(_serving(engine), versioned(name)) for name, engine in self._engines.items()]
        if serving != self._serving:
            self._serving = serving
            self._sole.clear()
            served = {models: list(self._takers(models)) for models in self._columns}
            self._columns = {
                models: Columns(takers, versioned) for models, takers in served.items() if takers
            }

    def _row(self, entry: Entry, columns: Columns) -> Row:
        row = entry.row
        if row is None or row.columns is not columns:
            count = len(columns.takers)
            row = entry.row = Row(columns, [0] * count, [0] * count, [0] * count, [-1] * count)
        if row.versions != columns.versions:
            prompts: dict[str, Prompt] = {}
            for place, version in enumerate(columns.versions):
                if version != row.versions[place]:
                    engine, model = columns.takers[place]
                    seen = self._see(entry, engine, model, version, prompts)
                    row.resident[place] = seen.resident_tokens
                    row.matched[place] = matched = seen.resident_tokens + seen.pending_tokens
                    row.tokens[place] = seen.prompt_tokens - matched
            row.versions = columns.versions.copy()
        return row

    def _choice(self, entry: Entry, columns: Columns, row: Row, place: int) -> Choice:
        engine, model = columns.takers[place]
        matched, resident = row.matched, row.resident
        known, best = max(matched), max(resident)
        route = router.why(self.policy, entry.request, len(matched), matched[place], known)
        if columns.has_slot_caches:
            seen = [entry.seen[other.name] for other in columns.engines]
            known, best = max(of.known_tokens for of in seen), max(of.held_tokens for of in seen)
        is_full = best > resident[place] and not any(
            has >= best and spare > 0 for has, spare in zip(resident, columns.spare, strict=True)
        )
        return Choice(engine, model, entry.seen[engine.name], route, best, known, is_full)

    def _takers(self, models: Sequence[str], excluded: Container[str] = ()) -> Iterator[tuple[Engine, str]]:
        """Engines that take requests for one of `models` now, each with the model it would be asked for."""
        for engine in self._engines.values():
            if engine.accepting and engine.name not in excluded:
                served = engine.facts.models
                for model in models:
                    if model in served:
                        yield engine, model
                        break

    def _see(
        self, entry: Entry, engine: Engine, model: str, version: int, prompts: dict[str, Prompt]
    ) -> Seen:
        """What the engine holds as of `version` of the index; `prompts`: by model, filled as needed."""
        seen = entry.seen.get(engine.name)
        if seen is None or seen.version != version or seen.model != model:
            if model not in prompts:
                prompts[model] = self._index.prompt(entry.request, model)
            seen = entry.seen[engine.name] = self._index.match(engine, prompts[model], version)
        return seen


def earlier(a: float | None, b: float | None) -> float | None:
    """The earlier of two times, where None is never."""
    if a is None or b is None:
        return b if a is None else a
    return min(a, b)
