"""Framing that two parsers read differently, on the real server: refused, and nothing behind it is served."""

import json

import pytest
from harness import chat, running
from raw_client import connect, request
from raw_engine import answers, raw_engine, whole

ANSWER = b'{"choices":[]}'
BODY = json.dumps(chat("hello", model="m")).encode()
SMUGGLED = request(chat("smuggled", model="m"), "x-smuggled: 1")
LINE = b"POST /v1/chat/completions HTTP/1.1\r\n"
HOST = b"host: gateway\r\n"
LENGTH = b"content-length: %d\r\n" % len(BODY)
CHUNKED = b"transfer-encoding: chunked\r\n"
CHUNKS = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)


def with_length(value: bytes) -> bytes:
    return LINE + HOST + b"content-length:" + value + b"\r\n\r\n" + BODY


def with_coding(value: bytes) -> bytes:
    return LINE + HOST + b"transfer-encoding:" + value + b"\r\n\r\n" + CHUNKS


def with_chunks(chunks: bytes) -> bytes:
    return LINE + HOST + CHUNKED + b"\r\n" + chunks


def with_header(line: bytes) -> bytes:
    return LINE + HOST + line + b"\r\n" + LENGTH + b"\r\n" + BODY


SIZE = b"%d" % len(BODY)
HEX = b"%x" % len(BODY)
AMBIGUOUS = {
    "length and coding": LINE + HOST + LENGTH + CHUNKED + b"\r\n" + CHUNKS,
    "coding and length": LINE + HOST + CHUNKED + LENGTH + b"\r\n" + CHUNKS,
    "length and an empty coding": LINE + HOST + LENGTH + b"transfer-encoding:\r\n\r\n" + BODY,
    "length and identity": LINE + HOST + LENGTH + b"transfer-encoding: identity\r\n\r\n" + BODY,
    "chunked, identity": with_coding(b" chunked, identity"),
    "identity, chunked": with_coding(b" identity, chunked"),
    "gzip, chunked": with_coding(b" gzip, chunked"),
    "xchunked": with_coding(b" xchunked"),
    "a comma before chunked": with_coding(b" ,chunked"),
    "a vertical tab before chunked": with_coding(b"\x0bchunked"),
    "a tab behind chunked": with_coding(b" chunked\t"),
    "chunked twice": with_coding(b" chunked\r\ntransfer-encoding: chunked"),
    "chunked on the second line": with_coding(b" identity\r\ntransfer-encoding: chunked"),
    "chunked on a folded line": with_coding(b"\r\n chunked"),
    "a blank before the colon of the coding": LINE + HOST + b"transfer-encoding : chunked\r\n\r\n" + CHUNKS,
    "two lengths that differ": with_length(SIZE + b"\r\ncontent-length: 0"),
    "two lengths that agree": with_length(SIZE + b"\r\ncontent-length: " + SIZE),
    "a list of lengths": with_length(SIZE + b", " + SIZE),
    "a length with a plus": with_length(b"+" + SIZE),
    "a length in hex": with_length(b"0x" + HEX),
    "a negative length": with_length(b"-1"),
    "a length that overflows": with_length(b"18446744073709551616"),
    "two numbers in a length": with_length(SIZE + b" 0"),
    "an empty length": with_length(b""),
    "a blank before the colon of a length": LINE + HOST + b"content-length : 0\r\n" + LENGTH + b"\r\n" + BODY,
    "a folded header": with_header(b"x-a: b\r\n c: d"),
    "a header folded by a tab": with_header(b"x-a: b\r\n\tc: d"),
    "a fold behind the first line": LINE + b" x: y\r\n" + HOST + LENGTH + b"\r\n" + BODY,
    "bare line feeds": (LINE + HOST + LENGTH + b"\r\n").replace(b"\r\n", b"\n") + BODY,
    "one bare line feed": with_header(b"x-a: b\nx-c: d"),
    "one bare carriage return": with_header(b"x-a: b\rx-c: d"),
    "a bare line feed behind the head": LINE + HOST + LENGTH + b"\n" + BODY,
    "NUL in a value": with_header(b"x-a: b\0c"),
    "NUL in a name": with_header(b"x\0a: b"),
    "a blank before the colon": with_header(b"x-a : b"),
    "a header without a colon": with_header(b"x-a"),
    "a header without a name": with_header(b": a"),
    "a name beyond ASCII": with_header(b"x-\xe9: a"),
    "a chunk size with a plus": with_chunks(b"+" + CHUNKS),
    "a chunk size in 0x": with_chunks(b"0x" + CHUNKS),
    "a negative chunk size": with_chunks(b"-1\r\n" + CHUNKS),
    "a chunk size that overflows": with_chunks(b"1" + b"0" * 16 + HEX + CHUNKS[len(HEX) :]),
    "a blank behind a chunk size": with_chunks(HEX + b" " + CHUNKS[len(HEX) :]),
    "a chunk that is too long": with_chunks(b"1\r\n" + BODY + b"\r\n0\r\n\r\n"),
    "a line feed in a chunk extension": with_chunks(HEX + b";a\nb" + CHUNKS[len(HEX) :]),
    "a carriage return in a chunk extension": with_chunks(HEX + b";a\rb" + CHUNKS[len(HEX) :]),
    "NUL in a chunk extension": with_chunks(HEX + b";\0" + CHUNKS[len(HEX) :]),
    "bare line feeds around a chunk": with_chunks(CHUNKS.replace(b"\r\n", b"\n")),
    "a folded trailer": with_chunks(CHUNKS[:-2] + b"x: a\r\n b\r\n\r\n"),
    "a length as a trailer": with_chunks(CHUNKS[:-2] + b"content-length: 9\r\n\r\n"),
    "HTTP/1.0 with a coding": LINE.replace(b"1.1", b"1.0") + HOST + CHUNKED + b"\r\n" + CHUNKS,
    "HTTP/0.9": LINE.replace(b" HTTP/1.1", b"") + HOST + LENGTH + b"\r\n" + BODY,
    "HTTP/0.9 by name": LINE.replace(b"1.1", b"0.9") + HOST + LENGTH + b"\r\n" + BODY,
    "HTTP/2.0": LINE.replace(b"1.1", b"2.0") + HOST + LENGTH + b"\r\n" + BODY,
    "a blank behind the version": LINE.replace(b"\r", b" \r") + HOST + LENGTH + b"\r\n" + BODY,
    "a blank in the target": LINE.replace(b"/chat", b"/ chat") + HOST + LENGTH + b"\r\n" + BODY,
    "a method in lower case": LINE.replace(b"POST", b"post") + HOST + LENGTH + b"\r\n" + BODY,
    "CONNECT": b"CONNECT engine:80 HTTP/1.1\r\nhost: engine\r\n\r\n",
    "CONNECT with a body": b"CONNECT engine:80 HTTP/1.1\r\nhost: engine\r\n" + LENGTH + b"\r\n" + BODY,
    "a target without a path": LINE.replace(b"/v1/chat/completions", b"engine:80") + LENGTH + b"\r\n" + BODY,
}


