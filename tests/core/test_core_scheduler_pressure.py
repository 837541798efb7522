"""Conversations that fill an engine's KV cache, and one that comes new: engine a computes 100 tokens a second
and has room for four conversations of 1,000 tokens."""

import pytest
from core_values import discovered, facts, fleet, granted, offer_all, ok, placed, rejected, request, text

from gateway.core.request import HIGH, NORMAL, Outcome, Reason, Request, Usage
from gateway.core.router import Policy
from gateway.core.scheduler import Scheduler
from gateway.core.swaps import MAX_TURN_S, SQUEEZE_AFTER_S

KV_TOKENS = 4096
TURN_LASTS_S = MAX_TURN_S
"""10 s of prefill, squared, four times over would be more."""

ROOM_ON_A = "room in the KV cache of a, which conversations in use fill"


def turn(
    key: int, conversation: int, more: int = 0, priority: int = NORMAL, max_wait_s: float = 120.0
) -> Request:
    """A turn with `more` tokens behind the first 1,000."""
    prompt = text(1000, f"c{conversation}") + text(more, f"more of {conversation}")
    return request(key, prompt, priority=priority, max_wait_s=max_wait_s)


def one_engine(policy: Policy = "cost", slots: int = 6) -> Scheduler:
    scheduler = fleet("a", slots=slots, policy=policy)
    discovered(scheduler, "a", facts(slots, kv_tokens=KV_TOKENS))
    scheduler.engines["a"].prefill_tokens_per_s = 100.0
    return scheduler


def full_of(scheduler: Scheduler, *conversations: int, now: float = 0.0) -> Scheduler:
    """A turn of each runs, with the conversation's number as its key."""
    assert offer_all(scheduler, [turn(it, it) for it in conversations], now)
    for key in conversations:
        scheduler.first_token(key, now)
    return scheduler


def where_answers_are_gone_on_from() -> Scheduler:
    """Until 400 s a short conversation has gone on 9 s after each answer, 40 times."""
    scheduler = one_engine()
    for at in range(40):
        granted(scheduler.offer(request(1000 + at, text(100, "w")), 10.0 * at))
        ok(scheduler, 1000 + at, 10.0 * at + 1.0)
    return scheduler


def why(scheduler: Scheduler, key: int) -> str:
    waiting = scheduler.queue.get(key)
    assert waiting is not None
    return waiting.why


def of_running() -> Scheduler:
    return full_of(one_engine(), 1, 2, 3, 4)


# What runs


def test_a_new_conversation_waits_while_those_that_run_fill_the_cache() -> None:
    scheduler = of_running()
    assert placed(scheduler.offer(turn(5, 5), 1.0)) == []
    assert why(scheduler, 5) == ROOM_ON_A
    assert scheduler.engines["a"].free == 2
    assert placed(scheduler.tick(1.0 + SQUEEZE_AFTER_S - 0.1)) == []


def test_one_that_has_waited_long_takes_its_turn_though_the_engine_can_only_queue_it() -> None:
    scheduler = of_running()
    offer_all(scheduler, [turn(5, 5), turn(6, 6)], 1.0)
    assert placed(scheduler.tick(1.0 + SQUEEZE_AFTER_S)) == [(5, "a")]
    assert placed(scheduler.tick(1.0 + SQUEEZE_AFTER_S + 60.0)) == []


def test_it_does_not_keep_the_slot_from_one_that_is_resident() -> None:
    scheduler = of_running()
    scheduler.offer(turn(5, 5), 1.0)
    assert placed(scheduler.offer(turn(6, 2, more=20), 2.0)) == [(6, "a")]
    assert placed(scheduler.offer(request(7, b"no whole block"), 2.0)) == [(7, "a")]
    assert why(scheduler, 5) == ROOM_ON_A


def test_it_goes_in_when_one_ends() -> None:
    scheduler = of_running()
    scheduler.offer(turn(5, 5), 1.0)
    assert placed(ok(scheduler, 3, 2.0)) == [(5, "a")]


def test_of_several_each_end_lets_one_in() -> None:
    """At once, since nothing that ended went on so far."""
    scheduler = of_running()
    offer_all(scheduler, [turn(key, key) for key in (5, 6, 7, 8)], 1.0)
    assert placed(ok(scheduler, 1, 1.1)) == [(5, "a")]
    assert placed(ok(scheduler, 2, 1.2)) == [(6, "a")]
    assert placed(ok(scheduler, 3, 1.2)) == [(7, "a")]
    assert placed(scheduler.tick(2.0)) == []
    assert why(scheduler, 8) == ROOM_ON_A


def test_one_that_fits_does_not_wait_behind_one_that_does_not() -> None:
    scheduler = full_of(one_engine(), 1, 2, 3)
    scheduler.offer(request(5, text(2000, "large")), 1.0)
    assert why(scheduler, 5) == ROOM_ON_A
    assert placed(scheduler.offer(turn(6, 6), 1.0)) == [(6, "a")]


def test_its_slot_counts_as_idle_beside_it() -> None:
    scheduler = of_running()
    scheduler.offer(turn(5, 5), 1.0)
    assert scheduler.idle_while_waiting_s("a", 4.0) == 3.0
    ok(scheduler, 3, 5.0)
    assert scheduler.idle_while_waiting_s("a", 9.0) == 4.0


def test_it_is_looked_at_again_every_second() -> None:
    scheduler = of_running()
    scheduler.offer(turn(5, 5), 1.0)
    assert scheduler.next_deadline() == 2.0
    scheduler.tick(2.0)
    assert scheduler.next_deadline() == 3.0


