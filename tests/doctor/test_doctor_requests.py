"""The requests that the doctor sends."""

from gateway.doctor.requests import Form, forms, prompt_of
from gateway.doctor.seen import Shape

SHAPE = Shape(prompt_tokens=64, output_tokens=24)


def test_the_first_form_asks_for_all_that_helps() -> None:
    body = forms(stream=True)[0].body("m", SHAPE)

    assert body.keys() == {"model", "max_tokens", "messages", "stream", "stream_options", "ignore_eos"}
    assert (body["model"], body["max_tokens"], body["stream"], body["ignore_eos"]) == ("m", 24, True, True)
    assert body["stream_options"] == {"include_usage": True}


def test_answers_in_one_piece_ask_for_no_usage() -> None:
    for form in forms(stream=False):
        body = form.body("m", SHAPE)
        assert "stream" not in body
        assert "stream_options" not in body


def test_each_later_form_asks_for_less() -> None:
    asked = [frozenset(it.body("m", SHAPE)) - {"messages", "prompt", "model"} for it in forms(stream=True)]

    assert [sorted(it) for it in asked] == [
        ["ignore_eos", "max_tokens", "stream", "stream_options"],
        ["max_tokens", "stream", "stream_options"],
        ["max_tokens", "stream"],
        ["max_completion_tokens", "stream"],
        ["ignore_eos", "max_tokens", "stream", "stream_options"],
        ["max_tokens", "stream"],
    ]


def test_completions_get_a_prompt_and_chats_a_message() -> None:
    plain = Form("/v1/completions", False, False, False, False).body("m", SHAPE)
    chat = Form("/v1/chat/completions", True, False, False, False).body("m", SHAPE)

    assert isinstance(plain["prompt"], str)
    assert isinstance(chat["messages"], list)
    assert chat["messages"][0]["role"] == "user"


def test_no_prompt_begins_as_another_does() -> None:
    prompts = {prompt_of(64)[:8] for _ in range(100)}

    assert len(prompts) == 100


def test_a_prompt_is_about_as_long_as_it_is_to_be() -> None:
    assert len(prompt_of(64).split()) == 1 + 44 + 12
    assert len(prompt_of(4).split()) == 1 + 12
