import json

import pytest

from gateway.core.facts import Billing
from gateway.wire import segments
from gateway.wire.openai import read


def shared(api, **data):
    return [(it.code, it.part, it.text) for it in segments.shared(api, data)]


def body(api, first=0, **data):
    return [(it.code, it.part, it.text, it.role, it.item) for it in segments.body(api, data, first)]


TOOL = {"name": "read", "description": "Reads.", "parameters": {"type": "object"}, "strict": True}


def test_a_chat_s_system_messages_and_tools_are_shared():
    quick = {"role": "developer", "content": [{"text": "And quick."}]}
    messages = [{"role": "system", "content": "Be kind."}, quick]
    tools = [{"type": "function", "function": TOOL}, "odd"]
    assert shared("chat", messages=[*messages, {"role": "user", "content": "hi"}], tools=tools) == [
        ("s", "system[0]", "Be kind."),
        ("s", "system[1]", "And quick."),
        ("n", "tools[0].name", "read"),
        ("t", "tools[0]", '{"strict":true}'),
        ("d", "tools[0].description", "Reads."),
        ("p", "tools[0].parameters", '{"type":"object"}'),
        ("n", "tools[1]", '"odd"'),
    ]


def test_fields_that_templates_render_first_are_shared():
    assert shared("chat", messages=[], reasoning_effort="high", documents=[1]) == [
        ("s", "reasoning_effort", '"high"'),
        ("s", "documents", "[1]"),
    ]


def test_a_system_text_may_come_in_every_form():
    assert shared("messages", system="Be kind.") == [("s", "system[0]", "Be kind.")]
    assert shared("messages", system=[{"type": "text", "text": "A"}, {"type": "text", "text": "B"}]) == [
        ("s", "system[0]", "A"),
        ("s", "system[1]", "B"),
    ]
    assert shared("responses", instructions="Be kind.", input="hi") == [("s", "instructions", "Be kind.")]
    assert shared("responses", input=[{"role": "developer", "content": "A"}, {"role": "user"}]) == [
        ("s", "input[0]", "A")
    ]
    assert shared("completions", prompt="hi") == []
    assert shared("messages", system=5) == []


def test_a_tool_without_a_name_has_its_type():
    assert [it[:2] for it in shared("responses", tools=[{"type": "web_search"}])] == [
        ("n", "tools[0].name"),
        ("t", "tools[0]"),
    ]
    (_, _, text) = shared("messages", tools=[{"name": "a", "input_schema": {"b": 1}}])[1]
    assert text == '{"b":1}'


def test_messages_have_the_index_of_the_body():
    call = {"id": "c1", "function": {"name": "f", "arguments": "{}"}}
    parts = [{"text": "done"}, "more", {"type": "image_url", "image_url": "x"}, 5]
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "hi", "id": "msg_1", "name": "ann"},
        {"role": "assistant", "content": None, "tool_calls": [call, "odd"]},
        {"role": "tool", "tool_call_id": "c1", "content": parts},
        {"role": "assistant", "function_call": {"name": "g"}, "extra": {"a": 1}},
        "odd",
    ]
    found = body("chat", messages=messages)
    assert found[:4] == [
        ("m", "messages[1]", "hi\nname ann", "user", 1),
        ("m", "messages[2]", "", "assistant", 2),
        ("c", "messages[2].tool_calls[0]", '{"name":"f","arguments":"{}"}', "assistant", 2),
        ("c", "messages[2].tool_calls[1]", '"odd"', "assistant", 2),
    ]
    done, more, image, odd = found[4][2].split("\n")
    assert (done, more, odd) == ("done", "more", "5")
    assert len(image) == 16
    assert found[5:] == [
        ("m", "messages[4]", '\nextra {"a":1}', "assistant", 4),
        ("c", "messages[4].function_call", '{"name":"g"}', "assistant", 4),
        ("m", "messages[5]", '"odd"', "", 5),
    ]
    assert body("chat", first=4, messages=messages) == found[5:]
    assert body("chat", messages="odd") == [("m", "messages", "odd", "user", 0)]
    assert body("chat", messages=5) == []


def test_calls_and_results_of_messages():
    content = [
        {"type": "thinking", "thinking": "Hm.", "signature": "x"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"a": 1}},
        {"type": ["odd"]},
    ]
    result = [{"type": "text", "text": "found"}]
    results = [{"type": "tool_result", "tool_use_id": "toolu_1", "content": result}]
    assistant, user = {"role": "assistant", "content": content}, {"role": "user", "content": results}
    found = body("messages", messages=[assistant, user, {"content": {"a": 1}}])
    assert found[0][2].startswith("Hm.\nI look.\n")
    assert found[1][:3] == ("c", "messages[0].content[3]", '{"name":"read","input":{"a":1}}')
    assert found[2][:4] == ("m", "messages[1]", "found", "tool")
    assert found[3][2] == '{"a":1}'


def test_items_of_responses():
    items = [
        {"type": "message", "role": "user", "id": "msg_1", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "done"},
    ]
    assert body("responses", input=items) == [
        ("m", "input[0]", "hi", "user", 0),
        ("c", "input[1]", '{"name":"f","arguments":"{}"}', "assistant", 1),
        ("m", "input[2]", "done", "function_call_output", 2),
    ]
    assert body("responses", input="hi") == [("m", "input", "hi", "user", 0)]


