"""Tools and calls of chats, in whatever form clients write them."""

from typing import Any

import pytest
from bodies import Body, chat, user

from gateway.wire.body import compact
from gateway.wire.prompt import Written

SCHEMA = {"type": "object"}
FUNCTION = {"name": "f", "description": "d", "parameters": SCHEMA}
PLAIN = {"type": "function", "function": FUNCTION}


def prompt(*tools: Any) -> bytes:
    return chat(user("hi"), tools=list(tools))


@pytest.mark.parametrize(
    "tool",
    [
        {"function": FUNCTION, "type": "function"},
        {"type": "function", "function": {"parameters": SCHEMA, "name": "f", "description": "d"}},
        {"type": "function", "function": {**FUNCTION, "cache_control": {"type": "ephemeral"}}},
        {"type": "function", "function": {"strict": None, **FUNCTION}},
        {"type": "function", "function": {**FUNCTION, "strict": None}},
        {**PLAIN, "cache_control": {"type": "ephemeral"}},
        FUNCTION,
        {"type": "function", **FUNCTION},
        {"name": "f", "description": "d", "input_schema": SCHEMA},
    ],
)
def test_a_tool_is_the_same_in_any_form(tool: Body) -> None:
    assert prompt(tool) == prompt(PLAIN)
    assert prompt(PLAIN, tool) == prompt(PLAIN, PLAIN)


def test_what_else_a_tool_says_counts() -> None:
    strict = {"type": "function", "function": {**FUNCTION, "strict": True}}
    assert prompt(strict) == prompt({"function": {"strict": True, **FUNCTION}, "type": "function"})
    others = [strict, {"type": "function", "function": {**FUNCTION, "x": 1}}, {**PLAIN, "x": 1}]
    assert len({prompt(it) for it in (PLAIN, *others)}) == 4


def test_tools_that_are_none_are_the_engines_to_judge() -> None:
    assert len({prompt(it) for it in (5, {}, {"type": "function", "function": 5}, {"name": 5})}) == 4
    assert chat(user("hi"), tools={"odd": 1}) != chat(user("hi"))


def test_what_was_made_of_tools_is_not_kept_for_ever() -> None:
    prompts = {prompt({"name": f"f{n}"}) for n in range(300)}
    assert len(prompts) == 300
    assert prompt({"name": "f0"}) in prompts


def test_a_description_that_is_null_is_none() -> None:
    tool = {"type": "function", "function": {"name": "f", "description": None, "parameters": SCHEMA}}
    assert prompt(tool) == prompt({"type": "function", "function": {"name": "f", "parameters": SCHEMA}})


def test_of_what_was_made_of_tools_only_so_many_characters_are_kept() -> None:
    written = Written(most=10, most_chars=1000, text_chars=500)

    def text(name: str, description: str) -> str:
        return written.text([{"name": name, "description": description}])

    assert text("a", "x" * 300) == text("a", "x" * 300)
    first = written.chars
    assert 300 < first < 500
    text("b", "x" * 500)
    assert written.chars == first
    text("c", "x" * 300)
    assert written.chars == 2 * first
    text("d", "x" * 300)
    assert written.chars == first


def test_of_tools_that_are_canonical_no_text_is_kept() -> None:
    written = Written()
    assert written.text([PLAIN]) == compact([PLAIN])
    assert written.chars == 0


def calling(call: Any, **fields: Any) -> bytes:
    return chat({"role": "assistant", "content": None, "tool_calls": [call], **fields})


def test_a_call_is_the_same_in_any_order_of_its_keys() -> None:
    expected = calling({"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}})
    assert expected == calling({"function": {"arguments": "{}", "name": "f"}, "type": "function", "id": "b"})
    assert expected == calling({"name": "f", "arguments": "{}"})
    assert expected == calling({"function": {"arguments": {}, "name": "f"}})
    assert expected == calling({"function": {"name": "f", "arguments": {}}})


def test_a_custom_call_counts_without_its_id() -> None:
    first, second, other = (
        {"id": it, "type": "custom", "custom": {"name": "p", "input": text}}
        for it, text in (("a", "x"), ("b", "x"), ("c", "y"))
    )
    assert calling(first) == calling(second) != calling(other)
    assert calling("odd") != calling({})


def test_the_order_of_a_messages_other_fields_does_not_matter() -> None:
    first = {"role": "user", "content": "x", "name": "a", "zzz": 1}
    assert chat(first) == chat({"zzz": 1, "name": "a", "content": "x", "role": "user"})
