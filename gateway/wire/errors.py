"""The gateway's own errors: each code's status, once, and its body in the client's API."""

import math

import msgspec

STATUS: dict[str, int] = {
    "invalid_request": 400,
    "unauthorized": 401,
    "unknown_model": 404,
    "not_found": 404,
    "method_not_allowed": 405,
    "body_too_large": 413,
    "rate_limited": 429,
    "engine_unreachable": 502,
    "engine_timeout": 504,
    "engine_error": 502,
    "engine_truncated": 502,
    "queue_full": 503,
    "queue_timeout": 503,
    "no_ready_engine": 503,
    "shutting_down": 503,
}
"""Agents retry 5xx but not 429 (openai/codex `retry_429 = false`): 429 is only for a client's own limit."""

_OPENAI_TYPE = {
    401: "authentication_error",
    404: "not_found_error",
    429: "rate_limit_error",
}
_ANTHROPIC_TYPE = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    405: "invalid_request_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}
ANTHROPIC_OVERLOADED = 529
"""What Anthropic's API answers when overloaded; its clients retry it (code.claude.com gateway protocol)."""


class BadRequest(Exception):
    """A request that ends here: `code` is one of `STATUS`, `param` the offending field."""

    def __init__(self, message: str, code: str = "invalid_request", param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.param = param


def status_of(code: str, api: str) -> int:
    status = STATUS[code]
    return ANTHROPIC_OVERLOADED if status == 503 and api in ("messages", "count_tokens") else status


def error_body(code: str, message: str, api: str, param: str | None = None) -> bytes:
    """The JSON body of an error: Anthropic's shape on `/v1/messages`, OpenAI's elsewhere."""
    status = STATUS[code]
    if api in ("messages", "count_tokens"):
        kind = _ANTHROPIC_TYPE.get(status, "api_error")
        return msgspec.json.encode(
            {"type": "error", "error": {"type": kind, "message": message, "code": code}}
        )
    kind = _OPENAI_TYPE.get(status, "invalid_request_error" if status < 500 else "server_error")
    return msgspec.json.encode({"error": {"message": message, "type": kind, "param": param, "code": code}})


def error_event(code: str, message: str, api: str) -> bytes:
    """The same as one server-sent event, for an answer whose status has already been sent."""
    return as_event(error_body(code, message, api), api)


def as_event(error: bytes, api: str) -> bytes:
    """An error's JSON, on one line, as that event."""
    prefix = b"event: error\n" if api in ("messages", "responses") else b""
    return prefix + b"data: " + error + b"\n\n"


def retry_headers(retry_after_s: float) -> list[tuple[bytes, bytes]]:
    """`retry-after` in whole seconds from 1 to 60, and the same in milliseconds for the OpenAI SDK."""
    clamped = min(60.0, max(1.0, retry_after_s))
    return [
        (b"retry-after", b"%d" % math.ceil(clamped)),
        (b"retry-after-ms", b"%d" % math.ceil(clamped * 1000)),
    ]
