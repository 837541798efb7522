"""Who may push conversations out of an engine that computes 500 tokens a second and has room for 2,000."""

import pytest
from core_values import engine, facts, request, text

from gateway.core.engine import Engine, Residency
from gateway.core.index import Index
from gateway.core.request import Request
from gateway.core.swaps import MOSTLY, TURN_S, Swaps

NEW = request(50, text(1000, "new"))

TURN_LASTS_S = (1000 / 500) ** 2 / TURN_S


def working(name: str = "a", kv_tokens: int = 2048) -> Engine:
    """It has a request without a prompt running, so that it is not idle."""
    made = engine(name, slots=8, prefill_tokens_per_s=500.0)
    made.facts = facts(8, kv_tokens=kv_tokens)
    made.lease(99, 1, 0, 0.0)
    return made


def swaps(*engines: Engine, go_on: bool = True) -> tuple[Swaps, Index]:
    """Every conversation goes on 9 s after its answer, if any ever does."""
    index = Index({it.name: it for it in engines})
    made = Swaps(index)
    for number in range(40 if go_on else 0):
        made.turns.ended((number,), 0.0)
        made.turns.arrived((number, 1), 9.0)
    return made, index


def ran(index: Index, key: int, prompt: bytes, at: float, name: str = "a") -> Request:
    it = request(key, prompt)
    index.begin(name, it, "m", at)
    index.confirm(name, key, at)
    index.end(name, key, at)
    return it


def test_there_is_room() -> None:
    a = working()
    it, index = swaps(a)
    ran(index, 1, text(1000, "x"), 100.0)
    for _ in range(3):
        assert it.lets_in(a, NEW, 1.0, (), 101.0)


def test_what_is_likely_to_go_on_is_pushed_out_only_in_turns() -> None:
    a = working()
    it, index = swaps(a)
    ran(index, 1, text(2000, "x"), 100.0)
    assert it.lets_in(a, NEW, 1.0, (), 101.0)
    assert not it.lets_in(a, NEW, 1.0, (), 101.0)
    ran(index, 1, text(2000, "x"), 101.0 + TURN_LASTS_S - 1.0)
    assert not it.lets_in(a, NEW, 1.0, (), 101.0 + TURN_LASTS_S - 0.1)
    assert it.lets_in(a, NEW, 1.0, (), 101.0 + TURN_LASTS_S)


@pytest.mark.parametrize(("uncached", "rate"), [(0.5, 500.0), (1.0, 1000.0)])
def test_a_turn_is_shorter_by_the_square_of_its_prefill(uncached: float, rate: float) -> None:
    a = working()
    a.prefill_tokens_per_s = rate
    it, index = swaps(a)
    ran(index, 1, text(2000, "x"), 100.0)
    assert it.lets_in(a, NEW, uncached, (), 101.0)
    assert it.keeps_out(a, NEW, 1.0, (), 101.0 + TURN_LASTS_S / 4 - 0.1)
    assert not it.keeps_out(a, NEW, 1.0, (), 101.0 + TURN_LASTS_S / 4)


def test_an_engine_that_has_shown_no_rate_has_the_usual_one() -> None:
    a = working()
    a.prefill_tokens_per_s = None
    it, index = swaps(a)
    ran(index, 1, text(2000, "x"), 100.0)
    assert it.lets_in(a, NEW, 1.0, (), 101.0)
    assert it.keeps_out(a, NEW, 1.0, (), 101.0 + 0.9)
    assert not it.keeps_out(a, NEW, 1.0, (), 101.0 + 1.0)


def test_asking_takes_no_turn() -> None:
    a = working()
    it, index = swaps(a)
    ran(index, 1, text(2000, "x"), 100.0)
    assert not it.keeps_out(a, NEW, 1.0, (), 101.0)
    assert not it.keeps_out(a, NEW, 1.0, (), 101.0)
    assert it.lets_in(a, NEW, 1.0, (), 101.0)
    assert it.keeps_out(a, NEW, 1.0, (), 101.0)


def test_each_engine_has_its_own_turns() -> None:
    a, b = working("a"), working("b")
    it, index = swaps(a, b)
    for name in "ab":
        ran(index, 1, text(2000, "x"), 100.0, name)
    assert it.lets_in(a, NEW, 1.0, (), 101.0)
    assert it.keeps_out(a, NEW, 1.0, (), 101.0)
    assert not it.keeps_out(b, NEW, 1.0, (), 101.0)


@pytest.mark.parametrize(("go_on", "now"), [(False, 101.0), (True, 100.0 + 16.0)])
def test_what_is_not_likely_to_go_on_makes_room_at_once(go_on: bool, now: float) -> None:
    a = working()
    it, index = swaps(a, go_on=go_on)
    ran(index, 1, text(2000, "x"), 100.0)
    for _ in range(3):
        assert it.lets_in(a, NEW, 1.0, (), now)


def test_what_somebody_waits_to_go_on_from_is_likely_to() -> None:
    a = working()
    it, index = swaps(a, go_on=False)
    held = ran(index, 1, text(2000, "x"), 100.0)
    leaf = index.match(a, index.prompt(held, "m")).leaf
    assert it.lets_in(a, NEW, 1.0, {leaf}, 500.0)
    assert not it.lets_in(a, NEW, 1.0, {leaf}, 500.0)


def test_what_runs_is_not_pushed_out_even_in_turns() -> None:
    a = working()
    it, index = swaps(a)
    index.begin("a", request(1, text(2000, "x")), "m", 100.0)
    for now in (101.0, 1000.0):
        assert not it.lets_in(a, NEW, 1.0, (), now)
    index.confirm("a", 1, 1000.0)
    index.end("a", 1, 1000.0)
    assert it.lets_in(a, NEW, 1.0, (), 1001.0)


def test_a_prompt_that_is_mostly_there_is_let_in() -> None:
    a = working()
    it, index = swaps(a)
    index.begin("a", request(1, text(2000, "x")), "m", 100.0)
    assert it.lets_in(a, NEW, MOSTLY - 0.01, (), 101.0)
    assert not it.lets_in(a, NEW, MOSTLY, (), 101.0)


def test_an_engine_that_runs_nothing_keeps_nobody_out() -> None:
    a = working()
    it, index = swaps(a)
    ran(index, 1, text(2000, "x"), 100.0)
    a.release(99, 100.0)
    for key in range(3):
        assert it.lets_in(a, request(key, text(9000, "huge")), 1.0, (), 101.0)


def test_an_engine_with_a_prompt_in_each_slot_keeps_nobody_out() -> None:
    a = working()
    a.facts = facts(8, residency=Residency.SLOTS)
    it, index = swaps(a)
    index.begin("a", request(1, text(2000, "x")), "m", 100.0)
    for _ in range(3):
        assert it.lets_in(a, request(2, text(9000, "huge")), 1.0, (), 101.0)
