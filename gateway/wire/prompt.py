"""The canonical prompt, whatever API a body is of: the same prompt gives the same bytes.

It follows the order in which chat templates render: system messages, tools, then the other messages, each as
role, text, tool calls. It only has to be equal for equal prompts and different for different ones, and
append-only from turn to turn. What never reaches a prompt is left out: ids, cache marks, sampling.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import xxhash

from gateway.wire.body import compact

MESSAGE, FIELD = "\x1e", "\x1f"
# What may follow a text begins with one and the same character, so that one look at a text is enough.
EXTRA, TOOLS, CALL = f"{MESSAGE}\x1f", f"{MESSAGE}\x1dtools", f"{MESSAGE}\x1dcall"
_ESCAPE = f"{MESSAGE}\x1c"
SYSTEM_ROLES = ("system", "developer")
REASONING = "reasoning_content"
"""The field of a chat message that vLLM's and llama.cpp's templates read thoughts from. Templates leave out
those before the last question, which breaks the prompt there and cannot be seen in a body."""

HEAD_FIELDS = ("chat_template_kwargs", "reasoning_effort", "documents", "chat_template")
"""What changes how a template renders all the rest."""

UNSEEN_FIELDS = frozenset(("cache_control", "id", "call_id", "status", "encrypted_content"))
"""Of items and parts: no template shows them."""

# Chat tools as nearly all clients write them: their bytes are canonical as they are.
_OUTER = ["type", "function"]
_INNER = frozenset(
    (
        ("name",),
        ("name", "description"),
        ("name", "parameters"),
        ("name", "description", "parameters"),
        ("name", "description", "parameters", "strict"),
    )
)
_TOOL_FIELDS = frozenset(("name", "description", "parameters", "input_schema", "cache_control", "type"))


def plain(text: str) -> str:
    """`text` with nothing in it that looks like another message, call or image. Different ones stay so."""
    return text.replace(MESSAGE, _ESCAPE) if MESSAGE in text else text


def role_text(role: Any) -> str:
    """A role, of which anything but a word is written as JSON: that has no separator in it."""
    return role if isinstance(role, str) and role.isalpha() else f"={compact(role)}"


def utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def content(value: Any) -> str:
    """The text of a message's or a tool result's content: its parts on lines of their own, as vLLM and
    llama.cpp put them together."""
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, list):
        return "\n".join(map(part, value))
    return "" if value is None else compact(value)


def part(value: Any) -> str:
    """One part's text; of what is no text the digest stands for it."""
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, dict):
        text = value.get("text")
        if isinstance(text, str):
            return plain(text)
        return _digest(_image(value) or compact(seen(value)))
    return _digest(compact(value))


def _digest(text: str) -> str:
    return f"{EXTRA}{xxhash.xxh3_64_hexdigest(utf8(text))}"


def _image(value: Mapping[str, Any]) -> str:
    """An image's URL, which engines make of Anthropic's form too (vLLM entrypoints/anthropic/serving.py)."""
    image, source = value.get("image_url"), value.get("source")
    url = image.get("url") if isinstance(image, dict) else image
    if url is None and isinstance(source, dict):
        url = source.get("url")
        if url is None and isinstance(source.get("data"), str):
            return f"data:{source.get('media_type')};base64,{source['data']}"
    return url if isinstance(url, str) else ""


