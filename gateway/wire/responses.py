"""OpenAI's Responses: the canonical prompt that the same conversation has in the chat API.

Items of an assistant that follow each other are one message there, as in vLLM (0.32
entrypoints/openai/responses/utils.py). Of reasoning its text counts, else its summary; what is encrypted no
open engine can read. What `previous_response_id` stands for lies in the engine: the key is that of the body.
"""

from collections.abc import Mapping
from typing import Any

from gateway.wire.prompt import (
    CALL,
    EXTRA,
    FIELD,
    HEAD_FIELDS,
    MESSAGE,
    REASONING,
    Prompt,
    call,
    content,
    seen,
)

_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
_RESULTS = frozenset(("function_call_output", "custom_tool_call_output"))
_ASSISTANT = (MESSAGE, "assistant", FIELD)


def canonical(data: Mapping[str, Any], tools_first: bool = False) -> bytes:
    """The canonical prompt of a body of `/v1/responses`."""
    writer = _Writer(data.get("tools"))
    reasoning, instructions, given = data.get("reasoning"), data.get("instructions"), data.get("input")
    # `prompt` is a template that the engine has, by its id, with its variables.
    head = {field: data.get(field) for field in (*HEAD_FIELDS, "prompt")}
    if isinstance(reasoning, dict):
        head["reasoning_effort"] = reasoning.get("effort")
    for field, value in head.items():
        if value is not None:
            writer.field(field, value)
    if tools_first:
        writer.place_tools()
    if instructions:
        writer.message("system", content(instructions))
    for item in given if isinstance(given, list) else ():
        writer.item(item)
    if isinstance(given, str):
        writer.message("user", given)
    return writer.canonical()


class _Writer(Prompt):
    """`_is_open` while the last message is the assistant's and may go on, `_has_text` once that has text or
    calls, after which more text is another message."""

    __slots__ = ("_has_text", "_is_open")

    def __init__(self, tools: Any) -> None:
        super().__init__(tools)
        self._is_open = self._has_text = False

    def item(self, item: Any) -> None:
        kind = item.get("type", "message") if isinstance(item, dict) else None
        if not isinstance(kind, str):
            self._is_open = False
            self.other(item)
        elif kind in _CALLS:
            self._open()
            self._has_text = True
            self.parts += (CALL, call(_name(item), item.get(_CALLS[kind])))
        elif kind == "reasoning":
            self._open(anew=self._has_text)
            self.parts += (EXTRA, REASONING, _thoughts(item))
        elif kind == "message" and item.get("role") == "assistant":
            if not self._open(anew=self._has_text):
                self.parts.append(EXTRA)
            self._has_text = True
            self.parts.append(content(item.get("content")))
        else:
            self._is_open = False
            self._another(kind, item)

    def _another(self, kind: str, item: Mapping[str, Any]) -> None:
        if kind == "message":
            self.message(item.get("role", ""), content(item.get("content")))
        elif kind in _RESULTS:
            self.message("tool", content(item.get("output")))
        else:
            # A reference is nothing but its id.
            self.other(item if kind == "item_reference" else seen(item))

    def _open(self, anew: bool = False) -> bool:
        """Whether another message was begun."""
        if self._is_open and not anew:
            return False
        self.place_tools()
        self.parts += _ASSISTANT
        self._is_open, self._has_text = True, False
        return True


def _name(item: Mapping[str, Any]) -> Any:
    """Tools of a namespace are flat names to a template."""
    name, namespace = item.get("name"), item.get("namespace")
    return f"{namespace}.{name}" if namespace else name


def _thoughts(item: Mapping[str, Any]) -> str:
    return content(item.get("content") or item.get("summary"))
