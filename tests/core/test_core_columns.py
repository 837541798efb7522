from collections.abc import Sequence

import pytest
from core_values import engine, facts, request, text
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.columns import Columns, Row
from gateway.core.engine import Engine
from gateway.core.entry import Entry
from gateway.core.index import Index
from gateway.core.placing import Placing
from gateway.core.router import Candidate, saves_s, usual_rate, weigh
from gateway.core.slotcache import SlotCache

PROMPT = text(640, "p")


def columns(*engines: Engine, waiting: int = 0) -> Columns:
    made = Columns([(it, "m") for it in engines], lambda name: SlotCache(1, 1))
    made.begin(waiting)
    return made


def row(*tokens: int) -> Row:
    resident = [10_000 - it for it in tokens]
    return Row(columns(engine()), list(tokens), resident, resident, [])


def candidates(
    engines: Sequence[Engine], uncached: Sequence[int], reserved: Sequence[int]
) -> list[Candidate]:
    return [
        Candidate(
            engine=it,
            model="m",
            prompt_tokens=10_000,
            resident_tokens=10_000 - tokens,
            pending_tokens=0,
            reserved=width,
        )
        for it, tokens, width in zip(engines, uncached, reserved, strict=True)
    ]


def scored(found: Sequence[Candidate], waiting: int) -> list[float]:
    weigh("cost", request(1), 0, found, waiting, usual_rate([it.engine for it in found]))
    return [it.score for it in found]


rates = st.none() | st.floats(50.0, 20_000.0)


@st.composite
def loaded_engines(draw: st.DrawFn) -> list[Engine]:
    out = []
    for at in range(draw(st.integers(1, 5))):
        slots = draw(st.integers(1, 8))
        made = engine(
            f"e{at}",
            slots,
            in_flight_average=draw(st.floats(0.0, 8.0)),
        )
        made.prefill_tokens_per_s, made.slot_s = draw(rates), draw(rates)
        made.quota = draw(st.none() | st.integers(0, 8))
        for key in range(draw(st.integers(0, slots))):
            made.lease(key, 1, draw(st.integers(0, 30_000)), 0.0)
        made.cool(draw(st.integers(0, 2)), 0.0)
        out.append(made)
    return out


@given(loaded_engines(), st.integers(0, 100), st.data())
def test_costs_are_the_scores_of_candidates(engines: list[Engine], waiting: int, data: st.DataObject) -> None:
    count = len(engines)
    uncached = data.draw(st.lists(st.integers(1, 10_000), min_size=count, max_size=count))
    reserved = data.draw(st.lists(st.integers(0, 5), min_size=count, max_size=count))
    it = columns(*engines, waiting=waiting)
    for place, width in enumerate(reserved):
        it.reserve(place, width)
    found = candidates(engines, uncached, reserved)
    tokens = row(*uncached)
    assert it.costs_s(tokens) == pytest.approx(scored(found, waiting))
    own_s = [c.prefill_s - c.prefill_ahead_s - c.crowding_s for c in found]
    assert [it.prefill_s(tokens, at) for at in range(count)] == pytest.approx(own_s, abs=1e-6)
    assert it.spare == [c.engine.free - c.reserved for c in found]


@given(loaded_engines(), st.data())
def test_so_they_are_after_a_grant(engines: list[Engine], data: st.DataObject) -> None:
    it = columns(*engines, waiting=3)
    place = data.draw(st.integers(0, len(engines) - 1))
    engines[place].lease(99, 1, data.draw(st.integers(0, 30_000)), 0.0)
    it.changed(place)
    uncached = [1000] * len(engines)
    found = candidates(engines, uncached, [0] * len(engines))
    assert it.costs_s(row(*uncached)) == pytest.approx(scored(found, 3))


changes = st.sampled_from(["lease", "end", "cool", "prefill", "slot", "quota", "average"])


def change(it: Engine, what: str, value: int) -> None:
    if what == "lease":
        it.lease(1000 + len(it.leases), 1, 10 * value, 0.0)
    elif what == "end" and it.leases:
        it.release(next(iter(it.leases)), 0.0)
    elif what == "cool":
        it.cool(1, 0.0)
    elif what == "prefill":
        it.prefill_tokens_per_s = 100.0 * value
    elif what == "slot":
        it.slot_s = 1.0 * value
    elif what == "quota":
        it.quota = value
    elif what == "average":
        it.in_flight_average = 1.0 * value


@given(loaded_engines(), st.data())
def test_begun_again_they_know_all_that_has_changed(engines: list[Engine], data: st.DataObject) -> None:
    it = columns(*engines)
    uncached = [1000 + at for at in range(len(engines))]
    for _ in range(data.draw(st.integers(1, 6))):
        change(data.draw(st.sampled_from(engines)), data.draw(changes), data.draw(st.integers(1, 9)))
        waiting = data.draw(st.sampled_from([0, 0, 5]))
        it.begin(waiting)
        found = candidates(engines, uncached, [0] * len(engines))
        assert it.costs_s(row(*uncached)) == pytest.approx(scored(found, waiting))
        assert it.spare == [each.free for each in engines]


@pytest.mark.parametrize("rate", [2000.0, 500.0])
def test_one_that_shows_a_rate_changes_what_is_usual_for_the_others(rate: float) -> None:
    new, shown = engine("new"), engine("shown")
    it = columns(new, shown)
    assert it.costs_s(row(1000, 1000)) == [0.5, 0.5]
    shown.prefill_tokens_per_s = rate
    it.begin(0)
    assert it.costs_s(row(1000, 1000)) == [1000 / rate, 1000 / rate]


