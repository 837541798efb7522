"""Which waiting request gets a slot that frees: 2,000 tokens are computed in a second."""

import pytest
from core_values import NOTHING, discovered, facts, fleet, granted, offer_all, ok, placed, request, text

from gateway.core.pairing import AGING, LATE_UNTIL_S
from gateway.core.request import HIGH, LOW, Outcome
from gateway.core.router import Policy
from gateway.core.scheduler import Scheduler

LONG, SHORT = text(3000, "long"), text(100, "short")

LONG_S, SHORT_S = AGING * 1.5, AGING * 0.05
"""What a prefill counts for in the order, as a time of arrival."""


def full(slots: int, policy: Policy = "cost", now: float = 0.0) -> Scheduler:
    """Requests 100 and so on run on every slot."""
    scheduler = fleet("a", slots=slots, policy=policy)
    offer_all(scheduler, [request(100 + at) for at in range(slots)], now)
    return scheduler


def next_ones(scheduler: Scheduler, running: int, at: float, count: int) -> list[int]:
    """Who gets the slot, one after the other, as each ends at once."""
    out = []
    for _ in range(count):
        ((running, _),) = placed(ok(scheduler, running, at))
        out.append(running)
    return out


# By arrival and prefill


@pytest.mark.parametrize(
    ("arrives", "order"),
    [(0.1, [2, 1]), (LONG_S - SHORT_S - 0.1, [2, 1]), (LONG_S - SHORT_S + 0.1, [1, 2])],
)
def test_a_short_prompt_passes_a_long_one_that_has_not_waited_for_it(
    arrives: float, order: list[int]
) -> None:
    scheduler = full(slots=4)
    scheduler.offer(request(1, LONG), 0.0)
    scheduler.offer(request(2, SHORT), arrives)
    assert next_ones(scheduler, 100, arrives, 2) == order


def test_what_is_cached_is_not_prefill() -> None:
    scheduler = full(slots=4)
    ok(scheduler, 103, 0.0)
    offer_all(scheduler, [request(9, LONG)])
    scheduler.first_token(9, 1.0)
    scheduler.offer(request(1, text(800, "new")), 2.0)
    scheduler.offer(request(2, LONG + SHORT), 2.0)
    assert next_ones(scheduler, 100, 2.1, 2) == [2, 1]


def test_equals_are_served_as_they_came() -> None:
    scheduler = full(slots=8)
    offer_all(scheduler, [request(key, text(500, f"p{key}")) for key in (3, 1, 2)])
    assert next_ones(scheduler, 100, 1.0, 3) == [3, 1, 2]


@pytest.mark.parametrize("policy", ["least_loaded", "round_robin", "prefix", "session"])
def test_other_policies_serve_in_the_order_of_arrival(policy: Policy) -> None:
    scheduler = full(4, policy)
    offer_all(scheduler, [request(1, LONG), request(2, SHORT)])
    assert next_ones(scheduler, 100, 1.0, 2) == [1, 2]


def test_a_higher_priority_passes_whatever_the_prompt() -> None:
    scheduler = full(slots=4)
    offer_all(
        scheduler,
        [request(1, SHORT, priority=LOW), request(2, SHORT), request(3, LONG, priority=HIGH)],
    )
    assert next_ones(scheduler, 100, 1.0, 3) == [3, 2, 1]


# One who waits for several slots


def test_nobody_passes_one_who_waits_for_several_slots() -> None:
    scheduler = full(slots=4)
    offer_all(scheduler, [request(1, LONG, width=2), request(2, SHORT)])
    assert placed(ok(scheduler, 100, 0.1)) == []
    assert placed(ok(scheduler, 101, 0.2)) == [(1, "a")]
    assert placed(ok(scheduler, 102, 0.3)) == [(2, "a")]


def test_nor_does_that_one_pass_those_before_it() -> None:
    scheduler = full(slots=4)
    offer_all(scheduler, [request(1, LONG), request(2, SHORT, width=2), request(3, SHORT)])
    assert placed(ok(scheduler, 100, 0.1)) == [(1, "a")]
    assert placed(ok(scheduler, 101, 0.2)) == []
    assert placed(ok(scheduler, 102, 0.3)) == [(2, "a")]


# The late


