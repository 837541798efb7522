import json

import pytest
from engines import recordings
from engines.recordings import LLAMACPP, VLLM
from hypothesis import example, given, settings
from hypothesis import strategies as st
from splits import cut_lists, in_sizes, pieces
from streams import DELTA, DONE, ERROR, REPORTED, ROLE, STOP, USAGE, counts, run, same

from gateway.wire.pump import MAX_HELD_BYTES, SsePump, is_overload

RECORDED = [
    (VLLM, "chat-stream", (None, None, None)),
    (VLLM, "chat-stream-usage", (304, 256, 6)),
    (VLLM, "chat-n2-stream", (None, None, None)),
    (VLLM, "completion-stream-usage", (6, 0, 4)),
    (VLLM, "messages-stream", (298, 256, 6)),
    (VLLM, "responses-stream", (12, 0, 16)),
    (LLAMACPP, "chat-stream", (202, 197, 6)),
    (LLAMACPP, "chat-stream-usage", (202, 197, 6)),
    (LLAMACPP, "completion-stream-usage", (5, 1, 4)),
    (LLAMACPP, "messages-stream", (200, 175, 6)),
    (LLAMACPP, "responses-stream", (25, 20, 16)),
]


@pytest.mark.parametrize(("engine", "name", "expected"), RECORDED)
def test_a_recorded_stream_passes_byte_for_byte_and_its_usage_is_read(
    engine: str, name: str, expected: tuple[int | None, ...]
) -> None:
    body = recordings.answer(engine, name).body
    result = same(body)
    assert result.out == body
    assert counts(result.usage) == expected
    assert (result.started, result.whole, result.failed) == (True, True, None)


@pytest.mark.parametrize(
    "event",
    [
        b'data: {"type":"message_stop"}\n\n',
        b'data: {"x":1, "type" : "response.completed","response":{}}\n\n',
        b"event: response.incomplete\ndata: {}\n\n",
        b"event:response.failed\r\ndata: {}\r\n\r\n",
    ],
)
def test_the_last_event_of_messages_and_responses_makes_a_stream_whole(event: bytes) -> None:
    assert same(event).whole
    assert same(DELTA + event).whole


def test_a_last_event_that_is_too_large_to_be_held_counts_too() -> None:
    data = b'event: response.completed\ndata: {"x":"%b"}\n\n' % (b"a" * 2 * MAX_HELD_BYTES)
    assert run(in_sizes(data, 65_536)).whole


@pytest.mark.parametrize(
    "event",
    [
        b'data: {"type":"message_delta"}\n\n',
        b'data: {"type":"response.completed_part"}\n\n',
        b'data: {"text":"{\\"type\\":\\"message_stop\\"} event: response.completed"}\n\n',
        b"data: event: message_stop\n\n",
        b"event: message_stop_later\n\n",
    ],
)
def test_what_only_looks_like_a_last_event_does_not(event: bytes) -> None:
    assert not same(event).whole


def test_two_choices_of_a_recorded_stream_share_one_prompt() -> None:
    body = recordings.answer(LLAMACPP, "chat-n2-stream").body
    result = same(body)
    assert result.out == body
    assert counts(result.usage)[:2] == (202, 197)


@pytest.mark.parametrize("name", ["chat-stream-usage", "completion-stream-usage"])
@pytest.mark.parametrize("engine", [VLLM, LLAMACPP])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_a_usage_chunk_that_was_our_wish_vanishes_exactly(engine: str, name: str, end: bytes) -> None:
    # headroom#2026, apfel#100
    events = recordings.answer(engine, name).body.replace(b"\n", end).split(end * 2)
    body = (end * 2).join(events)
    without = (end * 2).join(event for event in events if b'"choices":[],' not in event)
    result = same(body, withhold_usage=True)
    if b'"choices":[],' in body:
        assert len(without) < len(body)
    assert result.out == without
    assert result.usage == same(body).usage
    assert result.usage.prompt_tokens is not None


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("gap", [b"", b"\r", b"\r\n\r\n", b": ping\n\n"])
def test_what_stands_around_a_withheld_chunk_stays(end: bytes, gap: bytes) -> None:
    before, chunk, after = (it.replace(b"\n", end) for it in (DELTA, USAGE, STOP + DONE))
    assert same(before + gap + chunk + gap + after, withhold_usage=True).out == before + gap * 2 + after


