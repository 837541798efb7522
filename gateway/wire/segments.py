"""A prompt's segments, in the order in which chat templates render them, each under the name that its client
would look for: `system[0]`, `tools[3].description`, `messages[5]`, `input[4]`.

What never reaches a prompt is left out, as in the canonical prompt: ids, metadata, cache marks, sampling. Two
kinds: what a client's conversations share (system texts, then tools), and the conversation.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import xxhash

from gateway.core.facts import Billing
from gateway.core.shapes import Segment
from gateway.wire.billing import as_shown, is_billing
from gateway.wire.body import compact
from gateway.wire.prompt import HEAD_FIELDS, SYSTEM_ROLES, UNSEEN_FIELDS, utf8

_NO_PROMPT_FIELDS = UNSEEN_FIELDS | {
    "role", "content", "tool_calls", "tool_call_id", "function_call", "type"
}  # fmt: skip
_TOOL_FIELDS = frozenset(("name", "description", "parameters", "input_schema", "cache_control"))
_CALLS = frozenset(("function_call", "custom_tool_call", "tool_use", "local_shell_call"))
_CALL_FIELDS = frozenset(("id", "call_id", "type", "status", "cache_control"))
_PROMPT_PIECE_CHARS = 2_048
_PROMPT_LINE_CHARS = 32

MAX_ITEMS = 1_024
MAX_WEIGHT = 1 << 20
"""So many messages, and so many characters with `_CONTAINER_WEIGHT` for each object and list, are read at
once."""

_CONTAINER_WEIGHT = 256
_SCALAR_WEIGHT = 16
_MEDIA_FIELDS = frozenset(("url", "image_url", "data", "file_data"))
_MEDIA_SHARE = 8


class TooLongError(ValueError):
    """There is more to read than takes some milliseconds."""


def shared(api: str, data: Mapping[str, Any], billing: Billing = Billing.KEPT) -> list[Segment]:
    """System texts and tools. `billing`: what the model's engines make of Claude Code's line. Raises
    `TooLongError`."""
    segments: list[Segment] = []
    for segment in _shared(api, data):
        if not is_billing(segment.text):
            segments.append(segment)
        elif text := as_shown(segment.text, billing):
            segments.append(segment._replace(text=text))
    return segments


def body(api: str, data: Mapping[str, Any], first: int = 0) -> list[Segment]:
    """The conversation, from its item `first` on (its index in the body's list). Raises `TooLongError`."""
    if api == "completions":
        return list(_completion(data))
    field = "input" if api == "responses" else "messages"
    items = data.get(field)
    if isinstance(items, str):
        _without(MAX_WEIGHT, items)
        return [Segment("m", field, items, "user")]
    segments: list[Segment] = []
    if isinstance(items, list):
        start = max(first, _system_items(api, items))
        if len(items) - start > MAX_ITEMS:
            raise TooLongError
        left = MAX_WEIGHT
        for index in range(start, len(items)):
            left = _without(left, items[index])
        for index in range(start, len(items)):
            segments += _item(items[index], field, index)
    return segments


def _shared(api: str, data: Mapping[str, Any]) -> Iterator[Segment]:
    tools = data.get("tools") or data.get("functions")
    left = _without(MAX_WEIGHT, [data.get("system"), data.get("instructions"), tools])
    left = _without(left, [data.get(field) for field in HEAD_FIELDS])
    for field in ("messages", "input"):
        if api != "messages" and isinstance(items := data.get(field), list):
            left = _without(left, items[: _system_items(api, items)])
    for field in HEAD_FIELDS:
        if data.get(field) is not None:
            yield Segment("s", field, compact(data[field]))
    if api == "messages":
        yield from _texts("system", data.get("system"))
    elif api == "responses":
        yield from _texts("instructions", data.get("instructions"))
        yield from _system_texts(api, data.get("input"), "input")
    elif api == "chat":
        yield from _system_texts(api, data.get("messages"), "system")
    if isinstance(tools, list):
        for index, tool in enumerate(tools):
            yield from _tool(tool, f"tools[{index}]")


def _system_items(api: str, items: Sequence[Any]) -> int:
    """How many messages at the start are system texts, which are the same for all of a client's
    conversations."""
    if api == "messages":
        return 0
    count = 0
    while count < len(items) and isinstance(items[count], dict) and items[count].get("role") in SYSTEM_ROLES:
        count += 1
        if count > MAX_ITEMS:
            raise TooLongError
    return count


def _without(left: int, value: object, share: int = 1) -> int:
    """What of `left` is still left when `value` has been read; raises before it is walked through."""
    if isinstance(value, str):
        left -= _SCALAR_WEIGHT + len(value) // share
    elif isinstance(value, dict):
        left -= _CONTAINER_WEIGHT
        for field, inner in value.items():
            left = _without(left - len(field), inner, _MEDIA_SHARE if field in _MEDIA_FIELDS else share)
    elif isinstance(value, list):
        left -= _CONTAINER_WEIGHT
        for inner in value:
            left = _without(left, inner, share)
    else:
        left -= _SCALAR_WEIGHT
    if left < 0:
        raise TooLongError
    return left


def _system_texts(api: str, items: object, name: str) -> Iterator[Segment]:
    if isinstance(items, list):
        for index in range(_system_items(api, items)):
            yield Segment("s", f"{name}[{index}]", _text(items[index].get("content")))


def _texts(name: str, value: object) -> Iterator[Segment]:
    if isinstance(value, str):
        yield Segment("s", name if name == "instructions" else f"{name}[0]", value)
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield Segment("s", f"{name}[{index}]", _text([part]))


def _tool(tool: Any, name: str) -> Iterator[Segment]:
    if not isinstance(tool, dict):
        yield Segment("n", name, compact(tool))
        return
    inner = tool.get("function")
    function = inner if isinstance(inner, dict) else tool
    yield Segment("n", f"{name}.name", str(function.get("name", tool.get("type", ""))))
    rest = {field: value for field, value in function.items() if field not in _TOOL_FIELDS}
    # The order of a tool's own keys is the engine's, not the client's (`wire/prompt.py`).
    if rest:
        yield Segment("t", name, compact(dict(sorted(rest.items()))))
    if function.get("description") is not None:
        yield Segment("d", f"{name}.description", _text(function["description"]))
    field = "input_schema" if "input_schema" in function else "parameters"
    if function.get(field) is not None:
        yield Segment("p", f"{name}.{field}", compact(function[field]))


def _item(item: Any, field: str, index: int) -> Iterator[Segment]:
    name = f"{field}[{index}]"
    if not isinstance(item, dict):
        yield Segment("m", name, compact(item), "", index)
        return
    role = item.get("role")
    if _is_call(item):
        yield Segment("c", name, _call(item), "assistant", index)
        return
    content = item.get("content", item.get("output"))
    role = role if isinstance(role, str) else str(item.get("type", ""))
    if _is_result(content):
        role = "tool"
    extras = [
        f"{key} {value if isinstance(value, str) else compact(value)}"
        for key, value in item.items()
        if key not in _NO_PROMPT_FIELDS and key != "output" and value is not None
    ]
    yield Segment("m", name, "\n".join([_text(content), *extras]), role, index)
    yield from _calls(item, content, name, index)


def _calls(item: Mapping[str, Any], content: object, name: str, index: int) -> Iterator[Segment]:
    calls = item.get("tool_calls")
    if isinstance(calls, list):
        for at, call in enumerate(calls):
            function = call.get("function", call) if isinstance(call, dict) else call
            yield Segment("c", f"{name}.tool_calls[{at}]", compact(function), "assistant", index)
    if item.get("function_call") is not None:
        yield Segment("c", f"{name}.function_call", compact(item["function_call"]), "assistant", index)
    if isinstance(content, list):
        for at, part in enumerate(content):
            if _is_call(part):
                yield Segment("c", f"{name}.content[{at}]", _call(part), "assistant", index)


def _is_call(item: object) -> bool:
    if not isinstance(item, dict):
        return False
    kind = item.get("type")
    return isinstance(kind, str) and kind in _CALLS


def _is_result(content: object) -> bool:
    """Whether all of a user's message is what tools returned."""
    return (
        isinstance(content, list)
        and bool(content)
        and all(isinstance(part, dict) and part.get("type") == "tool_result" for part in content)
    )


def _call(call: Mapping[str, Any]) -> str:
    return compact({key: value for key, value in call.items() if key not in _CALL_FIELDS})


def _text(content: object) -> str:
    """The text of a message's content, in whichever form it came."""
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    if not isinstance(content, list):
        return compact(content)
    parts: list[str] = []
    for part in content:
        if isinstance(part, str):
            parts.append(part)
        elif not isinstance(part, dict):
            parts.append(compact(part))
        elif isinstance(part.get("text"), str):
            parts.append(part["text"])
        elif part.get("type") == "tool_result":
            parts.append(_text(part.get("content")))
        elif isinstance(part.get("thinking"), str):
            parts.append(part["thinking"])
        elif not _is_call(part) and part.get("type") != "redacted_thinking":
            # Images, audio and kinds not known yet: their digest stands for them.
            parts.append(xxhash.xxh3_64_hexdigest(utf8(compact(part))))
    return "\n".join(parts)


def _completion(data: Mapping[str, Any]) -> Iterator[Segment]:
    """A raw prompt, cut at lines chosen by their hash, so that what is moved is found again."""
    prompt = data.get("prompt")
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], str):
        prompt = prompt[0]
    if not isinstance(prompt, str):
        return
    _without(MAX_WEIGHT, prompt)
    start = 0
    while start < len(prompt):
        end = _end_of_piece(prompt, start)
        yield Segment("m", "prompt", prompt[start:end])
        start = end


def _end_of_piece(prompt: str, start: int) -> int:
    at = start + 256
    while at := prompt.find("\n", at - 1) + 1:
        line = prompt[max(start, prompt.rfind("\n", start, at - 1) + 1) : at]
        if at - start >= _PROMPT_PIECE_CHARS or not xxhash.xxh3_64_intdigest(utf8(line)) & 7:
            return at
        at += _PROMPT_LINE_CHARS
    return len(prompt)