def test_who_waits_before_costs_two_slot_times_each_once_nothing_is_spare() -> None:
    a = engine(slots=2, prefill_tokens_per_s=1000.0, slot_s=4.0)
    it = columns(a)
    assert (it.costs_s(row(500)), it.spare) == ([0.5], [2])
    it.reserve(0, 2)
    assert (it.costs_s(row(500)), it.spare) == ([4.5], [0])
    it.reserve(0, 1)
    assert (it.costs_s(row(500)), it.spare) == ([8.5], [-1])
    it.begin(0)
    assert (it.costs_s(row(500)), it.spare) == ([0.5], [2])


def test_those_who_wait_are_shared_among_the_engines() -> None:
    it = columns(engine("a"), engine("b"), waiting=6)
    assert it.costs_s(row(2000, 2000)) == [4.0, 4.0]


@pytest.mark.parametrize(("draw", "place"), [(0.0, 1), (0.4, 2), (0.99, 4)])
def test_ties_are_drawn_among_the_cheapest(draw: float, place: int) -> None:
    it = columns(engine())
    assert it.cheapest([2.0, 1.0, 1.0, 3.0, 1.0], lambda: draw) == place


def test_nothing_is_drawn_where_one_is_the_cheapest() -> None:
    def draw() -> float:
        raise AssertionError("drawn")

    assert columns(engine()).cheapest([2.0, 1.0, 3.0], draw) == 1


# A look at them and a close one


@st.composite
def looks(draw: st.DrawFn) -> tuple[Placing, Entry, dict[str, int]]:
    """An entry that some engines hold parts of, and who waits before it."""
    engines = {it.name: it for it in draw(loaded_engines())}
    index = Index(engines)
    for at, name in enumerate(engines):
        held = draw(st.sampled_from([0, 64, 320, 640]))
        index.begin(name, request(500 + at, PROMPT[: held * 4]), "m", 0.0)
        if draw(st.booleans()):
            index.confirm(name, 500 + at, 0.0)
    placing = Placing(engines, index, "cost", lambda: 0.99)
    it = request(1, PROMPT + b"and more")
    ahead = {name: draw(st.integers(0, 4)) for name in engines}
    return placing, Entry(it, 1, models=it.models), ahead


@given(looks(), st.integers(0, 80))
def test_a_look_finds_what_choosing_among_candidates_finds(
    case: tuple[Placing, Entry, dict[str, int]], waiting: int
) -> None:
    placing, entry, ahead = case
    found = placing.candidates(entry, ahead)
    best = placing.choose(entry, found, waiting)
    placing.begin_looks(waiting)
    placing.look(entry, {})
    for it in found:
        if ahead[it.engine.name]:
            placing.reserve(it.engine, ahead[it.engine.name])
    look = placing.look(entry, ahead)
    assert look is not None
    at = next(it for it in found if it.engine is look.engine)
    # Where two cost the same but for rounding, either will do.
    assert at.score == pytest.approx(best.score)
    assert look.has_room == at.engine.has_room(1, at.reserved)
    assert look.prefill_s == pytest.approx(at.own_prefill_s)
    room = [it for it in found if it.engine.has_room(1, it.reserved)]
    if look.has_room or not room:
        assert look.other is None
        return
    other = next(it for it in room if it.engine is look.other)
    assert other.score == pytest.approx(min(it.score for it in room))
    assert look.saves_s == pytest.approx(max(0.0, saves_s(at, other)), abs=1e-6)


def test_a_look_sees_what_was_cached_reserved_and_granted_since_the_last_one() -> None:
    a, b = (engine(name, slots=2, slot_s=9.0, prefill_tokens_per_s=100.0) for name in "ab")
    engines = {"a": a, "b": b}
    index = Index(engines)
    placing = Placing(engines, index, "cost", lambda: 0.0)
    what = Entry(request(1, PROMPT), 1, models=("m",))

    def looked() -> tuple[str, bool]:
        look = placing.look(what, {})
        assert look is not None
        return look.engine.name, look.has_room

    placing.begin_looks(0)
    assert looked() == ("a", True)
    placing.reserve(a, 1)
    assert looked() == ("a", True)
    placing.reserve(a, 1)
    assert looked() == ("b", True)
    b.lease(7, 2, 0, 0.0)
    placing.changed(b)
    assert looked() == ("a", False)
    placing.begin_looks(0)
    assert looked() == ("a", True)
    index.begin("b", request(8, PROMPT), "m", 0.0)
    index.confirm("b", 8, 0.0)
    placing.begin_looks(0)
    assert looked() == ("b", False)


def test_engines_that_come_and_go_are_seen_when_looks_begin() -> None:
    a, b = engine("a"), engine("b")
    engines = {"a": a, "b": b}
    placing = Placing(engines, Index(engines), "cost", lambda: 0.99)
    what = Entry(request(1, PROMPT, model="n"), 1, models=("n",))
    placing.begin_looks(0)
    assert placing.look(what, {}) is None
    b.facts = facts(models=("n",))
    placing.begin_looks(0)
    look = placing.look(what, {})
    assert look is not None
    assert look.engine is b
    b.draining = True
    placing.begin_looks(0)
    assert placing.look(what, {}) is None
