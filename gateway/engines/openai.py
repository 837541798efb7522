"""Any other OpenAI-compatible server: nothing is asked of it but its model list, nothing is changed."""

from collections.abc import Mapping

from gateway.core.engine import Facts
from gateway.engines.base import Answer
from gateway.engines.plain import PlainDialect
from gateway.engines.reading import MODELS_PATH, longest_context_tokens, model_cards, model_names


class OpenAIDialect(PlainDialect):
    """Slots are assumed (8): such a server cannot be asked.

    There is no common health route either; the model list is the cheapest request that all know. Usage is
    not asked for, since a server of unknown kind may refuse the option.
    """

    kind = "openai"
    health_path = MODELS_PATH
    facts_paths = (MODELS_PATH,)

    def read_facts(self, answers: Mapping[str, Answer]) -> Facts:
        """The model names; all else is what `Facts` assumes of an unknown engine."""
        cards = model_cards(answers)
        return Facts(kind=self.kind, models=model_names(cards), max_model_len=longest_context_tokens(cards))
