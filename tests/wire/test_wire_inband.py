import json

import pytest

from gateway.wire import inband

DONE = b"data: [DONE]\n\n"
COMPLETION = {"id": "c", "object": "chat.completion", "model": "m", "usage": {"prompt_tokens": 3}}


def data_of(event: bytes) -> dict:
    assert event.endswith(b"\n\n")
    assert event.count(b"\n\n") == 1
    return json.loads(event.partition(b"data: ")[2])


@pytest.mark.parametrize("status", [200, 400, 429, 500])
@pytest.mark.parametrize(
    ("api", "prefix"),
    [
        ("chat", b""),
        ("completions", b""),
        ("responses", b"event: error\n"),
        ("messages", b"event: error\n"),
    ],
)
def test_an_error_object_goes_in_as_it_is(status: int, api: str, prefix: bytes) -> None:
    body = b'{ "error" : {"message":"caf\\u00e9", "code":1.0} }'
    assert inband.answer(status, body, api, "a") == prefix + b"data: " + body + b"\n\n"


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_an_error_on_several_lines_is_put_on_one(end: bytes) -> None:
    body = end.join([b"{", b'  "error": {', b'    "message": "a\\nb"', b"  }", b"}", b""])
    assert data_of(inband.answer(500, body, "chat", "a")) == {"error": {"message": "a\nb"}}


@pytest.mark.parametrize(
    "body", [b"", b"no", b"[1]", b'"error"', b'{"error": null}', b'{"detail": "x"}', b"[" * 100_000, b"\xff"]
)
@pytest.mark.parametrize("api", ["chat", "messages"])
def test_any_other_error_is_told_in_ours(body: bytes, api: str) -> None:
    error = data_of(inband.answer(418, body, api, "a"))["error"]
    assert error["code"] == "engine_error"
    assert error["message"].startswith("Engine a answered 418: ")
    assert len(error["message"]) < 600


def test_a_completion_passes_as_its_own_event() -> None:
    body = b'{"object": "text_completion", "choices": [{"text": "x"}], "n": 1.0}\n'
    assert inband.answer(200, body, "completions", "a") == b"data: " + body + b"\n" + DONE


def test_a_chat_completion_becomes_a_chunk() -> None:
    calls = [{"id": "x", "function": {}}, {"id": "y", "function": {}}]
    choices = [
        {"index": 0, "message": {"content": "hi"}, "finish_reason": "stop"},
        {"index": 1, "message": {"content": None, "tool_calls": calls}},
    ]
    event = inband.answer(200, json.dumps(COMPLETION | {"choices": choices}).encode(), "chat", "a")
    assert event.endswith(b"\n\n" + DONE)
    assert data_of(event.removesuffix(DONE)) == COMPLETION | {
        "object": "chat.completion.chunk",
        "choices": [
            {"index": 0, "delta": {"content": "hi"}, "finish_reason": "stop"},
            {
                "index": 1,
                "delta": {"content": None, "tool_calls": [calls[0] | {"index": 0}, calls[1] | {"index": 1}]},
            },
        ],
    }


@pytest.mark.parametrize(
    ("api", "body"),
    [
        ("chat", b'{"ok": 1}'),
        ("chat", b'{"choices": 1}'),
        ("chat", b'{"choices": [1]}'),
        ("chat", b'{"choices": [{"message": 1}]}'),
        ("chat", b"text"),
        ("completions", b"text"),
        ("messages", b'{"type": "message"}'),
        ("responses", b'{"object": "response"}'),
    ],
)
def test_what_no_client_could_read_in_a_stream_is_an_error(api: str, body: bytes) -> None:
    error = data_of(inband.answer(200, body, api, "a"))["error"]
    assert error["code"] == "engine_error"
    assert "Engine a" in error["message"]
    assert "admission.keepalive" in error["message"]
