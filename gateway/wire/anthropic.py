"""Anthropic's messages: the canonical prompt that the same conversation has in the chat API.

As vLLM and llama.cpp turn one into the other (vLLM 0.32 entrypoints/anthropic/serving.py): results of tools
are messages of their own and come before the text beside them, thinking is a message's reasoning, redacted
thinking and signatures are not shown to a model.
"""

from collections.abc import Mapping
from typing import Any

from gateway.wire.billing import is_billing
from gateway.wire.prompt import EXTRA, HEAD_FIELDS, Prompt, call, content, part, plain


def canonical(data: Mapping[str, Any], tools_first: bool = False) -> bytes:
    """The canonical prompt of a body of `/v1/messages`."""
    prompt = Prompt(data.get("tools"))
    _head(data, prompt)
    if tools_first:
        prompt.place_tools()
    system, messages = data.get("system"), data.get("messages")
    if system:
        prompt.message("system", _system(system))
    for item in messages if isinstance(messages, list) else ():
        _message(item, prompt)
    return prompt.canonical()


def _head(data: Mapping[str, Any], prompt: Prompt) -> None:
    output, thinking = data.get("output_config"), data.get("thinking")
    given = {field: data.get(field) for field in HEAD_FIELDS}
    if isinstance(output, dict):
        given["reasoning_effort"] = output.get("effort")
    if isinstance(thinking, dict):
        # The budget bounds the output; whether to think at all is for the template.
        given["thinking"] = thinking.get("type")
    for field, value in given.items():
        if value is not None:
            prompt.field(field, value)


def _system(system: Any) -> str:
    """Blocks follow each other with nothing between, as engines have it; but Claude Code's billing line is a
    line in either form (`billing.py`)."""
    if not isinstance(system, list):
        return content(system)
    texts = list(map(part, system))
    if texts and is_billing(texts[0]):
        texts[0] += "\n"
    return "".join(texts)


def _message(item: Any, prompt: Prompt) -> None:
    if not isinstance(item, dict):
        prompt.other(item)
        return
    role, given = item.get("role", ""), item.get("content")
    if not isinstance(given, list):
        prompt.message(role, content(given))
        return
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[str] = []
    results = 0
    for block in given:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "tool_result":
            results += 1
            _result(block, prompt)
        elif kind == "tool_use":
            calls.append(call(block.get("name"), block.get("input")))
        elif kind == "thinking" and isinstance(block.get("thinking"), str):
            thoughts.append(plain(block["thinking"]))
        elif kind != "redacted_thinking":
            texts.append(part(block))
    if texts or thoughts or calls or not results:
        prompt.message(role, "\n".join(texts), thoughts=thoughts, calls=calls)


def _result(block: Mapping[str, Any], prompt: Prompt) -> None:
    prompt.message("tool", content(block.get("content")))
    if block.get("is_error"):
        prompt.parts += (EXTRA, "is_error")
