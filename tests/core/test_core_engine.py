import math

import pytest
from core_values import engine, facts, usage

from gateway.core.engine import AVERAGED_S, Engine, Health, Lease, Probe
from gateway.core.holds import Hold
from gateway.core.request import Usage

# Slots


def test_a_lease_takes_its_width_and_gives_it_back() -> None:
    a = engine(slots=4)
    a.lease(1, 3, 500, 10.0)
    assert (a.in_flight, a.free, a.pending_prefill_tokens) == (3, 1, 500)
    assert a.release(1, 11.0) == Lease(3, 10.0, 500, place=3, slot_at=10.0)
    assert (a.in_flight, a.free, a.pending_prefill_tokens) == (0, 4, 0)


def test_a_first_token_ends_the_pending_prefill_once() -> None:
    a = engine()
    a.lease(1, 1, 500, 10.0)
    a.first_token(1, 11.0)
    a.first_token(1, 12.0)
    a.first_token(99, 12.0)
    assert a.pending_prefill_tokens == 0
    assert a.release(1, 12.0).first_token_at == 11.0
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


def test_a_request_wider_than_the_quota_waits_for_more_of_it() -> None:
    a = engine(slots=4)
    a.quota = 2
    assert (a.width_here(9), a.width_here(1), a.width_here(0)) == (4, 1, 0)
    assert a.has_room(2)
    assert not a.has_room(9)
    a.quota = 4
    assert a.has_room(9)


def test_without_a_quota_to_use_there_is_no_room_for_anything_that_needs_a_slot() -> None:
    a = engine(slots=4)
    a.quota = 0
    assert not a.has_room(1)
    assert not a.has_room(9)
    assert a.has_room(0)


# Slots kept for a session


MINE, OTHER = (1, 2, 3), (7, 8, 9)


def holding(a: Engine, *holds: tuple[tuple[int, ...], int]) -> Engine:
    for blocks, width in holds:
        a.hold(Hold(blocks[-1], len(blocks), width, 10.0))
    return a


def test_a_kept_slot_is_left_alone_by_all_but_its_session() -> None:
    a = holding(engine(slots=2), (MINE, 1))
    assert a.keeps_slot_for((*MINE, 4))
    assert not a.keeps_slot_for(OTHER)
    assert a.reserved_from((*MINE, 4), 0) == 0
    assert a.reserved_from(OTHER, 0) == 1
    assert a.reserved_from((), 0) == 1


def test_without_kept_slots_only_those_who_wait_before_are_reserved_for() -> None:
    assert engine(slots=2).reserved_from(MINE, 3) == 3


def test_who_waits_does_not_keep_a_session_from_its_own_slot_but_from_any_other() -> None:
    a = holding(engine(slots=4), (MINE, 1))
    assert a.has_room(1, a.reserved_from(MINE, 9))
    assert not a.has_room(2, a.reserved_from(MINE, 3))
    assert a.has_room(2, a.reserved_from(MINE, 2))


def test_a_session_does_not_take_the_slots_of_another() -> None:
    a = holding(engine(slots=2), (MINE, 1), (OTHER, 1))
    assert a.has_room(1, a.reserved_from(MINE, 0))
    assert not a.has_room(2, a.reserved_from(MINE, 0))


def test_of_more_kept_slots_than_are_left_the_first_to_come_back_gets_one() -> None:
    a = holding(engine(slots=2), (MINE, 1), (OTHER, 1))
    a.quota = 1
    assert a.has_room(1, a.reserved_from(MINE, 0))
    a.end_holds(MINE)
    a.lease(1, 1, 0, 1.0)
    assert not a.has_room(1, a.reserved_from(OTHER, 0))


def test_a_kept_slot_ends_when_its_session_is_placed_and_not_for_another() -> None:
    a = holding(engine(slots=2), (MINE, 1))
    a.end_holds(OTHER)
    assert a.holds
    a.end_holds((*MINE, 4))
    assert a.holds == []


