"""The limit of an engine whose cap nobody told: one request beyond it, and what comes of that."""

import pytest
from core_values import NOTHING, discovered, facts, fleet, granted, ok, placed, reported, request, text, usage

from gateway.core.engine import Engine, Residency, SlotSource
from gateway.core.growth import BACKOFF_S, DOUBTS, PASSED_S
from gateway.core.holds import Hold
from gateway.core.request import Outcome
from gateway.core.scheduler import Scheduler
from gateway.core.slotcache import SlotCache
from gateway.core.view import snapshot


def assumed(
    slots: int, *, waiting: int = 3, stream: bool = True, **more: Residency
) -> tuple[Scheduler, Engine]:
    """Engine a, whose `slots` are assumed and taken by streams that produce, while others wait."""
    scheduler = fleet("a")
    discovered(scheduler, "a", facts(slots, source=SlotSource.ASSUMED, **more))
    for key in range(1, slots + 1):
        scheduler.offer(request(key, stream=True), 0.0)
    for key in range(slots + 1, slots + waiting + 1):
        assert placed(scheduler.offer(request(key, stream=stream), 0.0)) == []
    for key in range(1, slots):
        scheduler.first_token(key, 0.1)
        assert placed(scheduler.go_on(0.1)) == []
    scheduler.first_token(slots, 0.1)
    return scheduler, scheduler.engines["a"]


def slots(engine: Engine) -> tuple[int, SlotSource]:
    return engine.slots, engine.slots_source


def test_one_goes_beyond_the_limit_once_all_that_run_produce() -> None:
    scheduler, a = assumed(2)
    assert placed(scheduler.go_on(0.2)) == [(3, "a")]
    assert (a.in_flight, a.slots, a.beyond) == (3, 2, 1)
    assert placed(scheduler.go_on(0.2)) == []
    assert placed(scheduler.tick(0.3)) == []


def test_if_it_produces_while_all_others_do_the_limit_rises_and_the_next_one_goes() -> None:
    scheduler, a = assumed(2)
    scheduler.go_on(0.2)
    scheduler.first_token(3, 0.4)
    assert slots(a) == (3, SlotSource.INFERRED)
    assert a.caps.inferred is None
    assert placed(scheduler.go_on(0.4)) == [(4, "a")]
    scheduler.first_token(4, 0.6)
    assert slots(a) == (4, SlotSource.INFERRED)


def test_if_it_starts_only_when_another_ends_the_limit_stays_and_is_left_alone_for_longer_each_time() -> None:
    scheduler, a = assumed(2, waiting=9)
    a.caps.pace.learn(100, 0.1)
    now = 0.2
    assert placed(scheduler.go_on(now)) == [(3, "a")]
    for key, pause_s in ((3, BACKOFF_S), (6, 2 * BACKOFF_S)):
        assert placed(ok(scheduler, key - 2, now + 5.0)) == []
        scheduler.first_token(key, now + 5.1)
        assert slots(a) == (2, SlotSource.INFERRED)
        assert a.caps.inferred == 2
        assert placed(scheduler.go_on(now + 5.1)) == []
        assert placed(ok(scheduler, key - 1, now + 6.0)) == [(key + 1, "a")]
        scheduler.first_token(key + 1, now + 6.1)
        assert placed(scheduler.go_on(now + pause_s + 5.0)) == []
        now += pause_s + 5.2
        if key == 3:
            assert placed(ok(scheduler, 3, now)) == [(5, "a")]
            scheduler.first_token(5, now + 0.1)
            assert placed(scheduler.go_on(now + 0.1)) == [(6, "a")]


def test_if_another_ends_too_soon_to_tell_it_is_tried_again_but_not_for_ever() -> None:
    scheduler, a = assumed(2, waiting=40)
    now, running = 0.2, [1, 2]
    for _ in range(DOUBTS):
        (grant,) = placed(scheduler.go_on(now))
        assert placed(ok(scheduler, running.pop(0), now + 0.1)) == []
        scheduler.first_token(grant[0], now + 0.2)
        running.append(grant[0])
        now += 1.0
    assert placed(scheduler.go_on(now)) == []
    assert slots(a) == (2, SlotSource.INFERRED)
    assert a.caps.inferred == 2


def test_a_limit_that_once_held_may_still_turn_out_too_low() -> None:
    scheduler, a = assumed(2)
    a.caps.proved(2)
    assert placed(reported(scheduler, "a", 2, 0.2)) == [(3, "a")]
    assert slots(a) == (2, SlotSource.INFERRED)
    scheduler.first_token(3, 0.4)
    assert (slots(a), a.caps.inferred) == ((3, SlotSource.INFERRED), None)


