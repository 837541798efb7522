from core_values import engine, facts, request, text

from gateway.core.engine import Engine, Probe, Residency
from gateway.core.entry import Entry
from gateway.core.holds import Hold
from gateway.core.index import Index
from gateway.core.placing import Placing
from gateway.core.request import Request
from gateway.core.router import Policy

SHARED = text(640, "s")


def placing(*engines: Engine, policy: Policy = "cost", draw: float = 0.99) -> Placing:
    """Ties go to the first engine, unless `draw` is low."""
    by_name = {it.name: it for it in engines}
    return Placing(by_name, Index(by_name), policy, lambda: draw)


def entry(it: Request, *excluded: str) -> Entry:
    return Entry(it, 1, models=it.models, excluded=frozenset(excluded))


def loading(name: str) -> Engine:
    made = engine(name)
    made.probed(Probe.LOADING, 1.0)
    return made


def names(it: Placing, what: Entry) -> list[str]:
    return [candidate.engine.name for candidate in it.candidates(what)]


# Who could


def test_a_request_is_served_by_an_engine_that_has_its_model_and_has_not_failed_it() -> None:
    it = placing(engine("a"))
    assert it.is_served(entry(request(1)))
    assert not it.is_served(entry(request(1, model="n")))
    assert not it.is_served(entry(request(1), "a"))


def test_an_engine_that_is_loading_may_come_unless_it_has_failed_the_request() -> None:
    it = placing(loading("a"), engine("b"))
    assert it.may_come(entry(request(1)))
    assert not it.may_come(entry(request(1), "a"))
    assert not it.is_served(entry(request(1), "b"))


def test_an_engine_that_serves_is_not_one_that_may_come() -> None:
    assert not placing(engine("a")).may_come(entry(request(1)))


def test_candidates_serve_the_model_accept_requests_and_have_not_failed_this_one() -> None:
    other, draining = engine("b"), engine("c")
    other.facts = facts(models=("n",))
    draining.draining = True
    it = placing(engine("a"), other, draining, loading("d"), engine("e"), engine("f"))
    assert names(it, entry(request(1), "e")) == ["a", "f"]
    assert names(it, entry(request(1, model="n"))) == ["b"]


def test_a_full_engine_is_a_candidate_too() -> None:
    a = engine("a", slots=1)
    a.lease(1, 1, 0, 0.0)
    assert names(placing(a), entry(request(2))) == ["a"]


# What each would mean


def test_candidates_know_what_each_engine_holds_of_the_prompt() -> None:
    a, b = engine("a"), engine("b")
    it = placing(a, b)
    it._index.begin("a", request(1, SHARED), "m", 0.0)
    it._index.confirm("a", 1, 0.0)
    it._index.begin("b", request(2, SHARED), "m", 0.0)
    found = it.candidates(entry(request(3, SHARED + text(640, "x"))))
    assert [(c.prompt_tokens, c.resident_tokens, c.pending_tokens) for c in found] == [
        (1280, 640, 0),
        (1280, 0, 640),
    ]


def test_who_waits_before_a_request_has_slots_reserved_on_the_engine_it_waits_for() -> None:
    found = placing(engine("a"), engine("b")).candidates(entry(request(1)), {"b": 3})
    assert [c.reserved for c in found] == [0, 3]


def test_kept_slots_are_reserved_from_all_but_their_session() -> None:
    a = engine("a", slots=2)
    a.facts = facts(2, residency=Residency.SLOTS)
    mine = request(1, SHARED)
    a.hold(Hold(mine.blocks[-1], len(mine.blocks), 1, 9.0))
    it = placing(a)
    assert [c.reserved for c in it.candidates(entry(request(2, text(640, "x"))), {"a": 1})] == [2]
    # Who waits is reserved what is free beside the kept slot.
    assert [c.reserved for c in it.candidates(entry(request(3, SHARED + b"more")), {"a": 1})] == [1]


# Which of them


def test_the_cheapest_is_chosen_and_every_candidate_has_its_score() -> None:
    a, b = engine("a"), engine("b")
    a.lease(1, 1, 5000, 0.0)
    it = placing(a, b)
    what = entry(request(2, SHARED))
    candidates = it.candidates(what)
    assert it.choose(what, candidates, 0).engine is b
    assert all(c.score > 0.0 for c in candidates)


def test_an_engine_whose_rate_is_not_known_is_taken_for_a_usual_one_of_the_others() -> None:
    a, b = engine("a", prefill_tokens_per_s=500.0), engine("b")
    it = placing(a, b)
    what = entry(request(2, SHARED))
    candidates = it.candidates(what)
    it.choose(what, candidates, 0)
    assert [c.own_prefill_s for c in candidates] == [640 / 500.0, 640 / 500.0]


def test_the_policy_chooses() -> None:
    it = placing(engine("a"), engine("b"), engine("c"), policy="round_robin")
    chosen = [
        it.choose(what, it.candidates(what), 0).engine.name
        for what in (Entry(request(turn), turn, models=("m",)) for turn in range(4))
    ]
    assert chosen == ["a", "b", "c", "a"]


def test_ties_are_drawn() -> None:
    what = entry(request(1))
    for draw, expected in ((0.0, "b"), (0.99, "a")):
        it = placing(engine("a"), engine("b"), draw=draw)
        assert it.choose(what, it.candidates(what), 0).engine.name == expected


# Models that somebody can start on


def test_models_are_open_while_an_engine_has_a_slot_beside_those_for_who_waits() -> None:
    a, b = engine("a", slots=2), engine("b", slots=1)
    b.facts = facts(1, models=("n", "o"))
    it = placing(a, b)
    assert it.open_models({}) == {"m", "n", "o"}
    assert it.open_models({"a": 1}) == {"m", "n", "o"}
    assert it.open_models({"a": 2}) == {"n", "o"}
    b.lease(1, 1, 0, 0.0)
    assert it.open_models({"a": 1}) == {"m"}


def test_models_of_an_engine_that_takes_no_requests_are_not_open() -> None:
    draining = engine("a")
    draining.draining = True
    assert placing(draining, loading("b")).open_models({}) == set()
