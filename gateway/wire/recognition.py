"""Which API a body is of, where no path says so."""

from collections.abc import Mapping
from typing import Any

_MESSAGES_FIELDS = frozenset(("system", "anthropic_version", "stop_sequences", "thinking", "output_config"))
_RESPONSES_FIELDS = frozenset(("input", "instructions", "previous_response_id"))
_MESSAGES_BLOCKS = frozenset(("tool_use", "tool_result", "thinking", "redacted_thinking"))
READ_APIS = ("chat", "completions", "responses", "messages")
"""Those whose prompts are read."""


def api_of(data: Mapping[str, Any]) -> str:
    """One of `READ_APIS`, by fields that only it has. A body that says nothing is a chat's."""
    if not _MESSAGES_FIELDS.isdisjoint(data):
        return "messages"
    if not _RESPONSES_FIELDS.isdisjoint(data):
        return "responses"
    if "messages" in data:
        return "messages" if _is_anthropic(data) else "chat"
    return "completions" if "prompt" in data else "chat"


def _is_anthropic(data: Mapping[str, Any]) -> bool:
    tools, messages = data.get("tools"), data.get("messages")
    if isinstance(tools, list) and any(isinstance(it, dict) and "input_schema" in it for it in tools):
        return True
    items = messages if isinstance(messages, list) else ()
    contents = [it.get("content") for it in items if isinstance(it, dict)]
    blocks = [block for it in contents if isinstance(it, list) for block in it if isinstance(block, dict)]
    return any(str(block.get("type")) in _MESSAGES_BLOCKS for block in blocks)
