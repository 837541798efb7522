import pytest
from core_values import engine, facts, usage

from gateway.core.engine import Engine, Health, Lease, LoadReport, Probe
from gateway.core.request import Usage


def report(asked_at: float, running: int | None, waiting: int | None = None) -> LoadReport:
    return LoadReport(asked_at=asked_at, running=running, waiting=waiting)


# Slots


def test_a_lease_takes_its_width_and_gives_it_back() -> None:
    a = engine(slots=4)
    a.lease(1, 3, 500, 10.0)
    assert (a.in_flight, a.free, a.pending_prefill_tokens) == (3, 1, 500)
    assert a.release(1) == Lease(3, 10.0, 500)
    assert (a.in_flight, a.free, a.pending_prefill_tokens) == (0, 4, 0)


def test_a_first_token_ends_the_pending_prefill_once() -> None:
    a = engine()
    a.lease(1, 1, 500, 10.0)
    a.first_token(1, 11.0)
    a.first_token(1, 12.0)
    a.first_token(99, 12.0)
    assert a.pending_prefill_tokens == 0
    assert a.release(1).first_token_at == 11.0
    assert a.pending_prefill_tokens == 0


def test_room_is_what_is_free_beside_reserved_slots() -> None:
    a = engine(slots=4)
    a.lease(1, 1, 0, 0.0)
    assert a.has_room(3)
    assert not a.has_room(3, reserved=1)
    assert not a.has_room(9)
    a.lease(2, 3, 0, 0.0)
    assert not a.has_room(1)
    assert a.has_room(0)


def test_a_request_wider_than_the_engine_needs_all_of_it() -> None:
    assert engine(slots=4).width_here(9) == 4
    assert engine(slots=4).has_room(9)


def test_a_quota_below_the_cap_limits_and_one_above_does_not() -> None:
    a = engine(slots=4)
    a.quota = 1
    assert a.usable == 1
    a.quota = 9
    assert a.usable == 4
    a.quota = 0
    assert a.free == 0


# Health


@pytest.mark.parametrize(
    ("probes", "health"),
    [
        ([], Health.UNKNOWN),
        ([Probe.ERROR, Probe.SLOW], Health.UNKNOWN),
        ([Probe.ERROR, Probe.SLOW, Probe.ERROR], Health.DOWN),
        ([Probe.LOADING], Health.LOADING),
        ([Probe.LOADING, Probe.OK], Health.READY),
        ([Probe.OK, Probe.ERROR, Probe.ERROR], Health.READY),
        ([Probe.OK, Probe.ERROR, Probe.ERROR, Probe.SLOW], Health.DOWN),
        ([Probe.OK, Probe.ERROR, Probe.ERROR, Probe.OK, Probe.ERROR], Health.READY),
        ([Probe.OK, Probe.REFUSED], Health.DOWN),
        ([Probe.REFUSED, Probe.OK], Health.READY),
    ],
)
def test_health_follows_the_probes_of_an_idle_engine(probes: list[Probe], health: Health) -> None:
    a = Engine("a", "http://a")
    for at, probe in enumerate(probes):
        a.probed(probe, float(at))
    assert a.health is health


def test_a_working_engine_that_does_not_answer_probes_is_busy_not_down() -> None:
    a = engine()
    a.lease(1, 1, 0, 0.0)
    for at in range(5):
        a.probed(Probe.SLOW, float(at))
    assert a.health is Health.BUSY
    assert a.accepting


def test_a_busy_engine_goes_down_when_its_traffic_is_long_past() -> None:
    a = engine()
    a.alive(0.0)
    for at in (10.0, 20.0, 29.0):
        a.probed(Probe.ERROR, at)
    assert a.health is Health.BUSY
    a.probed(Probe.ERROR, 30.0)
    assert not a.accepting


def test_bytes_from_an_engine_that_is_down_make_it_ready() -> None:
    a = engine()
    a.probed(Probe.REFUSED, 1.0)
    a.alive(2.0)
    assert a.health is Health.READY


def test_bytes_do_not_end_loading() -> None:
    a = engine()
    a.probed(Probe.LOADING, 1.0)
    a.alive(2.0)
    assert a.health is Health.LOADING


def test_an_engine_accepts_only_when_it_serves_and_is_not_draining() -> None:
    a = engine()
    assert a.serves("m")
    assert not a.serves("other")
    a.draining = True
    assert not a.serves("m")


def test_a_loading_engine_may_serve_its_models_and_any_while_they_are_unknown() -> None:
    a = Engine("a", "http://a")
    assert not a.may_serve("m")
    a.probed(Probe.LOADING, 0.0)
    assert a.may_serve("m")
    a.facts = facts(models=("n",))
    assert not a.may_serve("m")
    assert a.may_serve("n")
    a.draining = True
    assert not a.may_serve("n")


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
    a.reported(report(3.2, 1), 3.2)
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
        a.release(1)
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


# Rates


def streamed(granted_at: float, first_token_at: float, width: int = 1) -> Lease:
    return Lease(width, granted_at, 0, first_token_at)


def test_a_stream_teaches_the_rates_and_the_slot_time() -> None:
    a = engine()
    a.learn(streamed(10.0, 11.0), usage(1200, 200, 81), 15.0)
    assert a.prefill_tokens_per_s == 1000.0
    assert a.decode_tokens_per_s == 20.0
    assert a.slot_s == 5.0


def test_the_engines_own_timings_come_first() -> None:
    a = engine()
    own = Usage(prompt_tokens=1000, cached_tokens=0, completion_tokens=11, prefill_s=0.5, decode_s=0.1)
    a.learn(streamed(10.0, 11.0), own, 15.0)
    assert a.prefill_tokens_per_s == 2000.0
    assert a.decode_tokens_per_s == pytest.approx(100.0)


def test_a_json_answer_teaches_only_the_slot_time() -> None:
    a = engine()
    a.learn(Lease(1, 10.0, 0), usage(1000, 0, 100), 15.0)
    assert (a.prefill_tokens_per_s, a.decode_tokens_per_s, a.slot_s) == (None, None, 5.0)


def test_later_samples_count_a_fifth() -> None:
    a = engine()
    a.learn(streamed(0.0, 1.0), usage(1000, 0, 11), 2.0)
    a.learn(streamed(0.0, 1.0), usage(2000, 0, 21), 7.0)
    assert a.prefill_tokens_per_s == pytest.approx(1200.0)
    assert a.slot_s == pytest.approx(3.0)


@pytest.mark.parametrize(
    "used",
    [
        Usage(),
        Usage(prompt_tokens=1000, completion_tokens=1),
        Usage(prompt_tokens=1000, cached_tokens=990, completion_tokens=0),
    ],
)
def test_what_was_not_reported_or_is_too_little_teaches_no_rate(used: Usage) -> None:
    a = engine()
    a.learn(streamed(0.0, 1.0), used, 2.0)
    assert (a.prefill_tokens_per_s, a.decode_tokens_per_s) == (None, None)


def test_a_request_without_slots_teaches_no_slot_time() -> None:
    a = engine()
    a.learn(Lease(0, 0.0, 0), Usage(), 2.0)
    assert a.slot_s is None
