import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.wire import sse

ENDS = [b"\n", b"\r\n", b"\r"]


@pytest.mark.parametrize("first", ENDS)
@pytest.mark.parametrize("second", ENDS)
def test_a_blank_line_of_any_line_ends_is_a_boundary(first: bytes, second: bytes) -> None:
    # hey-api#3054, OrcaRouter-Lite#98, vercel/ai#6200
    ended = b"data: a" + first + second
    if first + second == b"\r\n":
        assert sse.last_boundary(ended) == sse.first_boundary(ended) == 0
        return
    assert sse.last_boundary(ended + b"data: b" + first) == len(ended)
    assert sse.first_boundary(ended + ended) == len(ended)
    assert list(sse.events(ended + b"data: b")) == [ended, b"data: b"]


@pytest.mark.parametrize("data", [b"", b"data: a", b"data: a\n", b"data: a\r\n", b"a\nb\r\nc\rd"])
def test_without_a_blank_line_no_event_is_complete(data: bytes) -> None:
    assert sse.last_boundary(data) == sse.first_boundary(data) == 0
    assert b"".join(sse.events(data)) == data


@settings(deadline=None)
@given(st.lists(st.sampled_from([b"\r", b"\n", b"a", b"data: b"])).map(b"".join), st.integers(0, 12))
def test_looking_again_only_at_the_last_bytes_finds_the_same_boundary(data: bytes, cut: int) -> None:
    known = data[:cut]
    if sse.last_boundary(known) == 0:
        again = max(0, len(known) - sse.STRADDLE_BYTES)
        assert (sse.last_boundary(data, again) > 0) == (sse.last_boundary(data) > 0)


@settings(deadline=None)
@given(
    st.lists(st.sampled_from([b"\r", b"\n", b"\r\n", b"data: a", b": c", "\u2028".encode()])).map(b"".join)
)
def test_events_joined_are_the_stream(data: bytes) -> None:
    assert b"".join(sse.events(data)) == data
    assert sse.first_boundary(data) <= sse.last_boundary(data) <= len(data)


@pytest.mark.parametrize(
    ("event", "data"),
    [
        (b"data: a\n\n", b"a"),
        (b"data:a\n\n", b"a"),  # ai-gateway#2470
        (b"data:  a\n\n", b" a"),
        (b"data: a\r\ndata: b\rdata: c\n\n", b"a\nb\nc"),
        (b"event: x\nid: 1\ndata: a\n\n", b"a"),
        (b": data: a\n\n", None),
        (b": OPENROUTER PROCESSING\n\n", None),  # llm-gateway#2053
        (b"database: a\n\n", None),
        (b"\n\n", None),
        ("data: a\u2028b\n\n".encode(), "a\u2028b".encode()),
        (b"\xef\xbb\xbfdata: a\n\n", b"a"),
        (b"\r\n\xef\xbb\xbfdata: a\n\n", b"a"),
    ],
)
def test_the_data_of_an_event_is_its_data_lines(event: bytes, data: bytes | None) -> None:
    assert sse.data_of(event) == data


@pytest.mark.parametrize(
    "data", [b"data: [DONE]\n\n", b"data:[DONE]\n\n", b"x\rdata: [DONE]", b"\r\ndata: [DONE]\r\n\r\n"]
)
def test_done_is_seen_with_and_without_a_space(data: bytes) -> None:
    assert sse.has_done(data)


@pytest.mark.parametrize(
    "data", [b'data: {"a":"data: [DONE]"}\n\n', b"data: DONE\n\n", b"xdata: [DONE]\n\n", b""]
)
def test_done_inside_a_text_is_no_end(data: bytes) -> None:
    assert not sse.has_done(data)


def test_done_on_the_line_after_an_empty_data_line_is_no_done() -> None:
    assert not sse.has_done(b"data:\n[DONE]\n\n")
    assert sse.has_done(b'data: {"x":"[DONE]"}\n\ndata:[DONE]\n\n')
