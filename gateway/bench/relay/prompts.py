"""The requests that are sent, as JSON bodies."""

import json

_SYSTEM = "You are a helpful assistant. " * 70
_TURNS = 60
_TURN = "lorem ipsum dolor sit amet " * 250


def short(*, stream: bool) -> str:
    """2 KB of prompt."""
    return _body([_message("system", _SYSTEM), _message("user", "hi")], stream=stream)


def long() -> str:
    """400 KB of prompt in 60 messages, about 100,000 tokens; JSON is asked for."""
    roles = ("assistant", "user")
    return _body([_message(roles[turn % 2], f"turn {turn} {_TURN}") for turn in range(_TURNS)], stream=False)


def _message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def _body(messages: list[dict[str, str]], *, stream: bool) -> str:
    return json.dumps({"model": "m", "stream": stream, "messages": messages}, separators=(",", ":"))
