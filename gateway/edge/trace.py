"""When things happened to one request, and what is told of it: response headers and the record."""

from gateway.core.call import Header
from gateway.core.request import Grant, Outcome, Record, Request, Usage

_OK = Outcome.OK
_MAX_NAME = 256
"""Names that a client chose are cut to this before they are kept."""


class Trace:
    """Times are on the loop's clock; None or 0 until they are known."""

    __slots__ = (
        "answered_at",
        "connect_s",
        "first_token_at",
        "overhead_s",
        "queue_s",
        "received_at",
        "sent_at",
    )

    def __init__(self, received_at: float) -> None:
        self.received_at = received_at
        self.queue_s = 0.0
        self.connect_s = 0.0
        self.sent_at: float | None = None
        self.overhead_s: float | None = None
        self.answered_at = 0.0
        self.first_token_at: float | None = None

    def sent(self, now: float) -> None:
        """Handed to the engine's socket. Overhead is what the gateway itself took until then, once."""
        self.sent_at = now
        if self.overhead_s is None:
            self.overhead_s = max(0.0, now - self.received_at - self.queue_s - self.connect_s)

    def headers(self, request: Request, grant: Grant) -> list[Header]:
        queue_ms, connect_ms = self.queue_s * 1000, self.connect_s * 1000
        ttfb_ms = (self.answered_at - (self.sent_at or self.answered_at)) * 1000
        timing = b"queue;dur=%.1f, connect;dur=%.1f, ttfb;dur=%.1f" % (queue_ms, connect_ms, ttfb_ms)
        return [
            (b"x-request-id", request.id.encode()),
            (b"x-gateway-engine", grant.engine.encode()),
            (b"x-gateway-route", grant.route.encode()),
            (b"x-gateway-predicted-cached-tokens", b"%d" % grant.predicted_tokens),
            (b"x-gateway-queue-ms", b"%.1f" % queue_ms),
            (b"server-timing", timing),
        ]

    def record(
        self,
        request: Request,
        grant: Grant | None,
        usage: Usage,
        *,
        outcome: Outcome,
        status: int,
        code: str,
        stream: bool,
        key_name: str,
        timestamp: str,
        now: float,
    ) -> Record:
        started, first = self.received_at, self.first_token_at
        return Record(
            time=timestamp,
            id=request.id,
            api=request.api,
            model=(grant.model if grant else request.model)[:_MAX_NAME],
            engine=grant.engine if grant else "",
            outcome=outcome,
            status=status,
            code=code,
            stream=stream,
            width=request.width,
            route=grant.route.value if grant else "",
            attempts=grant.attempt if grant else 0,
            key_name=key_name,
            queue_ms=(self.queue_s if grant else now - started) * 1000,
            connect_ms=self.connect_s * 1000,
            ttft_ms=None if first is None else (first - started) * 1000,
            duration_ms=(now - started) * 1000,
            overhead_ms=None if self.overhead_s is None else self.overhead_s * 1000,
            prompt_bytes=request.prompt_bytes,
            predicted_cached_tokens=grant.predicted_tokens if grant else 0,
            best_cached_tokens=grant.best_tokens if grant else 0,
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.cached_tokens,
            completion_tokens=usage.completion_tokens,
        )


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
    return Trace(0.0).record(
        request, None, Usage(), outcome=outcome, status=status, code=code, stream=False, key_name="",
        timestamp=timestamp, now=0.0,
    )  # fmt: skip