def test_a_withheld_chunk_without_its_blank_line_vanishes_too() -> None:
    assert same(STOP + USAGE.rstrip(), withhold_usage=True).out == STOP


@pytest.mark.parametrize(
    "event",
    [
        USAGE,
        b'data: {"choices":[{"index":0,"delta":{}}],"usage":{"prompt_tokens":3,"completion_tokens":1}}\n\n',
        b'data: {"usage":{"prompt_tokens":3,"completion_tokens":1}}\n\n',
        b'data:{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1}}\n\n',  # ai-gateway#2470
        b'data: {"choices":[],\ndata: "usage":{"prompt_tokens":3,"completion_tokens":1}}\n\n',
        '\ufeffdata: {"x":"\u2028","usage":{"prompt_tokens":3,"completion_tokens":1}}\n\n'.encode(),
    ],
)
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_usage_is_read_wherever_it_comes_and_however_lines_end(event: bytes, end: bytes) -> None:
    # litellm#36553, hey-api#3054, vercel/ai#6200
    for order in (event + ROLE + STOP + DONE, ROLE + STOP + event + DONE, DONE + event):
        data = order.replace(b"\n", end)
        result = same(data)
        assert result.out == data
        assert result.usage == REPORTED
        assert result.whole


@pytest.mark.parametrize(
    "event",
    [
        b'data: {"choices":[{"index":0}],"usage":{"prompt_tokens":3}}\n\n',
        b'data: {"choices":[],"prompt_filter_results":[],"usage":null}\n\n',
        b'data: {"usage":{"prompt_tokens":3}}\n\n',
        b'data: {"choices":[],"usage":{"prompt_tokens":3},"error":{"message":"m"}}\n\n',
    ],
)
def test_only_a_lonely_usage_chunk_is_withheld(event: bytes) -> None:
    assert same(ROLE + event + DONE, withhold_usage=True).out == ROLE + event + DONE


@pytest.mark.parametrize("gap", [b"\n", b"\r\n", b"\r"])
def test_usage_is_read_behind_a_line_end_too_many_and_a_byte_order_mark(gap: bytes) -> None:
    assert same(ROLE + gap + b"\xef\xbb\xbf" + USAGE + DONE).usage == REPORTED


def test_a_character_cut_in_two_arrives_whole() -> None:
    # claude-code-router 79f48c00
    data = 'data: {"x":"日本"}\n\n'.encode()
    assert run([data[:13], data[13:]]).out == data


def test_an_upstream_comment_passes_as_it_is_and_is_no_event() -> None:
    # llm-gateway#2053
    comment = b': OPENROUTER PROCESSING "usage" "error"\n\n'
    result = same(comment * 3)
    assert (result.out, result.any_event, result.started) == (comment * 3, False, False)


def test_output_ends_at_an_event_until_the_stream_does() -> None:
    # grok2api#1050: whatever is put in between events must not tear one
    pump = SsePump()
    for part in in_sizes(ROLE + DELTA + STOP + DONE, 5):
        out = pump.feed(part)
        assert out == b"" or out.endswith(b"\n\n")


def test_each_event_leaves_with_its_last_byte() -> None:
    # llama-swap#295, olla#41
    pump = SsePump()
    for event in (ROLE, DELTA, DELTA.replace(b"\n", b"\r\n"), STOP.replace(b"\n", b"\r")):
        assert pump.feed(event[:-1]) + pump.feed(event[-1:]) == event


