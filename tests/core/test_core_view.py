import json

import msgspec
from core_values import discovered, facts, fleet, probed, reported, request, text

from gateway.core.engine import Engine, Health, Probe, SlotSource
from gateway.core.events import Probed
from gateway.core.request import HIGH, Outcome, Usage
from gateway.core.scheduler import Limits, Scheduler
from gateway.core.view import snapshot


def test_an_engine_that_was_never_seen_is_unknown_not_zero() -> None:
    view = snapshot(Scheduler([Engine("a", "http://a")], Limits()), 5.0)
    (a,) = view.engines
    assert (a.name, a.url, a.health, a.slots_source) == ("a", "http://a", Health.UNKNOWN, SlotSource.ASSUMED)
    assert (a.running, a.waiting, a.kv_usage, a.report_age_s) == (None, None, None, None)
    assert (a.prefill_tokens_per_s, a.decode_tokens_per_s, a.kv_tokens) == (None, None, None)


def test_the_whole_state_at_one_moment() -> None:
    scheduler = fleet("a", slots=3, max_queue=7, max_queue_bytes=5000, policy="least_loaded")
    scheduler.offer(request(1, text(640, "x"), width=2, session=0xBEEF), 10.0)
    scheduler.first_token(1, 11.0)
    scheduler.offer(request(2), 12.0)
    scheduler.finish(2, Outcome.CLIENT_DISCONNECT, Usage(), 12.5)
    reported(scheduler, "a", 3, 12.55, waiting=1)
    scheduler.offer(request(3, body_bytes=40), 13.0)
    scheduler.offer(request(4, body_bytes=2, priority=HIGH), 13.0)

    view = snapshot(scheduler, 14.0)

    (a,) = view.engines
    assert (a.slots, a.quota, a.usable, a.in_flight, a.cooling) == (3, 3, 3, 2, 1)
    assert (a.running, a.waiting, a.blocks, a.pending_prefill_tokens) == (3, 1, 10, 0)
    assert a.report_age_s == 14.0 - 12.55
    (one,) = view.running
    assert (one.id, one.engine, one.width, one.route, one.attempt) == ("r1", "a", 2, "only", 1)
    assert (one.session, one.age_s, one.producing) == ("000000000000beef", 4.0, True)
    assert [(it.id, it.position, it.priority, it.waited_s) for it in view.waiting] == [
        ("r4", 1, "high", 1.0),
        ("r3", 2, "normal", 1.0),
    ]
    assert (view.queue_bytes, view.max_queue, view.max_queue_bytes, view.policy) == (
        42,
        7,
        5000,
        "least_loaded",
    )
    assert json.loads(msgspec.json.encode(view))["engines"][0]["health"] == "ready"


def test_a_waiting_request_says_what_it_waits_for() -> None:
    scheduler = fleet("a", slots=2)
    scheduler.offer(request(1), 0.0)
    scheduler.offer(request(2, width=2), 0.0)
    (waiting,) = snapshot(scheduler, 1.0).waiting
    assert (waiting.engine, waiting.why, waiting.width) == ("a", "2 slots on a", 2)
    assert snapshot(scheduler, 1.5).engines[0].slot_idle_while_waiting_s == 1.5


def test_a_request_behind_full_engines_says_where_it_would_go() -> None:
    scheduler = fleet("a", slots=1)
    scheduler.offer(request(1), 0.0)
    scheduler.offer(request(2), 0.0)
    (waiting,) = snapshot(scheduler, 1.0).waiting
    assert (waiting.engine, waiting.why) == ("a", "a slot on a")


def test_a_request_whose_engine_still_loads_waits_for_any() -> None:
    scheduler = fleet("a", slots=1)
    scheduler.update("a", Probed(probe=Probe.LOADING), 0.0)
    scheduler.offer(request(2), 0.0)
    (waiting,) = snapshot(scheduler, 1.0).waiting
    assert (waiting.engine, waiting.why) == ("", "a slot on any engine that serves its model")


def test_a_request_without_a_session_shows_none_and_one_before_its_first_token_says_so() -> None:
    scheduler = fleet("a")
    scheduler.offer(request(1), 0.0)
    (one,) = snapshot(scheduler, 1.0).running
    assert (one.session, one.producing) == ("", False)


def test_a_quota_and_draining_show() -> None:
    scheduler = fleet("a", slots=4)
    scheduler.set_quota("a", 1, 0.0)
    scheduler.drain("a", True, 0.0)
    discovered(scheduler, "a", facts(4, kv_tokens=6400, block_tokens=16))
    probed(scheduler, "a", Probe.LOADING)
    (a,) = snapshot(scheduler, 0.0).engines
    assert (a.quota, a.usable, a.draining, a.health) == (1, 1, True, Health.LOADING)
    assert (a.kv_tokens, a.block_tokens, a.blocks_bound) == (6400, 16, 100)
