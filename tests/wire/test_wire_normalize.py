import contextlib
import json
from typing import Any

import pytest
from bodies import Body, ask, user
from test_wire_agents import claude_code

from gateway.wire import normalize, spans
from gateway.wire.errors import BadRequest
from gateway.wire.normalize import SEARCHED_CHARS, Rule, normalized
from gateway.wire.patterns import compiled
from gateway.wire.spans import Edit

LINE = "x-anthropic-billing-header: cc_version=2.1.100.7b4; cc_entrypoint=cli; cch=eb6c6;"
STRIP = Rule(kind="strip_billing_header")
SORT_TOOLS, SORT_KEYS = Rule(kind="sort_tools"), Rule(kind="sort_tool_keys")


def time_rule(place: str = "all", replacement: str = "00:00") -> Rule:
    return Rule(kind="replace", place=place, pattern=compiled(r"\d\d:\d\d"), replacement=replacement)


def apply(api: str, body: Body, *rules: Rule, **written: Any) -> tuple[Body, list[str]]:
    after, kinds = normalized(rules, api, json.dumps(body, **written).encode(), {"m"})
    return json.loads(after), kinds


def text(it: str) -> Body:
    return {"type": "text", "text": it}


@pytest.mark.parametrize(
    ("api", "given", "after"),
    [
        ("messages", {"system": f"{LINE}\nYou"}, {"system": "You"}),
        ("messages", {"system": [text(LINE), text("You")]}, {"system": [text("You")]}),
        ("messages", {"system": [text("You"), text(LINE)]}, {"system": [text("You")]}),
        ("messages", {"system": [text(LINE)]}, {"system": [text("")]}),
        ("messages", {"system": [text(f"{LINE}\nYou"), text("A")]}, {"system": [text("You"), text("A")]}),
        ("messages", {"system": LINE}, {"system": ""}),
        ("count_tokens", {"system": f"{LINE}\nYou"}, {"system": "You"}),
        (
            "messages",
            {"messages": [{"role": "system", "content": [text(LINE), text("R")]}]},
            {"messages": [{"role": "system", "content": [text("R")]}]},
        ),
        (
            "chat",
            {"messages": [{"role": "system", "content": f"{LINE}\nYou"}, user("hi")]},
            {"messages": [{"role": "system", "content": "You"}, user("hi")]},
        ),
        (
            "chat",
            {"messages": [{"role": "developer", "content": [text(LINE), text("You")]}]},
            {"messages": [{"role": "developer", "content": [text("You")]}]},
        ),
        ("responses", {"instructions": f"{LINE}\nYou"}, {"instructions": "You"}),
        (
            "responses",
            {"input": [{"role": "system", "content": f"{LINE}\nYou"}, "odd", {"role": "system"}]},
            {"input": [{"role": "system", "content": "You"}, "odd", {"role": "system"}]},
        ),
    ],
)
def test_the_billing_line_goes_and_nothing_else(api: str, given: Body, after: Body) -> None:
    assert apply(api, given, STRIP) == (after, ["strip_billing_header"])
    assert apply(api, after, STRIP) == (after, [])


def test_the_billing_line_of_a_user_stays() -> None:
    body = {"messages": [user(f"{LINE}\nwhat is this?"), user([text(LINE)])]}
    assert apply("chat", body, STRIP) == (body, [])


def test_without_the_line_two_values_of_cch_are_one_prompt() -> None:
    first, second = (
        apply("messages", claude_code(1, f" cch={cch};"), STRIP)[0] for cch in ("eb6c6", "0aaa9")
    )
    assert ask("messages", **first) == ask("messages", **second)


def test_tools_are_sorted_by_their_names() -> None:
    chat = [{"type": "function", "function": {"name": name}} for name in "cab"]
    assert apply("chat", {"tools": chat}, SORT_TOOLS) == (
        {"tools": [chat[1], chat[2], chat[0]]},
        ["sort_tools"],
    )
    other = [{"type": "web_search"}, {"name": "b"}, 5, {"name": "b", "x": 1}]
    assert apply("messages", {"tools": other}, SORT_TOOLS)[0]["tools"] == [other[n] for n in (2, 1, 3, 0)]
    assert apply("chat", {"tools": "odd"}, SORT_TOOLS, SORT_KEYS) == ({"tools": "odd"}, [])


