from typing import Any

import pytest
from bodies import CALL, Body, ask, chat, user

from gateway.wire import openai
from gateway.wire.errors import BadRequest
from gateway.wire.openai import Ask, read


def test_what_routing_needs_is_read_and_nothing_else_is_judged() -> None:
    # mistral-common#324, command-code#820, ai-gateway#2455
    read_ask = ask(
        "chat",
        model="m",
        messages=[user("hi")],
        stream=True,
        stream_options={"include_usage": True, "x": 1},
        cache_salt="s",
        prompt_cache_key="k",
        n=2,
        logprobs=True,
        response_format={"type": "json_object"},
        unknown={"deep": [None]},
    )
    assert read_ask == Ask(
        model="m",
        canonical=chat(user("hi")),
        prompt_bytes=len(chat(user("hi"))),
        width=2,
        salt="s",
        stream=True,
        include_usage=True,
        session="k",
        workload="json",
    )


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"role": "assistant", "content": None, "tool_calls": [CALL]}]},
        {"messages": [{"role": "assistant", "content": {"odd": 1}, "tool_calls": {"odd": 1}}]},
        {"messages": [{"content": 5, "role": 5, "tool_calls": ["odd", {"id": "x"}]}]},
        {"messages": ["text", 5, None, [], {}, {"role": None}]},
        {"messages": [user([None, 5, "text", [], {}, {"type": "text", "text": None}])]},
        {"messages": {"odd": 1}},
        {"messages": None, "tools": None, "functions": 5},
        {"messages": [], "tools": "all", "stream": "yes", "n": "two", "stream_options": "all"},
        {"model": None, "stream": None, "n": None, "stream_options": None, "cache_salt": 5, "metadata": 5},
        {"prompt": None},
        {"prompt": {"odd": 1}},
        {"prompt": 5, "n": -1, "stream_options": {"include_usage": 0}, "metadata": {"user_id": 5}},
        {"prompt": ["a", None, [], [1], ["b"], {"prompt_string": "a"}], "prompt_cache_key": 5},
        {"input": [{"type": "zzz"}]},
    ],
)
@pytest.mark.parametrize(
    "api", ["chat", "completions", "embeddings", "rerank", "responses", "messages", "other"]
)
def test_odd_shapes_are_the_engines_to_judge(api: str, body: Body) -> None:
    given_ask = ask(api, **body)
    assert (given_ask.model, given_ask.stream, given_ask.include_usage) == ("", False, None)
    assert given_ask.salt == given_ask.session == ""


@pytest.mark.parametrize(
    "field", ["model", "stream", "messages", "tools", "prompt", "input", "metadata", "zzz"]
)
@pytest.mark.parametrize("api", ["chat", "completions", "embeddings", "score", "other"])
def test_nesting_too_deep_to_read_is_a_bad_request_everywhere(api: str, field: str) -> None:
    for value in (b"[" * 20_000 + b"]" * 20_000, b'{"a":' * 20_000 + b"1" + b"}" * 20_000):
        with pytest.raises(BadRequest):
            read(api, b'{"%b":%b}' % (field.encode(), value))


TOO_DEEP = "The request body is nested too deeply to be read."


def refusal(api: str, body: bytes) -> str:
    try:
        read(api, body)
    except BadRequest as error:
        return error.message
    return ""


@pytest.mark.parametrize(
    "form",
    [
        b'{"messages":[{"role":"user","content":%b}]}',
        b'{"messages":[{"role":%b}]}',
        b'{"messages":[%b]}',
        b'{"tools":%b}',
        b'{"prompt":%b}',
        b'{"prompt":"\\ud800","messages":[{"role":%b,"content":["\\ud800"]}]}',
        b'{"messages":[{"x":["\\ud800",%b]}]}',
    ],
)
def test_nesting_just_below_what_can_be_read_is_read_or_a_bad_request(form: bytes) -> None:
    for levels in range(500, 1000, 3):
        for value in (b"[" * levels + b"]" * levels, b'{"a":' * levels + b"1" + b"}" * levels):
            for api in ("chat", "completions"):
                assert refusal(api, form % value) in ("", TOO_DEEP)


def test_a_prompt_that_can_be_read_but_not_gone_through_is_a_bad_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def compact(value: object) -> str:
        raise RecursionError

    monkeypatch.setattr(openai, "compact", compact)
    assert refusal("chat", b'{"messages":[[]]}') == TOO_DEEP


def test_a_model_that_is_no_string_is_a_bad_request() -> None:
    with pytest.raises(BadRequest, match="'model' must be a string"):
        read("chat", b'{"model":5}')


