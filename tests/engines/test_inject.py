import json

import pytest

from gateway.engines.inject import ask_for_usage


def test_options_are_added_as_the_last_member_and_all_else_stays() -> None:
    body = b'{ "model" : "m",\n  "stream":true }'
    assert (
        ask_for_usage(body) == b'{ "model" : "m",\n  "stream":true ,"stream_options":{"include_usage":true}}'
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (b"{}", b'{"include_usage":true}'),
        (b"null", b'{"include_usage":true}'),
        (b'{"continuous_usage_stats": true}', b'{"continuous_usage_stats": true,"include_usage":true}'),
        (b'{"include_usage": null , "x": 1}', b'{"include_usage": true , "x": 1}'),
    ],
)
def test_options_that_do_not_say_are_completed_in_place(options: bytes, expected: bytes) -> None:
    body = b'{"stream_options": %s, "model": "m"}'
    assert ask_for_usage(body % options) == body % expected


@pytest.mark.parametrize(
    "body",
    [
        b'{"stream_options": "all"}',
        b'{"stream_options": {"include_usage": 0}}',
        b'{"stream_options": {}, "stream_options": {}}',
        rb'{"stream_options": {"include_\u0075sage": false}}',
        rb'{"stream_\u006fptions": {}}',
        rb'{"a": "\u0041", "b": NaN}',
        '{"model": "m"}'.encode("utf-16-le"),
    ],
)
def test_a_body_that_cannot_be_edited_safely_is_left_alone(body: bytes) -> None:
    assert ask_for_usage(body) is None


def test_a_name_inside_the_prompt_is_no_option() -> None:
    body = rb'{"messages": [{"content": "\u4e2d \"stream_options\": {}", "stream_options": 1}]}'
    edited = ask_for_usage(body)
    assert edited is not None
    assert json.loads(edited) == json.loads(body) | {"stream_options": {"include_usage": True}}
