"""The life of requests, told as scripts: offered, queued, granted, failed, finished; engines come and go."""

import pytest
from core_values import (
    NOTHING,
    fleet,
    granted,
    offer_all,
    ok,
    placed,
    refused,
    rejected,
    reported,
    request,
    text,
    usage,
)

from gateway.core.engine import Health
from gateway.core.request import HIGH, Outcome, Reason, Route, Usage

# Offer and finish


def test_twelve_requests_on_two_engines_of_two_slots() -> None:
    scheduler = fleet("a", "b", slots=2)
    assert sorted(offer_all(scheduler, map(request, range(12)))) == [(0, "a"), (1, "b"), (2, "a"), (3, "b")]
    assert [it.request.key for it in scheduler.queue] == list(range(4, 12))


def test_freed_slots_go_in_order_of_arrival() -> None:
    scheduler = fleet("a", "b", slots=2)
    offer_all(scheduler, map(request, range(12)))
    assert placed(ok(scheduler, 1, 1.0)) == [(4, "b")]
    assert placed(ok(scheduler, 0, 2.0)) == [(5, "a")]
    assert placed(ok(scheduler, 5, 3.0)) == [(6, "a")]


def test_a_grant_tells_why_how_wide_and_how_long_it_queued() -> None:
    scheduler = fleet("a", slots=2)
    offer_all(scheduler, [request(1), request(2)])
    assert scheduler.offer(request(3, width=9), 1.0).decisions == []
    ok(scheduler, 1, 2.0)
    grant = granted(ok(scheduler, 2, 4.5))
    assert (grant.key, grant.engine, grant.route, grant.attempt) == (3, "a", Route.ONLY, 1)
    assert (grant.width, grant.queue_s) == (2, 3.5)


def test_what_an_engine_says_cannot_keep_its_slot() -> None:
    scheduler = fleet("a", slots=1)
    offer_all(scheduler, [request(1, text(100, "x"))])
    with pytest.raises(OverflowError):
        ok(scheduler, 1, 1.0, usage(10**400))
    assert scheduler.offer(request(2, text(100, "x")), 2.0).want == {"a": 1}
    assert scheduler.explain(request(3, text(100, "x")))[0][0].pending_tokens > 0
    assert placed(ok(scheduler, 2, 3.0)) == []
    assert not scheduler.engines["a"].leases


def test_want_is_the_width_in_flight_on_each_engine() -> None:
    scheduler = fleet("a", "b", slots=2)
    assert scheduler.offer(request(1, width=2), 0.0).want == {"a": 2, "b": 0}
    assert scheduler.offer(request(2), 0.0).want == {"a": 2, "b": 1}
    assert ok(scheduler, 1, 1.0).want == {"a": 0, "b": 1}


def test_want_is_also_the_width_that_waits_for_an_engine() -> None:
    scheduler = fleet("a", slots=2)
    offer_all(scheduler, [request(1)])
    assert scheduler.offer(request(2, width=2), 0.0).want == {"a": 3}
    # All of "a" is spoken for, and the backlog is wanted all the same.
    assert scheduler.offer(request(3), 0.0).want == {"a": 4}
    assert ok(scheduler, 1, 1.0).want == {"a": 3}
    assert ok(scheduler, 2, 2.0).want == {"a": 1}


@pytest.mark.parametrize("how", ["leaves", "times out", "is refused"])
def test_width_that_waits_no_longer_is_not_wanted(how: str) -> None:
    scheduler = fleet("a", slots=2)
    offer_all(scheduler, [request(1), request(2, width=2, max_wait_s=5.0)])
    if how == "leaves":
        step = scheduler.finish(2, Outcome.CLIENT_DISCONNECT, NOTHING, 1.0)
    elif how == "times out":
        step = scheduler.tick(5.0)
    else:
        step = scheduler.drain("a", True, 1.0)
    assert step.want == {"a": 1}


def test_a_queued_request_that_leaves_is_gone() -> None:
    scheduler = fleet("a", slots=1)
    offer_all(scheduler, [request(1), request(2), request(3)])
    scheduler.finish(2, Outcome.CLIENT_DISCONNECT, NOTHING, 1.0)
    assert placed(ok(scheduler, 1, 2.0)) == [(3, "a")]


def test_a_wide_request_that_leaves_the_queue_frees_the_slots_kept_for_it() -> None:
    scheduler = fleet("a", slots=2)
    offer_all(scheduler, [request(1), request(2, width=2), request(3)])
    step = scheduler.finish(2, Outcome.CLIENT_DISCONNECT, NOTHING, 1.0)
    assert placed(step) == [(3, "a")]


def test_a_finished_or_unknown_request_finishes_without_effect() -> None:
    scheduler = fleet("a")
    offer_all(scheduler, [request(1)])
    ok(scheduler, 1, 1.0)
    for step in (ok(scheduler, 1, 2.0), ok(scheduler, 99, 2.0)):
        assert step.decisions == []
        assert step.want == {"a": 0}


