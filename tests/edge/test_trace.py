from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.request import Grant, Outcome, Record, Request, Route, Usage
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


def record_of(trace: Trace, usage: Usage = Usage()) -> Record:  # noqa: B008 - frozen
    grant = Grant(
        key=1, engine="a", model="m", route=Route.ONLY, attempt=1, width=1,
        predicted_tokens=0, best_tokens=0, queue_s=trace.queue_s,
    )  # fmt: skip
    return trace.record(REQUEST, grant, usage, Outcome.OK, "", 20.0)


def a_stream(inside_s: float | None) -> Trace:
    """Two seconds to its first token, half of one in the gateway's queue."""
    trace = Trace(10.0)
    trace.queue_s, trace.first_token_at, trace.inside_s = 0.5, 12.0, inside_s
    return trace


def test_the_time_to_first_token_is_split_where_the_wait_inside_the_engine_is_known():
    record = record_of(a_stream(1.25))
    parts = (record.ttft_ms, record.queue_ms, record.engine_queue_ms, record.prefill_ms)
    assert parts == (2000.0, 500.0, 1250.0, 250.0)
    record = record_of(a_stream(None))
    assert (record.engine_queue_ms, record.prefill_ms) == (None, None)


def test_no_part_is_longer_than_what_is_left_of_the_whole():
    record = record_of(a_stream(9.0))
    assert (record.engine_queue_ms, record.prefill_ms) == (1500.0, 0.0)
    record = record_of(a_stream(0.0), Usage(prefill_s=9.0))
    assert (record.engine_queue_ms, record.prefill_ms) == (0.0, 1500.0)


def test_the_engines_own_clock_decides_how_long_its_prefill_took():
    record = record_of(a_stream(None), Usage(prefill_s=1.0))
    assert (record.engine_queue_ms, record.prefill_ms) == (500.0, 1000.0)


def test_what_was_spent_on_an_engine_that_failed_it_is_no_wait_inside_the_one_that_answered():
    trace = a_stream(None)
    trace.sent(trace.first_token_at - 1.1)
    record = record_of(trace, Usage(prefill_s=1.0))
    assert (round(record.engine_queue_ms), round(record.prefill_ms)) == (100, 1400)


def test_an_answer_without_a_first_token_has_no_parts():
    record = record_of(Trace(10.0), Usage(prefill_s=1.0))
    assert (record.ttft_ms, record.engine_queue_ms, record.prefill_ms) == (None, None, None)


class AtLeast:
    """Counting explains all down to this."""

    def __init__(self, tokens: int) -> None:
        self._tokens = tokens

    def may_be(self, cached_tokens: int) -> bool:
        return cached_tokens >= self._tokens


def test_a_record_tells_what_was_known_when_its_request_was_granted():
    grant = Grant(
        key=1, engine="a", model="m", route=Route.PREFIX, attempt=1, width=1, predicted_tokens=512,
        best_tokens=600, queue_s=0.0, known_tokens=700, holder_full=True, pending_tokens=64, seen_tokens=800,
        expected=AtLeast(448),
    )  # fmt: skip

    def record(cached: int | None) -> Record:
        usage = Usage(prompt_tokens=1000, cached_tokens=cached)
        request = Request(key=1, id="r-1", api="chat", model="m", session=0xBEEF)
        return Trace(10.0).record(request, grant, usage, Outcome.OK, "", 20.0)

    it = record(512)
    assert (it.session, it.seen_tokens, it.known_tokens) == ("000000000000beef", 800, 700)
    assert (it.holder_full, it.pending_tokens, it.is_miscounted) == (True, 64, False)
    assert record(448).is_miscounted
    assert not record(64).is_miscounted
    assert not record(None).is_miscounted


def test_a_record_without_a_grant_knows_nothing():
    it = Trace(10.0).record(REQUEST, None, Usage(), Outcome.REJECTED, "", 20.0)
    assert (it.session, it.seen_tokens, it.known_tokens) == ("", 0, 0)
    assert (it.holder_full, it.pending_tokens, it.is_miscounted) == (False, 0, False)