def test_once_its_wait_is_over_the_refusal_says_what_it_waited_for() -> None:
    scheduler = of_running()
    scheduler.offer(turn(5, 5, max_wait_s=7.0), 1.0)
    refusal = rejected(scheduler.tick(8.0))
    assert refusal.reason is Reason.QUEUE_TIMEOUT
    assert f"Waited 7.0 s for {ROOM_ON_A};" in refusal.message


def test_a_client_that_leaves_lets_the_next_one_in() -> None:
    scheduler = of_running()
    offer_all(scheduler, [turn(5, 5), turn(6, 6)], 1.0)
    scheduler.finish(5, Outcome.CLIENT_DISCONNECT, Usage(), 1.5)
    assert placed(scheduler.finish(2, Outcome.CLIENT_DISCONNECT, Usage(), 2.0)) == [(6, "a")]


def test_what_it_would_wait_for_is_told_beforehand() -> None:
    scheduler = of_running()
    for it, expected in (
        (turn(5, 5), ROOM_ON_A),
        (turn(5, 2, more=20), ""),
        (request(5, width=3), "3 slots on a"),
    ):
        _, chosen = scheduler.explain(it)
        assert chosen is not None
        assert scheduler.waits_for(it, chosen, 1.0) == expected
    assert not scheduler.queue


# Who is let in whatever it displaces


@pytest.mark.parametrize("policy", ["least_loaded", "round_robin", "prefix", "session"])
def test_other_policies_keep_nobody_out(policy: Policy) -> None:
    scheduler = full_of(one_engine(policy), 1, 2, 3, 4)
    assert placed(scheduler.offer(turn(5, 5), 1.0)) == [(5, "a")]
    it = turn(6, 6)
    _, chosen = scheduler.explain(it)
    assert chosen is not None
    assert scheduler.waits_for(it, chosen, 1.0) == ""


def test_a_call_without_a_slot_computes_nothing() -> None:
    scheduler = of_running()
    assert placed(scheduler.offer(request(5, text(1000, "c5"), width=0), 1.0)) == [(5, "a")]


def test_an_idle_engine_takes_a_prompt_that_is_larger_than_its_cache() -> None:
    scheduler = full_of(one_engine(), 1, 2, 3, 4)
    for key in (1, 2, 3, 4):
        ok(scheduler, key, 1.0)
    assert placed(scheduler.offer(request(5, text(9000, "huge")), 1.1)) == [(5, "a")]


def test_one_that_becomes_idle_lets_in_who_waited() -> None:
    scheduler = of_running()
    scheduler.offer(request(5, text(9000, "huge")), 1.0)
    for key in (1, 2, 3):
        assert placed(ok(scheduler, key, 2.0)) == []
    assert placed(ok(scheduler, 4, 2.0)) == [(5, "a")]


def test_where_nobody_may_wait_it_is_not_refused_for_want_of_room() -> None:
    scheduler = of_running()
    scheduler.queue.max_requests = 0
    assert placed(scheduler.offer(turn(5, 5), 1.0)) == [(5, "a")]


# What is likely to go on


def of_paused() -> Scheduler:
    """At 401 s conversations 2, 3 and 4 run, and 1 has ended; 5 has just taken a turn in its place."""
    scheduler = full_of(where_answers_are_gone_on_from(), 1, 2, 3, 4, now=400.0)
    assert placed(ok(scheduler, 1, 401.0)) == []
    assert placed(scheduler.offer(turn(5, 5), 401.0)) == [(5, "a")]
    scheduler.first_token(5, 401.0)
    return scheduler


def test_one_that_has_just_ended_is_waited_for_until_it_is_too_long_ago() -> None:
    scheduler = of_paused()
    scheduler.offer(turn(6, 6), 402.0)
    assert placed(ok(scheduler, 2, 403.0)) == []
    assert why(scheduler, 6) == ROOM_ON_A
    assert placed(scheduler.tick(403.0 + 15.9)) == []
    assert placed(scheduler.tick(403.0 + 16.0)) == [(6, "a")]


def test_its_next_turn_goes_before_who_waits_for_its_room() -> None:
    scheduler = of_paused()
    scheduler.offer(turn(6, 6), 402.0)
    ok(scheduler, 2, 403.0)
    assert placed(scheduler.offer(turn(12, 2, more=20), 404.0)) == [(12, "a")]
    assert placed(scheduler.tick(419.0)) == []


def test_turns_are_taken_by_the_clock() -> None:
    """Conversation 2 goes on all the time; its place is taken when the next turn is due."""
    scheduler = of_paused()
    scheduler.offer(turn(6, 6, max_wait_s=1000.0), 402.0)
    now = 403.0
    ok(scheduler, 2, now)
    for key in range(20, 32):
        now += 9.0
        assert placed(scheduler.offer(turn(key, 2, more=20), now)) == [(key, "a")]
        now += 0.5
        assert placed(ok(scheduler, key, now)) == []
    assert now < 401.0 + TURN_LASTS_S
    assert placed(scheduler.tick(401.0 + TURN_LASTS_S - 0.1)) == []
    assert placed(scheduler.tick(401.0 + TURN_LASTS_S)) == [(6, "a")]


@pytest.mark.parametrize("goes_on", [True, False])
def test_what_somebody_waits_to_go_on_from_is_not_pushed_out_though_it_is_long_ago(goes_on: bool) -> None:
    scheduler = of_paused()
    ok(scheduler, 2, 403.0)
    assert offer_all(scheduler, map(request, (90, 91, 92)), 403.0) == [(90, "a"), (91, "a"), (92, "a")]
    scheduler.offer(turn(6, 6, priority=HIGH), 425.0)
    if goes_on:
        scheduler.offer(request(12, text(800, "c2") + text(20, "another way")), 425.0)
    assert placed(ok(scheduler, 90, 426.0)) == [(12 if goes_on else 6, "a")]
