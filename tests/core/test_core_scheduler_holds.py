"""A slot that has just become free may be kept a moment for its session's next turn, told as scripts."""

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
    refused,
    reported,
    request,
    text,
)

from gateway.core.engine import Probe, Residency
from gateway.core.events import Restarted
from gateway.core.holds import MAX_HOLD_S, MIN_HOLD_S, PATIENCE_S
from gateway.core.request import HIGH, LOW, Outcome, Reason, Request
from gateway.core.router import POLICIES, Policy
from gateway.core.scheduler import Scheduler

SAVED = 2000  # tokens; a second at the rate that is assumed, so worth more than the first hold


def turn(key: int, session: str, number: int, **more: int) -> Request:
    """Turn `number` of a session: its prompt goes on from that of each earlier one."""
    return request(key, text(SAVED, session) + text(100 * number, f"{session}+"), **more)


def slots_fleet(*names: str, slots: int = 1, policy: Policy = "cost", max_queue: int = 512) -> Scheduler:
    """Engines that keep one prompt in each slot."""
    made = fleet(*names, slots=slots, policy=policy, max_queue=max_queue)
    for name in names:
        discovered(made, name, facts(slots, residency=Residency.SLOTS))
    return made


def one_kept(slots: int = 1, **waiting: int) -> Scheduler:
    """Engine a keeps a slot for session x from 1.0 to 1.2, and request 2 (session y) waits since 0.5."""
    scheduler = slots_fleet("a", slots=slots)
    scheduler.offer(turn(1, "x", 1, width=slots), 0.0)
    scheduler.offer(turn(2, "y", 1, **waiting), 0.5)
    assert ok(scheduler, 1, 1.0).decisions == []
    return scheduler


# Kept, and for how long


def test_the_next_turn_finds_its_slot_and_goes_before_all_who_wait() -> None:
    scheduler = one_kept()
    offer_all(scheduler, [turn(3, "z", 1, priority=HIGH)], 1.05)
    grant = granted(scheduler.offer(turn(4, "x", 2), 1.1))
    assert (grant.key, grant.engine, grant.queue_s) == (4, "a", 0.0)
    assert grant.predicted_tokens > SAVED
    assert [it.request.key for it in scheduler.queue] == [3, 2]
    assert scheduler.engines["a"].holds == []


def test_a_kept_slot_is_given_away_when_its_time_is_up() -> None:
    scheduler = one_kept()
    due = scheduler.next_deadline()
    assert due == 1.0 + MIN_HOLD_S
    assert scheduler.tick(due - 0.01).decisions == []
    assert placed(scheduler.tick(due)) == [(2, "a")]
    assert scheduler.offer(turn(3, "x", 2), due + 0.1).decisions == []


def test_no_other_event_gives_a_kept_slot_away() -> None:
    scheduler = one_kept()
    assert scheduler.offer(turn(3, "z", 1), 1.05).decisions == []
    assert scheduler.finish(3, Outcome.CLIENT_DISCONNECT, NOTHING, 1.06).decisions == []
    assert probed(scheduler, "a", Probe.OK, 1.07).decisions == []
    assert reported(scheduler, "a", 0, 1.08).decisions == []


def test_a_request_that_comes_when_nobody_waits_any_more_leaves_the_kept_slot_alone() -> None:
    scheduler = one_kept()
    scheduler.finish(2, Outcome.CLIENT_DISCONNECT, NOTHING, 1.01)
    assert scheduler.offer(turn(3, "z", 1), 1.05).decisions == []
    assert placed(scheduler.tick(1.2)) == [(3, "a")]


def test_a_slot_is_kept_longer_where_sessions_take_longer_to_come_back() -> None:
    scheduler = slots_fleet("a", slots=2)
    for number in range(30):
        now = 10.0 * number
        scheduler.offer(turn(number, "x", number + 1), now)
        ok(scheduler, number, now + 9.5)
    scheduler.offer(turn(100, "x", 40, width=2), 300.0)
    scheduler.offer(turn(101, "y", 1), 300.0)
    scheduler.engines["a"].prefill_tokens_per_s = 500.0
    ok(scheduler, 100, 301.0)
    (hold,) = scheduler.engines["a"].holds
    assert hold.until - 301.0 == pytest.approx(3 * 0.5, abs=0.01)


