"""Heads that come again are known by their bytes, and nothing is told otherwise than if they were read."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import CHUNKED, HEAD, LIMIT
from splits import cut_lists, pieces

from gateway.wire.collector import MAX_HEAD_BYTES as MAX_STALLED_BYTES
from gateway.wire.errors import BadRequest
from gateway.wire.reader import Incoming, RequestReader
from gateway.wire.repeated import MAX_HEAD_BYTES, Repeated


def asked(body: bytes, head: bytes = HEAD) -> bytes:
    return head + b"Content-Length: %d\r\nx-a: b\r\n\r\n" % len(body) + body


def each_anew(requests: list[bytes]) -> tuple[list[Incoming], str]:
    """What readers say that have seen nothing before; nothing follows what one of them refuses."""
    out: list[Incoming] = []
    for data in requests:
        reader = RequestReader(LIMIT)
        try:
            reader.feed(data)
        except BadRequest as refusal:
            return out + list(reader.ready), refusal.message
        out += reader.ready
        if reader.refusal:
            return out, reader.refusal.message
        if out and not out[-1].head.keep_alive:
            break
    return out, ""


def by_one(parts: list[bytes]) -> tuple[list[Incoming], str]:
    reader = RequestReader(LIMIT)
    out: list[Incoming] = []
    try:
        for part in parts:
            reader.feed(part)
            out += reader.ready
            reader.ready.clear()
    except BadRequest as refusal:
        return out + list(reader.ready), refusal.message
    return out, reader.refusal.message if reader.refusal else ""


def unlike(heard: list[Incoming]) -> list[tuple[object, ...]]:
    """Lengths are dropped: a head that comes again keeps the one it was read with."""
    heads = [[item for item in it.head.headers if item[0] != b"content-length"] for it in heard]
    return [
        (it.head.method, it.head.url, headers, it.head.keep_alive, it.head.http10, it.body)
        for it, headers in zip(heard, heads, strict=True)
    ]


def test_a_head_that_comes_again_is_the_same_value_whatever_the_length() -> None:
    heard, refusal = by_one([asked(b"abc"), asked(b"0123456789"), asked(b""), asked(b"x")])
    assert refusal == ""
    assert [it.body for it in heard] == [b"abc", b"0123456789", b"", b"x"]
    assert all(it.head is heard[0].head for it in heard)


def test_another_head_is_read() -> None:
    heard, _ = by_one([asked(b"abc"), asked(b"abc", HEAD + b"authorization: Bearer b\r\n"), asked(b"abc")])
    assert [(b"authorization", b"Bearer b") in it.head.headers for it in heard] == [False, True, False]


@pytest.mark.parametrize(
    "second",
    [
        HEAD + b"Content-Length: 3\r\nx-a: b\r\n\r\nab",
        HEAD + b"Content-Length: +3\r\nx-a: b\r\n\r\nabc",
        HEAD + b"Content-Length: 3 \r\nx-a: b\r\n\r\nabc",
        HEAD + b"Content-Length: \r\nx-a: b\r\n\r\n",
        HEAD + b"Content-Length: 03\r\nx-a: b\r\n\r\nabc",
        HEAD + b"Content-Length: 3\r\nContent-Length: 3\r\nx-a: b\r\n\r\nabc",
        HEAD + b"Content-Length: 3\r\nx-a: b\r\nContent-Length: 4\r\n\r\nabcd",
        HEAD + b"Content-Length: 99999999999999999999\r\nx-a: b\r\n\r\nabc",
        HEAD + b"Content-Length: 1001\r\nx-a: b\r\n\r\n" + b"x" * 1001,
        asked(b"abc") + asked(b"de"),
        asked(b"abc") + b"GARBAGE\x00",
        HEAD + CHUNKED + b"0\r\n\r\n",
        b"\r\n" + asked(b"abc"),
    ],
)
def test_whatever_else_is_read_as_if_nothing_had_come_before(second: bytes) -> None:
    requests = [asked(b"abc"), second]
    (heard, refusal), (known, said) = by_one(requests), each_anew(requests)
    assert (unlike(heard), refusal) == (unlike(known), said)


_HEADS = st.sampled_from(
    [
        HEAD,
        HEAD + b"authorization: Bearer a\r\n",
        HEAD + b"transfer-encoding: chunked\r\n",
        HEAD + b"expect: 100-continue\r\n",
        HEAD + b"connection: close\r\n",
        HEAD + b"connection: upgrade\r\nupgrade: h2c\r\n",
        HEAD + b"content-length: 3\r\n",
        b"POST / HTTP/1.0\r\nconnection: keep-alive\r\n",
        b"POST / HTTP/1.0\r\n",
        HEAD + b"x: content-length: 5\r\n",
        HEAD + b"x: " + b"y" * MAX_HEAD_BYTES + b"\r\n",
    ]
)


@settings(deadline=None)
@given(st.lists(st.tuples(_HEADS, st.binary(max_size=12)), min_size=1, max_size=6))
def test_a_connection_says_of_each_request_what_a_new_one_would(
    asks: list[tuple[bytes, bytes]],
) -> None:
    requests = [asked(body, head) for head, body in asks]
    (heard, refusal), (known, said) = by_one(requests), each_anew(requests)
    assert (unlike(heard), refusal) == (unlike(known), said)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=12), min_size=1, max_size=5), cut_lists)
def test_requests_are_the_same_in_any_split(bodies: list[bytes], cuts: list[int]) -> None:
    data = b"".join(map(asked, bodies))
    heard, refusal = by_one(pieces(data, cuts))
    assert (unlike(heard), refusal) == (unlike(by_one([data])[0]), "")


def test_heads_that_never_come_again_are_soon_not_remembered() -> None:
    def numbered(number: int) -> bytes:
        return b"POST / HTTP/1.1\r\nx-id: %d\r\ncontent-length: 0\r\n\r\n" % number

    repeated: Repeated[int] = Repeated()
    for number in range(20):
        repeated.learn(numbered(number), number, [(b"content-length", b"0")], 0)
    assert [repeated.body(numbered(number)) for number in (7, 19)] == [b"", None]


def test_line_ends_between_known_requests_do_not_add_up() -> None:
    heard, refusal = by_one([asked(b"abc"), b"\r\n"] * (MAX_STALLED_BYTES // 2 + 1))
    assert (len(heard), refusal) == (MAX_STALLED_BYTES // 2 + 1, "")