def waited(*since: float, slots: int = 1) -> Scheduler:
    """Request 1 and so on wait since these times, all with the same prefill."""
    scheduler = full(slots)
    for key, at in enumerate(since, 1):
        scheduler.offer(request(key, text(200, f"p{key}")), at)
    return scheduler


def test_in_a_crowded_queue_the_late_let_the_others_go_first() -> None:
    assert next_ones(waited(0.0, 1.0, 8.0), 100, 9.0, 3) == [3, 1, 2]


def test_whoever_has_waited_long_enough_goes_first_again() -> None:
    at = LATE_UNTIL_S + 0.5
    assert next_ones(waited(0.0, 1.0, at - 1.0), 100, at, 3) == [1, 3, 2]


def test_where_fewer_wait_nobody_lets_another_go_first() -> None:
    assert next_ones(waited(0.0, 1.0, 8.0, slots=5), 100, 9.0, 3) == [1, 2, 3]


# What is looked at


def test_slots_that_come_at_once_go_to_the_first_in_line() -> None:
    scheduler = full(slots=2)
    offer_all(scheduler, [request(key, text(200, f"p{key}")) for key in range(1, 4)])
    scheduler.set_quota("a", 0, 0.1)
    assert placed(ok(scheduler, 100, 0.2)) == []
    assert placed(ok(scheduler, 101, 0.3)) == []
    assert placed(scheduler.set_quota("a", 2, 0.4)) == [(1, "a"), (2, "a")]
    assert [it.request.key for it in scheduler.queue] == [3]


def test_who_waits_for_a_full_engine_has_its_place_kept_from_those_behind_it() -> None:
    """Request 1 waits for what a holds; the slot of b that it does not want goes to the next."""
    scheduler = fleet("a", "b", slots=1)
    scheduler.engines["a"].slot_s = 0.5
    assert granted(scheduler.offer(request(100, LONG), 0.0)).engine == "a"
    scheduler.first_token(100, 1.0)
    scheduler.offer(request(101), 1.0)
    scheduler.offer(request(1, LONG + b"more", priority=HIGH), 1.0)
    scheduler.offer(request(2, SHORT), 1.0)
    assert placed(ok(scheduler, 101, 1.1)) == [(2, "b")]
    assert placed(ok(scheduler, 100, 1.2)) == [(1, "a")]


def test_models_are_served_apart() -> None:
    scheduler = fleet("a", "b", slots=1)
    discovered(scheduler, "b", facts(1, models=("n",)))
    offer_all(scheduler, [request(100), request(101, model="n")])
    offer_all(scheduler, [request(1), request(2, model="n"), request(3), request(4, model="n")])
    assert placed(ok(scheduler, 101, 1.0)) == [(2, "b")]
    assert placed(ok(scheduler, 100, 2.0)) == [(1, "a")]
    assert [it.request.key for it in scheduler.queue] == [3, 4]


def test_what_is_granted_counts_for_those_looked_at_after_it() -> None:
    """Four slots on two engines come free at one moment."""
    scheduler = fleet("a", "b", slots=2)
    offer_all(scheduler, [request(100 + at) for at in range(4)])
    offer_all(scheduler, [request(key, text(500, f"p{key}")) for key in range(1, 5)])
    for at in range(4):
        assert placed(scheduler.finish(100 + at, Outcome.CLIENT_DISCONNECT, NOTHING, 1.0)) == []
    grants = placed(scheduler.tick(3.0))
    assert [key for key, _ in grants] == [1, 2, 3, 4]
    assert sorted(engine for _, engine in grants) == ["a", "a", "b", "b"]


def test_a_free_slot_that_a_wide_one_waits_with_is_not_given_to_the_next() -> None:
    scheduler = fleet("a", "b", slots=2)
    scheduler.engines["a"].slot_s = 0.5
    assert granted(scheduler.offer(request(100, LONG), 0.0)).engine == "a"
    scheduler.first_token(100, 1.0)
    assert granted(scheduler.offer(request(101), 1.0)).engine == "b"
    assert placed(scheduler.offer(request(1, LONG + b"one", width=2), 1.0)) == []
    assert placed(scheduler.offer(request(2, LONG + b"two"), 1.0)) == []
    assert scheduler.engines["a"].free == 1
    assert placed(ok(scheduler, 100, 1.1)) == [(1, "a")]