def test_a_kept_slot_counts_as_idle_beside_who_waits_until_it_is_taken() -> None:
    scheduler = one_kept()
    assert granted(scheduler.offer(turn(3, "x", 2), 1.1)).engine == "a"
    assert scheduler.idle_while_waiting_s("a", 6.0) == pytest.approx(0.1)
    scheduler.tick(9.0)
    assert scheduler.idle_while_waiting_s("a", 9.0) == pytest.approx(0.1)


def test_a_kept_slot_that_is_not_taken_counts_as_idle_until_it_is_given_away() -> None:
    scheduler = one_kept()
    scheduler.tick(1.2)
    assert scheduler.idle_while_waiting_s("a", 5.0) == pytest.approx(MIN_HOLD_S)


# Not kept


def test_no_slot_is_kept_where_nobody_waits() -> None:
    scheduler = slots_fleet("a")
    offer_all(scheduler, [turn(1, "x", 1)])
    ok(scheduler, 1, 1.0)
    assert placed(scheduler.offer(turn(2, "y", 1), 1.1)) == [(2, "a")]


def test_no_slot_is_kept_for_those_who_wait_for_another_engines_model() -> None:
    scheduler = slots_fleet("a", "b")
    discovered(scheduler, "b", facts(1, models=("n",)))
    offer_all(scheduler, [turn(1, "x", 1), request(2, model="n"), request(3, model="n")])
    ok(scheduler, 1, 1.0)
    assert scheduler.engines["a"].holds == []
    assert placed(scheduler.offer(turn(4, "y", 1), 1.1)) == [(4, "a")]


@pytest.mark.parametrize(("waited_s", "kept"), [(PATIENCE_S - 0.1, True), (PATIENCE_S, False)])
def test_no_slot_is_kept_from_one_who_has_waited_long(waited_s: float, kept: bool) -> None:
    scheduler = slots_fleet("a")
    offer_all(scheduler, [turn(1, "x", 1), turn(2, "y", 1)])
    assert placed(ok(scheduler, 1, waited_s)) == ([] if kept else [(2, "a")])


def test_one_who_has_waited_long_for_another_model_does_not_cost_a_session_its_slot() -> None:
    scheduler = slots_fleet("a", "b")
    discovered(scheduler, "b", facts(1, models=("n",)))
    offer_all(scheduler, [turn(1, "x", 1), request(2, model="n"), request(3, model="n")])
    scheduler.offer(turn(4, "y", 1), PATIENCE_S)
    assert ok(scheduler, 1, PATIENCE_S + 1.0).decisions == []


def test_sessions_that_always_come_back_at_once_keep_nobody_waiting_longer_than_that() -> None:
    scheduler = slots_fleet("a", slots=2)
    offer_all(scheduler, [turn(1, "x", 1), turn(2, "y", 1)])
    scheduler.offer(request(3, max_wait_s=999.0), 0.0)
    key, now = 10, 0.0
    running = {"x": 1, "y": 2}
    while not (waited := [it for it in placed(ok(scheduler, running["x"], now)) if it[0] == 3]):
        assert now < PATIENCE_S + 2.0
        for session, began in list(running.items()):
            if session == "y":
                ok(scheduler, began, now + 0.5)
            key += 1
            running[session] = granted(scheduler.offer(turn(key, session, key), now + 0.55)).key
        now += 2.0
    assert waited == [(3, "a")]
    assert now >= PATIENCE_S


def test_a_slot_is_not_kept_where_the_prefill_saved_is_worth_less() -> None:
    scheduler = slots_fleet("a")
    scheduler.engines["a"].prefill_tokens_per_s = 20_000.0
    offer_all(scheduler, [turn(1, "x", 1), turn(2, "y", 1)])
    assert placed(ok(scheduler, 1, 1.0)) == [(2, "a")]