@pytest.mark.parametrize("size", [140_000, 600_000])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_an_event_of_any_size_passes_and_is_read(size: int, end: bytes) -> None:
    # open-webui#24928, aiohttp#4453
    text = b"a" * size
    data = (
        DELTA.replace(b'"a"', b'"%b"' % text) + USAGE.replace(b"{", b'{"x":"%b",' % text, 1) + DONE
    ).replace(b"\n", end)
    for part_size in (len(data), 65_536, 4_096):
        result = run(in_sizes(data, part_size))
        assert result.out == data
        assert (result.usage, result.whole) == (REPORTED, True)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_an_event_too_long_to_hold_leaves_in_pieces_unread(end: bytes) -> None:
    inside = b'data: [DONE] "usage" "error"'
    huge = b'data: {"a":"' + b"a" * MAX_HELD_BYTES + inside + b"a" * 300_000 + b'"}\n\n'
    data = (huge + DELTA + USAGE).replace(b"\n", end)
    pump = SsePump()
    parts = in_sizes(data, 65_536)
    out = [pump.feed(part) for part in parts]
    assert b"".join(out) == data
    assert any(out[:-3])
    assert (pump.usage, pump.whole, pump.failed, pump.started) == (REPORTED, False, None, True)
    assert not pump.truncated("engine_truncated", "m", "chat").startswith(b"\n")


def test_an_event_that_left_in_pieces_may_end_between_cr_and_lf() -> None:
    pump = SsePump(withhold_usage=True)
    pump.feed(b"data: " + b"a" * (MAX_HELD_BYTES + 1))
    assert pump.feed(b"\r\n\r") == b"\r\n\r"
    assert pump.feed(b"\n") == b"\n"
    assert pump.feed(USAGE + DONE) == DONE


def test_an_error_after_an_event_that_left_in_pieces_stands_alone() -> None:
    pump = SsePump()
    pump.feed(b"data: " + b"a" * (MAX_HELD_BYTES + 1))
    assert pump.feed(b"a") == b"a"
    assert (pump.any_event, pump.end()) == (True, b"")
    assert pump.truncated("engine_truncated", "m", "chat").startswith(b"\n\ndata: ")


# codex-lb#1833, GoModel#1017
@pytest.mark.parametrize(
    ("data", "whole"),
    [
        (ROLE + DELTA, False),
        (ROLE + DELTA + STOP, True),
        (ROLE + DELTA + DONE, True),
        (ROLE + DELTA + b"data:[DONE]", True),
        (
            rb'data: {"choices":[{"delta":{"content":"\"finish_reason\": \"stop\" data: [DONE]"}}]}'
            + b"\n\n",
            False,
        ),
        (b'data: {"choices":[{"finish_reason" : "length"}]}\n\n', True),
        (b"", False),
    ],
)
def test_an_answer_is_whole_after_a_finish_reason_or_done(data: bytes, whole: bool) -> None:
    result = same(data)
    assert (result.out, result.whole) == (data, whole)


@pytest.mark.parametrize(
    "half", [b'data: {"choices":[{"delta":{}', b"data: [", b'data: [1, {"a"', b"data: {" + b'"a":[' * 20_000]
)
def test_an_event_cut_off_inside_its_json_is_dropped_at_the_end(half: bytes) -> None:
    pump = SsePump()
    assert pump.feed(DELTA + half) == DELTA
    assert pump.end() == b""
    assert pump.truncated("engine_truncated", "m", "chat").startswith(b'data: {"error"')


@pytest.mark.parametrize(
    "rest", [b'data: {"a":NaN}', b'data: {"a":1}\n', b"data: text", b"event: x", b"data: [DONE]"]
)
def test_a_last_event_without_its_blank_line_passes_and_an_error_after_it_stands_alone(rest: bytes) -> None:
    pump = SsePump()
    assert pump.feed(DELTA + rest) + pump.end() == DELTA + rest
    assert pump.truncated("engine_truncated", "m", "chat").startswith(b"\n\ndata: ")


def test_a_half_event_before_a_broken_connection_is_dropped() -> None:
    pump = SsePump()
    pump.feed(ROLE + b'data: {"a"')
    error = pump.truncated("engine_truncated", "why", "messages")
    assert error.startswith(b'event: error\ndata: {"type":"error"')
    assert pump.end() == b""


