"""What those who wait for room in a cache must not do to others, and what looks that are old must not."""

import pytest
from core_values import (
    NOTHING,
    discovered,
    facts,
    fleet,
    granted,
    offer_all,
    ok,
    placed,
    probed,
    request,
    text,
    usage,
)

from gateway.core.engine import Probe, Residency
from gateway.core.events import Restarted
from gateway.core.placing import MAX_PATIENCE_S
from gateway.core.request import Outcome, Request, Route
from gateway.core.scheduler import Scheduler


def one_with_a_resident_and_a_running_one(slots: int = 8, tokens: int = 3000) -> Scheduler:
    scheduler = fleet("a", slots=slots)
    discovered(scheduler, "a", facts(slots, kv_tokens=8000))
    offer_all(scheduler, [request(1, text(tokens, "c1")), request(2, text(tokens, "c2"))], 1.0)
    for key in (1, 2):
        scheduler.first_token(key, 1.0)
    ok(scheduler, 1, 1.0, usage(tokens, 0, 10))
    return scheduler


@pytest.mark.parametrize("kept_out", [1, 64, 300])
def test_a_resident_one_is_found_behind_however_many_are_kept_out(kept_out: int) -> None:
    scheduler = one_with_a_resident_and_a_running_one()
    for key in range(100, 100 + kept_out):
        scheduler.offer(request(key, text(5300, f"n{key}")), 2.0)
    assert len(scheduler.queue) == kept_out
    resident = request(3, text(3000, "c1") + text(100, "more"))
    assert placed(scheduler.offer(resident, 3.0)) == [(3, "a")]


def test_a_full_engine_does_not_stand_idle_beside_one_that_is_kept_out() -> None:
    scheduler = one_with_a_resident_and_a_running_one(slots=2, tokens=2500)
    scheduler.offer(request(3, text(5600, "new")), 2.0)
    assert placed(scheduler.offer(request(4, text(2500, "c1") + text(50, "z")), 10.0)) == [(4, "a")]
    assert scheduler.idle_while_waiting_s("a", 20.0) == 8.0


def test_a_slot_reserved_behind_it_does_not_end_anybodys_patience() -> None:
    scheduler = fleet("a", "b", slots=2)
    shared, other = text(4000, "p"), text(4000, "q")
    for name, key, prompt in (("b", 1, shared), ("a", 4, other)):
        scheduler.drain(name, True, 0.0)
        scheduler.offer(request(key, prompt), 0.0)
        scheduler.first_token(key, 0.0)
        ok(scheduler, key, 1.0, usage(4000, 0, 5))
        if name == "b":
            offer_all(scheduler, [request(2, text(9, "f")), request(3, text(9, "g"))], 1.0)
        else:
            scheduler.offer(request(5, text(9, "h")), 1.0)
        scheduler.drain(name, False, 1.0)
    assert placed(scheduler.offer(request(6, shared + text(50, "z"), max_wait_s=900.0), 2.0)) == []
    scheduler.offer(request(7, other + text(10, "w"), width=2, max_wait_s=900.0), 2.0)
    due = scheduler.next_deadline()
    assert due is not None
    assert due < 2.0 + MAX_PATIENCE_S
    assert (6, "b") in placed(scheduler.tick(due))


def test_who_needs_no_slot_does_not_wait_for_one_when_an_engine_comes() -> None:
    scheduler = fleet("a", slots=1)
    probed(scheduler, "a", Probe.LOADING)
    scheduler.set_quota("a", 0, 0.0)
    scheduler.offer(request(1, width=0), 1.0)
    assert placed(probed(scheduler, "a", Probe.OK, 2.0)) == [(1, "a")]


def test_names_that_nobody_serves_leave_nothing_behind() -> None:
    scheduler = fleet("a", slots=1)
    scheduler.engines["a"].facts = facts(1, models=())
    for key in range(50):
        scheduler.offer(request(key, model=f"model {key}"), 0.0)
    assert scheduler._placing._columns == {}


def test_an_engine_that_keeps_prompts_otherwise_now_is_looked_at_anew() -> None:
    scheduler = fleet("a", "b", slots=1)
    scheduler.drain("b", True, 0.0)
    scheduler.offer(request(1, text(1000, "p")), 0.0)
    ok(scheduler, 1, 1.0, usage(1000, 0, 5))
    scheduler.drain("b", False, 1.0)
    offer_all(scheduler, [request(2, text(9, "x")), request(3, text(9, "y"))], 1.0)
    scheduler.offer(request(4, text(1200, "p")), 1.0)
    discovered(scheduler, "a", facts(1, residency=Residency.SLOTS), 2.0)
    holder = next(
        it for it in (2, 3) if scheduler.entries[it].grant and scheduler.entries[it].grant.engine == "a"
    )
    (grant,) = [it for it in scheduler.finish(holder, Outcome.OK, NOTHING, 3.0).decisions if it.key == 4]
    assert (grant.engine, grant.predicted_tokens) == ("a", 0)


def pooled(key: int, prompt: bytes) -> Request:
    return request(key, prompt, pool=("m", "n"))


def test_an_engine_that_serves_another_model_of_the_pool_now_is_looked_at_anew() -> None:
    scheduler = fleet("a", slots=1)
    scheduler.offer(pooled(1, text(1000, "p")), 0.0)
    scheduler.first_token(1, 0.5)
    scheduler.offer(pooled(2, text(1200, "p")), 1.0)
    discovered(scheduler, "a", facts(1, models=("n",)), 2.0)
    grant = granted(ok(scheduler, 1, 3.0, usage(1000, 0, 5)))
    assert (grant.key, grant.model, grant.predicted_tokens) == (2, "n", 0)
    assert grant.route is Route.ONLY


def test_what_is_learned_of_a_model_bounds_every_engine_that_serves_it() -> None:
    scheduler = fleet("a", "b", slots=2)
    for name in "ab":
        discovered(scheduler, name, facts(2, kv_tokens=64_000))
    for key in range(10):
        scheduler.drain("b", True, float(key))
        scheduler.offer(request(key, text(1000, f"c{key}")), float(key))
        ok(scheduler, key, key + 0.5, usage(2000, 0, 5))
    assert scheduler.index.size("a")[1] == scheduler.index.size("b")[1] < 1000


def test_an_engine_that_restarts_has_no_turn_to_wait_for() -> None:
    scheduler = one_with_a_resident_and_a_running_one()
    scheduler.offer(request(3, text(6000, "n3")), 1.0)
    scheduler.tick(40.0)
    assert scheduler._swaps._next_at
    scheduler.update("a", Restarted(), 41.0)
    assert scheduler._swaps._next_at == {}