def test_what_another_slot_holds_as_well_is_not_saved() -> None:
    scheduler = slots_fleet("a", slots=2)
    offer_all(scheduler, [turn(1, "x", 1), turn(2, "x", 1), turn(3, "y", 1)])
    assert placed(ok(scheduler, 1, 1.0)) == [(3, "a")]


def test_a_slot_is_not_kept_once_sessions_do_not_come_back() -> None:
    scheduler = slots_fleet("a")
    for key in range(20):
        scheduler.offer(turn(key, f"s{key}", 1), 10.0 * key)
        ok(scheduler, key, 10.0 * key + 1.0)
    offer_all(scheduler, [turn(100, "x", 1), turn(101, "y", 1)], 300.0)
    assert placed(ok(scheduler, 100, 301.0)) == [(101, "a")]


def test_a_pool_of_blocks_needs_no_kept_slots() -> None:
    scheduler = fleet("a", slots=1)
    offer_all(scheduler, [turn(1, "x", 1), turn(2, "y", 1)])
    assert placed(ok(scheduler, 1, 1.0)) == [(2, "a")]


@pytest.mark.parametrize("policy", [it for it in POLICIES if it != "cost"])
def test_other_policies_keep_no_slots(policy: Policy) -> None:
    scheduler = slots_fleet("a", policy=policy)
    offer_all(scheduler, [turn(1, "x", 1), turn(2, "y", 1)])
    assert placed(ok(scheduler, 1, 1.0)) == [(2, "a")]


@pytest.mark.parametrize("outcome", [it for it in Outcome if it is not Outcome.OK])
def test_a_request_that_did_not_end_well_has_no_next_turn_to_keep_a_slot_for(outcome: Outcome) -> None:
    scheduler = slots_fleet("a")
    offer_all(scheduler, [turn(1, "x", 1), turn(2, "y", 1)])
    scheduler.first_token(1, 0.5)
    scheduler.finish(1, outcome, NOTHING, 1.0)
    assert scheduler.engines["a"].holds == []


def test_a_prompt_too_short_for_a_block_and_a_call_without_a_slot_keep_none() -> None:
    scheduler = slots_fleet("a", slots=2)
    offer_all(scheduler, [request(1, b"short"), turn(2, "x", 1, width=0), request(3), request(4)])
    assert ok(scheduler, 2, 1.0).decisions == []
    assert scheduler.engines["a"].holds == []
    assert placed(ok(scheduler, 1, 1.1)) == [(4, "a")]
    assert scheduler.engines["a"].holds == []


@pytest.mark.parametrize(("waiting", "kept"), [(HIGH, False), (LOW, True)])
def test_a_slot_is_kept_from_those_of_ones_own_priority_and_below(waiting: int, kept: bool) -> None:
    scheduler = slots_fleet("a")
    offer_all(scheduler, [turn(1, "x", 1), turn(2, "y", 1, priority=waiting)])
    assert placed(ok(scheduler, 1, 1.0)) == ([] if kept else [(2, "a")])


def test_no_slot_is_kept_from_a_request_that_its_engine_has_failed() -> None:
    scheduler = slots_fleet("a", "b")
    offer_all(scheduler, [turn(1, "x", 1), turn(2, "y", 1)])
    assert scheduler.retry(2, 0.5, reached=False).decisions == []
    assert placed(ok(scheduler, 1, 1.0)) == [(2, "a")]


# Beside other slots, widths and engines


def test_a_kept_slot_keeps_only_itself() -> None:
    scheduler = slots_fleet("a", slots=2)
    offer_all(scheduler, [turn(1, "x", 1), request(2), request(3), request(4)])
    assert ok(scheduler, 1, 1.0).decisions == []
    assert placed(ok(scheduler, 2, 1.1)) == [(3, "a")]


def test_the_slots_of_a_wide_request_are_kept_together_and_end_together() -> None:
    scheduler = one_kept(slots=3)
    # The two that its next turn does not take go to who waits.
    assert placed(scheduler.offer(turn(3, "x", 2), 1.1)) == [(3, "a"), (2, "a")]