def test_a_raw_prompt_is_cut_where_its_text_says():
    lines = [f"line {n} of a long prompt with some words\n" for n in range(200)]
    one = [it[2] for it in body("completions", prompt="".join(lines))]
    other = [it[2] for it in body("completions", prompt="".join(["new line\n", *lines]))]
    assert "".join(one) == "".join(lines)
    assert one[-3:] == other[-3:]
    assert max(map(len, one)) < 2_200
    assert body("completions", prompt=["a", "b"]) == [("m", "prompt", "a", "", 0)]
    assert body("completions", prompt=[1, 2]) == []
    assert body("completions", prompt="") == []


@pytest.mark.parametrize("char", ["\n", "a\n", "a", "\r", "é" * 40 + "\n"])
def test_a_raw_prompt_of_any_lines_is_cut_into_no_more_pieces_than_it_needs(char):
    text = (char * 20_000)[:40_000]
    pieces = [it[2] for it in body("completions", prompt=text)]
    assert "".join(pieces) == text
    assert len(pieces) <= len(text) / 256 + 1


USER = {"role": "user", "content": "a"}


@pytest.mark.parametrize(
    ("api", "data"),
    [
        ("chat", {"messages": [USER] * (segments.MAX_ITEMS + 1)}),
        ("chat", {"messages": [{"role": "user", "content": "a" * segments.MAX_WEIGHT}]}),
        ("chat", {"messages": [{"role": "user", "content": [{}] * 5_000}]}),
        ("chat", {"messages": [USER | {"content": [1] * 70_000}]}),
        ("responses", {"input": "a" * segments.MAX_WEIGHT}),
        ("completions", {"prompt": "a" * segments.MAX_WEIGHT}),
    ],
)
def test_more_than_can_be_read_at_once_is_not(api, data):
    with pytest.raises(segments.TooLongError):
        segments.body(api, data)


@pytest.mark.parametrize(
    ("api", "data"),
    [
        ("messages", {"system": "a" * segments.MAX_WEIGHT}),
        ("responses", {"instructions": "a" * segments.MAX_WEIGHT}),
        ("chat", {"tools": [{"name": "a", "parameters": {"enum": ["a"] * 70_000}}]}),
        ("chat", {"documents": [{}] * 5_000}),
        ("chat", {"messages": [{"role": "system", "content": "a"}] * (segments.MAX_ITEMS + 1)}),
        ("responses", {"input": [{"role": "developer", "content": "a" * segments.MAX_WEIGHT}]}),
    ],
)
def test_more_of_what_is_shared_than_can_be_read_at_once_is_not(api, data):
    with pytest.raises(segments.TooLongError):
        segments.shared(api, data)


def test_what_follows_in_a_very_long_conversation_can_be_read():
    messages = [USER] * 100_000
    assert body("chat", first=99_999, messages=messages) == [("m", "messages[99999]", "a", "user", 99_999)]


def test_an_image_counts_less_than_text_of_its_length():
    image = {"type": "image_url", "image_url": {"url": "a" * 4 * segments.MAX_WEIGHT}}
    assert len(body("chat", messages=[{"role": "user", "content": [image]}])) == 1


def test_only_a_message_that_is_results_alone_has_the_role_of_a_tool():
    result = {"type": "tool_result", "content": "done"}
    told = [[result, result], [result, {"type": "text", "text": "hi"}], []]
    assert [
        it[3] for parts in told for it in body("messages", messages=[{"role": "user", "content": parts}])
    ] == [
        "tool",
        "user",
        "user",
    ]


LINE = "x-anthropic-billing-header: cc_version=2.1; cch=00000;"


def test_a_billing_line_is_left_out_where_engines_drop_it():
    system = [{"type": "text", "text": LINE}, {"type": "text", "text": "Be kind."}]
    assert len(segments.shared("messages", {"system": system})) == 2
    (kept,) = segments.shared("messages", {"system": system}, Billing.DROPPED)
    assert (kept.part, kept.text) == ("system[1]", "Be kind.")
    (rest,) = segments.shared("messages", {"system": f"{LINE}\nBe kind."}, Billing.DROPPED)
    assert rest.text == "Be kind."


def test_a_billing_line_is_masked_where_engines_mask_it():
    (text,) = segments.shared("messages", {"system": f"{LINE}\nBe kind."}, Billing.MASKED)
    assert text.text == "x-anthropic-billing-header: cc_version=2.1; cch=fffff;\nBe kind."


@pytest.mark.parametrize("api", ["chat", "completions", "responses", "messages"])
@pytest.mark.parametrize(
    "data",
    [
        {},
        {"messages": ["text", 5, None, [], {}, {"role": None}], "input": [[], {"type": []}], "prompt": {}},
        {"messages": [{"content": 5, "role": 5, "tool_calls": ["odd", {"id": "x"}]}], "tools": [{}, None, 5]},
        {"messages": [{"role": [], "content": [None, [], {"type": "tool_use"}]}], "system": [None, 5, {}]},
        {"messages": {"odd": 1}, "system": {"odd": 1}, "tools": "all", "instructions": 5, "prompt": [None]},
        {"tools": [{"function": "odd", "name": 5, "parameters": "odd", "description": {"a": 1}}]},
    ],
)
def test_odd_bodies_have_segments_all_the_same(api, data):
    read(api, json.dumps(data).encode())
    for it in (*segments.shared(api, data), *segments.body(api, data)):
        assert isinstance(it.text, str)
        assert it.part
