"""What becomes of Claude Code's billing line, by the engines' own counts.

Seen with two values of `cch` before 2,300 tokens: vLLM 0.32.0 found all of the second prompt in its cache
(`/v1/messages`, chat's system messages, `instructions`), llama.cpp b10434 that of `/v1/messages` and nothing
of a chat.
"""

import json

import pytest
from recordings import answered

from gateway.core.engine import Facts
from gateway.core.facts import Billing
from gateway.engines.rendering import (
    billing_questions,
    order_question,
    read_billing,
    shows_tools_first,
    text_question,
)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("vllm", {"billing": "/v1/messages/count_tokens", "billing_elsewhere": "/tokenize"}),
        ("llamacpp", {"billing": "/v1/messages/count_tokens"}),
        ("sglang", {}),
        ("openai", {}),
    ],
)
def test_who_is_asked_what(kind: str, fields: dict[str, str]) -> None:
    questions = billing_questions(Facts(kind=kind, models=("m", "lora")))
    assert {field: {path for path, _ in it} for field, it in questions.items()} == {
        field: {path} for field, path in fields.items()
    }


def test_each_api_is_asked_for_a_prompt_without_the_line_and_two_with_it() -> None:
    for questions in billing_questions(Facts(kind="vllm", models=("m",))).values():
        bodies = [json.loads(body) for _, body in questions]
        assert {it["model"] for it in bodies} == {"m"}
        assert [b"x-anthropic-billing-header" in body for _, body in questions] == [False, True, True]
        assert len({body for _, body in questions}) == 3
    assert all(
        json.loads(body)["model"] == "" for _, body in billing_questions(Facts(kind="llamacpp"))["billing"]
    )


@pytest.mark.parametrize(
    ("counts", "billing"),
    [
        ([13, 13, 13], Billing.DROPPED),
        ([13, 51, 51], Billing.MASKED),
        ([13, 51, 53], Billing.KEPT),
        ([13, 13], Billing.KEPT),
        ([13, 13, None], Billing.KEPT),
        ([], Billing.KEPT),
    ],
)
@pytest.mark.parametrize("form", ['{"input_tokens":%s}', '{"count":%s,"tokens":[]}'])
def test_equal_counts_show_what_is_not_shown(counts: list[int | None], billing: Billing, form: str) -> None:
    assert read_billing([answered(form % json.dumps(it)) for it in counts]) is billing


@pytest.mark.parametrize(("kind", "path"), [("vllm", "/tokenize"), ("llamacpp", "/apply-template")])
def test_a_chat_with_a_system_prompt_and_a_tool_is_rendered(kind: str, path: str) -> None:
    question = order_question(Facts(kind=kind, models=("m",)))
    assert question is not None
    body = json.loads(question[1])
    assert (question[0], body["model"], len(body["tools"])) == (path, "m", 1)
    assert [it["role"] for it in body["messages"]] == ["system", "user"]
    assert order_question(Facts(kind="sglang")) is None


def test_tokens_are_made_text_again() -> None:
    facts = Facts(kind="vllm", models=("m",))
    question = text_question(facts, answered('{"count":2,"tokens":[1,2]}'))
    assert question is not None
    assert (question[0], json.loads(question[1])) == ("/detokenize", {"model": "m", "tokens": [1, 2]})
    assert text_question(facts, answered('{"prompt":"x"}')) is None


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("<s>zztoolzz..zzsystemzz..hi", True),
        ("<s>zzsystemzz..zztoolzz..hi", False),
        ("<s>zzsystemzz..hi", False),
        ("<s>zztoolzz..hi", False),
    ],
)
def test_the_order_is_that_of_the_rendered_text(text: str, first: bool) -> None:
    assert shows_tools_first(answered(json.dumps({"prompt": text}))) is first
    assert not shows_tools_first(answered("{}"))
