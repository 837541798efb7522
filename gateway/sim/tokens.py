"""A toy tokenizer and chat template: about four bytes a token, exact, reversible, the same in every process.

Template markers are one token each, as special tokens are in real models. So a conversation that grows keeps
its tokens: the prompt of the next turn starts with this prompt and this answer.
"""

import re
import struct
from collections.abc import Mapping, Sequence

import msgspec

_MARKERS = ("system", "user", "assistant", "tool", "developer", "end", "tools", "tool_call", "image")
_MARKER_TEXT = re.compile(r"(<\|(?:" + "|".join(_MARKERS) + r")\|>)")
# No UTF-8 text holds the byte 0xFF, so no group of four text bytes can equal a marker.
_MARKER_BASE = 0xFFFF_FF00
_MARKER_IDS = {f"<|{name}|>": _MARKER_BASE + index for index, name in enumerate(_MARKERS)}
_MARKER_NAMES = {token: text for text, token in _MARKER_IDS.items()}

# Three letters and a space: each word is one token, wherever in an answer it stands.
_LETTERS = (
    "thecatsatandateallrawoatredfoxranfaroffourolddogdugonebigpitlowsunsetskylit"
    "daynewhotteacupmapkeyboxpeninkarmlegeyeearjoblawartendusewaymanboysonera"
)
_WORDS = tuple(_LETTERS[at : at + 3] + " " for at in range(0, len(_LETTERS), 3))


def tokenize(text: str) -> tuple[int, ...]:
    """The tokens of a text that may hold template markers."""
    tokens: list[int] = []
    for part in _MARKER_TEXT.split(text):
        marker = _MARKER_IDS.get(part)
        if marker is not None:
            tokens.append(marker)
        elif part:
            tokens.extend(_groups(part))
    return tuple(tokens)


def detokenize(tokens: Sequence[int]) -> str:
    """The text of `tokens`; ids that no text has become replacement characters."""
    parts: list[str] = []
    pending = bytearray()
    for token in tokens:
        marker = _MARKER_NAMES.get(token)
        if marker is None:
            pending += (token & 0xFFFF_FFFF).to_bytes(4, "little").rstrip(b"\0")
            continue
        parts.append(pending.decode(errors="replace") + marker)
        pending.clear()
    parts.append(pending.decode(errors="replace"))
    return "".join(parts)


def render_chat(
    messages: Sequence[Mapping[str, object]],
    tools: Sequence[object] = (),
    *,
    add_generation_prompt: bool = True,
) -> str:
    """The prompt of a chat: markers and texts, the tools after the system message."""
    system_count = 1 if messages and messages[0].get("role") in ("system", "developer") else 0
    parts = [_render_message(message) for message in messages[:system_count]]
    if tools:
        parts.append("<|tools|>" + msgspec.json.encode(tools).decode() + "<|end|>")
    parts += [_render_message(message) for message in messages[system_count:]]
    if add_generation_prompt:
        parts.append("<|assistant|>")
    return "".join(parts)


def text_of(content: object) -> str:
    """The text of a message's `content`: a string, a list of parts, or nothing."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "".join(_text_of_part(part) for part in content)


def render_tool_call(name: str, arguments: str) -> str:
    """A tool call as the template writes it, in the answer and in the history alike."""
    return "<|tool_call|>" + name + arguments


def words(prompt: Sequence[int], choice: int, count: int) -> tuple[str, ...]:
    """The answer to a prompt: `count` words of one token each, the same for the same prompt and choice."""
    # The hash of a tuple of ints does not depend on PYTHONHASHSEED.
    state = hash((tuple(prompt), choice)) & 0xFFFF_FFFF_FFFF_FFFF
    chosen: list[str] = []
    for _ in range(count):
        # Knuth's MMIX generator.
        state = (state * 6364136223846793005 + 1442695040888963407) & 0xFFFF_FFFF_FFFF_FFFF
        chosen.append(_WORDS[(state >> 33) % len(_WORDS)])
    return tuple(chosen)


def _groups(text: str) -> tuple[int, ...]:
    data = text.encode(errors="replace")
    count = (len(data) + 3) // 4
    return struct.unpack(f"<{count}I", data.ljust(count * 4, b"\0"))


def _render_message(message: Mapping[str, object]) -> str:
    role = message.get("role")
    marker = f"<|{role}|>"
    parts = [marker if marker in _MARKER_IDS else "<|user|>", text_of(message.get("content"))]
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            parts.append(render_tool_call(str(function.get("name")), str(function.get("arguments"))))
    parts.append("<|end|>")
    return "".join(parts)


def _text_of_part(part: object) -> str:
    if not isinstance(part, dict):
        return ""
    text = part.get("text")
    if isinstance(text, str):
        return text
    return "<|image|>" + msgspec.json.encode(part).decode()
