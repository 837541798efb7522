from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from splits import cut_lists, in_sizes, pieces, ways

from gateway.core.call import Header
from gateway.wire.answers import AnswerReader
from gateway.wire.collector import MAX_HEAD_BYTES

CHUNKED = b"transfer-encoding: chunked\r\n\r\n"
BODIES = st.binary(max_size=300)
OK = b"HTTP/1.1 200 OK\r\nContent-Type: t\r\n"
WHOLE = OK + b"content-length: 3\r\n\r\nabc"


Read = tuple[int, bytes, bool, bool, list[Header]]


def answer(parts: Iterable[bytes], *, eof: bool = False) -> Read:
    """Status, body, whether it is complete, whether the connection stays, headers."""
    reader = AnswerReader()
    body = b""
    for part in parts:
        reader.feed(part)
        body += reader.take()
        if reader.complete:
            break
    if eof:
        reader.eof()
    return reader.status, body, reader.complete, reader.keep_alive, reader.headers


@pytest.mark.parametrize(
    ("data", "keep_alive"),
    [
        (WHOLE, True),
        (OK + b"connection: close\r\ncontent-length: 3\r\n\r\nabc", False),
        (OK + b"connection: upgrade\r\nupgrade: h2c\r\ncontent-length: 3\r\n\r\nabc", True),
        (OK + CHUNKED + b"1\r\na\r\n2\r\nbc\r\n0\r\n\r\n", True),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 3\r\n\r\nabc", False),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + WHOLE, True),
    ],
)
def test_an_answer_is_complete_after_its_last_byte(data: bytes, keep_alive: bool) -> None:
    for parts in ways(data):
        status, body, complete, keeps, headers = answer(parts)
        assert (status, body, complete, keeps) == (200, b"abc", True, keep_alive)
        assert b"link" not in dict(headers)


def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    for parts in ways(OK + b"\r\nabc"):
        assert answer(parts)[:3] == (200, b"abc", False)
    for parts in ways(OK + b"\r\nabc"):
        assert answer(parts, eof=True)[:4] == (200, b"abc", True, False)


@pytest.mark.parametrize(
    "data", [b"", b"HTTP/1.1 200", OK, OK + b"content-length: 4\r\n\r\nabc", OK + CHUNKED + b"3\r\nabc\r\n"]
)
def test_an_answer_cut_off_is_never_complete(data: bytes) -> None:
    for parts in ways(data):
        assert not answer(parts, eof=True)[2]


def test_eof_after_a_complete_answer_changes_nothing() -> None:
    assert answer([WHOLE], eof=True)[2]


@pytest.mark.parametrize("status", [204, 304])
def test_an_answer_without_a_body_is_complete_at_once(status: int) -> None:
    assert answer([b"HTTP/1.1 %d X\r\n\r\n" % status])[:3] == (status, b"", True)


def test_trailers_are_no_headers() -> None:
    for parts in ways(OK + CHUNKED + b"3\r\nabc\r\n0\r\nset-cookie: x\r\n\r\n"):
        assert answer(parts)[4] == [(b"content-type", b"t"), (b"transfer-encoding", b"chunked")]


@pytest.mark.parametrize("more", [b"GARBAGE", b"HTTP/1.1 500 Oops\r\ncontent-length: 1\r\n\r\nx", b"\x00"])
def test_what_follows_an_answer_is_dropped_and_the_connection_with_it(more: bytes) -> None:
    reader = AnswerReader()
    reader.feed(WHOLE + more)
    assert (reader.status, reader.take(), reader.complete, reader.keep_alive) == (200, b"abc", True, False)


