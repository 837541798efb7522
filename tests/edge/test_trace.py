from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.request import Grant, Request, Route
from gateway.edge.trace import Trace, WallClock

REQUEST = Request(key=1, id="r-1", api="chat", model="m")


@given(st.floats(0, 4e9), st.lists(st.floats(0, 1e5) | st.floats(0, 3), max_size=30))
def test_a_time_of_day_is_the_same_whichever_was_asked_for_before(wall_s: float, moments: list[float]):
    clock = WallClock(wall_s, 0.0)
    for now in moments:
        second, milliseconds = divmod(int((wall_s + now) * 1000), 1000)
        text = datetime.fromtimestamp(second, UTC).isoformat().removesuffix("+00:00")
        assert clock.text(now) == f"{text}.{milliseconds:03d}Z"


def test_a_time_of_day_counts_from_the_start_of_both_clocks():
    clock = WallClock(1_767_323_045.678, 100.0)
    assert clock.text(100.0) == "2026-01-02T03:04:05.678Z"
    assert clock.text(100.322) == "2026-01-02T03:04:06.000Z"
    assert clock.text(99.0) == "2026-01-02T03:04:04.678Z"


def lines_of(trace: Trace, queue_s: float) -> bytes:
    trace.queue_s = queue_s
    grant = Grant(
        key=1, engine="a", model="m", route=Route.PREFIX, attempt=1, width=1,
        predicted_tokens=48, best_tokens=64, queue_s=queue_s,
    )  # fmt: skip
    return trace.lines(REQUEST, grant)


def test_the_headers_of_an_answer_tell_where_it_came_from_and_what_it_waited_for():
    trace = Trace(10.0)
    trace.connect_s = 0.00125
    trace.sent(11.0)
    trace.answered_at = 11.0625
    assert lines_of(trace, 0.5) == (
        b"x-request-id: r-1\r\nx-gateway-engine: a\r\nx-gateway-route: prefix\r\n"
        b"x-gateway-predicted-cached-tokens: 48\r\nx-gateway-queue-ms: 500.0\r\n"
        b"server-timing: queue;dur=500.0, connect;dur=1.2, ttfb;dur=62.5\r\n"
    )


def test_what_took_no_time_is_told_as_zero():
    assert lines_of(Trace(10.0), 0.0).endswith(
        b"x-gateway-queue-ms: 0.0\r\nserver-timing: queue;dur=0.0, connect;dur=0.0, ttfb;dur=0.0\r\n"
    )


@given(st.floats(0, 1e4) | st.floats(0, 2e-4), st.floats(0, 1e4) | st.floats(0, 2e-4), st.floats(0, 1e4))
def test_waits_are_told_in_tenths_of_a_millisecond(queue_s: float, connect_s: float, ttfb_s: float):
    trace = Trace(1.0)
    trace.connect_s, trace.sent_at, trace.answered_at = connect_s, 2.0, 2.0 + ttfb_s
    queue, connect, ttfb = (f"{it * 1000:.1f}" for it in (queue_s, connect_s, trace.answered_at - 2.0))
    assert lines_of(trace, queue_s).decode() == (
        "x-request-id: r-1\r\nx-gateway-engine: a\r\nx-gateway-route: prefix\r\n"
        f"x-gateway-predicted-cached-tokens: 48\r\nx-gateway-queue-ms: {queue}\r\n"
        f"server-timing: queue;dur={queue}, connect;dur={connect}, ttfb;dur={ttfb}\r\n"
    )
