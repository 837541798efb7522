"""Time at each number of requests: what the clock counts, hour by hour, and that requests drive it."""

import pytest
from core_values import discovered, engine, facts, fleet, offer_all, ok, placed, refused, request

from gateway.core.concurrency import HIGHEST, HOURS, Concurrency
from gateway.core.engine import Engine
from gateway.core.request import Outcome, Reason, Usage
from gateway.core.scheduler import Scheduler

NOON = 1_796_126_400.0
"""2026-12-01T12:00Z in seconds since 1970."""


def at(seconds: list[float]) -> dict[int, float]:
    return {n: spent_s for n, spent_s in enumerate(seconds) if spent_s}


def in_flight(scheduler: Scheduler, now: float) -> dict[int, float]:
    return at(scheduler.concurrency.total(now).in_flight)


def wanted(scheduler: Scheduler, now: float) -> dict[int, float]:
    return at(scheduler.concurrency.total(now).wanted)


# The clock


def test_time_counts_at_the_number_there_was_until_it_changed_and_until_now() -> None:
    clock = Concurrency(started_at=100.0)
    clock.runs(1, 110.0)
    clock.runs(1, 111.0)
    clock.runs(-1, 113.0)
    assert at(clock.total(117.0).in_flight) == {0: 10.0, 1: 5.0, 2: 2.0}
    assert at(clock.total(118.0).in_flight) == {0: 10.0, 1: 6.0, 2: 2.0}
    clock.runs(-1, 118.0)
    assert at(clock.total(118.5).in_flight) == {0: 10.5, 1: 6.0, 2: 2.0}


def test_what_waits_is_wanted_and_not_in_flight() -> None:
    clock = Concurrency()
    clock.runs(1, 0.0)
    clock.waits(1, 1.0)
    clock.waits(1, 3.0)
    clock.waits(-1, 6.0)
    clock.runs(1, 6.0)
    clock.waits(-1, 7.0)
    spent = clock.total(9.0)
    assert at(spent.in_flight) == {1: 6.0, 2: 3.0}
    assert at(spent.wanted) == {1: 1.0, 2: 4.0, 3: 4.0}


def test_more_than_64_are_one() -> None:
    clock = Concurrency()
    clock.runs(HIGHEST, 0.0)
    clock.runs(1, 1.0)
    clock.runs(9, 2.0)
    clock.waits(1, 4.0)
    clock.waits(-1, 5.0)
    clock.runs(-10, 6.0)
    spent = clock.total(6.5)
    assert at(spent.in_flight) == at(spent.wanted) == {HIGHEST: 1.5, HIGHEST + 1: 5.0}


def test_a_time_that_goes_back_a_little_takes_nothing_away() -> None:
    clock = Concurrency()
    clock.runs(1, 2.0)
    clock.runs(1, 1.999)
    clock.waits(1, 1.998)
    assert at(clock.total(2.0).in_flight) == {0: 2.0}
    assert at(clock.total(3.0).in_flight) == {0: 2.0, 2: 1.0}
    assert at(clock.total(3.0).wanted) == {0: 2.0, 3: 1.0}


def test_hours_begin_with_those_of_the_day_and_part_what_lasts() -> None:
    clock = Concurrency(started_at=50.0, wall_offset_s=NOON - 50.0 + 3000.0)
    assert clock.since == "2026-12-01T12:50:00.000Z"
    clock.runs(1, 350.0)
    clock.runs(-1, 950.0)
    clock.waits(1, 950.0)
    clock.waits(-1, 4550.0)
    hours = clock.hours(4550.0)
    assert [name for name, _ in hours] == ["2026-12-01T12:00Z", "2026-12-01T13:00Z", "2026-12-01T14:00Z"]
    assert [at(spent.in_flight) for _, spent in hours] == [
        {0: 300.0, 1: 300.0},
        {0: 3300.0, 1: 300.0},
        {0: 300.0},
    ]
    assert [at(spent.wanted) for _, spent in hours] == [{0: 300.0, 1: 300.0}, {1: 3600.0}, {1: 300.0}]
    assert at(clock.total(4550.0).in_flight) == {0: 3900.0, 1: 600.0}


def test_the_hour_that_has_just_begun_is_there_and_empty() -> None:
    clock = Concurrency(wall_offset_s=NOON)
    (_, first), (name, second) = clock.hours(3600.0)
    assert at(first.in_flight) == {0: 3600.0}
    assert (name, at(second.in_flight)) == ("2026-12-01T13:00Z", {})


def test_the_last_hours_are_kept_and_nothing_of_the_others_is_lost() -> None:
    clock = Concurrency(wall_offset_s=NOON)
    clock.runs(1, 1800.0)
    hours = clock.hours(100 * 3600.0 + 60.0)
    assert len(hours) == HOURS
    assert [hours[0][0], hours[-1][0]] == ["2026-12-03T17:00Z", "2026-12-05T16:00Z"]
    assert at(hours[-1][1].in_flight) == {1: 60.0}
    assert at(clock.total(100 * 3600.0 + 60.0).in_flight) == {0: 1800.0, 1: 358_260.0}


