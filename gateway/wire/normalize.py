"""Rules that fix a prefix breaker on a body's way to the engine: what they change is spliced in.

They run before the key is made, so the key is of what the engine gets. Of a prompt that goes on, what was
changed stays as it was changed.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from gateway.wire.billing import is_billing
from gateway.wire.body import compact, parse_object
from gateway.wire.prompt import SYSTEM_ROLES
from gateway.wire.spans import Edit, Path, edited

KINDS = ("strip_billing_header", "sort_tools", "sort_tool_keys", "replace")
PLACES = ("system", "tools", "messages", "all")
SEARCHED_CHARS = 256 * 1024
"""Of a body, from its beginning on, by each rule of kind `replace`; with `patterns.MAX_STEPS` that bounds the
time of a pattern on any text."""

_APIS = frozenset(("chat", "completions", "responses", "messages", "count_tokens"))
# Where no words of a prompt stand, or words that mean something to a program.
_NO_TEXT = frozenset((
    "role", "type", "id", "call_id", "tool_call_id", "tool_use_id", "name", "namespace", "status",
    "arguments", "input", "data", "url", "image_url", "source", "file", "input_audio", "media_type",
    "signature", "encrypted_content", "cache_control", "tool_calls", "function_call", "annotations",
))  # fmt: skip
_SCHEMAS: Sequence[Path] = (("function", "parameters"), ("parameters",), ("input_schema",))


class Rule(Struct, frozen=True, kw_only=True):
    """`models` that it is limited to, by any name; none is all. The last three are for `replace`."""

    kind: str
    models: frozenset[str] = frozenset()
    place: str = "all"
    pattern: re.Pattern[str] | None = None
    replacement: str = ""


def _untold(_: Rule, __: Exception) -> None:
    pass


def normalized(
    rules: Iterable[Rule],
    api: str,
    body: bytes,
    names: Collection[str],
    failed: Callable[[Rule, Exception], None] = _untold,
) -> tuple[bytes, list[str]]:
    """`body`, which has been parsed as an object, for a model known by any of `names`; and the kinds of rules
    that changed it. One in another encoding than UTF-8, or nested too deeply to be gone through, stays.

    No rule keeps a request from its engine: `failed` is told of one that raised or that left no JSON, which
    then changes nothing. A rule takes a time that grows with the body, however many edits it makes.
    """
    kinds: list[str] = []
    if api not in _APIS or b"\0" in body[:8]:
        return body, kinds
    data: dict[str, Any] | None = None
    for rule in rules:
        if rule.models and rule.models.isdisjoint(names):
            continue
        try:
            data = parse_object(body) if data is None else data
            edits = list(_edits(rule, api, data))
            after = edited(body, edits) if edits else body
            if after == body:
                continue
            data = parse_object(after)
        except RecursionError:
            continue
        except Exception as error:
            failed(rule, error)
            continue
        body = after
        kinds.append(rule.kind)
    return body, kinds


def _edits(rule: Rule, api: str, data: Mapping[str, Any]) -> Iterator[Edit]:
    if rule.kind == "strip_billing_header":
        for place, path, value in _roots(api, data):
            if place == "system":
                yield from _without_billing(path, value)
    elif rule.kind == "sort_tools":
        yield from _sorted_tools(data.get("tools"))
    elif rule.kind == "sort_tool_keys":
        yield from _sorted_keys(data.get("tools"))
    elif rule.pattern is not None:
        yield from _replaced(rule, rule.pattern, _roots(api, data))


def _roots(api: str, data: Mapping[str, Any]) -> Iterator[tuple[str, Path, Any]]:
    """Each part of a prompt with its place, in the order in which prompts grow."""
    for field in ("system", "instructions"):
        if field in data:
            yield "system", (field,), data[field]
    if "tools" in data:
        yield "tools", ("tools",), data["tools"]
    field = {"responses": "input", "completions": "prompt"}.get(api, "messages")
    given = data.get(field)
    if isinstance(given, str) or (field == "prompt" and given is not None):
        yield "messages", (field,), given
    for number, item in enumerate(given if isinstance(given, list) and field != "prompt" else ()):
        is_system = isinstance(item, dict) and item.get("role") in SYSTEM_ROLES
        yield "system" if is_system else "messages", (field, number), item


def _without_billing(path: Path, value: Any) -> Iterator[Edit]:
    if isinstance(value, dict):
        path, value = (*path, "content"), value.get("content")
    if isinstance(value, str):
        if is_billing(value):
            yield path, compact(_rest(value)).encode()
    elif isinstance(value, list):
        lines = [n for n, it in enumerate(value) if isinstance(it, dict) and _is_line(it.get("text"))]
        kept = [n for n in range(len(value)) if n not in lines or _rest(value[n]["text"])]
        if lines and kept and len(kept) < len(value):
            # A block that only is the line goes as a whole.
            yield path, tuple(kept)
        else:
            # Engines refuse a list without blocks.
            for number in lines:
                yield (*path, number, "text"), compact(_rest(value[number]["text"])).encode()


def _is_line(text: Any) -> bool:
    return isinstance(text, str) and is_billing(text)


def _rest(text: str) -> str:
    return text.partition("\n")[2]


def _sorted_tools(tools: Any) -> Iterator[Edit]:
    if isinstance(tools, list):
        order = sorted(range(len(tools)), key=lambda number: (_name(tools[number]), number))
        if order != list(range(len(tools))):
            yield ("tools",), tuple(order)


def _name(tool: Any) -> str:
    """Tools of the engine's own have a type and no name."""
    if not isinstance(tool, dict):
        return ""
    function = tool.get("function")
    name = function.get("name") if isinstance(function, dict) else tool.get("name")
    return str(name or tool.get("type") or "")


def _sorted_keys(tools: Any) -> Iterator[Edit]:
    for number, tool in enumerate(tools if isinstance(tools, list) else ()):
        for path in _SCHEMAS:
            schema = _at(tool, path)
            if isinstance(schema, dict):
                text = _with_sorted_keys(schema)
                if text != compact(schema).encode():
                    yield ("tools", number, *path), text


def _at(value: Any, path: Path) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _with_sorted_keys(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value, order="sorted")
    except (UnicodeEncodeError, OverflowError):
        return json.dumps(value, ensure_ascii=True, separators=(",", ":"), sort_keys=True).encode()


def _replaced(rule: Rule, pattern: re.Pattern[str], roots: Iterable[tuple[str, Path, Any]]) -> Iterator[Edit]:
    left_chars = SEARCHED_CHARS
    for place, path, value in roots:
        if rule.place not in (place, "all"):
            continue
        for where, text in _texts(value, path, is_tool=place == "tools"):
            left_chars -= len(text)
            if left_chars < 0:
                return
            # A function, so that nothing in it means a group.
            after = pattern.sub(lambda _: rule.replacement, text)
            if after != text:
                yield where, compact(after).encode()


def _texts(value: Any, path: Path, *, is_tool: bool) -> Iterator[tuple[Path, str]]:
    """Of a tool its descriptions; of all else what is said."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, list):
        for number, it in enumerate(value):
            if not is_tool or not isinstance(it, str):
                yield from _texts(it, (*path, number), is_tool=is_tool)
    elif isinstance(value, dict):
        for key, it in value.items():
            wanted = key == "description" or not isinstance(it, str) if is_tool else key not in _NO_TEXT
            if wanted:
                yield from _texts(it, (*path, key), is_tool=is_tool)