def test_kept_slots_end_by_the_clock_each_at_its_own_time() -> None:
    a = engine(slots=4)
    assert a.next_deadline() is None
    a.hold(Hold(3, 3, 1, 11.0))
    a.hold(Hold(9, 3, 1, 10.5))
    a.cool(1, 9.0)
    assert a.next_deadline() == 10.5
    a.expire(10.5)
    assert [hold.until for hold in a.holds] == [11.0]
    assert a.next_deadline() == 11.0
    a.expire(11.0)
    assert (a.holds, a.next_deadline()) == ([], None)


def test_a_restart_ends_kept_slots() -> None:
    a = holding(engine(slots=2), (MINE, 1))
    a.restarted()
    assert a.holds == []


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


@pytest.mark.parametrize("probe", [Probe.LOADING, Probe.ERROR])
def test_an_engine_that_is_loading_or_not_known_yet_may_serve_its_models_and_any_until_they_are_known(
    probe: Probe,
) -> None:
    a = Engine("a", "http://a")
    assert a.may_serve("m")
    a.probed(probe, 0.0)
    assert a.health in (Health.LOADING, Health.UNKNOWN)
    assert a.may_serve("m")
    a.facts = facts(models=("n",))
    assert not a.may_serve("m")
    assert a.may_serve("n")
    a.draining = True
    assert not a.may_serve("n")


def test_an_engine_that_serves_or_is_down_is_not_one_to_wait_for() -> None:
    a = engine()
    assert not a.may_serve("m")
    a.probed(Probe.REFUSED, 1.0)
    assert not a.may_serve("m")


# Rates


def streamed(granted_at: float, first_token_at: float, width: int = 1) -> Lease:
    return Lease(width, granted_at, 0, first_token_at=first_token_at)


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


def test_rates_are_of_all_tokens_and_seconds_that_fade_by_a_tenth_with_each_sample() -> None:
    a = engine()
    a.learn(streamed(0.0, 1.0), usage(1000, 0, 11), 2.0)
    a.learn(streamed(0.0, 3.0), usage(2000, 0, 21), 7.0)
    assert a.prefill_tokens_per_s == pytest.approx((900 + 2000) / (0.9 + 3.0))
    assert a.decode_tokens_per_s == pytest.approx((9 + 20) / (0.9 + 4.0))


def test_slot_times_are_averages_in_which_the_last_counts_a_fifth() -> None:
    a = engine()
    a.learn(streamed(0.0, 1.0), usage(1000, 0, 11), 2.0)
    a.learn(streamed(0.0, 1.0), usage(1000, 0, 21), 7.0)
    assert a.slot_s == pytest.approx(3.0)


def test_the_time_to_a_first_token_was_spent_on_what_was_ahead_as_well() -> None:
    a = engine()
    a.lease(1, 1, 3000, 0.0)
    a.lease(2, 1, 1000, 0.0)
    a.first_token(1, 2.0)
    a.first_token(2, 2.0)
    a.learn(a.release(2, 3.0), usage(1000, 0, 11), 3.0)
    assert a.prefill_tokens_per_s == 2000.0


def test_what_was_ahead_is_not_in_the_engines_own_timings() -> None:
    a = engine()
    a.lease(1, 1, 3000, 0.0)
    a.lease(2, 1, 1000, 0.0)
    own = Usage(prompt_tokens=1000, cached_tokens=0, prefill_s=0.5)
    a.learn(a.release(2, 3.0), own, 3.0)
    assert a.prefill_tokens_per_s == 2000.0


# What has run here lately


def test_the_average_in_flight_goes_towards_what_runs_over_a_minute() -> None:
    a = engine(slots=4)
    assert a.in_flight_average == 0.0
    a.lease(1, 3, 0, 100.0)
    assert a.in_flight_average == 0.0
    a.release(1, 100.0 + AVERAGED_S)
    assert a.in_flight_average == pytest.approx(3 * (1 - 1 / math.e))


def test_the_average_fades_once_nothing_runs() -> None:
    a = engine(slots=4)
    a.lease(1, 4, 0, 0.0)
    a.release(1, 6000.0)
    assert a.in_flight_average == pytest.approx(4.0)
    a.lease(2, 1, 0, 6000.0 + 2 * AVERAGED_S)
    assert a.in_flight_average == pytest.approx(4 / math.e**2)


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
