"""Questions that show what an engine makes of a prompt before its model sees it.

Of the billing line by lengths in tokens: by what an engine does and not by its version, since llama.cpp's
builds from a shallow clone all call themselves b1, and packages of vLLM have versions of their own. Of the
order of system text and tools by a prompt as it was rendered. Nothing is computed for an answer.
"""

from collections.abc import Mapping, Sequence

import msgspec

from gateway.core.facts import Billing, Facts
from gateway.engines.base import Answer
from gateway.engines.reading import count, member, read_json

Question = tuple[str, bytes]
"""A path and the JSON to post there."""

_LINE = "x-anthropic-billing-header: cc_version=2.1.100.7b4; cc_entrypoint=cli;"
# Two values that no tokenizer cuts into as many tokens: letters of one kind, and marks.
_LINES = ("", f"{_LINE} cch=fffff;", f"{_LINE} cch=~^}}|0;")
_SYSTEM = "You are helpful."
_USER = ({"role": "user", "content": "hi"},)

_MESSAGES_PATH = "/v1/messages/count_tokens"
_CHAT_PATH = "/tokenize"
# llama.cpp's /tokenize takes text only, and its chats show the line (b10434).
_TAKES_CHATS = frozenset(("vllm",))
# Where a chat's prompt is shown: as text, or as tokens that can be made text again.
_SHOWS_AT = {"llamacpp": "/apply-template", "vllm": _CHAT_PATH}
_SYSTEM_MARK, _TOOL_MARK = "zzsystemzz", "zztoolzz"
_COUNTS_MESSAGES = frozenset(("vllm", "llamacpp"))


def billing_questions(facts: Facts) -> Mapping[str, Sequence[Question]]:
    """For each field of `Facts`, a prompt without the billing line and two with different `cch`."""
    questions: dict[str, Sequence[Question]] = {}
    model = _model(facts)
    if facts.kind in _COUNTS_MESSAGES:
        questions["billing"] = [(_MESSAGES_PATH, _messages(model, line)) for line in _LINES]
    if facts.kind in _TAKES_CHATS:
        questions["billing_elsewhere"] = [(_CHAT_PATH, _chat(model, line)) for line in _LINES]
    return questions


def order_question(facts: Facts) -> Question | None:
    """A chat with a system prompt and a tool, to be rendered."""
    if facts.kind not in _SHOWS_AT:
        return None
    schema = {"type": "object", "properties": {}}
    function = {"name": _TOOL_MARK, "description": "It helps.", "parameters": schema}
    body = {
        "model": _model(facts),
        "messages": ({"role": "system", "content": _SYSTEM_MARK}, *_USER),
        "tools": [{"type": "function", "function": function}],
    }
    return _SHOWS_AT[facts.kind], msgspec.json.encode(body)


def text_question(facts: Facts, answer: Answer) -> Question | None:
    """How to get the text, where the answer is in tokens."""
    tokens = member(read_json(answer), "tokens")
    if not isinstance(tokens, list):
        return None
    return "/detokenize", msgspec.json.encode({"model": _model(facts), "tokens": tokens})


def shows_tools_first(answer: Answer) -> bool:
    """From the rendered text. False also where it shows no tools, or no system prompt."""
    text = member(read_json(answer), "prompt")
    return isinstance(text, str) and -1 < text.find(_TOOL_MARK) < text.find(_SYSTEM_MARK)


def read_billing(answers: Sequence[Answer]) -> Billing:
    """From the answers in the questions' order, as many as there are."""
    counts = [_tokens(answer) for answer in answers]
    if len(counts) < len(_LINES) or None in counts:
        return Billing.KEPT
    without, *different = counts
    if len(set(different)) > 1:
        return Billing.KEPT
    return Billing.DROPPED if different[0] == without else Billing.MASKED


def _model(facts: Facts) -> str:
    return facts.models[0] if facts.models else ""


def _tokens(answer: Answer) -> int | None:
    said = read_json(answer)
    return count(member(said, "input_tokens")) or count(member(said, "count"))


def _messages(model: str, line: str) -> bytes:
    texts = filter(None, (line, _SYSTEM))
    system = [{"type": "text", "text": text} for text in texts]
    return msgspec.json.encode({"model": model, "system": system, "messages": _USER})


def _chat(model: str, line: str) -> bytes:
    system = {"role": "system", "content": f"{line}\n{_SYSTEM}" if line else _SYSTEM}
    return msgspec.json.encode({"model": model, "messages": (system, *_USER)})