def test_one_answer_after_another_starts_afresh() -> None:
    reader = AnswerReader()
    reader.feed(WHOLE)
    assert reader.take() == b"abc"
    reader.reset()
    assert (reader.status, reader.complete, reader.keep_alive) == (0, False, False)
    reader.feed(b"HTTP/1.1 404 N\r\nx: y\r\n\r\n")
    assert (reader.status, reader.headers, reader.complete) == (404, [(b"x", b"y")], False)
    assert reader.eof()
    assert not reader.keep_alive


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"NONSENSE\r\n\r\n", "not valid HTTP/1.1"),
        (OK + CHUNKED + b"zz\r\n", "not valid HTTP/1.1"),
        (OK + b"content-length: 1\r\ncontent-length: 2\r\n\r\n", "not valid HTTP/1.1"),
        (
            b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
            "switched protocols",
        ),
        (OK + b"x: " + b"a" * MAX_HEAD_BYTES + b"\r\n\r\n", "larger than 65536 bytes"),
        (OK + b"x: y\r\n" * 201, "more than 200 headers"),
    ],
)
def test_what_is_no_answer_says_why(data: bytes, says: str) -> None:
    for parts in ways(data):
        with pytest.raises(ValueError, match=says):
            answer(parts)


def test_a_header_of_an_answer_that_never_ends_is_refused() -> None:
    with pytest.raises(ValueError, match="larger than 65536 bytes"):
        answer([OK + b"x: ", *in_sizes(b"a" * (MAX_HEAD_BYTES + 1), 1000)])


@st.composite
def answer_bytes(draw: st.DrawFn) -> bytes:
    body = draw(BODIES)
    interim = draw(st.sampled_from([b"", b"HTTP/1.1 100 Continue\r\n\r\n"]))
    if draw(st.booleans()):
        return interim + OK + b"content-length: %d\r\n\r\n" % len(body) + body
    framed = b"".join(b"%x\r\n%b\r\n" % (len(it), it) for it in in_sizes(body, draw(st.integers(1, 50))))
    return interim + OK + CHUNKED + framed + b"0\r\n\r\n"


@settings(deadline=None)
@given(answer_bytes(), cut_lists)
def test_an_answer_is_the_same_in_any_split(data: bytes, cuts: list[int]) -> None:
    whole = answer([data])
    assert whole[2]
    assert answer(pieces(data, cuts)) == whole
    assert answer(in_sizes(data, 1)) == whole


@settings(deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=20), min_size=1, max_size=6), cut_lists, st.booleans())
def test_the_pieces_of_a_stream_that_has_begun_are_the_same_by_either_way(
    events: list[bytes], cuts: list[int], chunked: bool
) -> None:
    head = b"HTTP/1.1 200 OK\r\n" + (b"transfer-encoding: chunked\r\n\r\n" if chunked else b"\r\n")
    bodies = [b"%x\r\n%b\r\n" % (len(it), it) if chunked else it for it in events]
    data = b"".join(bodies) + (b"0\r\nx: trailer\r\n\r\n" if chunked else b"")
    told = []
    for parts in (pieces(data, cuts), in_sizes(data, 1), [*bodies, data[sum(map(len, bodies)) :]]):
        reader, body = AnswerReader(), b""
        reader.feed(head)
        for part in filter(None, parts):
            piece = reader.more(part)
            body += reader.take() if piece is None else piece
        told.append((body, reader.complete, reader.keep_alive))
    assert told == [(b"".join(events), chunked, chunked)] * 3


def test_what_is_no_chunk_breaks_a_stream_that_has_begun() -> None:
    reader = AnswerReader()
    reader.feed(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    assert reader.more(b"3\r\nabc\r\n") == b"abc"
    with pytest.raises(ValueError, match="not valid HTTP"):
        reader.more(b"xyz\r\n")


def test_what_follows_a_streams_end_ends_the_connection_only() -> None:
    reader = AnswerReader()
    reader.feed(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    assert reader.more(b"3\r\nabc\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n") is None
    assert (reader.take(), reader.complete, reader.keep_alive) == (b"abc", True, False)


def test_a_trailer_without_an_end_is_not_kept_for_ever() -> None:
    reader = AnswerReader()
    reader.feed(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    assert reader.more(b"3\r\nabc\r\n") == b"abc"
    assert reader.more(b"0\r\nx: ") is None
    for _ in range(MAX_HEAD_BYTES // 1000):
        assert reader.more(b"y" * 1000) is None
    with pytest.raises(ValueError, match="larger than"):
        reader.more(b"y" * 1000)