def test_nobody_goes_beyond_who_has_a_free_slot_elsewhere() -> None:
    scheduler = fleet("a", "b", slots=1)
    for name in ("a", "b"):
        discovered(scheduler, name, facts(1, source=SlotSource.ASSUMED))
    history = text(12_000, "history")
    first = granted(scheduler.offer(request(1, history, stream=True), 0.0)).engine
    scheduler.first_token(1, 0.1)
    ok(scheduler, 1, 0.2)
    assert placed(scheduler.offer(request(2, history + text(100, "x"), stream=True), 1.0)) == [(2, first)]
    scheduler.first_token(2, 1.1)
    # It waits for what that engine holds, beside the free slot of the other.
    assert placed(scheduler.offer(request(3, history + text(100, "y"), stream=True), 2.0)) == []
    assert placed(scheduler.go_on(2.1)) == []
    assert scheduler.engines[first].beyond == 0


def test_nor_one_for_which_the_cache_has_no_room() -> None:
    scheduler = fleet("a")
    discovered(scheduler, "a", facts(1, source=SlotSource.ASSUMED, kv_tokens=3000))
    scheduler.offer(request(1, text(2900, "x"), stream=True), 0.0)
    scheduler.first_token(1, 0.1)
    assert placed(scheduler.offer(request(2, text(2900, "y"), stream=True), 0.2)) == []
    assert placed(scheduler.go_on(0.3)) == []
    assert scheduler.engines["a"].beyond == 0


def test_the_slot_of_one_that_left_is_not_one_more() -> None:
    scheduler, a = assumed(2)
    scheduler.go_on(0.2)
    scheduler.finish(1, Outcome.CLIENT_DISCONNECT, NOTHING, 3.0)
    # Its slot cools here, while the engine has given it to the one beyond.
    scheduler.first_token(3, 3.1)
    assert slots(a) == (2, SlotSource.ASSUMED)


def test_where_nobody_can_be_sent_nobody_is_looked_for_at_each_event() -> None:
    scheduler, a = assumed(2, waiting=0)
    scheduler.offer(request(8, width=2, stream=True), 0.2)
    scheduler.offer(request(9, stream=True), 0.3)
    assert not a.growth.may(0.3)
    assert placed(scheduler.go_on(0.6)) == []
    assert placed(scheduler.go_on(0.2 + PASSED_S)) == [(9, "a")]


def test_two_engines_get_one_each_in_one_go() -> None:
    scheduler = fleet("a", "b", slots=1)
    for name, model in (("a", "m"), ("b", "n")):
        discovered(scheduler, name, facts(1, models=(model,), source=SlotSource.ASSUMED))
    for key, model in enumerate("mnmmnn", start=1):
        scheduler.offer(request(key, model=model, stream=True), 0.0)
    scheduler.engines["a"].first_token(1, 0.1)
    scheduler.engines["b"].first_token(2, 0.1)
    assert placed(scheduler.go_on(0.2)) == [(3, "a"), (5, "b")]


def test_another_figure_for_the_cap_ends_what_was_concluded() -> None:
    scheduler, a = assumed(2)
    a.caps.proved(2)
    discovered(scheduler, "a", facts(6), 0.6)
    assert a.caps.inferred is None


def test_an_end_closes_the_place_beyond() -> None:
    scheduler, a = assumed(2)
    scheduler.go_on(0.2)
    assert placed(ok(scheduler, 1, 0.3)) == []
    assert (a.beyond, a.in_flight, a.usable) == (0, 2, 2)


def test_one_beyond_that_leaves_tells_nothing() -> None:
    scheduler, a = assumed(2)
    scheduler.go_on(0.2)
    scheduler.finish(3, Outcome.CLIENT_DISCONNECT, NOTHING, 0.3)
    assert (a.growth.key, a.beyond, slots(a)) == (None, 0, (2, SlotSource.ASSUMED))


def test_one_beyond_that_the_engine_refuses_waits_for_its_slot() -> None:
    scheduler, a = assumed(2)
    scheduler.go_on(0.2)
    assert placed(scheduler.decline(3, 0.3)) == []
    assert (a.beyond, a.caps.inferred, a.in_flight) == (0, 2, 2)
    assert placed(scheduler.go_on(0.4)) == []
    assert placed(ok(scheduler, 1, 5.0)) == [(3, "a")]


def test_a_hard_cap_is_not_exceeded() -> None:
    scheduler, a = assumed(2)
    discovered(scheduler, "a", facts(2), 0.1)
    assert placed(scheduler.go_on(0.2)) == []
    assert placed(scheduler.tick(0.3)) == []
    assert slots(a) == (2, SlotSource.DISCOVERED)


