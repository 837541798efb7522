"""Slots that cool after their client left, and load that is not ours: what an engine's reports tell."""

from core_values import engine

from gateway.core.engine import LoadReport, Probe


def report(asked_at: float, running: int | None, waiting: int | None = None) -> LoadReport:
    return LoadReport(asked_at=asked_at, running=running, waiting=waiting)


# Cooling


def test_a_cooling_slot_is_not_free_until_its_time_is_up() -> None:
    a = engine(slots=4)
    a.cool(3, 10.0)
    assert (a.cooling_width, a.free) == (3, 1)
    a.expire(11.9)
    assert a.free == 1
    a.expire(12.0)
    assert (a.cooling_width, a.free, a.cooling) == (0, 4, [])


def test_only_those_whose_time_is_up_stop_cooling() -> None:
    a = engine(slots=4)
    a.cool(1, 10.0)
    a.cool(2, 11.0)
    a.expire(12.5)
    assert a.cooling_width == 2


def test_nothing_cools_on_an_engine_that_is_down_or_for_a_request_without_slots() -> None:
    a = engine()
    a.cool(0, 1.0)
    assert a.cooling == []
    a.probed(Probe.REFUSED, 2.0)
    a.cool(1, 3.0)
    assert a.cooling == []


def test_an_engine_that_went_away_stops_cooling() -> None:
    a = engine(slots=4)
    a.cool(2, 1.0)
    a.probed(Probe.REFUSED, 2.0)
    assert (a.cooling, a.cooling_width) == ([], 0)


def test_a_report_shows_how_many_cooling_slots_are_still_busy() -> None:
    a = engine(slots=8)
    a.lease(1, 1, 0, 0.0)
    a.first_token(1, 0.5)
    a.cool(2, 1.0)
    a.cool(2, 1.2)
    a.reported(report(2.0, 4), 2.0)
    assert [(it.width, it.since) for it in a.cooling] == [(1, 1.0), (2, 1.2)]
    assert a.cooling_width == 3
    a.reported(report(2.1, 2), 2.1)
    assert [(it.width, it.since) for it in a.cooling] == [(1, 1.2)]
    a.reported(report(2.2, 1), 2.2)
    assert (a.cooling, a.free) == ([], 7)


def test_a_report_that_may_be_older_than_the_disconnect_ends_nothing() -> None:
    a = engine()
    a.cool(1, 1.0)
    a.reported(report(1.05, 0), 1.06)
    assert a.cooling_width == 1


def test_a_request_that_may_not_have_arrived_yet_is_not_taken_for_a_cooling_one() -> None:
    a = engine(slots=4)
    a.cool(1, 1.0)
    a.lease(1, 1, 0, 1.1)
    a.reported(report(1.2, 1), 1.2)
    assert a.cooling_width == 1
    a.reported(report(1.3, 1), 1.3)
    assert a.cooling_width == 0


def test_a_long_prompt_is_given_time_to_be_tokenized() -> None:
    a = engine(slots=4)
    a.cool(1, 1.0)
    a.lease(1, 1, 0, 1.1, prompt_tokens=100_000)
    for at in (1.2, 1.3, 1.6):
        a.reported(report(at, 1), at)
        assert a.cooling_width == 1
    a.reported(report(1.7, 1), 1.7)
    assert a.cooling_width == 0


def test_a_report_counts_a_request_that_produces_whenever_it_was_granted() -> None:
    a = engine(slots=4)
    a.cool(1, 1.0)
    a.lease(1, 1, 0, 1.15)
    a.first_token(1, 1.18)
    a.reported(report(1.2, 1), 1.2)
    assert a.cooling_width == 0


def test_steady_short_answers_do_not_keep_a_slot_cooling_that_the_engine_has_freed() -> None:
    a = engine(slots=2)
    a.lease(1, 1, 0, 0.0)
    a.first_token(1, 0.1)
    a.lease(2, 1, 0, 0.95)
    a.release(1, 1.0)
    a.cool(1, 1.0)
    a.reported(report(1.1, 1), 1.1)
    a.release(2, 1.0)
    a.lease(3, 1, 0, 1.15)
    assert a.cooling_width == 1
    a.reported(report(1.2, 1), 1.2)
    assert a.cooling_width == 1
    a.reported(report(1.3, 1), 1.3)
    assert a.cooling_width == 0


def test_a_report_of_more_than_is_cooling_changes_nothing() -> None:
    a = engine(slots=4)
    a.cool(2, 1.0)
    a.reported(report(2.0, 9), 2.0)
    assert (a.cooling_width, len(a.cooling)) == (2, 1)


def test_waiting_sequences_count_as_running_ones() -> None:
    a = engine(slots=4)
    a.cool(2, 1.0)
    a.reported(report(1.5, 1, 1), 1.5)
    assert a.cooling_width == 2


# Foreign load


def test_load_that_is_not_ours_shrinks_what_may_be_used_once_two_reports_agree() -> None:
    a = engine(slots=4)
    a.lease(1, 1, 0, 0.0)
    a.reported(report(1.0, 3), 1.0)
    assert (a.foreign, a.usable) == (0, 4)
    a.reported(report(2.0, 4), 2.0)
    assert (a.foreign, a.usable) == (2, 2)
    a.reported(report(3.0, 1), 3.0)
    assert (a.foreign, a.usable) == (0, 4)


def test_requests_that_ended_between_two_reports_are_not_foreign() -> None:
    a = engine(slots=4)
    for at in (1.0, 2.0, 3.0):
        a.lease(1, 3, 0, at)
        a.reported(report(at + 0.1, 3), at + 0.1)
        a.release(1, 1.0)
        a.reported(report(at + 0.2, 3), at + 0.2)
    assert a.foreign == 0


def test_more_foreign_load_than_slots_leaves_none_to_use() -> None:
    a = engine(slots=2)
    a.reported(report(1.0, 9), 1.0)
    a.reported(report(2.0, 9), 2.0)
    assert a.usable == 0


def test_a_report_without_counts_is_kept_and_says_nothing() -> None:
    a = engine()
    a.cool(1, 0.0)
    a.reported(report(1.0, None), 1.1)
    assert (a.report_at, a.cooling_width, a.foreign) == (1.1, 1, 0)


def test_a_restart_forgets_reports_cooling_and_foreign_load() -> None:
    a = engine(slots=4)
    a.reported(report(1.0, 2), 1.0)
    a.reported(report(2.0, 2), 2.0)
    a.cool(1, 2.0)
    a.restarted()
    assert (a.report, a.report_at, a.foreign, a.cooling_width, a.restarts) == (None, None, 0, 0, 1)
    a.reported(report(3.0, 2), 3.0)
    assert a.foreign == 0


def test_what_a_dead_engine_last_reported_is_not_shown_any_more() -> None:
    a = engine(slots=4)
    a.reported(report(1.0, running=2), 1.0)
    a.probed(Probe.REFUSED, 2.0)
    assert (a.report, a.report_at) == (None, None)
