"""Bodies are built from the fact sheet: ollama's server/routes.go:1877 and openai/openai.go."""

import pytest
from recordings import answered

from gateway.core.engine import Facts, Residency, SlotSource
from gateway.engines.base import Answer
from gateway.engines.ollama import OllamaDialect, is_ollama

DIALECT = OllamaDialect()
MODELS = answered(
    '{"object":"list","data":[{"id":"gemma3:270m","object":"model","created":1,"owned_by":"library"},'
    '{"id":"hf.co/unsloth/q:Q4","object":"model","created":1,"owned_by":"unsloth"}]}'
)


def test_facts_are_all_models_and_one_assumed_slot_that_keeps_its_prompt() -> None:
    assert DIALECT.read_facts({"/v1/models": MODELS}) == Facts(
        kind="ollama",
        models=("gemma3:270m", "hf.co/unsloth/q:Q4"),
        slots=1,
        slots_source=SlotSource.ASSUMED,
        slots_declared=None,
        kv_tokens=None,
        residency=Residency.SLOTS,
        cancel_s=2.0,
    )


def test_it_has_no_load_to_ask_for() -> None:
    assert DIALECT.load_path is None
    assert DIALECT.health_path == "/"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (answered("Ollama is running"), True),
        (answered("Ollama is running\n"), True),
        (answered("Ollama is running", 404), False),
        (answered("<p>Ollama is running</p>"), False),
        (None, False),
    ],
)
def test_it_is_told_by_its_greeting(answer: Answer | None, expected: bool) -> None:
    assert is_ollama(answer) is expected