def test_calls_for_requests_that_are_not_granted_do_nothing() -> None:
    scheduler = fleet("a", slots=1)
    offer_all(scheduler, [request(1), request(2)])
    for key in (2, 99):
        scheduler.first_token(key, 1.0)
        assert scheduler.retry(key, 1.0, reached=False).decisions == []
        assert scheduler.decline(key, 1.0).decisions == []
    assert scheduler.engines["a"].in_flight == 1


def test_a_closed_scheduler_refuses_new_requests_and_serves_the_old() -> None:
    scheduler = fleet("a", slots=1)
    offer_all(scheduler, [request(1), request(2)])
    scheduler.close()
    assert refused(scheduler.offer(request(3), 1.0)) == [(3, Reason.SHUTTING_DOWN)]
    assert placed(ok(scheduler, 1, 2.0)) == [(2, "a")]


def test_a_good_answer_teaches_rates_and_confirms_the_prompt() -> None:
    scheduler = fleet("a", "b")
    prompt = text(2560, "x")
    offer_all(scheduler, [request(1, prompt)])
    scheduler.first_token(1, 2.0)
    assert scheduler.engines["a"].pending_prefill_tokens == 0
    ok(scheduler, 1, 5.0, usage(2560, 0, 31))
    assert scheduler.engines["a"].prefill_tokens_per_s == 1280.0
    grant = granted(scheduler.offer(request(2, prompt), 6.0))
    assert (grant.engine, grant.route, grant.predicted_tokens) == ("a", Route.PREFIX, 2559)


def test_a_failed_request_teaches_nothing_and_leaves_no_blocks() -> None:
    scheduler = fleet("a")
    offer_all(scheduler, [request(1, text(2560, "x"))])
    scheduler.finish(1, Outcome.ENGINE_ERROR, usage(2560, 0, 31), 5.0)
    assert scheduler.engines["a"].slot_s is None
    assert scheduler.index.size("a")[0] == 0


# Slots whose client left


@pytest.mark.parametrize(
    "outcome",
    [Outcome.CLIENT_DISCONNECT, Outcome.CLIENT_TIMEOUT, Outcome.ENGINE_TIMEOUT, Outcome.SHUTDOWN],
)
def test_a_slot_whose_request_we_hung_up_on_cools(outcome: Outcome) -> None:
    scheduler = fleet("a", slots=1)
    offer_all(scheduler, [request(1), request(2)])
    assert scheduler.finish(1, outcome, NOTHING, 1.0).decisions == []
    assert scheduler.next_deadline() == 3.0
    assert scheduler.tick(2.9).decisions == []
    assert placed(scheduler.tick(3.0)) == [(2, "a")]


def test_a_report_that_shows_the_slot_idle_ends_the_cooling() -> None:
    scheduler = fleet("a", slots=1)
    offer_all(scheduler, [request(1), request(2)])
    scheduler.finish(1, Outcome.CLIENT_DISCONNECT, NOTHING, 1.0)
    assert reported(scheduler, "a", 1, 1.2).decisions == []
    assert placed(reported(scheduler, "a", 0, 1.4)) == [(2, "a")]


def test_a_client_that_leaves_beside_steady_short_answers_costs_two_reports() -> None:
    scheduler = fleet("a", slots=2)
    offer_all(scheduler, [request(1), request(2), request(3), request(4), request(5)])
    scheduler.first_token(1, 0.05)
    assert placed(ok(scheduler, 2, 0.2)) == [(3, "a")]
    assert scheduler.finish(1, Outcome.CLIENT_DISCONNECT, NOTHING, 0.25).decisions == []
    # The engine has stopped the one that left: it runs the one of 0.2 s that is under way, and no more.
    assert reported(scheduler, "a", 1, 0.35).decisions == []
    assert placed(ok(scheduler, 3, 0.4)) == [(4, "a")]
    assert reported(scheduler, "a", 1, 0.45).decisions == []
    assert placed(reported(scheduler, "a", 1, 0.55)) == [(5, "a")]
    assert scheduler.engines["a"].cooling == []


@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.ENGINE_ERROR, Outcome.ENGINE_TRUNCATED])
def test_a_slot_whose_engine_ended_the_request_is_free_at_once(outcome: Outcome) -> None:
    scheduler = fleet("a", slots=1)
    offer_all(scheduler, [request(1), request(2)])
    assert placed(scheduler.finish(1, outcome, NOTHING, 1.0)) == [(2, "a")]


def test_a_slot_whose_request_was_never_written_is_free_at_once() -> None:
    scheduler = fleet("a", slots=1)
    offer_all(scheduler, [request(1), request(2)])
    step = scheduler.finish(1, Outcome.CLIENT_DISCONNECT, NOTHING, 1.0, reached=False)
    assert placed(step) == [(2, "a")]


# Retry and decline


def test_a_connection_that_failed_is_tried_elsewhere_as_often_as_there_are_engines() -> None:
    scheduler = fleet("a", "b", "c")
    offer_all(scheduler, [request(1)])
    second = granted(scheduler.retry(1, 0.1, reached=False))
    assert (second.engine, second.route, second.attempt) == ("b", Route.RETRY, 2)
    assert placed(scheduler.retry(1, 0.2, reached=False)) == [(1, "c")]
    assert refused(scheduler.retry(1, 0.3, reached=False)) == [(1, Reason.ENGINE_UNREACHABLE)]
    assert scheduler.entries == {}
    assert [it.in_flight for it in scheduler.engines.values()] == [0, 0, 0]