def test_a_next_turn_that_is_wider_than_its_kept_slot_waits_for_the_rest_like_others() -> None:
    scheduler = slots_fleet("a", slots=2)
    offer_all(scheduler, [turn(1, "x", 1), turn(2, "y", 1), turn(3, "z", 1)])
    assert ok(scheduler, 1, 1.0).decisions == []
    assert ok(scheduler, 2, 1.05).decisions == []
    assert scheduler.offer(turn(4, "x", 2, width=2), 1.1).decisions == []
    assert placed(scheduler.offer(turn(5, "y", 2), 1.15)) == [(5, "a")]
    assert placed(scheduler.tick(1.2)) == [(3, "a")]


def test_a_kept_slot_lets_nobody_overtake_on_another_engine() -> None:
    scheduler = slots_fleet("a", "b", slots=2)
    offer_all(scheduler, [turn(1, "x", 1, width=2), turn(2, "y", 1), turn(3, "y", 2)])
    assert scheduler.offer(request(4, text(SAVED, "w"), width=2), 0.5).decisions == []
    ok(scheduler, 1, 1.0)
    (hold,) = scheduler.engines["a"].holds
    assert hold.width == 2
    ok(scheduler, 2, 1.01)
    scheduler.drain("a", True, 1.02)
    free = scheduler.engines["b"].free
    assert free > 0
    assert scheduler.offer(turn(5, "x", 2), 1.05).decisions == []
    assert scheduler.engines["b"].free == free


def test_a_session_that_goes_to_another_engine_gives_up_its_kept_slot() -> None:
    scheduler = slots_fleet("a", "b")
    offer_all(scheduler, [turn(1, "x", 1), turn(2, "y", 1), turn(3, "z", 1)])
    assert ok(scheduler, 1, 1.0).decisions == []
    scheduler.drain("a", True, 1.05)
    scheduler.finish(3, Outcome.CLIENT_DISCONNECT, NOTHING, 1.06)
    scheduler.finish(2, Outcome.ENGINE_ERROR, NOTHING, 1.07)
    assert placed(scheduler.offer(turn(4, "x", 2), 1.1)) == [(4, "b")]
    assert scheduler.engines["a"].holds == []


def test_a_next_turn_takes_its_kept_slot_past_a_full_queue() -> None:
    scheduler = slots_fleet("a", max_queue=1)
    offer_all(scheduler, [turn(1, "x", 1), turn(2, "y", 1)])
    ok(scheduler, 1, 1.0)
    assert refused(scheduler.offer(turn(3, "z", 1), 1.05)) == [(3, Reason.QUEUE_FULL)]
    assert placed(scheduler.offer(turn(4, "x", 2), 1.1)) == [(4, "a")]


def test_a_restart_gives_kept_slots_away() -> None:
    scheduler = one_kept()
    assert placed(scheduler.update("a", Restarted(), 1.1)) == [(2, "a")]
    assert scheduler.engines["a"].holds == []


def test_a_quota_that_takes_the_kept_slot_away_leaves_nothing_to_come_back_to() -> None:
    scheduler = one_kept(slots=2)
    scheduler.set_quota("a", 0, 1.05)
    assert scheduler.offer(turn(3, "x", 2), 1.1).decisions == []
    assert scheduler.tick(1.0 + MAX_HOLD_S).decisions == []
    assert placed(scheduler.set_quota("a", 1, 4.0)) == [(3, "a")]


def test_a_slot_that_cools_is_not_the_kept_one() -> None:
    scheduler = slots_fleet("a", slots=2)
    offer_all(scheduler, [turn(1, "x", 1), request(2), request(3)])
    ok(scheduler, 1, 1.0)
    scheduler.finish(2, Outcome.CLIENT_DISCONNECT, NOTHING, 1.05)
    assert placed(scheduler.offer(turn(4, "x", 2), 1.1)) == [(4, "a")]
    assert scheduler.offer(turn(5, "x", 3), 1.15).decisions == []
    assert scheduler.engines["a"].free == 0