@pytest.mark.parametrize("number", ["1" + "0" * 30, "1" + "0" * 4000, "-1e999", "NaN", "1e400"])
def test_numbers_beyond_any_type_are_read(number: str) -> None:
    body = (
        f'{{"n":{number},"messages":[{{"role":"user","x":[{number}]}}],"prompt":[{number}],"seed":{number}}}'
    )
    for api in ("chat", "completions", "embeddings"):
        assert read(api, body.encode()).width in (1, 100_000)


@pytest.mark.parametrize(
    ("prompt", "expected", "width", "token_ids"),
    [
        # production-stack#1037, sglang#35262
        ("x", b"x", 1, False),
        ("", b"", 1, False),
        ([], b"", 1, False),
        (["x", "yy"], b"x", 2, False),
        ([1, 2, 3], b"\x01\0\0\0\x02\0\0\0\x03\0\0\0", 1, True),
        ([[1, 2], [3]], b"\x01\0\0\0\x02\0\0\0", 2, True),
        ([[]], b"", 1, False),
        ([12, "a", 13], b'[12,"a",13]', 1, False),
        ([-1], b"", 1, True),
        ([2**32], b"", 1, True),
        (None, b"", 1, False),
        ({"prompt_string": "a"}, b'{"prompt_string":"a"}', 1, False),
    ],
)
def test_every_form_of_a_prompt_is_read(prompt: Any, expected: bytes, width: int, token_ids: bool) -> None:
    given_ask = ask("completions", prompt=prompt)
    assert (given_ask.canonical, given_ask.width, given_ask.token_ids) == (expected, width, token_ids)


def test_all_prompts_count_for_the_size_and_the_first_is_the_key() -> None:
    assert ask("completions", prompt=["a" * 300, "b" * 100]).prompt_bytes == 400
    assert ask("completions", prompt=[[1, 2], [3]]).prompt_bytes == 12
    assert ask("completions", prompt=["é"]).prompt_bytes == 2


@pytest.mark.parametrize(
    ("api", "body", "width"),
    [
        ("chat", {"n": 3}, 3),
        ("chat", {"n": 3.0}, 3),
        ("chat", {"n": 2.5}, 1),
        ("chat", {"n": 0}, 1),
        ("chat", {"n": True}, 1),
        ("chat", {"n": 10**30}, 100_000),
        ("completions", {"prompt": ["a", "b"], "n": 3}, 6),
        ("embeddings", {"input": "a"}, 1),
        ("embeddings", {"input": ["a", "b"]}, 2),
        ("embeddings", {"input": [1, 2, 3]}, 1),
        ("embeddings", {"input": [[1], [2], [3]]}, 3),
        ("embeddings", {"input": []}, 1),
        ("rerank", {"query": "q", "documents": ["a", "b", "c"]}, 3),
        ("score", {"text_1": "q", "text_2": ["a", "b"]}, 2),
        ("score", {"text_1": "q", "text_2": "a"}, 1),
        ("rerank", {"documents": []}, 1),
        ("responses", {"input": "a"}, 1),
        ("other", {}, 1),
        ("tokenize", {"prompt": "a", "n": 4}, 0),
        ("detokenize", {"tokens": [1]}, 0),
        ("count_tokens", {"messages": []}, 0),
    ],
)
def test_the_width_is_the_sequences_that_the_engine_runs(api: str, body: Body, width: int) -> None:
    assert ask(api, **body).width == width


@pytest.mark.parametrize(
    ("body", "session"),
    [
        # opencode#31511, hermes-agent#65094
        ({"prompt_cache_key": "k", "metadata": {"user_id": "u"}}, "k"),
        ({"metadata": {"user_id": "u", "session_id": "s"}}, "u"),
        ({"metadata": {"session_id": "s"}}, "s"),
        ({"metadata": {"other": "s"}}, ""),
        ({"user": "u"}, ""),
    ],
)
def test_the_body_may_name_a_session(body: Body, session: str) -> None:
    assert ask("messages", **body).session == session


@pytest.mark.parametrize(
    ("options", "include_usage"),
    [
        ({"include_usage": True}, True),
        ({"include_usage": False}, False),
        ({"include_usage": None}, None),
        ({}, None),
    ],
)
def test_the_wish_for_usage_is_yes_no_or_not_said(options: Body, include_usage: bool | None) -> None:
    assert ask("chat", stream_options=options).include_usage is include_usage


def test_of_stream_written_twice_the_last_counts() -> None:
    # fgentic#1409
    assert read("chat", b'{"stream":false,"stream":true}').stream
    assert not read("chat", b'{"stream":true,"stream":false}').stream