@pytest.mark.parametrize(
    ("before", "started", "failed"),
    [
        (b'data: {"prompt_progress":{"total":9}}\n\n', False, None),
        (b'event: ping\ndata: {"type": "ping"}\n\n', False, None),
        (b'data: {"type":"message_start","message":{}}\n\n', False, None),
        (b'data: {"type":"response.created"}\n\ndata: {"type":"response.in_progress"}\n\n', False, None),
        (DONE, False, None),
        (b"data:\n\n", False, None),
        (ERROR, False, b'{"message":"no"}'),
        (ERROR + DONE, False, b'{"message":"no"}'),
        (ERROR + USAGE + DONE, False, b'{"message":"no"}'),
        (ERROR + DELTA, True, b'{"message":"no"}'),
        (DELTA + ERROR, True, b'{"message":"no"}'),
        (b'data: {"error":null,"choices":[{}]}\n\n', True, None),
        (rb'data: {"choices":[{"delta":{"content":"\"prompt_progress\" \"error\""}}]}' + b"\n\n", True, None),
        (ROLE, True, None),
    ],
)
def test_an_answer_has_started_with_its_first_token(
    before: bytes, started: bool, failed: bytes | None
) -> None:
    result = same(before)
    assert (result.out, result.started, result.failed) == (before, started, failed)


@pytest.mark.parametrize(
    ("error", "busy"),
    [
        (b'{"code":503,"message":"x"}', True),
        (b'{"code": "429"}', True),
        (b'{"type":"overloaded_error"}', True),
        (b'{"message":"The request queue is full."}', True),
        (b'{"message":"Model is Overloaded"}', True),
        (b'{"message":"x","http_status_code":422}', False),
        (b'{"message":"bad 503 tokens","code":400}', False),
    ],
)
def test_an_engine_that_is_too_busy_is_told_from_a_bad_request(error: bytes, busy: bool) -> None:
    assert is_overload(error) is busy


TEXTS = st.text(st.sampled_from('a"\\{}[]:\n\r\u2028é日 '), max_size=12)
EVENTS = st.one_of(
    st.sampled_from(
        [
            ROLE,
            DELTA,
            STOP,
            USAGE,
            DONE,
            ERROR,
            b": comment\n\n",
            b"\n",
            b"\r",
            b"event: x\nid: 1\ndata: 5\n\n",
        ]
    ),
    TEXTS.map(
        lambda text: (
            b"data: " + json.dumps({"model": "real", "x": text}, ensure_ascii=False).encode() + b"\n\n"
        )
    ),
    TEXTS.map(lambda text: b"data:" + json.dumps({"usage": {"prompt_tokens": len(text)}}).encode() + b"\n\n"),
    TEXTS.map(lambda text: b"data: {\ndata: " + json.dumps({"x": text})[1:].encode() + b"\n\n"),
)
LINE_ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])
STREAMS = st.lists(st.tuples(EVENTS, LINE_ENDS).map(lambda it: it[0].replace(b"\n", it[1])), max_size=8).map(
    b"".join
)


@settings(deadline=None)
@given(STREAMS, st.sampled_from([b"", b"data: [DONE]", b'data: {"a"', b"data"]), cut_lists)
@example(USAGE.replace(b"\n", b"\r\n") + DONE, b"", [len(USAGE) + 1])
def test_any_split_of_any_stream_gives_the_same(stream: bytes, rest: bytes, cuts: list[int]) -> None:
    for withhold in (False, True):
        for alias in (None, ("real", "alias")):
            whole = run([stream + rest], withhold_usage=withhold, alias=alias)
            assert run(pieces(stream + rest, cuts), withhold_usage=withhold, alias=alias) == whole
            assert run(in_sizes(stream + rest, 1), withhold_usage=withhold, alias=alias) == whole
    assert run([stream]).out == stream


@settings(deadline=None)
@given(st.binary(max_size=200), cut_lists)
def test_any_bytes_pass(data: bytes, cuts: list[int]) -> None:
    ended = data + b"\n\n"
    assert run(pieces(ended, cuts), alias=("real", "alias")).out == ended
