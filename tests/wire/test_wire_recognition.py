from typing import Any

import pytest

from gateway.wire.recognition import api_of

USER = {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    ("body", "api"),
    [
        ({"messages": [USER]}, "chat"),
        ({"messages": [{"role": "system", "content": "S"}, USER], "tools": [{"type": "function"}]}, "chat"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]}, "chat"),
        ({"messages": 5, "tools": 5}, "chat"),
        ({"messages": [5, {"content": [5]}]}, "chat"),
        ({}, "chat"),
        ({"prompt": "hi"}, "completions"),
        ({"input": "hi"}, "responses"),
        ({"instructions": "S", "previous_response_id": "r"}, "responses"),
        ({"system": "S", "messages": [USER]}, "messages"),
        ({"messages": [USER], "tools": [{"name": "f", "input_schema": {}}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, "messages"),
        ({"messages": [USER], "stop_sequences": ["x"]}, "messages"),
    ],
)
def test_a_body_is_of_the_api_whose_fields_it_has(body: Any, api: str) -> None:
    assert api_of(body) == api
