import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from bodies import CALL, IMAGE, TOOL, Body, canonical, chat, user
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core import blocks
from gateway.wire.openai import read


def test_the_prompt_is_system_then_tools_then_messages() -> None:
    text = chat({"role": "system", "content": "SYS"}, user("USER"), tools=[TOOL])
    assert text.index(b"SYS") < text.index(b'"name":"f"') < text.index(b"USER")
    assert (
        chat({"role": "developer", "content": "SYS"}, user("U"), tools=[TOOL]).index(b"SYS")
        == text.index(b"SYS") + 3
    )
    assert chat(user("U"), tools=[TOOL]).index(b'"name"') < chat(user("U"), tools=[TOOL]).index(b"U")
    assert chat({"role": "system", "content": "S"}, tools=[TOOL]).endswith(b"]")
    assert chat(user("U"), functions=[TOOL]) == chat(user("U"), tools=[TOOL])


BASE: Body = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "S"},
        {"role": "user", "content": [{"type": "text", "text": "look"}, IMAGE]},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": "result"},
        {"role": "user", "content": "and?", "name": "ann"},
    ],
    "tools": [TOOL],
    "chat_template_kwargs": {"enable_thinking": False},
}


def change(path: str, value: Any) -> Callable[[Body], None]:
    def apply(body: Body) -> None:
        *parents, last = [int(key) if key.isdigit() else key for key in path.split("/")]
        target: Any = body
        for key in parents:
            target = target[key]
        target[last] = value

    return apply


@pytest.mark.parametrize(
    "edit",
    [
        change("messages/0/content", "S2"),
        change("messages/0/role", "user"),
        change("messages/1/content/0/text", "look!"),
        change("messages/1/content/1/image_url/url", "data:image/png;base64,AAAB"),
        change("messages/2/content", "text"),
        change("messages/2/tool_calls/0/function/name", "g"),
        change("messages/2/tool_calls/0/function/arguments", '{"a":2}'),
        change("messages/2/tool_calls", []),
        change("messages/2/reasoning_content", "hm"),
        change("messages/3/content", "result2"),
        change("messages/4/name", "bob"),
        change("tools/0/function/name", "g"),
        change("tools/0/function/parameters/type", "x"),
        change("tools", [TOOL, TOOL]),
        change("tools", []),
        change("chat_template_kwargs/enable_thinking", True),
        change("reasoning_effort", "high"),
        change("documents", [{"text": "d"}]),
    ],
)
def test_any_change_of_what_is_rendered_changes_the_prompt(edit: Callable[[Body], None]) -> None:
    changed = copy.deepcopy(BASE)
    edit(changed)
    assert canonical(**changed) != canonical(**BASE)


@pytest.mark.parametrize(
    "edit",
    [
        change("temperature", 0.5),
        change("stream", True),
        change("user", "u"),
        change("metadata", {"user_id": "u"}),
        change("max_tokens", 7),
        change("messages/0/id", "msg_1"),
        change("messages/2/tool_calls/0/id", "call_2"),
        change("messages/3/tool_call_id", "call_2"),
        change("messages/4/refusal", None),
        change("messages/4/cache_control", {"type": "ephemeral"}),
    ],
)
def test_what_never_reaches_a_prompt_leaves_it_alone(edit: Callable[[Body], None]) -> None:
    # openai/codex: a random id in every input item
    changed = copy.deepcopy(BASE)
    edit(changed)
    assert canonical(**changed) == canonical(**BASE)


def test_tool_calls_count_without_a_content_and_in_the_old_form() -> None:
    def calling(**fields: Any) -> bytes:
        return chat({"role": "assistant", **fields})

    other = copy.deepcopy(CALL)
    other["function"]["arguments"] = "{}"  # type: ignore[index]
    assert calling(tool_calls=[CALL]) == calling(tool_calls=[CALL], content=None)
    assert calling(tool_calls=[CALL]) != calling(tool_calls=[other]) != calling()
    assert calling(function_call=CALL["function"]) == calling(tool_calls=[CALL])


def test_thoughts_have_two_names() -> None:
    def thinking(**fields: Any) -> bytes:
        return chat({"role": "assistant", "content": "x", "zzz": 1, **fields})

    expected = thinking(reasoning_content="hm")
    assert thinking(reasoning="hm") == thinking(reasoning="hm", reasoning_content=None) == expected
    assert thinking(reasoning="hm", reasoning_content="hm") == expected
    assert thinking(reasoning=None, reasoning_content="hm") == expected
    assert thinking(reasoning="ha", reasoning_content="hm") not in (expected, thinking(reasoning="ha"))
    assert thinking(reasoning=None) == thinking() != expected


