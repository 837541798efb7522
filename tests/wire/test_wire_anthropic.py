from typing import Any

import pytest
from bodies import Body, ask, chat, user

TOOL = {"name": "f", "description": "d", "input_schema": {"type": "object"}}
CHAT_TOOL = {
    "type": "function",
    "function": {"name": "f", "description": "d", "parameters": {"type": "object"}},
}


def messages(*given: Any, **body: Any) -> bytes:
    return ask("messages", messages=list(given), **body).canonical


def said(*blocks: Any) -> Body:
    return {"role": "assistant", "content": list(blocks)}


def test_the_prompt_is_the_chats() -> None:
    given = messages(user("hi"), system="S", tools=[TOOL])
    assert given == chat({"role": "system", "content": "S"}, user("hi"), tools=[CHAT_TOOL])
    assert ask("messages", messages=[user("hi")], system="S").prompt_bytes == len(
        messages(user("hi"), system="S")
    )


def test_blocks_of_the_system_prompt_follow_each_other_with_nothing_between() -> None:
    # Seen on vLLM 0.32.0 and llama.cpp b10434.
    blocks = [{"type": "text", "text": "A"}, {"type": "text", "text": "B", "cache_control": {"type": "x"}}]
    assert messages(user("hi"), system=blocks) == messages(user("hi"), system="AB")


def test_a_system_message_between_others_stays_where_it_is() -> None:
    # Claude Code 2.1.197 puts its reminders there.
    late = {"role": "system", "content": "R"}
    assert messages(user("hi"), late, system="S", tools=[TOOL]) == chat(
        {"role": "system", "content": "S"}, user("hi"), late, tools=[CHAT_TOOL]
    )


def test_results_of_tools_are_messages_before_the_text_beside_them() -> None:
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "R"}]}
    text = {"type": "text", "text": "T"}
    expected = chat({"role": "tool", "tool_call_id": "x", "content": "R"}, user("T"))
    assert messages(user([result, text])) == messages(user([text, result])) == expected
    assert messages(user([{**result, "is_error": True}])) != messages(user([result]))
    assert messages(user([{**result, "is_error": False}])) == messages(user([result]))
    assert messages(user([{"type": "tool_result", "tool_use_id": "t1"}])) == chat(
        {"role": "tool", "content": ""}
    )


def test_calls_and_thoughts_are_those_of_a_chat() -> None:
    given = said(
        {"type": "thinking", "thinking": "hm", "signature": "random"},
        {"type": "redacted_thinking", "data": "random"},
        {"type": "text", "text": "T"},
        {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1}},
        {"type": "tool_use", "id": "toolu_2", "name": "g"},
    )
    calls = [
        {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}},
        {"id": "d", "type": "function", "function": {"arguments": "{}", "name": "g"}},
    ]
    assert messages(given) == chat(
        {"role": "assistant", "content": "T", "reasoning_content": "hm", "tool_calls": calls}
    )


def test_what_never_reaches_a_prompt_leaves_it_alone() -> None:
    plain = messages(user("hi"), system="S", tools=[TOOL])
    assert plain == messages(
        user("hi"),
        system="S",
        tools=[{**TOOL, "type": "custom", "cache_control": {"type": "ephemeral"}}],
        metadata={"user_id": "u"},
        max_tokens=7,
        stop_sequences=["x"],
        context_management={"edits": []},
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"thinking": {"type": "disabled"}},
        {"output_config": {"effort": "low"}},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"tools": [{"type": "bash_20250124", "name": "bash"}]},
    ],
)
def test_what_changes_the_template_changes_the_prompt(fields: Body) -> None:
    assert messages(user("hi"), **fields) != messages(user("hi"))


def test_an_effort_is_that_of_a_chat() -> None:
    assert messages(user("hi"), output_config={"effort": "low"}) == chat(user("hi"), reasoning_effort="low")


def test_how_long_to_think_is_no_matter_of_the_prompt() -> None:
    long, short = ({"type": "enabled", "budget_tokens": n} for n in (9000, 1024))
    assert messages(user("hi"), thinking=long) == messages(user("hi"), thinking=short)


def test_an_image_is_the_chats_in_either_form() -> None:
    def image(**source: str) -> bytes:
        return messages(user([{"type": "image", "source": source}]))

    def url(text: str) -> bytes:
        return chat(user([{"type": "image_url", "image_url": {"url": text}}]))

    data = image(type="base64", media_type="image/png", data="AAAA")
    assert data == url("data:image/png;base64,AAAA")
    assert image(type="url", url="https://x/y.png") == url("https://x/y.png")
    assert data != image(type="base64", media_type="image/png", data="AAAB")
    assert image(type="file", file_id="a") != image(type="file", file_id="b")


@pytest.mark.parametrize("odd", [5, None, "text", [], {"type": ["x"]}, {"type": "thinking", "thinking": 5}])
def test_odd_blocks_are_the_engines_to_judge(odd: Any) -> None:
    assert messages(user([odd])).startswith(messages(user([]))[:5])
    assert messages(odd, system=odd, tools=[odd, {"name": 5}])