@pytest.mark.parametrize("path", [("function", "parameters"), ("parameters",), ("input_schema",)])
def test_keys_of_schemas_are_sorted(path: tuple[str, ...]) -> None:
    def tool(*keys: str) -> Body:
        value: Any = {key: {"z": 1, "a": "\ud800"} if key == "type" else [key] for key in keys}
        for key in reversed(path):
            value = {key: value}
        return {"name": "f", **value}

    def key(*keys: str) -> tuple[bytes, list[str]]:
        body = json.dumps({"messages": [], "tools": [tool(*keys), "odd"]}).encode()
        after, kinds = normalized([SORT_KEYS], "chat", body, {"m"})
        return ask("chat", **json.loads(after)).canonical, kinds

    first, second = key("type", "properties"), key("properties", "type")
    assert first == second == (first[0], ["sort_tool_keys"])


def test_schemas_that_are_sorted_stay_as_they_are_written() -> None:
    body = b'{"tools": [ {"parameters": {"a" : 1.50,\t"b": {"c": []}}, "name": "f"} ]}'
    assert normalized([SORT_KEYS, SORT_TOOLS, STRIP], "responses", body, set()) == (body, [])
    other = body.replace(b'"a" : 1.50', b'"z" : 1.50')
    assert normalized([SORT_KEYS], "responses", other, set())[0] == (
        b'{"tools": [ {"parameters": {"b":{"c":[]},"z":1.5}, "name": "f"} ]}'
    )


CHAT = {
    "model": "at 12:34",
    "messages": [
        {"role": "system", "content": "it is 12:34"},
        {"role": "user", "name": "12:34", "content": [text("at 12:34"), {"type": "x", "data": "12:34"}]},
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "12:34"}}]},
    ],
    "tools": [{"function": {"name": "12:34", "description": "12:34", "parameters": {
        "enum": ["12:34"], "description": "12:34",
        "properties": {"description": {"description": "12:34"}}}}}],
}  # fmt: skip


@pytest.mark.parametrize(
    ("place", "paths"),
    [
        ("system", ["messages/0/content"]),
        ("messages", ["messages/1/content/0/text"]),
        (
            "tools",
            [
                "tools/0/function/description",
                "tools/0/function/parameters/description",
                "tools/0/function/parameters/properties/description/description",
            ],
        ),
    ],
)
def test_what_is_said_is_replaced_where_the_rule_says(place: str, paths: list[str]) -> None:
    after, kinds = apply("chat", CHAT, time_rule(place))
    assert (strings(after, "00:00"), kinds) == (paths, ["replace"])
    everywhere, _ = apply("chat", CHAT, time_rule())
    assert set(paths) < set(strings(everywhere, "00:00"))
    assert len(strings(everywhere, "00:00")) == 5


def strings(value: Any, containing: str, path: str = "") -> list[str]:
    if isinstance(value, str):
        return [path.strip("/")] if containing in value else []
    children = enumerate(value) if isinstance(value, list) else value.items()
    return [it for key, child in children for it in strings(child, containing, f"{path}/{key}")]


@pytest.mark.parametrize(
    ("api", "body", "after"),
    [
        ("completions", {"prompt": "at 12:34"}, {"prompt": "at 00:00"}),
        ("completions", {"prompt": ["at 12:34", [1]]}, {"prompt": ["at 00:00", [1]]}),
        ("responses", {"input": "at 12:34"}, {"input": "at 00:00"}),
        ("messages", {"system": "at 12:34", "messages": None}, {"system": "at 00:00", "messages": None}),
        ("embeddings", {"input": "at 12:34"}, {"input": "at 12:34"}),
        ("completions", {}, {}),
    ],
)
def test_prompts_of_every_api_are_gone_through(api: str, body: Body, after: Body) -> None:
    assert apply(api, body, time_rule())[0] == after


def test_nothing_in_a_replacement_means_a_group() -> None:
    after, _ = apply("completions", {"prompt": "at 12:34"}, time_rule(replacement=r"\1 \g<0>"))
    assert after == {"prompt": r"at \1 \g<0>"}


