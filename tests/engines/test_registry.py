import pytest
from recordings import LLAMACPP, VLLM, answer, answered

from gateway.core.call import Call
from gateway.core.engine import Probe
from gateway.engines.base import Answer
from gateway.engines.registry import (
    DIALECTS,
    IDENTIFY_PATHS,
    dialect_for,
    identify,
    read_first_answer,
    refusal,
)


def models(*owners: object) -> Answer:
    cards = ", ".join(f'{{"id": "m", "owned_by": "{owner}"}}' for owner in owners)
    return answered(f'{{"data": [{cards}]}}')


def test_the_dialects_of_this_release() -> None:
    known = {"vllm", "sglang", "llamacpp", "ollama", "tgi", "lmdeploy", "trtllm", "openai"}
    assert set(DIALECTS) == known
    assert all(dialect.kind == kind for kind, dialect in DIALECTS.items())


def test_an_unknown_kind_is_refused_with_the_choice() -> None:
    choice = "auto, llamacpp, lmdeploy, ollama, openai, sglang, tgi, trtllm, vllm"
    assert refusal("wllm") == f"unknown kind wllm; one of {choice}"
    with pytest.raises(ValueError, match=r"^unknown kind wllm"):
        dialect_for("wllm")


def test_a_dialect_is_built_with_or_without_injection() -> None:
    call = Call(api="chat", path="/v1/completions", query="", headers=(), body=b"{}", stream=True)
    asking = {kind for kind in DIALECTS if dialect_for(kind).prepare(call).withhold_usage}
    assert asking == {"vllm", "sglang", "lmdeploy", "trtllm"}
    assert not any(dialect_for(kind, inject_usage=False).prepare(call).withhold_usage for kind in DIALECTS)


@pytest.mark.parametrize(("engine", "kind"), [(VLLM, "vllm"), (LLAMACPP, "llamacpp")])
def test_recorded_engines_are_told_by_each_answer_alone(engine: str, kind: str) -> None:
    recorded = {path: answer(engine, path[1:].rpartition("/")[2]) for path in ("/v1/models", "/metrics")}
    assert identify(recorded) == kind
    assert identify({"/v1/models": recorded["/v1/models"]}) == kind
    assert identify({"/metrics": recorded["/metrics"]}) == kind


def test_llamacpp_is_told_by_its_properties_when_it_owns_no_card() -> None:
    props = answer(LLAMACPP, "props")
    assert identify({"/v1/models": models("someone"), "/props": props}) == "llamacpp"


@pytest.mark.parametrize(
    ("owner", "kind"),
    [
        ("vllm", "vllm"),
        ("mock", "openai"),
        ("sglang", "sglang"),
        ("library", "ollama"),
        ("lmdeploy", "lmdeploy"),
        ("tensorrt_llm", "trtllm"),
    ],
)
def test_empty_200s_to_every_other_path_say_nothing(owner: str, kind: str) -> None:
    answers = {path: answered(b"") for path in IDENTIFY_PATHS} | {"/v1/models": models(owner)}
    assert identify(answers) == kind


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b"{}", b'"ok"', b'{"status":"ok"}', b"<html></html>"])
def test_a_server_that_gives_one_body_for_everything_is_openai(body: bytes) -> None:
    assert identify({path: answered(body) for path in IDENTIFY_PATHS}) == "openai"


def test_tgi_is_told_by_its_properties() -> None:
    info = answered('{"max_concurrent_requests": 128, "max_total_tokens": 4096}')
    assert identify({"/v1/models": models("org/model"), "/info": info}) == "tgi"


def test_an_ollama_with_models_of_several_owners_is_told_by_its_greeting() -> None:
    answers = {"/v1/models": models("library", "unsloth"), "/": answered("Ollama is running")}
    assert identify(answers) == "ollama"


def test_models_of_several_owners_are_a_proxys() -> None:
    assert identify({"/v1/models": models("vllm", "llamacpp")}) == "openai"


def test_cards_without_an_owner_do_not_count() -> None:
    cards = '{"data": [{"id": "a"}, {"id": "b", "owned_by": null}, {"id": "c", "owned_by": "vllm"}]}'
    assert identify({"/v1/models": answered(cards)}) == "vllm"


@pytest.mark.parametrize(
    ("page", "kind"),
    [
        (b"# TYPE sglang:num_running_reqs gauge\n", "sglang"),
        (b"python_info 1\ntgi_queue_size 0\n", "tgi"),
        (b"lmdeploy:num_requests_running 0\n", "lmdeploy"),
        (b"# HELP x about vllm:num_requests\nx 1\n", "openai"),
    ],
)
def test_metric_names_tell_the_engine(page: bytes, kind: str) -> None:
    assert identify({"/metrics": answered(page)}) == kind


def test_the_metrics_of_an_error_page_tell_nothing() -> None:
    assert identify({"/metrics": answered(b"vllm:x 1\n", 404)}) == "openai"


def test_loading_is_read_before_the_kind_is_known() -> None:
    assert read_first_answer(answered(b'{"error":{"message":"Loading model"}}', 503)) is Probe.LOADING
    assert read_first_answer(answered(b"", 401)) is Probe.OK
