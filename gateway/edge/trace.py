"""When things happened to one request, and what is told of it: response headers and the record."""

from datetime import UTC, datetime
from functools import lru_cache

from gateway.core.request import Grant, Outcome, Record, Request, Route, Usage

_OK = Outcome.OK
_MAX_NAME = 256
"""Names that a client chose are cut to this before they are kept."""

_WAITS = b"\r\nx-gateway-queue-ms: %.1f\r\nserver-timing: queue;dur=%.1f, connect;dur=%.1f, ttfb;dur="
# Most often both are next to nothing, and to format a figure takes longer than to see that.
_NO_WAITS = _WAITS % (0.0, 0.0, 0.0)
_MILLISECONDS = tuple([f".{rest:03d}Z" for rest in range(1000)])


@lru_cache(maxsize=1024)
def _origin(engine: str, route: Route) -> bytes:
    lines = f"x-gateway-engine: {engine}\r\nx-gateway-route: {route}\r\nx-gateway-predicted-cached-tokens: "
    return lines.encode()


class WallClock:
    """Times of day for moments on the loop's clock, which stood at `now_s` when it was `wall_s`."""

    def __init__(self, wall_s: float, now_s: float) -> None:
        self._offset_s = wall_s - now_s
        self._second_ms = -1000
        self._second = ""

    def text(self, now_s: float) -> str:
        """ISO 8601 in UTC, with milliseconds. Within a second only these are another."""
        wall_ms = int((self._offset_s + now_s) * 1000)
        rest_ms = wall_ms - self._second_ms
        if not 0 <= rest_ms < 1000:
            rest_ms = wall_ms % 1000
            self._second_ms = wall_ms - rest_ms
            since_epoch_s = self._second_ms // 1000
            self._second = datetime.fromtimestamp(since_epoch_s, UTC).isoformat().removesuffix("+00:00")
        return self._second + _MILLISECONDS[rest_ms]


class Trace:
    """What is known of one request, until its record is made of it. Times are on the loop's clock; None or 0
    until they are known. What most requests never set costs them nothing as a class's own."""

    key_name = ""
    status = 0
    code = ""
    is_stream = False
    queue_s = 0.0
    connect_s = 0.0
    sent_at: float | None = None
    overhead_s: float | None = None
    answered_at = 0.0
    first_token_at: float | None = None
    inside_s: float | None = None

    def __init__(self, received_at: float) -> None:
        self.received_at = received_at

    def sent(self, now: float) -> None:
        """Handed to the engine's socket. Overhead is what the gateway itself took until then, once."""
        self.sent_at = now
        if self.overhead_s is None:
            overhead_s = now - self.received_at - self.queue_s - self.connect_s
            self.overhead_s = overhead_s if overhead_s > 0.0 else 0.0

    def lines(self, request: Request, grant: Grant) -> bytes:
        """The response headers of the gateway's own."""
        queue_ms, connect_ms = self.queue_s * 1000, self.connect_s * 1000
        waits = _NO_WAITS
        if queue_ms >= 0.05 or connect_ms >= 0.05:
            waits = _WAITS % (queue_ms, queue_ms, connect_ms)
        ttfb_ms = (self.answered_at - (self.sent_at or self.answered_at)) * 1000
        origin = _origin(grant.engine, grant.route)
        told = (request.id.encode(), origin, grant.predicted_tokens, waits, ttfb_ms)
        return b"x-request-id: %b\r\n%b%d%b%.1f\r\n" % told

    def record(
        self,
        request: Request,
        grant: Grant | None,
        usage: Usage,
        outcome: Outcome,
        timestamp: str,
        now: float,
    ) -> Record:
        started, first, overhead_s = self.received_at, self.first_token_at, self.overhead_s
        duration_ms = (now - started) * 1000
        ttft_ms = engine_queue_ms = prefill_ms = None
        if first is not None:
            ttft_ms = (first - started) * 1000
            after_queue_ms = ttft_ms - self.queue_s * 1000
            if usage.prefill_s:
                # The engine's own figure: what it did not compute, it kept the request waiting. Engines that
                # failed it before, and the way there, are no part of that.
                inside_ms = (first - self.sent_at) * 1000 if self.sent_at is not None else after_queue_ms
                engine_queue_ms = max(0.0, min(after_queue_ms, inside_ms) - usage.prefill_s * 1000)
            elif self.inside_s is not None:
                engine_queue_ms = min(after_queue_ms, self.inside_s * 1000)
            if engine_queue_ms is not None:
                prefill_ms = after_queue_ms - engine_queue_ms
        if grant is not None:
            model, engine, route = grant.model, grant.engine, grant.route._value_
            attempts, queue_ms = grant.attempt, self.queue_s * 1000
            predicted, best = grant.predicted_tokens, grant.best_tokens
            seen, known, pending = grant.seen_tokens, grant.known_tokens, grant.pending_tokens
            is_full, is_miscounted, cached = grant.holder_full, False, usage.cached_tokens
            if cached is not None and cached < predicted and grant.expected is not None:
                is_miscounted = grant.expected.may_be(cached)
        else:
            model, engine, route = request.model, "", ""
            attempts, queue_ms = 0, duration_ms
            predicted = best = seen = known = pending = 0
            is_full = is_miscounted = False
        session = request.session
        # By name these 33 would cost ten times as much.
        return Record(
            timestamp, request.id, request.api, model if len(model) <= _MAX_NAME else model[:_MAX_NAME],
            engine, outcome, self.status, self.code, self.is_stream, request.width, route, attempts,
            self.key_name, queue_ms, self.connect_s * 1000, ttft_ms, engine_queue_ms, prefill_ms, duration_ms,
            None if overhead_s is None else overhead_s * 1000, request.prompt_bytes,
            predicted, best, usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens,
            request.workload, f"{session:016x}" if session else "", seen, known, is_full, pending,
            is_miscounted,
        )  # fmt: skip


def outcome_of(status: int, failed: bytes | None) -> Outcome:
    """What an answer came to that was relayed to its end; `failed`: an error that stood inside it."""
    if status < 400 and not failed:
        return _OK
    if status in (401, 403, 408, 429) or status >= 500 or failed:
        return Outcome.ENGINE_ERROR
    return Outcome.INVALID


def refusal_record(
    request_id: str, api: str, *, outcome: Outcome, status: int, code: str, timestamp: str
) -> Record:
    """The record of a request that ended before it was understood."""
    request = Request(key=0, id=request_id, api=api, model="", width=0)
    trace = Trace(0.0)
    trace.status, trace.code = status, code
    return trace.record(request, None, Usage(), outcome, timestamp, 0.0)
