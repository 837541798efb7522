from core_values import engine, facts, request

from gateway.core import refusals
from gateway.core.admission import Queue
from gateway.core.engine import Engine, Probe
from gateway.core.request import Reason


def test_nobody_ready_lists_those_who_might_serve_it_and_their_states() -> None:
    loading, draining, other = engine("l"), engine("d"), engine("o")
    loading.probed(Probe.LOADING, 1.0)
    draining.draining = True
    other.facts = facts(models=("n",))
    unseen = Engine("u", "http://u")
    reason, message = refusals.nobody(["m"], [loading, draining, other, unseen])
    assert reason is Reason.NO_READY_ENGINE
    assert (
        message
        == "No engine that serves 'm' is ready: l is loading, d is draining, u is unknown. Retry later."
    )


def test_nobody_ready_where_none_is_configured() -> None:
    reason, message = refusals.nobody(["m"], [])
    assert reason is Reason.NO_READY_ENGINE
    assert "none is configured" in message


def test_engines_that_no_retry_will_bring_back_are_unreachable() -> None:
    a, b, other = engine("a"), engine("b"), engine("o")
    other.facts = facts(models=("n",))
    a.probed(Probe.REFUSED, 1.0, "its certificate has expired")
    b.probed(Probe.REFUSED, 1.0)
    reason, message = refusals.nobody(["m"], [a, b, other])
    assert reason is Reason.NO_READY_ENGINE
    assert "a is down: its certificate has expired, b is down. Retry" in message
    b.probed(Probe.REFUSED, 1.0, "its name is another")
    assert refusals.nobody(["m"], [a, b, other])[0] is Reason.ENGINE_UNREACHABLE
    b.probed(Probe.REFUSED, 2.0)
    assert refusals.nobody(["m"], [a, b, other])[0] is Reason.NO_READY_ENGINE


def test_an_engine_that_failed_the_request_is_not_called_ready() -> None:
    a, b = engine("a"), engine("b")
    b.probed(Probe.REFUSED, 1.0)
    _, message = refusals.nobody(["m"], [a, b], {"a", "b"})
    assert "a did not take it before, b is down" in message


def test_a_full_queue_states_both_bounds_and_the_request() -> None:
    queue = Queue(2, 1000)
    queue.add(request(1, body_bytes=300), 0.0)
    message = refusals.full(queue, 800)
    assert "1 of 2 requests" in message
    assert "300 of 1000 bytes" in message
    assert "800 bytes" in message
    assert "admission.max_queue_bytes" in message


def test_a_timeout_says_what_it_waited_for_and_how_long() -> None:
    waiting = Queue(2, 1000).add(request(1, max_wait_s=5.0), 10.0)
    assert refusals.timed_out(waiting, 15.2).startswith("Waited 5.2 s for a slot; the limit is 5 s")
    waiting.why = "2 slots on b"
    assert "for 2 slots on b;" in refusals.timed_out(waiting, 15.2)
