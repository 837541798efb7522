import re

import pytest
from msgspec.structs import replace

from gateway.config import ModelsConfig
from gateway.core.engine import Engine, Facts, Health
from gateway.core.facts import Billing
from gateway.edge.catalog import Catalog, Resolved
from gateway.wire.errors import BadRequest

CREATED = 1_700_000_000


def engine(name: str, *models: str, **facts) -> Engine:
    it = Engine(name, f"http://{name}")
    it.facts = Facts(models=models, kind="vllm", **facts)
    it.health = Health.READY
    return it


def unseen(name: str) -> Engine:
    return Engine(name, f"http://{name}")


def catalog(*engines: Engine, **aliases: str | list[str]) -> Catalog:
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


def test_while_an_engine_has_not_told_its_models_no_name_is_refused():
    it = catalog(engine("a", "m"), unseen("b"), fast="m", big="qwen", big_any="qwen")
    assert it.resolve("n") == Resolved("n")
    assert it.resolve("big") == Resolved("qwen", "big")
    assert it.resolve("big-x") == Resolved("qwen", "big-x")
    assert it.resolve("fast") == Resolved("m", "fast")


def test_a_name_that_could_not_be_judged_is_judged_once_all_have_told():
    b = unseen("b")
    it = catalog(engine("a", "m"), b)
    assert (it.resolve("n"), it.resolve("k")) == (Resolved("n"), Resolved("k"))
    b.facts, b.health = Facts(models=("n",)), Health.READY
    assert refusal(it, "k").code == "unknown_model"
    it.refresh()
    assert it.resolve("n") == Resolved("n")


@pytest.mark.parametrize("asked", ["x" * 257, "\ud800", "a\nb"])
def test_what_is_no_name_at_all_is_refused_even_then(asked):
    assert refusal(catalog(unseen("a")), asked).code == "unknown_model"


def test_an_engine_that_serves_and_names_no_models_has_told():
    """Its list was empty, or it wants a key for it: waiting for it would not end."""
    assert refusal(catalog(engine("a", "m"), engine("b")), "n").code == "unknown_model"


def test_without_a_name_and_before_any_engine_has_told_there_is_nothing_to_send_to():
    refused = refusal(catalog(unseen("a"), unseen("b")), "")
    assert refused.code == "no_ready_engine"
    assert "a at http://a, b at http://b" in refused.message


def test_a_card_of_a_name_that_cannot_be_judged_yet_is_refused():
    it = catalog(unseen("a"))
    with pytest.raises(BadRequest) as refused:
        it.card("m")
    assert refused.value.code == "unknown_model"


def test_an_alias_stands_for_its_model_and_is_remembered_as_asked_for():
    it = catalog(engine("a", "m"), fast="m", claude_any="m")
    assert it.resolve("fast") == Resolved("m", "fast")
    assert it.resolve("claude-opus") == Resolved("m", "claude-opus")
    assert it.resolve("claude-opus") is it.resolve("claude-opus")


def test_a_pool_stands_for_its_served_models_in_the_order_of_the_configuration():
    it = catalog(engine("a", "n"), engine("b", "m", "k"), pool=["m", "gone", "n"], pool_any=["k", "n"])
    assert it.resolve("pool") == Resolved("m", "pool", ("m", "n"))
    assert it.resolve("pool-x") == Resolved("k", "pool-x", ("k", "n"))


def test_a_pool_with_one_served_model_is_an_alias_of_that():
    assert catalog(engine("a", "n"), pool=["m", "n"]).resolve("pool") == Resolved("n", "pool")


def test_a_pool_gets_a_model_back_once_an_engine_serves_it():
    b = unseen("b")
    it = catalog(engine("a", "n"), b, pool=["m", "n"])
    assert it.resolve("pool") == Resolved("n", "pool")
    b.facts, b.health = Facts(models=("m",)), Health.READY
    it.refresh()
    assert it.resolve("pool") == Resolved("m", "pool", ("m", "n"))


def test_while_a_pool_may_yet_be_served_all_its_models_are_meant():
    it = catalog(engine("a", "k"), unseen("b"), pool=["m", "n"])
    assert it.resolve("pool") == Resolved("m", "pool", ("m", "n"))


def test_a_pool_that_nobody_serves_says_what_it_stands_for():
    refused = refusal(catalog(engine("a", "k"), pool=["m", "n"]), "pool")
    assert (refused.code, refused.param) == ("unknown_model", "model")
    assert refused.message == "'pool' stands for 'm' or 'n', which no engine serves now. Served: k."


def test_a_served_model_goes_before_a_pool_of_its_name():
    assert catalog(engine("a", "k", "m"), k=["m", "n"]).resolve("k") == Resolved("k")


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


def test_a_pool_has_a_card_while_any_of_its_models_is_served():
    it = catalog(
        engine("a", "m", max_model_len=8192),
        engine("b", "n", max_model_len=4096),
        engine("c", "k"),
        pool=["k", "m", "n"],
        half=["none", "m"],
        gone=["none", "nothing"],
    )
    cards = {card["id"]: card for card in it.cards()}
    assert cards.keys() == {"m", "n", "k", "pool", "half"}
    assert (cards["pool"]["root"], cards["half"]["root"]) == ("k", "m")
    assert it.card("pool")["id"] == "pool"
    assert (cards["pool"]["max_model_len"], cards["half"]["max_model_len"]) == (4096, 8192)
    assert refusal(it, "gone").code == "unknown_model"


def test_a_card_is_shown_under_the_name_it_was_asked_by():
    it = catalog(engine("a", "m", max_model_len=4096), claude_any="m")
    assert it.card("claude-x")["id"] == "claude-x"
    assert it.card("m")["max_model_len"] == 4096
    with pytest.raises(BadRequest):
        it.card("none")


def test_what_becomes_of_the_billing_line_is_the_least_that_holds_on_all_engines_of_a_model():
    it = catalog(
        engine("a", "m", "n", billing=Billing.DROPPED, billing_elsewhere=Billing.DROPPED),
        engine("b", "m", billing=Billing.MASKED),
    )
    assert it.billing("messages", ("m",)) is Billing.MASKED
    assert it.billing("chat", ("m",)) is Billing.KEPT
    assert it.billing("messages", ("n",)) is it.billing("responses", ("n",)) is Billing.DROPPED
    assert it.billing("messages", ("n", "m")) is Billing.MASKED
    assert it.billing("messages", ("unknown",)) is Billing.KEPT


def test_tools_come_first_where_they_do_on_every_engine_of_every_model_meant():
    it = catalog(
        engine("a", "m", "n", tools_first=True), engine("b", "n"), fast="m", pool=["m", "n"], unknown="zzz"
    )
    assert it.tools_first("m")
    assert it.tools_first("fast")
    assert not any(map(it.tools_first, ("n", "pool", "unknown", "nobody", "")))
    assert not catalog(engine("a", "m")).tools_first("m")
