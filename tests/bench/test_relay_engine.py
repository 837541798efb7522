"""The mock engine's answers, for requests in any pieces and shape that a proxy may send."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.bench.relay import prompts
from gateway.bench.relay.engine import Manner, serve

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def engine(**manner: Any) -> AsyncIterator[Callable[[], Any]]:
    server = await serve(0, Manner(**manner))
    port = server.sockets[0].getsockname()[1]
    opened: list[Connection] = []

    async def connect() -> Connection:
        opened.append(await asyncio.open_connection("127.0.0.1", port))
        return opened[-1]

    try:
        yield connect
    finally:
        for _, writer in opened:
            writer.close()
        server.close()


def post(body: str, *, length_header: str = "Content-Length") -> bytes:
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n{length_header}: {len(body)}\r\n\r\n"
    return (head + body).encode()


async def answer(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Head and body, without the framing."""
    async with asyncio.timeout(10):
        head = await reader.readuntil(b"\r\n\r\n")
        if b"Content-Length: " in head:
            return head, await reader.readexactly(int(head.split(b"Content-Length: ")[1].split()[0]))
        body = b""
        while size := int(await reader.readline(), 16):
            body += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
        return head, body


def contents(stream: bytes) -> int:
    return stream.count(b'"content":" hello"')


async def test_a_request_for_json_is_answered_with_a_completion_and_its_usage() -> None:
    async with engine(events=7) as connect:
        reader, writer = await connect()
        writer.write(post(prompts.short(stream=False)))
        head, body = await answer(reader)

    completion = json.loads(body)
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert completion["choices"][0]["message"] == {"role": "assistant", "content": "hello"}
    assert completion["usage"]["completion_tokens"] == 7
    assert completion["usage"]["prompt_tokens_details"] == {"cached_tokens": 480}


@pytest.mark.parametrize("gap_s", [0.0, 0.001])
async def test_a_stream_has_its_events_a_reason_usage_and_an_end(gap_s: float) -> None:
    async with engine(events=5, gap_s=gap_s) as connect:
        reader, writer = await connect()
        writer.write(post(prompts.short(stream=True)))
        head, body = await answer(reader)

    events = body.decode().removesuffix("\n\n").split("\n\n")
    assert b"text/event-stream" in head
    assert contents(body) == 5
    assert [json.loads(it.removeprefix("data: "))["choices"] for it in events[-3:-1]] == [
        [{"index": 0, "delta": {}, "finish_reason": "stop"}],
        [],
    ]
    assert events[-1] == "data: [DONE]"


async def test_requests_may_come_byte_by_byte_and_several_at_once() -> None:
    stream, plain = post(prompts.short(stream=True)), post(prompts.short(stream=False))
    async with engine() as connect:
        reader, writer = await connect()
        for byte in stream[:300]:
            writer.write(bytes([byte]))
            await writer.drain()
        writer.write(stream[300:] + plain + stream)
        answers = [await answer(reader) for _ in range(3)]

    assert [contents(body) for _, body in answers] == [32, 0, 32]


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("pieces", [1, 2, 100])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_long_prompt_is_answered_once_it_is_whole(keep: bool, pieces: int, stream: bool) -> None:
    body = prompts.long().replace('"stream":false', f'"stream":{"true" if stream else "false"}')
    request = post(body)
    size = -(-len(request) // pieces)
    async with engine(keep=keep) as connect:
        reader, writer = await connect()
        for at in range(0, len(request), size):
            writer.write(request[at : at + size])
            await writer.drain()
        writer.write(post(prompts.short(stream=True)))
        answers = [await answer(reader) for _ in range(2)]

    assert [contents(body) for _, body in answers] == [32 if stream else 0, 32]


async def test_a_head_may_come_before_its_body() -> None:
    head, _, body = post(prompts.long().replace("false", "true")).partition(b"\r\n\r\n")
    async with engine() as connect:
        reader, writer = await connect()
        writer.write(head + b"\r\n\r\n")
        await writer.drain()
        writer.write(body)
        _, answered = await answer(reader)

    assert contents(answered) == 32


@pytest.mark.parametrize(
    ("body", "events"),
    [
        ('{"messages":[{"content":"%s"}],"model":"m","stream":true}' % ("x" * 20_000), 32),
        ('{"stream": true}', 32),
        ('{"stream": false}', 0),
        ('{"messages":[{"content":"say \\"stream\\":true"}]}', 0),
        ("{}", 0),
    ],
)
async def test_a_stream_is_what_the_field_says(body: str, events: int) -> None:
    async with engine() as connect:
        reader, writer = await connect()
        writer.write(post(body, length_header="content-LENGTH"))
        _, answered = await answer(reader)

    assert contents(answered) == events


async def test_a_chunked_request_is_understood() -> None:
    body = prompts.short(stream=True).encode()
    chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    async with engine() as connect:
        reader, writer = await connect()
        head = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
        writer.write(head + chunks + head + chunks)
        answers = [await answer(reader) for _ in range(2)]

    assert [contents(body) for _, body in answers] == [32, 32]


async def test_a_held_stream_says_one_thing() -> None:
    async with engine(hold=True) as connect:
        reader, writer = await connect()
        writer.write(post(prompts.short(stream=True)))
        async with asyncio.timeout(10):
            head = await reader.readuntil(b"\r\n\r\n")
            size = int(await reader.readline(), 16)
            event = await reader.readexactly(size + 2)

        assert b"text/event-stream" in head
        assert contents(event) == 1
        assert not reader.at_eof()


async def test_anything_else_is_answered_so_that_a_proxy_is_content() -> None:
    async with engine() as connect:
        reader, writer = await connect()
        writer.write(b"GET /v1/models HTTP/1.1\r\n\r\nGET /health HTTP/1.1\r\n\r\n")
        (_, models), (health, nothing) = [await answer(reader) for _ in range(2)]

    assert [it["id"] for it in json.loads(models)["data"]] == ["m"]
    assert health.startswith(b"HTTP/1.1 200 OK\r\n")
    assert nothing == b""
