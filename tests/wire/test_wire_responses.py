import itertools
from collections.abc import Callable
from typing import Any

import pytest
from bodies import Body, ask, chat, user

TOOL = {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}}
CHAT_TOOL = {
    "type": "function",
    "function": {"name": "f", "description": "d", "parameters": {"type": "object"}},
}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "c_1", "name": "f", "arguments": "{}"}
CHAT_CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
RESULT = {"type": "function_call_output", "call_id": "c_1", "output": "R"}
THOUGHT = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [],
    "content": [{"type": "reasoning_text", "text": "hm"}],
}


def responses(given: Any, **body: Any) -> bytes:
    return ask("responses", input=given, **body).canonical


def said(text: str) -> Body:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}


def test_the_prompt_is_the_chats() -> None:
    expected = chat({"role": "system", "content": "S"}, user("hi"), tools=[CHAT_TOOL])
    assert responses("hi", instructions="S", tools=[TOOL]) == expected
    assert responses([user("hi")], instructions="S", tools=[TOOL]) == expected
    assert ask("responses", input="hi").prompt_bytes == len(responses("hi"))


def test_a_developers_message_comes_before_the_tools_as_in_a_chat() -> None:
    # Codex 0.1 has its instructions there. Engines differ in whether that is a system message.
    developer = {"role": "developer", "content": "D"}
    assert responses([developer, user("hi")], tools=[TOOL]) == chat(developer, user("hi"), tools=[CHAT_TOOL])


def test_what_never_reaches_a_prompt_leaves_it_alone() -> None:
    # openai/codex: a random id in every input item
    items = [user("hi"), said("yes"), CALL, RESULT]
    others = [{**it, "id": "other", "call_id": "other"} for it in items]
    assert responses(items) == responses(
        others, client_metadata={"turn_id": "t"}, store=False, prompt_cache_key="k", include=["x"]
    )
    assert responses("hi", previous_response_id="resp_1") == responses("hi")


def test_items_of_the_assistant_that_follow_each_other_are_one_message() -> None:
    both = {"role": "assistant", "content": "T", "tool_calls": [CHAT_CALL, CHAT_CALL]}
    result = {"role": "tool", "tool_call_id": "c", "content": "R"}
    assert responses([said("T"), CALL, CALL, RESULT, RESULT]) == chat(both, result, result)
    thinking = {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [CHAT_CALL]}
    assert responses([THOUGHT, CALL]) == chat(thinking)


def test_more_text_is_another_message() -> None:
    two = ({"role": "assistant", "content": text} for text in ("a", "b"))
    assert responses([said("a"), said("b")]) == chat(*two)
    assert responses([THOUGHT, said("a")]) != responses([said("a"), THOUGHT])
    assert responses([said("a"), THOUGHT]) == responses([said("a")]) + responses([THOUGHT])


def test_each_item_only_adds_to_the_prompt() -> None:
    items = [user("hi"), THOUGHT, said("a"), CALL, CALL, RESULT, said("b"), THOUGHT, CALL, RESULT, user("x")]
    prompts = [responses(items[:n]) for n in range(1, len(items) + 1)]
    assert all(later.startswith(before) for before, later in itertools.pairwise(prompts))
    assert len(set(prompts)) == len(prompts)


def test_of_reasoning_the_text_counts_and_else_its_summary() -> None:
    summary = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
    assert responses([{**summary, "encrypted_content": "random"}]) == responses([THOUGHT])


@pytest.mark.parametrize(
    "item",
    [
        lambda it: {"type": "custom_tool_call", "name": "p", "input": it},
        lambda it: {**CALL, "namespace": it},
        lambda it: {"type": "web_search_call", "action": {"query": it}},
        lambda it: {"type": "custom_tool_call_output", "output": it},
        lambda it: user([{"type": "input_image", "image_url": it}]),
        lambda it: {"type": "item_reference", "id": it},
    ],
)
def test_any_change_of_what_is_rendered_changes_the_prompt(item: Callable[[str], Body]) -> None:
    assert responses([item("a")]) != responses([item("b")]) != responses([item("")])


def test_what_changes_the_template_changes_the_prompt() -> None:
    assert responses("hi", reasoning={"effort": "low", "summary": "auto"}) == chat(
        user("hi"), reasoning_effort="low"
    )
    assert responses("hi", reasoning={"summary": "auto"}) == responses("hi")


def test_a_prompt_that_the_engine_has_is_in_the_key_by_its_id() -> None:
    first, other = ({"id": it, "variables": {"x": "1"}} for it in ("p1", "p2"))
    prompts = [responses("hi", prompt=it) for it in (None, first, other, {**first, "variables": {"x": "2"}})]
    assert len(set(prompts)) == 4
    assert prompts[0] == responses("hi")


def test_tools_in_a_grammar_and_of_the_engines_own_count_as_they_are() -> None:
    grammar = {"type": "custom", "name": "p", "format": {"type": "grammar", "definition": "a"}}
    other = {**grammar, "format": {"type": "grammar", "definition": "b"}}
    search = {"type": "web_search", "filters": None}
    prompts = {responses("hi", tools=tools) for tools in ([], [grammar], [other], [search])}
    assert len(prompts) == 4


@pytest.mark.parametrize("odd", [5, None, [], {"type": ["x"]}, {"type": 5}, {}, {"type": "reasoning"}])
def test_odd_items_are_the_engines_to_judge(odd: Any) -> None:
    assert responses([odd, "text"], instructions=odd, tools=[odd])
