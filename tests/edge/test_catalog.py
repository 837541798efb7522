import re

import pytest
from msgspec.structs import replace

from gateway.config import ModelsConfig
from gateway.core.engine import Engine, Facts
from gateway.edge.catalog import Catalog, Resolved
from gateway.wire.errors import BadRequest

CREATED = 1_700_000_000


def engine(name: str, *models: str, **facts) -> Engine:
    it = Engine(name, f"http://{name}")
    it.facts = Facts(models=models, kind="vllm", **facts)
    return it


def catalog(*engines: Engine, **aliases: str) -> Catalog:
    names = {name.replace("_", "-").replace("-any", "-*"): real for name, real in aliases.items()}
    config = ModelsConfig(aliases=names)
    return Catalog({it.name: it for it in engines}, config.aliases, config.alias_of, CREATED)


def refusal(it: Catalog, asked: str) -> BadRequest:
    with pytest.raises(BadRequest) as refused:
        it.resolve(asked)
    return refused.value


def test_a_served_model_stands_for_itself():
    it = catalog(engine("a", "m"), m="other")
    assert it.resolve("m") == Resolved("m")
    assert it.detected


def test_before_any_engine_has_told_nothing_is_detected():
    it = catalog(engine("a"))
    assert not it.detected
    assert "Served: nothing yet" in refusal(it, "m").message


def test_an_alias_stands_for_its_model_and_is_remembered_as_asked_for():
    it = catalog(engine("a", "m"), fast="m", claude_any="m")
    assert it.resolve("fast") == Resolved("m", "fast")
    assert it.resolve("claude-opus") == Resolved("m", "claude-opus")
    assert it.resolve("claude-opus") is it.resolve("claude-opus")


def test_names_beyond_what_is_remembered_are_resolved_all_the_same():
    it = catalog(engine("a", "m"), claude_any="m")
    assert {it.resolve(f"claude-{n}").real for n in range(3000)} == {"m"}
    assert len(it._resolved) <= 1024


@pytest.mark.parametrize("asked", ["none", "M", "m ", "fas"])
def test_an_unknown_model_is_refused_with_the_names_there_are(asked):
    refused = refusal(catalog(engine("a", "m"), fast="m", claude_any="m"), asked)
    assert (refused.code, refused.param) == ("unknown_model", "model")
    assert refused.message.endswith("Served: fast, m.")
    assert repr(asked) in refused.message


def test_a_long_name_is_not_repeated_whole():
    assert len(refusal(catalog(engine("a", "m")), "x" * 10_000).message) < 300


def test_an_alias_whose_model_is_gone_says_which():
    refused = refusal(catalog(engine("a", "m"), big="qwen"), "big")
    assert refused.code == "unknown_model"
    assert "'big' stands for 'qwen'" in refused.message


def test_no_name_is_the_only_model_of_all_engines():
    assert catalog(engine("a", "m"), engine("b", "m"), engine("c")).resolve("") == Resolved("m")


def test_no_name_is_the_first_of_an_engine_with_adapters():
    """vLLM lists its LoRA adapters after the model itself."""
    assert catalog(engine("a", "m", "lora")).resolve("") == Resolved("m")


def test_no_name_is_refused_where_there_is_a_choice():
    refused = refusal(catalog(engine("a", "m"), engine("b", "n")), "")
    assert (refused.code, refused.param) == ("invalid_request", "model")
    assert re.search(r"several are served: m, n\.", refused.message)


def test_a_changed_model_list_counts_from_its_refresh_on():
    a = engine("a", "m")
    it = catalog(a, claude_any="m")
    assert it.resolve("claude-x").real == "m"
    a.facts = replace(a.facts, models=("n",))
    it.refresh()
    assert it.resolve("n") == Resolved("n")
    assert refusal(it, "claude-x").code == "unknown_model"
    assert list(it.models) == ["n"]


def test_cards_name_every_model_once_and_every_exact_alias():
    it = catalog(
        engine("a", "m", max_model_len=4096), engine("b", "m", "n"), fast="m", gone="none", claude_any="m"
    )
    cards = {card["id"]: card for card in it.cards()}
    assert len(it.cards()) == 3
    assert cards.keys() == {"m", "n", "fast"}
    assert cards["n"] == {"id": "n", "object": "model", "created": CREATED, "owned_by": "vllm"}
    assert cards["fast"]["root"] == "m"


def test_a_card_is_shown_under_the_name_it_was_asked_by():
    it = catalog(engine("a", "m", max_model_len=4096), claude_any="m")
    assert it.card("claude-x")["id"] == "claude-x"
    assert it.card("m")["max_model_len"] == 4096
    with pytest.raises(BadRequest):
        it.card("none")