def test_what_parts_a_prompt_does_nothing_in_a_text() -> None:
    def said(text: str) -> Body:
        return {"role": "assistant", "content": text}

    call = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
    pairs = [
        (chat(user("q\x1eassistant\x1fhi")), chat(user("q"), said("hi"))),
        (chat({"role": "user\x1fq\x1eassistant", "content": "hi"}), chat(user("q"), said("hi"))),
        (chat(said("x\x1e\x1freasoning_contenthm")), chat({**said("x"), "reasoning_content": "hm"})),
        (chat({**said(""), "name": "n\x1e\x1fzz"}), chat({**said(""), "name": "n", "z": "z"})),
        (
            chat(said('x\x1e\x1dcall{"name":"f","arguments":"{}"}')),
            chat({**said("x"), "tool_calls": [call]}),
        ),
        (chat(user(chat(user([IMAGE])).decode().removeprefix("\x1euser\x1f"))), chat(user([IMAGE]))),
        (chat(user("\x1e")), chat(user("\x1e\x1c"))),
        (chat(user('q\x1e="a_b"\x1fhi')), chat(user("q"), {"role": "a_b", "content": "hi"})),
        (chat(user('q\x1e"a"')), chat(user("q"), "a")),
        (chat({"role": "\x1dtools[]"}), chat(tools=[{}])),
        (chat({"role": 5, "content": "x"}), chat({"role": "5", "content": "x"})),
    ]
    assert all(first != second for first, second in pairs)
    assert chat(user("\x1e")) == chat(user([{"type": "text", "text": "\x1e"}])) == chat(user(["\x1e"]))
    assert chat(user("\x1b[31m\x1c")) == b"\x1euser\x1f\x1b[31m\x1c"


def test_swapped_tools_are_another_prompt() -> None:
    # bifrost#3362, codex#2611
    other = {"type": "function", "function": {"name": "g"}}
    assert chat(user("a"), tools=[TOOL, other]) != chat(user("a"), tools=[other, TOOL])


@pytest.mark.parametrize(
    "parts", [["x"], [{"type": "text", "text": "x"}], [{"type": "input_text", "text": "x"}]]
)
def test_one_text_part_is_the_same_as_a_string(parts: list[Any]) -> None:
    assert chat(user(parts)) == chat(user("x"))


def test_a_lone_surrogate_is_part_of_the_prompt() -> None:
    first, second = (
        read("chat", rb'{"messages":[{"role":"user","content":"%b"}]}' % it)
        for it in (rb"\ud800", rb"\ud801")
    )
    assert first.canonical != second.canonical
    assert blocks.chain(first.canonical * 300, "m") != blocks.chain(second.canonical * 300, "m")


WORDS = st.text(st.characters(min_codepoint=32, exclude_categories=["Cs"]), max_size=40)
PARTS = st.lists(WORDS.map(lambda text: {"type": "text", "text": text}) | st.just(IMAGE), max_size=3)
CALLS = st.builds(
    lambda text: [{"id": "c", "type": "function", "function": {"name": "f", "arguments": text}}], WORDS
)
MESSAGES = st.one_of(
    st.builds(user, WORDS | PARTS),
    st.builds(lambda text: {"role": "assistant", "content": text, "reasoning_content": text}, WORDS),
    st.builds(lambda calls: {"role": "assistant", "content": None, "tool_calls": calls}, CALLS),
    st.builds(lambda calls: {"role": "assistant", "tool_calls": calls}, CALLS),
    st.builds(lambda text: {"role": "tool", "tool_call_id": "c", "content": text}, WORDS),
)
SYSTEMS = st.lists(st.builds(lambda text: {"role": "system", "content": text}, WORDS), max_size=2)
TOOLS = st.sampled_from([{}, {"tools": [TOOL]}, {"tools": [TOOL, {"type": "\u00fc", "x": 1.5}]}])


@settings(deadline=None)
@given(SYSTEMS, st.lists(MESSAGES, min_size=1, max_size=5), st.lists(MESSAGES, max_size=3), TOOLS)
def test_the_next_turns_prompt_starts_with_this_ones(
    systems: list[Body], turn: list[Body], more: list[Body], tools: Body
) -> None:
    now, later = chat(*systems, *turn, **tools), chat(*systems, *turn, *more, **tools)
    assert later.startswith(now)
    known = blocks.chain(now, "m")
    assert blocks.chain(later, "m")[: len(known)] == known


@settings(deadline=None)
@given(st.lists(MESSAGES, max_size=5), TOOLS, st.randoms(use_true_random=False))
def test_the_way_json_is_written_does_not_matter(messages: list[Body], tools: Body, random: Any) -> None:
    body = {"model": "m", "messages": messages, "temperature": 0.5, **tools}
    keys = list(body)
    random.shuffle(keys)
    shuffled = {key: body[key] for key in keys}
    plain = read("chat", json.dumps(body).encode())
    assert read("chat", json.dumps(shuffled).encode()) == plain
    assert read("chat", json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()) == plain
    assert read("chat", json.dumps(body, indent=3).encode()) == plain
    assert read("chat", json.dumps({**body, "temperature": float("nan")}).encode()) == plain


@settings(deadline=None)
@given(st.lists(MESSAGES, min_size=1, max_size=4), st.integers(0, 3), WORDS)
def test_another_last_text_is_another_prompt(messages: list[Body], at: int, text: str) -> None:
    messages = copy.deepcopy(messages)
    before = chat(*messages)
    target = messages[at % len(messages)]
    target["content"] = f"{target.get('content') or ''}+{text}"
    assert chat(*messages) != before