def test_only_what_was_replaced_is_written_anew() -> None:
    body = (
        b'{ "messages" : [{"content":"caf\\u00e9 12:34","role":"user"},{"role":"user","content":"\\u00e9"}] }'
    )
    after, _ = normalized([time_rule()], "chat", body, set())
    assert after == body.replace(b'"caf\\u00e9 12:34"', '"caf\u00e9 00:00"'.encode())


def test_a_rule_for_other_models_changes_nothing() -> None:
    body = b'{"prompt":"at 12:34"}'
    limited = Rule(kind="replace", pattern=compiled(r"\d\d:\d\d"), models=frozenset(("m", "alias")))
    assert normalized([limited], "completions", body, {"alias", "real"})[1] == ["replace"]
    assert normalized([limited], "completions", body, {"other"}) == (body, [])


def test_text_far_into_a_body_is_not_searched_and_the_next_turn_agrees() -> None:
    messages = [user("at 12:34"), user("x" * (SEARCHED_CHARS - 16)), user("at 12:34"), user("at 12:34")]
    after, _ = apply("chat", {"messages": messages}, time_rule())
    assert strings(after, "00:00") == ["messages/0/content", "messages/2/content"]
    assert apply("chat", {"messages": messages[:3]}, time_rule())[0]["messages"] == after["messages"][:3]


def test_each_rule_sees_what_the_one_before_has_made() -> None:
    body = {"system": f"{LINE}\nat 12:34", "tools": [{"name": "b"}, {"name": "a"}]}
    after, kinds = apply("messages", body, time_rule(), STRIP, SORT_TOOLS)
    assert after == {"system": "at 00:00", "tools": [{"name": "a"}, {"name": "b"}]}
    assert kinds == ["replace", "strip_billing_header", "sort_tools"]


def test_a_body_that_cannot_be_edited_stays() -> None:
    other = json.dumps({"prompt": "at 12:34"}).encode("utf-16-le")
    assert normalized([time_rule()], "completions", other, set()) == (other, [])
    for levels in range(500, 1000, 3):
        deep = b'{"messages":[{"content":%b}]}' % (b"[" * levels + b"]" * levels)
        with contextlib.suppress(BadRequest):
            assert normalized([time_rule()], "chat", deep, set()) == (deep, [])


def test_one_that_can_be_read_but_not_gone_through_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def compact(value: object) -> str:
        raise RecursionError

    monkeypatch.setattr(normalize, "compact", compact)
    body = b'{"prompt":"at 12:34","system":"x"}'
    assert normalized([time_rule()], "completions", body, set()) == (body, [])


def test_a_rule_without_a_pattern_or_of_a_kind_not_known_does_nothing() -> None:
    assert apply("chat", CHAT, Rule(kind="replace")) == (CHAT, [])


@pytest.mark.parametrize("other", ['"[]"', "null", '{"a":1}', "[]", '[{"name":"z"}]'])
def test_tools_that_stand_twice_leave_a_body_that_says_the_same(other: str) -> None:
    body = f'{{"tools":{other},"tools":[{{"name":"b"}},{{"name":"a"}}]}}'.encode()
    after, kinds = normalized([SORT_TOOLS], "chat", body, set())
    assert after == body.replace(b'{"name":"b"},{"name":"a"}', b'{"name":"a"},{"name":"b"}')
    assert kinds == ["sort_tools"]


@pytest.mark.parametrize("made", [AssertionError("it has been parsed"), b'{"system":'])
def test_a_rule_that_fails_changes_nothing_and_the_next_one_runs(
    made: Exception | bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def edited(body: bytes, edits: list[Edit]) -> bytes:
        if not isinstance(edits[0][1], tuple):
            return spans.edited(body, edits)
        if isinstance(made, Exception):
            raise made
        return made

    monkeypatch.setattr(normalize, "edited", edited)
    failed: list[str] = []
    body = b'{"tools":[{"name":"b"},{"name":"a"}],"system":"at 12:34"}'
    after, kinds = normalized(
        [SORT_TOOLS, time_rule()], "messages", body, set(), lambda rule, _: failed.append(rule.kind)
    )
    assert (after, kinds, failed) == (body.replace(b"12:34", b"00:00"), ["replace"], ["sort_tools"])
    assert normalized([SORT_TOOLS], "messages", body, set()) == (body, [])
