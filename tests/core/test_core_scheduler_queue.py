"""The queue as the scheduler keeps it: its limits, who is served next, how long anybody waits."""

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
    refused,
    rejected,
    request,
    text,
)

from gateway.core.engine import Engine
from gateway.core.request import HIGH, LOW, Outcome, Reason
from gateway.core.scheduler import Limits, Scheduler

# Limits of the queue


def test_a_queue_full_by_count() -> None:
    scheduler = fleet("a", slots=1, max_queue=1)
    offer_all(scheduler, [request(1), request(2)])
    rejection = rejected(scheduler.offer(request(3), 0.0))
    assert (rejection.reason, rejection.retry_after_s) == (Reason.QUEUE_FULL, 20.0)
    assert 3 not in scheduler.entries
    assert len(scheduler.queue) == 1


def test_a_queue_full_by_bytes() -> None:
    scheduler = fleet("a", slots=1, max_queue_bytes=1000)
    offer_all(scheduler, [request(1, body_bytes=999), request(2, body_bytes=600)])
    assert refused(scheduler.offer(request(3, body_bytes=401), 0.0)) == [(3, Reason.QUEUE_FULL)]
    assert scheduler.offer(request(4, body_bytes=400), 0.0).decisions == []


def test_a_request_that_needs_no_queue_is_not_refused_for_its_bounds() -> None:
    scheduler = fleet("a", slots=1, max_queue=0)
    assert placed(scheduler.offer(request(1, body_bytes=1 << 30), 0.0)) == [(1, "a")]


def test_where_waiting_is_not_possible_the_engine_that_is_free_takes_it() -> None:
    scheduler = fleet("a", "b", slots=1, max_queue=0, policy="prefix")
    ok_prompt = text(2560, "x")
    offer_all(scheduler, [request(1, ok_prompt)])
    scheduler.first_token(1, 0.1)
    grant = granted(scheduler.offer(request(2, ok_prompt), 0.2))
    assert (grant.engine, grant.predicted_tokens, grant.best_tokens) == ("b", 0, 2559)


def test_a_queue_full_of_one_model_does_not_refuse_another_whose_engine_is_free() -> None:
    scheduler = fleet("a", "b", slots=1, max_queue=1)
    discovered(scheduler, "b", facts(1, models=("n",)))
    offer_all(scheduler, [request(1), request(2)])
    assert placed(scheduler.offer(request(3, model="n"), 0.0)) == [(3, "b")]
    assert refused(scheduler.offer(request(4, model="n"), 0.0)) == [(4, Reason.QUEUE_FULL)]


def test_a_refused_request_keeps_no_slots_from_others() -> None:
    scheduler = fleet("a", slots=2, max_queue=1)
    offer_all(scheduler, [request(1), request(2, width=2)])
    assert refused(scheduler.offer(request(3), 1.0)) == [(3, Reason.QUEUE_FULL)]
    scheduler.finish(2, Outcome.CLIENT_DISCONNECT, NOTHING, 2.0)
    scheduler.tick(9.0)
    assert scheduler.idle_while_waiting_s("a", 9.0) == 2.0


def test_a_refused_request_did_not_wait_beside_an_idle_slot() -> None:
    scheduler = fleet("a", "b", slots=2, max_queue=1)
    discovered(scheduler, "b", facts(2, models=("n",)))
    offer_all(scheduler, [request(1, width=2), request(2), request(3, model="n")])
    assert refused(scheduler.offer(request(4, model="n", width=2), 1.0)) == [(4, Reason.QUEUE_FULL)]
    assert scheduler.idle_while_waiting_s("b", 9.0) == 0.0


def test_a_request_is_rejected_when_its_own_wait_is_over() -> None:
    scheduler = fleet("a", slots=1)
    offer_all(scheduler, [request(1), request(2, max_wait_s=5.0), request(3, max_wait_s=9.0)])
    assert scheduler.next_deadline() == 5.0
    rejection = rejected(scheduler.tick(5.0))
    assert (rejection.key, rejection.reason) == (2, Reason.QUEUE_TIMEOUT)
    assert "Waited 5.0 s" in rejection.message
    assert scheduler.next_deadline() == 9.0
    assert placed(ok(scheduler, 1, 6.0)) == [(3, "a")]
    assert scheduler.next_deadline() is None


def test_priorities_are_served_in_order_until_long_waiting_moves_one_up() -> None:
    scheduler = fleet("a", slots=1)
    offer_all(scheduler, [request(1), request(2, priority=LOW)])
    for key, now in ((3, 28.0), (4, 29.0), (5, 29.2)):
        scheduler.offer(request(key), now)
    assert placed(ok(scheduler, 1, 29.5)) == [(3, "a")]
    # At 30 s the low one has become normal, and came first.
    assert placed(ok(scheduler, 3, 30.0)) == [(2, "a")]
    assert placed(ok(scheduler, 2, 31.0)) == [(4, "a")]
    scheduler.offer(request(6, priority=HIGH), 31.0)
    assert placed(ok(scheduler, 4, 32.0)) == [(6, "a")]


@pytest.mark.parametrize(
    ("slots", "slot_s", "waiting", "expected"),
    [(2, 10.0, 3, 20.0), (8, 0.5, 3, 1.0), (1, 30.0, 9, 60.0)],
)
def test_retry_after_is_the_time_to_drain_the_queue_within_bounds(
    slots: int, slot_s: float, waiting: int, expected: float
) -> None:
    scheduler = fleet("a", slots=slots)
    scheduler.engines["a"].slot_s = slot_s
    offer_all(scheduler, map(request, range(slots + waiting)))
    assert scheduler.retry_after_s() == expected


def test_retry_after_without_an_engine_is_a_guess() -> None:
    assert Scheduler([Engine("a", "http://a")], Limits()).retry_after_s() == 10.0


def test_who_waits_for_an_engine_that_drains_looks_for_another() -> None:
    scheduler = fleet("a", "b", slots=1)
    offer_all(scheduler, [request(1), request(2), request(3)])
    waiting = scheduler.queue.get(3)
    assert waiting is not None
    first = waiting.engine
    scheduler.drain(first, True, 1.0)
    assert waiting.engine == ({"a", "b"} - {first}).pop()
    assert waiting.why == f"a slot on {waiting.engine}"
