"""A head that is known reads as one that is new, whatever comes of the answer."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from splits import in_sizes, pieces

from gateway.core.call import Header
from gateway.wire import http1
from gateway.wire.answers import AnswerReader
from gateway.wire.collector import MAX_HEAD_BYTES as MAX_STALLED_BYTES
from gateway.wire.heads import Heads

OK = b"HTTP/1.1 200 OK\r\n"
UVICORN = OK + b"date: Tue, 01 Dec 2026 10:55:%02d GMT\r\nserver: uvicorn\r\ncontent-length: %d\r\n\r\n"
HEADS = [
    OK + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n",
    OK + b"Content-Length: \t %d\r\nContent-Type: application/json\r\nX-Key: Bearer KEY\r\n\r\n",
    OK + b"content-length: 0%d\r\nconnection: keep-alive\r\n\r\n",
    OK + b"content-length: %d\r\nconnection: close\r\n\r\n",
    OK + b"content-length: %d\r\nconnection: keep-alive, x-own\r\nx-own: 1\r\n\r\n",
    OK + b"content-length: %d\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n",
    OK + b"x: a\r\n b\r\ncontent-length: %d\r\n\r\n",
    OK + b"content-length: %d\r\ncontent-length: %d\r\n\r\n",
    OK + b"content-length: %d\r\ntransfer-encoding: chunked\r\n\r\n",
    OK + b"content-length: %d \r\nx-content-length: 1\r\n\r\n",
    OK + b"content-length: +%d\r\n\r\n",
    OK + b"content-length: 9999999999999999999%d\r\n\r\n",
    OK + b"x: \x01\r\ncontent-length: %d\r\n\r\n",
    OK + b"content-length: %d\n\n",
    OK + b"x: " + b"a" * 5000 + b"\r\ncontent-length: %d\r\n\r\n",
    b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: %d\r\n\r\n",
    b"HTTP/1.1 200\r\ncontent-length: %d\r\n\r\n",
    b"HTTP/1.1 404 Not Found\r\ncontent-length: %d\r\n\r\n",
    b"HTTP/1.1 204 No Content\r\ncontent-length: %d\r\n\r\n",
    b"\r\n\r\n" + OK + b"content-length: %d\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\ncontent-length: 0\r\n\r\n" + OK + b"content-length: %d\r\n\r\n",
    UVICORN.replace(b"%02d", b"07"),
    UVICORN.replace(b"%02d", b"08"),
]
CHUNKED = OK + b"content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
SURPLUS = [b"\r\n", b"x", b"\0", OK, OK + b"content-length: 1\r\n\r\nx", b"HTTP/1.1 103 E\r\n\r\n"]
Seen = tuple[int, list[Header], bytes, bool, bool, bytes | None, bytes, bool, str]


class Forgetful(Heads):
    """Every head is new to it."""

    def learn(self, data: bytes, status: int, headers: list[Header], body_bytes: int) -> None:
        pass


@st.composite
def answers(draw: st.DrawFn) -> list[bytes]:
    body = draw(st.binary(max_size=40))
    if draw(st.integers(0, 4)) == 0:
        framed = b"".join(b"%x\r\n%b\r\n" % (len(it), it) for it in in_sizes(body, 7))
        data = CHUNKED + framed + b"0\r\n\r\n"
    else:
        head = draw(st.sampled_from(HEADS[:3]) | st.sampled_from(HEADS))
        data = head.replace(b"%d", b"%d" % len(body)) + body
    if draw(st.integers(0, 4)) == 0:
        data += draw(st.sampled_from(SURPLUS))
    if draw(st.integers(0, 9)) == 0:
        data = data[: draw(st.integers(0, len(data)))]
    return list(pieces(data, draw(st.lists(st.integers(1, 200), max_size=3))))


def read(reader: AnswerReader, parts: list[bytes]) -> list[Seen]:
    """All that is seen of one answer, after each of its parts."""
    seen: list[Seen] = []
    for part in parts:
        error = ""
        try:
            reader.feed(part)
        except ValueError as wrong:
            error = str(wrong)
        body = reader.take()
        head = reader.head.lines if reader.status else b""
        flags = reader.complete, reader.keep_alive
        seen.append(
            (reader.status, reader.headers.copy(), body, *flags, reader.length, head, reader.in_head, error)
        )
        if error:
            break
    return seen


@settings(deadline=None, max_examples=400)
@given(st.lists(answers(), max_size=8), st.lists(st.booleans(), max_size=8))
def test_a_known_head_reads_as_a_new_one(stream: list[list[bytes]], anew: list[bool]) -> None:
    heads = Heads(b"KEY")
    known, fresh = AnswerReader(heads), AnswerReader(Forgetful(b"KEY"))
    for number, parts in enumerate(stream):
        seen = read(known, parts)
        assert seen == read(fresh, parts)
        assert known.eof() == fresh.eof()
        over = not seen or seen[-1][-1] or not (known.complete and known.keep_alive)
        if over or (number < len(anew) and anew[number]):
            # The engine's next connection.
            known, fresh = AnswerReader(heads), AnswerReader(Forgetful(b"KEY"))
        else:
            known.reset()
            fresh.reset()


@pytest.mark.parametrize("index", [0, 1, 2, 4, 17, 21])
def test_a_head_that_comes_again_is_known(index: int) -> None:
    heads = Heads()
    for body in (b"abc", b"", b"x" * 500):
        head = HEADS[index].replace(b"%d", b"%d" % len(body))
        for parts in ([head + body], [head, body], [head + body[:1], body[1:]]):
            reader = AnswerReader(heads)
            for part in parts:
                reader.feed(part)
            assert (reader.take(), reader.complete, reader.keep_alive) == (body, True, True)
            assert http1.header(reader.headers, b"content-length") == reader.length
            assert heads.form is not None
            assert heads.form.shape.digits(head) == reader.length


@pytest.mark.parametrize("index", [3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 19, 20])
def test_a_head_that_is_not_plain_is_read_anew_each_time(index: int) -> None:
    heads = Heads()
    reader = AnswerReader(heads)
    try:
        reader.feed(HEADS[index].replace(b"%d", b"0"))
    except ValueError:
        return
    assert heads.form is None


def test_heads_that_are_all_new_are_seldom_kept_until_one_comes_again():
    heads = Heads()
    head = OK + b"x-id: %d\r\ncontent-length: 0\r\n\r\n"
    forms = set()
    for number in range(100):
        AnswerReader(heads).feed(head % number)
        forms.add(heads.form)
    assert len(forms) < 25
    for _ in range(9):
        AnswerReader(heads).feed(head % 100)
    assert heads.misses == 0


def test_an_engines_key_is_in_no_known_head() -> None:
    head = Heads(b"KEY").told([(b"x-key", b"Bearer KEY"), (b"server", b"s"), (b"content-length", b"1")])
    assert head.lines == b"server: s\r\n"


def test_a_stream_goes_with_what_keeps_proxies_from_holding_it() -> None:
    head = Heads().told([(b"content-type", b"text/event-stream"), (b"x-accel-buffering", b"yes")])
    assert head.is_stream
    assert head.unbuffered == b"cache-control: no-cache, no-transform\r\n"


@given(st.lists(st.tuples(st.sampled_from([b"a", b"b-c"]), st.sampled_from([b"", b"1: 2", b"x, y"]))))
def test_lines_tell_the_headers_they_were_made_of(headers: list[Header]) -> None:
    assert http1.headers_in(http1.lines(headers)) == headers


def test_line_ends_between_known_answers_do_not_add_up() -> None:
    reader = AnswerReader(Heads())
    for _ in range(MAX_STALLED_BYTES // 2 + 1):
        reader.feed(OK + b"content-length: 3\r\n\r\nabc\r\n")
        assert (reader.take(), reader.complete) == (b"abc", True)
        reader.reset()
