"""Ollama: tells neither its cap nor its load, and never reports cached tokens."""

from collections.abc import Mapping

from gateway.core.call import Call, Prepared
from gateway.core.engine import Facts, Residency, SlotSource
from gateway.engines.base import Answer
from gateway.engines.plain import PlainDialect
from gateway.engines.reading import MODELS_PATH, model_cards, model_names

ROOT_PATH = "/"
# The whole of what it says there (ollama server/routes.go:1877).
_GREETING = b"Ollama is running"
# OLLAMA_NUM_PARALLEL (ollama envconfig/config.go:275), which nothing tells (ollama/ollama#17556). Past it a
# loaded model queues without limit and without a word (ollama llm/llama_server.go:960).
ASSUMED_SLOTS = 1


def is_ollama(answer: Answer | None) -> bool:
    """Whether `answer` is Ollama's to `ROOT_PATH`. Its model cards tell only when all are of the library:
    their `owned_by` is the namespace of the model's name (ollama openai/openai.go)."""
    return answer is not None and answer.status == 200 and answer.body.strip() == _GREETING


class OllamaDialect(PlainDialect):
    """Keeps one prompt per slot: each loaded model is a llama-server child (ollama llm/llama_server.go:376).

    Usage is not asked for: there are no cached tokens in it. Health says nothing about loaded models, which
    come on demand and may take minutes. A child finishes a prefill whose client has left; nothing tells
    when, so the slot counts as busy for `Facts.cancel_s` only.
    """

    kind = "ollama"
    cap_setting = "OLLAMA_NUM_PARALLEL, default 1"
    cached_setting = "Ollama never tells cached tokens"
    health_path = ROOT_PATH
    facts_paths = (MODELS_PATH,)

    def prepare(self, call: Call) -> Prepared:
        """`/v1/responses` says 0 cached tokens whatever was cached (ollama openai/responses.go)."""
        return Prepared(path=call.path, headers=call.headers, body=call.body, tells_cached=False)

    def read_facts(self, answers: Mapping[str, Answer]) -> Facts:
        """All installed models. The cap is one model's, and taken for all of them together here."""
        return Facts(
            kind=self.kind,
            models=model_names(model_cards(answers)),
            slots=ASSUMED_SLOTS,
            slots_source=SlotSource.ASSUMED,
            residency=Residency.SLOTS,
        )
