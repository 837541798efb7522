"""Questions that show what an engine makes of a prompt before its model sees it, by their length in tokens.

By what it does and not by its version: llama.cpp's builds from a shallow clone all call themselves b1, and
forks and packages of vLLM have versions of their own. Nothing is computed for an answer.
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
_COUNTS_MESSAGES = frozenset(("vllm", "llamacpp"))


def billing_questions(facts: Facts) -> Mapping[str, Sequence[Question]]:
    """For each field of `Facts`, a prompt without the billing line and two with different `cch`."""
    questions: dict[str, Sequence[Question]] = {}
    model = facts.models[0] if facts.models else ""
    if facts.kind in _COUNTS_MESSAGES:
        questions["billing"] = [(_MESSAGES_PATH, _messages(model, line)) for line in _LINES]
    if facts.kind in _TAKES_CHATS:
        questions["billing_elsewhere"] = [(_CHAT_PATH, _chat(model, line)) for line in _LINES]
    return questions


def read_billing(answers: Sequence[Answer]) -> Billing:
    """From the answers in the questions' order, as many as there are."""
    counts = [_tokens(answer) for answer in answers]
    if len(counts) < len(_LINES) or None in counts:
        return Billing.KEPT
    without, *different = counts
    if len(set(different)) > 1:
        return Billing.KEPT
    return Billing.DROPPED if different[0] == without else Billing.MASKED


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
