"""Answers that are no stream, as events: for a client whose stream has already begun."""

import json
from typing import Any

import msgspec

from gateway.wire.errors import as_event, error_event

_MAX_TEXT = 500
"""Characters of an engine's words in a message: a page of HTML helps nobody."""


def answer(status: int, body: bytes, api: str, engine: str) -> bytes:
    """What an engine answered, whole, in the form that `api` has for it in a stream."""
    value = _object(body)
    if value.get("error"):
        return as_event(_one_line(body), api)
    if status < 400 and value and api in ("chat", "completions"):
        chunk = _one_line(body) if api == "completions" else _chat_chunk(value)
        if chunk:
            return b"data: " + chunk + b"\n\ndata: [DONE]\n\n"
    if status < 400:
        return unreadable(api, "it is no event stream", engine)
    text = body.decode("utf-8", "replace").strip()[:_MAX_TEXT]
    return error_event("engine_error", f"Engine {engine} answered {status}: {text or '(nothing)'}", api)


def unreadable(api: str, why: str, engine: str = "") -> bytes:
    """The error in place of an answer that cannot be told in events."""
    whose = f"Engine {engine}'s" if engine else "The engine's"
    message = (
        f"{whose} answer cannot be passed on inside a stream that has begun with a keepalive: {why}. "
        "Ask without stream, or turn admission.keepalive off."
    )
    return error_event("engine_error", message, api)


def _object(body: bytes) -> dict[str, Any]:
    """Empty for what is no JSON object."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _one_line(text: bytes) -> bytes:
    """The same JSON: a line end in it is only ever white space, and many clients read one line of data."""
    return text.strip().replace(b"\r", b" ").replace(b"\n", b" ")


def _chat_chunk(completion: dict[str, Any]) -> bytes:
    """A `chat.completion` as the one chunk of its stream: there `delta` is read, not `message`, and tool
    calls are told apart by `index`. Empty for anything else."""
    choices = completion.get("choices")
    if not isinstance(choices, list):
        return b""
    for choice in choices:
        message = choice.pop("message", None) if isinstance(choice, dict) else None
        if not isinstance(message, dict):
            return b""
        calls = message.get("tool_calls")
        for index, call in enumerate(calls if isinstance(calls, list) else ()):
            if isinstance(call, dict):
                call.setdefault("index", index)
        choice["delta"] = message
    return msgspec.json.encode(completion | {"object": "chat.completion.chunk"})
