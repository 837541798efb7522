"""Any other OpenAI-compatible server: nothing is asked of it but its model list, nothing is changed."""

from collections.abc import Mapping

from gateway.core.call import Call, Prepared
from gateway.core.engine import Facts, LoadReport, Probe
from gateway.engines.base import Answer
from gateway.engines.reading import MODELS_PATH, longest_context_tokens, model_cards, model_names, serving


class OpenAIDialect:
    """Slots are assumed (8): such a server cannot be asked. `inject_usage` is taken for symmetry.

    Usage is not asked for, since a server of unknown kind may refuse the option.
    """

    kind = "openai"
    health_path = MODELS_PATH
    facts_paths = (MODELS_PATH,)
    load_path = None

    def __init__(self, inject_usage: bool = True) -> None:
        del inject_usage

    def read_health(self, answer: Answer) -> Probe:
        """There is no common health route; the model list is the cheapest request that all know."""
        return serving(answer)

    def read_identity(self, answer: Answer) -> str | None:
        """None: its start time is in its load report, or nowhere."""
        del answer
        return None

    def read_facts(self, answers: Mapping[str, Answer]) -> Facts:
        """The model names; all else is what `Facts` assumes of an unknown engine."""
        cards = model_cards(answers)
        return Facts(kind=self.kind, models=model_names(cards), max_model_len=longest_context_tokens(cards))

    def read_load(self, answer: Answer, asked_at: float) -> LoadReport | None:
        """Never anything: no common route tells load."""
        del answer, asked_at
        return None

    def prepare(self, call: Call) -> Prepared:
        """The call as it came."""
        return Prepared(path=call.path, headers=call.headers, body=call.body)
