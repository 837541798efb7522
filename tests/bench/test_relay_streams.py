"""Open streams that say nothing."""

import asyncio

from gateway.bench.relay import streams
from gateway.bench.relay.engine import Manner, serve


async def test_streams_are_open_while_somebody_looks_and_closed_after() -> None:
    server = await serve(0, Manner(hold=True))
    port = server.sockets[0].getsockname()[1]
    try:
        told = await streams.hold(port, 250, lambda: 42, settle_s=0)
    finally:
        server.close()

    assert told == (250, 42)


async def test_a_stream_that_is_refused_or_closed_does_not_count() -> None:
    answered = 0

    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal answered
        answered += 1
        await reader.readuntil(b"\r\n\r\n")
        if answered % 2:
            writer.write(b"HTTP/1.1 200 OK\r\n\r\ndata: {}\n\n")
            await reader.read()
        else:
            writer.write(b"HTTP/1.1 503 Full\r\n\r\ndata: {}\n\n")
        writer.close()

    server = await asyncio.start_server(half, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        opened, _ = await streams.hold(port, 10, lambda: 0, settle_s=0)
    finally:
        server.close()
    refused, _ = await streams.hold(port, 3, lambda: 0, settle_s=0)

    assert opened == 5
    assert refused == 0
