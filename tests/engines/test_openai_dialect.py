from recordings import answered

from gateway.core.engine import Facts, SlotSource
from gateway.engines.openai import OpenAIDialect

DIALECT = OpenAIDialect()


def test_facts_are_the_model_names_and_assumptions() -> None:
    models = answered('{"data": [{"id": "a"}, {"id": "b", "max_model_len": 2048}]}')
    assert DIALECT.read_facts({"/v1/models": models}) == Facts(
        kind="openai",
        models=("a", "b"),
        slots=8,
        slots_source=SlotSource.ASSUMED,
        max_model_len=2048,
        block_tokens=1,
        cancel_s=2.0,
    )


def test_nothing_but_the_model_list_is_asked() -> None:
    assert (DIALECT.health_path, DIALECT.facts_paths, DIALECT.load_path) == (
        "/v1/models",
        ("/v1/models",),
        None,
    )
