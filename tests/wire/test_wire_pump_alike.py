"""Events that are as the one before but for their text pass after a look at that text alone. What they tell
must be what they tell together, where each is looked at."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from splits import in_sizes
from streams import DONE, REPORTED, ROLE, STOP, USAGE, run

SHAPES = [
    '{"choices":[{"index":0,"delta":{"content":"@"},"finish_reason":null}]}',
    '{"choices":[{"delta":{"content":"@"},"finish_reason":null}],"usage":null}',
    '{"usage":null,"choices":[{"delta":{"reasoning_content":"@"}}]}',
    '{"choices":[{"text":"@","finish_reason":null}],"usage":null}',
    '{"type":"content_block_delta","delta":{"type":"text_delta","text":"@"}}',
    '{"content":"@","type":"response.output_text.delta"}',
    '{"model":"real","choices":[{"delta":{"content":"@"}}]}',
    '{"choices":[{"text":"@"}],"model" : "real"}',
    # What no engine sends, but what would tell more than its shape.
    r'{"content":"@","us\u0061ge":{"prompt_tokens":3}}',
    r'{"content":"@","usage":null,"err\u006fr":"x"}',
    r'{"x":"content\":\"@","usage":null}',
    '{"content":"@":"x"}',
    '{"content":"@" :"x"}',
    '{content":"@","a":"usage":null,"x":""}',
    '{"content":"@","content":"@"}',
    '"type":"text":"@"}',
    '[{"content":"@","model":"real","x":{}}]',
    '{"model":"real","content":"@","response":{"x":{"model":"real"},"model":"real"}}',
    '{"model":"real","content":"@"}{"model":"real"}',
]
PARTS = [
    "hello", " ", "é", "usage", "error", "timings", "type", "finish_reason", "message_stop", ":", ",",
    "response.completed", "event: message_stop", "[DONE]", "data: [DONE]", "\n\n", "\r", "\n", "{", "}",
    "\\", "\\n", '"', '\\"', '","usage":{"prompt_tokens":5},"x":"', '","error":"no","x":"',
    r'","us\u0061ge":{"prompt_tokens":5},"x":"',
]  # fmt: skip
TEXTS = st.sampled_from(PARTS) | st.lists(st.sampled_from(PARTS), max_size=4).map("".join)
OTHERS = st.sampled_from([ROLE, STOP, USAGE, DONE, b": ping\n\n", b'data: {"error":"no"}\n\n'])


@settings(deadline=None)
@given(
    st.sampled_from(SHAPES),
    st.lists(TEXTS | OTHERS, min_size=1, max_size=8),
    st.sampled_from([b"\n", b"\r\n"]),
    st.booleans(),
)
@example('{"content":"@":"x"}', ["hello", "finish_reason"], b"\n", False)
@example('{"content":"@"}', ["hello", '","usage":{"prompt_tokens":5},"x":"'], b"\n", False)
@example('[{"content":"@","model":"real","x":{}}]', ["hello", "{", "hello"], b"\n", False)
@example(SHAPES[0], ["hello", "\rdata: [DONE]"], b"\n", False)
def test_events_that_are_alike_tell_alone_what_they_tell_together(
    shape: str, parts: list[str | bytes], end: bytes, withhold: bool
) -> None:
    events = [ROLE]
    for part in parts:
        event = part if isinstance(part, bytes) else b"data: " + shape.replace("@", part).encode() + b"\n\n"
        # Again: the second one may be known by the first.
        events += [event.replace(b"\n", end)] * 2
    whole = b"".join(events)
    for alias in (None, ("real", "alias")):
        alone = run(events, withhold_usage=withhold, alias=alias)
        assert alone == run([whole], withhold_usage=withhold, alias=alias)
        assert alone == run(in_sizes(whole, 1), withhold_usage=withhold, alias=alias)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("null", [b'"usage":null', b'"usage" : null'])
def test_usage_is_read_after_many_events_that_say_there_is_none(end: bytes, null: bytes) -> None:
    # SGLang and OpenAI
    event = ROLE.replace(b"}]}", b"}]," + null + b"}")
    data = (event * 40 + STOP).replace(b"\n", end)
    tail = (USAGE + DONE).replace(b"\n", end)
    result = run([data + tail], withhold_usage=True)
    assert (result.usage, result.whole, result.started) == (REPORTED, True, True)
    assert result.out == data + DONE.replace(b"\n", end)


def test_a_usage_whose_key_is_written_with_an_escape_is_read_beside_one_that_is_null() -> None:
    event = ROLE.replace(b"}]}", b'}],"usage":null}')
    escaped = rb'data: {"usage":null,"us\u0061ge":{"prompt_tokens":3,"completion_tokens":1}}' + b"\n\n"
    for parts in ([event * 2 + escaped], [event, event, escaped]):
        assert run(parts).usage == REPORTED