def seen(value: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an item or part that may be rendered."""
    return {field: it for field, it in value.items() if field not in UNSEEN_FIELDS and it is not None}


def call(name: Any, arguments: Any) -> str:
    """A tool call as `function` of a chat's `tool_calls` has it. `arguments` are JSON in a string there; an
    object stands for its compact text."""
    text = arguments if isinstance(arguments, str) else compact({} if arguments is None else arguments)
    return compact({"name": name, "arguments": text})


class Written:
    """What was made of tools before, by the digest of their bytes: a client sends the same ones with each
    request, and a look at each of them takes longer than all messages.

    So many texts and characters in all; of a longer text, nothing. Of tools that are canonical as they are
    only the digest is kept.
    """

    def __init__(self, most: int = 256, most_chars: int = 4 * 2**20, text_chars: int = 2**19) -> None:
        self._most, self._most_chars, self._text_chars = most, most_chars, text_chars
        self._texts: dict[int, str] = {}
        self.chars = 0

    def text(self, tools: Any) -> str:
        written = compact(tools)
        key = xxhash.xxh3_128_intdigest(utf8(written))
        text = self._texts.get(key)
        if text is None:
            text = _canonical_tools(tools)
            if len(text) <= self._text_chars:
                self._keep(key, text)
        return text or written

    def _keep(self, key: int, text: str) -> None:
        if len(self._texts) >= self._most or self.chars + len(text) > self._most_chars:
            self._texts.clear()
            self.chars = 0
        self._texts[key] = text
        self.chars += len(text)


tools_text = Written().text
"""Tools in a chat's form and order of keys. A schema keeps its own order, which templates show."""


def _canonical_tools(tools: Any) -> str:
    """Empty where they are canonical as they are."""
    if not isinstance(tools, list) or all(map(_is_plain, tools)):
        return ""
    return f"[{','.join(map(_tool, tools))}]"


def _is_plain(tool: Any) -> bool:
    if not isinstance(tool, dict) or [*tool] != _OUTER:
        return False
    function = tool["function"]
    # One that says null is written as one that says nothing.
    return isinstance(function, dict) and (*function,) in _INNER and None not in function.values()


def _tool(tool: Any) -> str:
    if not isinstance(tool, dict):
        return compact(tool)
    function = tool.get("function")
    if isinstance(function, dict):
        outer = {field: it for field, it in tool.items() if field not in ("type", "function")}
        return compact({"type": "function", "function": _function(function), **seen(outer)})
    if isinstance(tool.get("name"), str) and _is_function(tool):
        return compact({"type": "function", "function": _function(tool)})
    # A tool of the engine's own, or in a grammar.
    return compact(seen(tool))


def _is_function(tool: Mapping[str, Any]) -> bool:
    """Anthropic's tools of the client have a schema; "custom" is something else in Responses."""
    return tool.get("type", "function") == "function" or "input_schema" in tool


def _function(fields: Mapping[str, Any]) -> dict[str, Any]:
    given = {
        "name": fields.get("name"),
        "description": fields.get("description"),
        "parameters": fields.get("parameters", fields.get("input_schema")),
    }
    given |= {field: it for field, it in fields.items() if field not in _TOOL_FIELDS}
    return {field: it for field, it in given.items() if it is not None}


class Prompt:
    """A prompt on its way to canonical bytes: `tools` go before the first message that is no system's."""

    __slots__ = ("_tools", "parts")

    def __init__(self, tools: Any = None) -> None:
        self.parts: list[str] = []
        self._tools = tools

    def field(self, field: str, value: Any) -> None:
        self.parts.append(f"{FIELD}{field}{compact(value)}")

    def message(
        self, role: Any, text: str, *, thoughts: Sequence[str] = (), calls: Sequence[str] = ()
    ) -> None:
        self.place_tools(role)
        self.parts += (MESSAGE, role_text(role), FIELD, text)
        if thoughts:
            self.parts += (EXTRA, REASONING, *thoughts)
        for it in calls:
            self.parts += (CALL, it)

    def other(self, value: Any) -> None:
        """An item that is no message."""
        self.place_tools("")
        self.parts += (MESSAGE, compact(value))

    def place_tools(self, role: Any = "") -> None:
        if self._tools and role not in SYSTEM_ROLES:
            self.parts += (TOOLS, tools_text(self._tools))
            self._tools = None

    def canonical(self) -> bytes:
        self.place_tools()
        return utf8("".join(self.parts))
