"""Which kinds of engine there are, and telling them apart by their answers."""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from gateway.core.engine import Probe
from gateway.engines.base import Answer, Dialect
from gateway.engines.llamacpp import PROPS_PATH, LlamaCppDialect
from gateway.engines.lmdeploy import LmdeployDialect
from gateway.engines.ollama import ROOT_PATH, OllamaDialect, is_ollama
from gateway.engines.openai import OpenAIDialect
from gateway.engines.reading import MODELS_PATH, count, member, model_cards, read_json
from gateway.engines.sglang import SglangDialect
from gateway.engines.tgi import INFO_PATH, TgiDialect, is_tgi
from gateway.engines.trtllm import TrtllmDialect
from gateway.engines.vllm import VllmDialect

_BUILDERS: Mapping[str, Callable[[bool], Dialect]] = MappingProxyType(
    {
        "vllm": VllmDialect,
        "sglang": SglangDialect,
        "llamacpp": LlamaCppDialect,
        "ollama": OllamaDialect,
        "tgi": TgiDialect,
        "lmdeploy": LmdeployDialect,
        "trtllm": TrtllmDialect,
        "openai": OpenAIDialect,
    }
)
DIALECTS: Mapping[str, Dialect] = MappingProxyType({kind: build(True) for kind, build in _BUILDERS.items()})

# In the order of asking. Where an answer decides, the rest is not asked, so most engines get the first
# question only; TGI and an Ollama with models that are not of its library get up to four. /metrics comes
# last: reading llama.cpp's resets two gauges that an operator may watch, reading TensorRT-LLM's takes its
# statistics away.
IDENTIFY_PATHS = (MODELS_PATH, PROPS_PATH, INFO_PATH, ROOT_PATH, "/metrics")

# The `owned_by` of each engine's own model cards; Ollama's are those of its library. TGI's is the model.
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

    Raises ValueError for an unknown kind, with the choice.
    """
    builder = _BUILDERS.get(kind)
    if builder is None:
        raise ValueError(refusal(kind))
    return builder(inject_usage)


def refusal(kind: str) -> str:
    """Why `kind` cannot be served, for a person who configured it."""
    return f"unknown kind {kind}; one of auto, {', '.join(sorted(DIALECTS))}"


def identify(answers: Mapping[str, Answer]) -> str:
    """The kind behind a URL, of `DIALECTS`, from its answers to any of `IDENTIFY_PATHS`.

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
    if is_tgi(answers.get(INFO_PATH)):
        return "tgi"
    if is_ollama(answers.get(ROOT_PATH)):
        return "ollama"
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