@pytest.fixture
async def engine():
    async with raw_engine(answers(whole(ANSWER))) as engine:
        yield engine


@pytest.fixture
async def gateway(tmp_path, engine):
    async with running(tmp_path, [engine.entry(name="a")]) as gateway:
        yield gateway


async def is_refused_once(gateway, engine, count: int = 1) -> None:
    records = await gateway.records()
    assert [(it["outcome"], it["status"], it["code"]) for it in records] == [
        ("invalid", 400, "invalid_request")
    ] * count
    assert await gateway.metric("requests_total") == count
    assert engine.calls == []
    assert (await gateway.engine("a"))["in_flight"] == 0


@pytest.mark.parametrize("data", AMBIGUOUS.values(), ids=AMBIGUOUS.keys())
async def test_what_two_parsers_read_differently_is_a_400_and_the_end(gateway, engine, data):
    async with connect(gateway) as client:
        client.send(data + SMUGGLED)
        answer = await client.answer()
        assert (answer.status, answer.error["code"]) == (400, "invalid_request")
        assert answer.headers["connection"] == "close"
        assert await client.closed()
    await is_refused_once(gateway, engine)


async def test_so_it_is_byte_by_byte(gateway, engine):
    cases = [*AMBIGUOUS.values()]
    for data in cases[::4]:
        async with connect(gateway) as client:
            for byte in data:
                await client.send_all(bytes([byte]))
            assert (await client.answer()).status == 400
            assert await client.closed()
    await is_refused_once(gateway, engine, len(cases[::4]))


@pytest.mark.parametrize(
    "data",
    [
        LINE.replace(b"/v1", b"http://elsewhere/v1") + HOST + LENGTH + b"\r\n" + BODY,
        LINE.replace(b"/v1", b"https://user:secret@elsewhere:1/v1") + HOST + LENGTH + b"\r\n" + BODY,
        LINE + HOST + b"host: other\r\n" + LENGTH + b"\r\n" + BODY,
        LINE + LENGTH + b"\r\n" + BODY,
        b"\r\n\r\n" + LINE + HOST + LENGTH + b"\r\n" + BODY,
        with_chunks(b"0" + HEX + b';a="b";c' + CHUNKS[len(HEX) : -2] + b"x-evil: 1\r\n\r\n"),
        with_coding(b"\tCHUNKED  "),
        with_length(b"\t 000" + SIZE + b" "),
    ],
    ids=["absolute", "with a user", "two hosts", "no host", "line ends first", "chunked", "coding", "length"],
)
async def test_what_is_allowed_reaches_the_engine_in_one_plain_form(gateway, engine, data):
    async with connect(gateway) as client:
        client.send(data + SMUGGLED)
        assert [(await client.answer()).body for _ in range(2)] == [ANSWER] * 2
    first, second = engine.calls
    assert (first.line, first.body) == (LINE.strip().decode(), BODY)
    assert set(first.headers) <= {"host", "content-length", "x-request-id"} | {""}
    assert first.head.count(b"\n") == len(first.headers)
    assert second.headers["x-smuggled"] == "1"


@pytest.mark.parametrize(
    "method", ["OPTIONS", "TRACE", "PUT", "PATCH", "QUERY", "PURGE", "M-SEARCH", "SOURCE"]
)
async def test_other_methods_do_not_reach_an_engine(gateway, engine, method):
    async with connect(gateway) as client:
        client.send(request(BODY).replace(b"POST", method.encode(), 1))
        assert (await client.answer()).status == 405
        client.send(request(path="/healthz", method="GET"))
        assert (await client.answer()).status == 200
    assert engine.calls == []
    assert await gateway.metric("requests_total", outcome="invalid") == 1