def test_a_request_that_an_engine_died_of_is_sent_once_more_and_no_further() -> None:
    scheduler = fleet("a", "b", "c")
    offer_all(scheduler, [request(1)])
    assert placed(scheduler.retry(1, 0.1, reached=True)) == [(1, "b")]
    rejection = rejected(scheduler.retry(1, 0.2, reached=True))
    assert (rejection.key, rejection.reason) == (1, Reason.ENGINE_UNREACHABLE)
    assert "Engine b closed the connection" in rejection.message


def test_a_connection_that_failed_does_not_use_up_the_one_resend() -> None:
    scheduler = fleet("a", "b", "c")
    offer_all(scheduler, [request(1)])
    scheduler.retry(1, 0.1, reached=False)
    assert placed(scheduler.retry(1, 0.2, reached=True)) == [(1, "c")]


def test_the_only_engine_gets_a_request_that_reached_it_again_but_not_one_that_did_not() -> None:
    scheduler = fleet("a")
    offer_all(scheduler, [request(1), request(2)])
    assert placed(scheduler.retry(1, 0.1, reached=True)) == [(1, "a")]
    assert refused(scheduler.retry(2, 0.1, reached=False)) == [(2, Reason.ENGINE_UNREACHABLE)]


def test_the_slot_of_a_failed_request_goes_to_the_next() -> None:
    scheduler = fleet("a", slots=1)
    offer_all(scheduler, [request(1), request(2)])
    step = scheduler.retry(1, 0.1, reached=False)
    assert [(type(it).__name__, it.key) for it in step.decisions] == [("Rejection", 1), ("Grant", 2)]


def test_a_retried_request_goes_before_all_who_wait() -> None:
    scheduler = fleet("a", "b", slots=1)
    offer_all(scheduler, [request(1), request(2), request(3, priority=HIGH)])
    assert placed(scheduler.retry(2, 1.0, reached=False)) == [(3, "b")]
    assert placed(ok(scheduler, 1, 2.0)) == [(2, "a")]


def test_queued_time_is_the_time_in_the_queue_without_that_on_an_engine() -> None:
    scheduler = fleet("a", "b", slots=1)
    offer_all(scheduler, [request(1), request(2)])
    scheduler.offer(request(3), 0.0)
    assert granted(ok(scheduler, 1, 2.0)).queue_s == 2.0
    assert scheduler.retry(3, 50.0, reached=False).decisions == []
    assert granted(ok(scheduler, 2, 53.0)).queue_s == 5.0


def test_time_on_an_engine_does_not_count_against_the_wait_of_a_retried_request() -> None:
    scheduler = fleet("a", "b", slots=1)
    offer_all(scheduler, [request(1, max_wait_s=10.0), request(2)])
    assert scheduler.retry(1, 60.0, reached=False).decisions == []
    assert scheduler.tick(69.9).decisions == []
    assert refused(scheduler.tick(70.0)) == [(1, Reason.QUEUE_TIMEOUT)]


def test_a_declined_request_is_tried_elsewhere_without_a_mark_against_the_engine() -> None:
    scheduler = fleet("a", "b")
    offer_all(scheduler, [request(1)])
    grant = granted(scheduler.decline(1, 0.1))
    assert (grant.engine, grant.route, grant.attempt) == ("b", Route.RETRY, 2)
    assert scheduler.engines["a"].health is Health.READY
    assert refused(scheduler.decline(1, 0.2)) == [(1, Reason.ENGINE_UNREACHABLE)]


def test_a_declined_request_waits_for_another_engine_even_if_its_first_is_free() -> None:
    scheduler = fleet("a", "b", slots=1)
    offer_all(scheduler, [request(1), request(2)])
    assert scheduler.decline(1, 0.1).decisions == []
    assert scheduler.engines["a"].free == 1
    assert placed(ok(scheduler, 2, 1.0)) == [(1, "b")]


# Calls that need no slot


def test_a_request_without_width_is_granted_beside_full_engines_and_past_the_queue() -> None:
    scheduler = fleet("a", slots=1, max_queue=1)
    offer_all(scheduler, [request(1), request(2)])
    grant = granted(scheduler.offer(request(3, width=0), 0.0))
    assert (grant.engine, grant.width) == ("a", 0)
    assert scheduler.engines["a"].in_flight == 1
    scheduler.finish(3, Outcome.CLIENT_DISCONNECT, Usage(), 0.1)
    assert scheduler.engines["a"].cooling == []


def test_a_request_without_width_is_retried_without_waiting_for_a_slot() -> None:
    scheduler = fleet("a", "b", slots=1)
    offer_all(scheduler, [request(1), request(2), request(3), request(4, width=0)])
    assert placed(scheduler.retry(4, 0.1, reached=False)) == [(4, "b")]
