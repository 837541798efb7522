"""Which kinds of engine there are, and telling them apart by their answers."""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from gateway.core.engine import Probe
from gateway.engines.base import Answer, Dialect
from gateway.engines.llamacpp import PROPS_PATH, LlamaCppDialect
from gateway.engines.openai import OpenAIDialect
from gateway.engines.reading import MODELS_PATH, count, member, model_cards, read_json
from gateway.engines.vllm import VllmDialect

_BUILDERS: Mapping[str, Callable[[bool], Dialect]] = MappingProxyType(
    {"vllm": VllmDialect, "llamacpp": LlamaCppDialect, "openai": OpenAIDialect}
)
DIALECTS: Mapping[str, Dialect] = MappingProxyType({kind: build(True) for kind, build in _BUILDERS.items()})
KNOWN_KINDS = frozenset(DIALECTS) | {"sglang", "ollama", "tgi", "lmdeploy", "trtllm"}

# In the order of asking. Where an answer decides, the rest is not asked: reading llama.cpp's /metrics
# resets two gauges that an operator may watch.
IDENTIFY_PATHS = (MODELS_PATH, PROPS_PATH, "/metrics")

# The `owned_by` of each engine's own model cards; Ollama's are those of its library.
_OWNERS = {
    "vllm": "vllm",
    "llamacpp": "llamacpp",
    "sglang": "sglang",
    "library": "ollama",
    "lmdeploy": "lmdeploy",
    "tensorrt_llm": "trtllm",
}
_METRIC = re.compile(
    rb"^(?:# (?:HELP|TYPE) )?(?:(vllm|llamacpp|sglang|lmdeploy):|(tgi|trtllm)_)", re.MULTILINE
)


def dialect_for(kind: str, *, inject_usage: bool = True) -> Dialect:
    """The dialect of `kind`; `inject_usage` False is `usage.inject: off`.

    Raises ValueError for a kind that has none, with what to do about it.
    """
    builder = _BUILDERS.get(kind)
    if builder is None:
        raise ValueError(refusal(kind))
    return builder(inject_usage)


def refusal(kind: str) -> str:
    """Why `kind` cannot be served, for a person who configured it."""
    if kind in KNOWN_KINDS:
        return f"kind {kind} has no dialect yet; use kind: openai with slots: N"
    return f"unknown kind {kind}; one of auto, {', '.join(sorted(DIALECTS))}"


def identify(answers: Mapping[str, Answer]) -> str:
    """The kind behind a URL, of `KNOWN_KINDS`, from its answers to any of `IDENTIFY_PATHS`.

    "openai" where nothing speaks for another: any 200 alone proves nothing, some servers answer 200
    to every path.
    """
    owners = {member(card, "owned_by") for card in model_cards(answers) if _is_named(card)}
    if len(owners) == 1:
        kind = _OWNERS.get(str(owners.pop()))
        if kind is not None:
            return kind
    if count(member(read_json(answers.get(PROPS_PATH)), "total_slots")) is not None:
        return "llamacpp"
    metrics = answers.get("/metrics")
    found = _METRIC.search(metrics.body) if metrics is not None and metrics.status == 200 else None
    return (found[1] or found[2]).decode() if found is not None else "openai"


def read_first_answer(answer: Answer) -> Probe:
    """The health of an engine whose kind is not known yet, from its answer to the first question.

    llama.cpp's way to say "loading" is read for all, as it says so on every path and others never do.
    """
    return DIALECTS["llamacpp"].read_health(answer)


def _is_named(card: object) -> bool:
    return isinstance(member(card, "owned_by"), str)
