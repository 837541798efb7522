"""The workload class of a body: from its fields, the marks at the prompt's start, and its size."""

from typing import Any

import pytest
from bodies import ask, user

from gateway.wire.workload import LONG_BYTES

SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}


def of(api: str = "chat", **fields: Any) -> str:
    return ask(api, model="m", **fields).workload


def tool(name: object) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {}}}


def test_a_body_without_anything_special_is_chat() -> None:
    assert of(messages=[user("hi")]) == "chat"
    assert of("completions", prompt="hi", stream_options={"include_usage": True}) == "chat"
    assert of("responses", input="hi") == of("messages", messages=[user("hi")]) == "chat"


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": {"type": "json_object"}},
        {"response_format": SCHEMA},
        {"structured_outputs": {"choice": ["a", "b"]}},
        {"guided_json": {"type": "object"}},
        {"guided_regex": "a+"},
        {"json_schema": "{}"},
        {"grammar": "root ::= x"},
        {"ebnf": "root ::= x", "tools": [tool("Edit")]},
    ],
)
def test_who_gives_the_form_of_the_output_asks_for_json(fields: dict[str, Any]) -> None:
    assert of(messages=[user("hi")], **fields) == "json"
    assert of(messages=[user("x" * LONG_BYTES)], **fields) == "json"


def test_the_responses_api_has_the_form_in_its_text() -> None:
    assert of("responses", input="hi", text={"format": {"type": "json_schema", "name": "x"}}) == "json"
    assert of("responses", input="hi", text={"format": {"type": "text"}, "verbosity": "low"}) == "chat"
    assert of("responses", input="hi", text="odd") == "chat"


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": {"type": "text"}},
        {"response_format": None},
        {"guided_json": None, "grammar": ""},
        {"suffix": None},
        {"suffix": ""},
        {"suffix": 7},
        {"tools": []},
        {"tools": "Edit"},
    ],
)
def test_a_field_that_says_nothing_changes_nothing(fields: dict[str, Any]) -> None:
    assert of(messages=[user("hi")], **fields) == "chat"


def test_filling_in_the_middle_is_code() -> None:
    assert of("completions", prompt="def f(", suffix="return x") == "code"
    assert of("completions", prompt="<|fim_prefix|>def f(<|fim_suffix|>x<|fim_middle|>") == "code"
    assert of("completions", prompt="<\uff5cfim\u2581begin\uff5c>def f(") == "code"
    assert of("completions", prompt=["<fim_prefix>a", "b"]) == "code"
    assert of("completions", prompt="see <|fim_prefix|>") == "chat"
    assert of(messages=[user("<|fim_prefix|>")]) == "chat"


@pytest.mark.parametrize(
    "tools",
    [
        [tool("read_file"), tool("apply_patch")],
        [{"type": "custom", "name": "apply_patch"}],
        [{"name": "Read", "input_schema": {}}, {"name": "Edit", "input_schema": {}}],
        [{"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"}],
        [{"type": "web_search"}, "odd", {"function": "odd"}, tool([]), tool("edit_file")],
    ],
)
def test_an_agent_that_edits_files_writes_code(tools: list[Any]) -> None:
    assert of(messages=[user("x" * LONG_BYTES)], tools=tools) == "code"


def test_other_tools_do_not_make_code() -> None:
    names = ["get_weather", "read_file", "bash", "Read", "Bash"]
    assert of(messages=[user("hi")], tools=[tool(name) for name in names]) == "chat"
    assert of(messages=[user("hi")], tools=[{"name": name} for name in names]) == "chat"
    assert of(messages=[user("hi")], tools=[tool(f"t{n}") for n in range(64)] + [tool("Edit")]) == "chat"


def test_a_prompt_is_long_from_32_kib_on() -> None:
    assert of("completions", prompt="x" * (LONG_BYTES - 1)) == "chat"
    assert of("completions", prompt="x" * LONG_BYTES) == "long"
    assert of("completions", prompt=[7] * (LONG_BYTES // 4)) == "long"
    assert of("completions", prompt=["x" * (LONG_BYTES // 2)] * 2) == "long"


def test_where_the_prompt_is_not_read_the_body_is_measured() -> None:
    assert of("responses", input="x" * LONG_BYTES) == of("messages", system="x" * LONG_BYTES) == "long"


@pytest.mark.parametrize("api", ["embeddings", "rerank", "score", "tokenize", "count_tokens", "other"])
def test_what_is_not_known_to_generate_text_is_other(api: str) -> None:
    assert of(api, input="x" * LONG_BYTES, response_format=SCHEMA) == "other"