# Who drives it


def test_a_request_counts_once_from_its_grant_to_its_end_however_wide_it_is() -> None:
    scheduler = fleet("a", "b", slots=4)
    offer_all(scheduler, [request(1, width=3)], 1.0)
    offer_all(scheduler, [request(2)], 2.0)
    offer_all(scheduler, [request(3, width=0)], 2.0)
    ok(scheduler, 1, 5.0)
    ok(scheduler, 1, 6.0)
    ok(scheduler, 3, 6.0)
    scheduler.finish(2, Outcome.CLIENT_DISCONNECT, Usage(), 7.0)
    assert in_flight(scheduler, 9.0) == wanted(scheduler, 9.0) == {0: 3.0, 1: 3.0, 2: 3.0}


def test_one_that_waits_is_wanted_until_it_is_granted() -> None:
    scheduler = fleet("a", slots=1)
    offer_all(scheduler, [request(1)], 1.0)
    offer_all(scheduler, [request(2)], 2.0)
    assert placed(ok(scheduler, 1, 5.0)) == [(2, "a")]
    ok(scheduler, 2, 6.0)
    assert in_flight(scheduler, 6.0) == {0: 1.0, 1: 5.0}
    assert wanted(scheduler, 6.0) == {0: 1.0, 1: 2.0, 2: 3.0}


def test_one_that_leaves_or_expires_in_the_queue_is_not_wanted_any_more() -> None:
    scheduler = fleet("a", slots=1, max_queue=2)
    offer_all(scheduler, [request(1), request(2), request(3, max_wait_s=3.0)])
    assert refused(scheduler.offer(request(4), 0.0)) == [(4, Reason.QUEUE_FULL)]
    scheduler.finish(2, Outcome.CLIENT_DISCONNECT, Usage(), 2.0)
    assert refused(scheduler.tick(3.0)) == [(3, Reason.QUEUE_TIMEOUT)]
    assert in_flight(scheduler, 4.0) == {1: 4.0}
    assert wanted(scheduler, 4.0) == {3: 2.0, 2: 1.0, 1: 1.0}


def test_one_that_nobody_can_serve_any_more_is_not_wanted() -> None:
    scheduler = fleet("a", slots=1)
    offer_all(scheduler, [request(1), request(2)])
    discovered(scheduler, "a", facts(1, models=("n",)), 2.0)
    assert in_flight(scheduler, 4.0) == {1: 4.0}
    assert wanted(scheduler, 4.0) == {2: 2.0, 1: 2.0}


def test_one_that_is_tried_again_goes_on_and_between_two_engines_it_waits() -> None:
    scheduler = fleet("a", "b", slots=1)
    offer_all(scheduler, [request(1)])
    assert placed(scheduler.retry(1, 1.0, reached=True)) == [(1, "b")]
    assert in_flight(scheduler, 2.0) == {1: 2.0}
    offer_all(scheduler, [request(2)], 2.0)
    assert scheduler.decline(2, 3.0).decisions == []
    assert placed(ok(scheduler, 1, 5.0)) == [(2, "b")]
    assert in_flight(scheduler, 6.0) == {1: 5.0, 2: 1.0}
    assert wanted(scheduler, 6.0) == {1: 3.0, 2: 3.0}


def test_one_that_may_not_be_sent_again_has_ended() -> None:
    scheduler = fleet("a", "b", "c")
    offer_all(scheduler, [request(1)])
    scheduler.retry(1, 1.0, reached=True)
    assert refused(scheduler.retry(1, 2.0, reached=True)) == [(1, Reason.ENGINE_UNREACHABLE)]
    assert in_flight(scheduler, 3.0) == {1: 2.0, 0: 1.0}


@pytest.mark.parametrize("comes_back", [False, True])
def test_what_runs_on_an_engine_that_was_removed_is_in_flight_until_it_ends(comes_back: bool) -> None:
    scheduler = fleet("a", "b")
    offer_all(scheduler, [request(1)])
    scheduler.change_engines(["a"], [], 1.0)
    if comes_back:
        scheduler.change_engines([], [Engine("c", "http://a:8000")], 2.0)
    ok(scheduler, 1, 3.0)
    assert in_flight(scheduler, 4.0) == {1: 3.0, 0: 1.0}


def test_an_engine_without_a_scheduler_has_a_clock_of_its_own() -> None:
    one = engine()
    one.lease(1, 1, 0, 1.0)
    assert (one.watch.concurrency.in_flight, engine().watch.concurrency.in_flight) == (1, 0)
