import json

import pytest

from gateway.core.request import Reason
from gateway.wire.errors import (
    STATUS,
    BadRequest,
    error_body,
    error_event,
    retry_headers,
    status_of,
)


def test_each_code_has_the_status_that_clients_rely_on() -> None:
    assert {
        "invalid_request": 400,
        "unauthorized": 401,
        "unknown_model": 404,
        "body_too_large": 413,
        "rate_limited": 429,
        "engine_unreachable": 502,
        "engine_timeout": 504,
        "queue_full": 503,
        "queue_timeout": 503,
        "no_ready_engine": 503,
        "shutting_down": 503,
    }.items() <= STATUS.items()


@pytest.mark.parametrize("reason", Reason)
def test_every_rejection_has_a_code_with_a_status_that_agents_retry(reason: Reason) -> None:
    # codex retries 5xx and never 429
    assert status_of(reason.value, "chat") >= 500


@pytest.mark.parametrize("api", ["messages", "count_tokens"])
def test_overload_is_529_on_anthropics_paths_alone(api: str) -> None:
    assert status_of("queue_full", api) == 529
    assert status_of("queue_full", "responses") == 503
    assert status_of("engine_timeout", api) == 504


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("invalid_request", "invalid_request_error"),
        ("unauthorized", "authentication_error"),
        ("unknown_model", "not_found_error"),
        ("method_not_allowed", "invalid_request_error"),
        ("body_too_large", "invalid_request_error"),
        ("rate_limited", "rate_limit_error"),
        ("engine_unreachable", "server_error"),
        ("queue_full", "server_error"),
    ],
)
def test_an_openai_error_has_all_four_members(code: str, kind: str) -> None:
    # llama-swap#1038: clients read body["error"]["message"]
    assert json.loads(error_body(code, "why", "chat", "model")) == {
        "error": {"message": "why", "type": kind, "param": "model", "code": code}
    }
    assert json.loads(error_body(code, "why", "other"))["error"]["param"] is None


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("invalid_request", "invalid_request_error"),
        ("unauthorized", "authentication_error"),
        ("unknown_model", "not_found_error"),
        ("body_too_large", "request_too_large"),
        ("rate_limited", "rate_limit_error"),
        ("queue_full", "overloaded_error"),
        ("engine_timeout", "api_error"),
    ],
)
def test_an_anthropic_error_has_anthropics_shape(code: str, kind: str) -> None:
    assert json.loads(error_body(code, "why", "messages")) == {
        "type": "error",
        "error": {"type": kind, "message": "why", "code": code},
    }


@pytest.mark.parametrize(
    ("api", "first_line"),
    [("chat", b""), ("completions", b""), ("messages", b"event: error\n"), ("responses", b"event: error\n")],
)
def test_an_error_event_is_one_event_with_the_same_body(api: str, first_line: bytes) -> None:
    body = error_body("engine_truncated", "line\nline", api)
    assert error_event("engine_truncated", "line\nline", api) == first_line + b"data: " + body + b"\n\n"
    assert b"\n" not in body


@pytest.mark.parametrize(
    ("seconds", "whole", "milliseconds"),
    [
        (-5.0, b"1", b"1000"),
        (0.2, b"1", b"1000"),
        (1.0001, b"2", b"1001"),
        (59.5, b"60", b"59500"),
        (61.0, b"60", b"60000"),
        (float("inf"), b"60", b"60000"),
    ],
)
def test_retry_after_is_whole_seconds_from_1_to_60(seconds: float, whole: bytes, milliseconds: bytes) -> None:
    # litellm#30098, openai SDK: retry-after-ms
    assert retry_headers(seconds) == [(b"retry-after", whole), (b"retry-after-ms", milliseconds)]


def test_a_bad_request_carries_its_message_code_and_field() -> None:
    error = BadRequest("no", "unknown_model", "model")
    assert (str(error), error.message, error.code, error.param) == ("no", "no", "unknown_model", "model")
