"""What holds for any bytes and any JSON: nothing raises but what a module says, and splits change nothing."""

import contextlib
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from splits import cut_lists, in_sizes, pieces
from streams import DELTA, DONE, ERROR, ROLE, STOP, USAGE

from gateway.wire import opaque, sse
from gateway.wire.answers import AnswerReader
from gateway.wire.errors import BadRequest
from gateway.wire.openai import read
from gateway.wire.paths import APIS
from gateway.wire.pump import JsonPump, SsePump
from gateway.wire.usage import look, merged

KEYS = st.sampled_from([
    "usage", "timings", "error", "message", "response", "choices", "prompt_tokens", "completion_tokens",
    "cached_tokens", "input_tokens", "output_tokens", "prompt_tokens_details", "input_tokens_details",
    "cache_read_input_tokens", "cache_n", "prompt_n", "prompt_ms", "predicted_n", "predicted_ms", "model",
    "messages", "role", "content", "tool_calls", "tools", "prompt", "input", "n", "best_of", "stream",
    "stream_options", "include_usage", "metadata", "user_id", "session_id", "prompt_cache_key",
    "cache_salt", "function", "type", "text",
])  # fmt: skip
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from([2**64, -1, 10**400, "", "\ud800", "system", "user", 1e308, 5e-324])
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=25,
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=8)
ALIASES = st.sampled_from([None, ("real", "alias"), ("m/x", "é")])


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


@settings(deadline=None)
@given(OBJECTS, OBJECTS)
def test_usage_of_any_object_is_plain_numbers_or_unknown(
    first: dict[str, Any], second: dict[str, Any]
) -> None:
    seen = [look(encoded(it)) for it in (first, second)]
    told = [it.usage for it in seen if it.usage is not None]
    for usage in [*told, merged(told[0], told[-1])] if told else []:
        for tokens in (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens):
            assert tokens is None or 0 <= tokens <= 4 * 10**9
        for seconds in (usage.prefill_s, usage.decode_s):
            assert seconds is None or 0 < seconds < float("inf")


@settings(deadline=None)
@given(st.binary(max_size=100))
def test_usage_of_any_bytes_is_none(data: bytes) -> None:
    assert look(data).usage is None


@settings(deadline=None)
@given(st.sampled_from(sorted(APIS)), OBJECTS)
def test_any_object_is_an_ask_or_a_bad_request(api: str, body: dict[str, Any]) -> None:
    with contextlib.suppress(BadRequest):
        ask = read(api, encoded(body))
        assert 0 <= ask.width <= 100_000
        assert ask.prompts >= 0
        assert ask == read(api, json.dumps(body, indent=2, ensure_ascii=True).encode())


@settings(deadline=None)
@given(OBJECTS | st.binary(max_size=200), ALIASES, cut_lists)
def test_a_json_answer_is_the_same_in_any_split(
    value: Any, alias: tuple[str, str] | None, cuts: list[int]
) -> None:
    data = value if isinstance(value, bytes) else encoded(value)
    results = []
    for parts in ([data], pieces(data, cuts), in_sizes(data, 1)):
        pump = JsonPump(alias)
        out = b"".join(map(pump.feed, parts)) + pump.end()
        results.append((out, pump.usage, pump.failed, pump.whole))
    assert results[0] == results[1] == results[2]
    if alias is None:
        assert results[0][0] == data


EVENT_PARTS = [
    ROLE, DELTA, STOP, USAGE, DONE, ERROR, b": ping\n\n", b"\xef\xbb\xbf", b"data: {", b"data:\n\n",
    b'data: {"model":"real","usage":null}\n\n', "data: \u2028\n\n".encode(), b"event: x\n", b"id: 1\n",
    b"\r\n", b"\n", b"\r", b"\0",
]  # fmt: skip


@settings(deadline=None)
@given(st.lists(st.sampled_from(EVENT_PARTS), max_size=12).map(b"".join), cut_lists, st.booleans(), ALIASES)
def test_all_that_a_stream_tells_is_the_same_in_any_split(
    data: bytes, cuts: list[int], withhold: bool, alias: tuple[str, str] | None
) -> None:
    results = []
    for parts in ([data], pieces(data, cuts), in_sizes(data, 1)):
        pump = SsePump(withhold_usage=withhold, alias=alias)
        out = b"".join(map(pump.feed, parts))
        # As if the engine had died here: what the client has so far, and how its answer ends then.
        out += pump.truncated("engine_truncated", "x", "chat")
        # A lone line end between two events may be held back and dropped; no client sees it as an event.
        told = [it for it in map(sse.data_of, sse.events(out)) if it is not None]
        results.append((told, pump.usage, pump.failed, pump.whole, pump.any_event, pump.started))
    assert results[0] == results[1] == results[2]


@settings(deadline=None)
@given(st.binary(max_size=300), cut_lists)
def test_any_bytes_are_an_answer_or_a_value_error(data: bytes, cuts: list[int]) -> None:
    data = b"HTTP/1.1 200 OK\r\n" + data
    results = []
    for parts in ([data], pieces(data, cuts), in_sizes(data, 1)):
        reader = AnswerReader()
        body, failed = b"", False
        for part in parts:
            try:
                reader.feed(part)
            except ValueError:
                failed = True
                break
            body += reader.take()
        results.append((reader.status, body if not failed else b"", failed))
    assert results[0][2] == results[1][2] == results[2][2]
    assert results[0][:2] == results[1][:2] == results[2][:2] or results[0][2]


PARTS = [
    b"--b\r\n",
    b"--b--",
    b"\r\n",
    b"content-disposition: form-data; name=",
    b'"model"',
    b"\r\n\r\n",
    b"m",
    b"\0",
]


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(PARTS), max_size=20).map(b"".join) | st.binary(max_size=200),
    st.sampled_from(
        [b"multipart/form-data; boundary=b", b'Multipart/Form-Data; boundary="b"', b"text/plain", b""]
    ),
    st.sampled_from(["other", "é", "a\r\nb"]),
)
def test_a_renamed_form_has_the_name_and_any_other_body_stays(body: bytes, kind: bytes, name: str) -> None:
    before = opaque.model_in(body, kind)
    renamed = opaque.renamed(body, kind, name)
    if renamed == body and before != name:
        assert before == ""
    elif "\r\n" not in name:
        assert opaque.model_in(renamed, kind) == name
    assert len(renamed) - len(body) in (0, len(name.encode()) - len(before.encode()))