@pytest.mark.parametrize(
    "why",
    [
        "waits for its first token",
        "cools",
        "foreign",
        "kept",
        "wide",
        "quota",
        "draining",
        "nothing produces",
    ],
)
def test_nobody_goes_beyond_while_something_speaks_against_it(why: str) -> None:
    scheduler, a = assumed(2)
    if why == "waits for its first token":
        ok(scheduler, 1, 0.2)
    elif why == "cools":
        a.quota = 5
        scheduler.finish(1, Outcome.CLIENT_DISCONNECT, NOTHING, 0.2)
    elif why == "foreign":
        a.foreign = 1
    elif why == "kept":
        a.hold(Hold(block=7, depth=1, width=1, until=9.0))
    elif why == "wide":
        a.release(1, 0.2)
        a.release(2, 0.2)
        a.lease(50, 2, 10, 0.2, stream=True)
        a.first_token(50, 0.3)
    elif why == "quota":
        a.quota = 2
    elif why == "draining":
        a.draining = True
    else:
        for key in (1, 2):
            scheduler.finish(key, Outcome.OK, usage(100), 0.2)
    assert not a.growth.may(0.3)


def test_those_who_would_not_be_seen_to_run_do_not_go_beyond() -> None:
    scheduler, a = assumed(2, stream=False)
    assert placed(scheduler.go_on(0.2)) == []
    assert (a.in_flight, a.beyond) == (2, 0)


def test_nor_do_those_that_have_a_slot_elsewhere_or_are_too_wide() -> None:
    scheduler, a = assumed(2, waiting=0)
    scheduler.offer(request(8, width=2, stream=True), 0.1)
    assert placed(scheduler.go_on(0.2)) == []
    assert a.beyond == 0


def test_where_the_engine_reports_its_count_decides() -> None:
    scheduler, a = assumed(2, stream=False)
    assert placed(reported(scheduler, "a", 2, 2.0)) == [(3, "a")]
    assert placed(reported(scheduler, "a", 3, 4.0)) == [(4, "a")]
    assert slots(a) == (3, SlotSource.INFERRED)
    assert placed(reported(scheduler, "a", 3, 6.0, waiting=1)) == []
    assert (a.beyond, a.caps.inferred, slots(a)) == (0, 3, (3, SlotSource.INFERRED))


def test_a_report_of_others_ends_a_try() -> None:
    scheduler, a = assumed(2)
    scheduler.go_on(0.2)
    reported(scheduler, "a", 5, 2.0)
    assert (a.growth.key, a.beyond, slots(a)) == (None, 0, (2, SlotSource.ASSUMED))


def test_a_report_that_came_too_soon_decides_nothing() -> None:
    scheduler, a = assumed(2)
    scheduler.go_on(0.2)
    reported(scheduler, "a", 2, 0.3, waiting=1)
    assert (a.growth.key, a.beyond) == (3, 1)


def test_a_cap_found_below_the_assumed_one_becomes_the_limit() -> None:
    scheduler = fleet("a")
    discovered(scheduler, "a", facts(8, source=SlotSource.ASSUMED))
    a = scheduler.engines["a"]
    a.caps.proved(4)
    reported(scheduler, "a", 0, 2.0)
    assert slots(a) == (4, SlotSource.INFERRED)
    (view,) = snapshot(scheduler, 2.0).engines
    assert (view.slots, view.slots_source, view.quota) == (4, SlotSource.INFERRED, 4)


def test_the_same_facts_again_keep_the_limit_and_others_end_it() -> None:
    scheduler, a = assumed(2)
    scheduler.go_on(0.2)
    scheduler.first_token(3, 0.4)
    discovered(scheduler, "a", facts(2, source=SlotSource.ASSUMED, kv_tokens=500), 0.5)
    assert slots(a) == (3, SlotSource.INFERRED)
    discovered(scheduler, "a", facts(6), 0.6)
    assert slots(a) == (6, SlotSource.DISCOVERED)


def test_an_engine_that_restarts_or_comes_back_has_its_assumed_limit_again() -> None:
    scheduler, a = assumed(2)
    scheduler.go_on(0.2)
    scheduler.first_token(3, 0.4)
    a.restarted()
    assert slots(a) == (2, SlotSource.ASSUMED)


def test_a_cache_of_slots_gets_as_many_as_the_engine_has() -> None:
    scheduler, _ = assumed(1, residency=Residency.SLOTS)
    scheduler.go_on(0.2)
    scheduler.first_token(2, 0.4)
    scheduler.go_on(0.4)
    cache = scheduler.index._caches["a"]
    assert isinstance(cache, SlotCache)
    assert len(cache._slots) == 2
