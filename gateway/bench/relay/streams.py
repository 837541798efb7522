"""Many open streams that say nothing, held while somebody looks at the proxy between."""

import asyncio
from collections.abc import Callable
from typing import cast

from gateway.bench.relay import prompts

_AT_ONCE = 100
"""Streams that are being opened at a time: no listen queue overflows."""

_OPEN_LIMIT_S = 30.0
_SETTLE_S = 1.0


async def hold(
    port: int, count: int, look: Callable[[], int], settle_s: float = _SETTLE_S
) -> tuple[int, int]:
    """Opens `count` streams, one connection each. Once each has had its first event or has failed, returns
    how many are open and what `look` told then."""
    slots = asyncio.Semaphore(_AT_ONCE)
    streams = await asyncio.gather(*(_opened(port, slots) for _ in range(count)))
    await asyncio.sleep(settle_s)
    try:
        return sum(it.is_open for it in streams if it is not None), look()
    finally:
        for stream in streams:
            if stream is not None:
                stream.abort()


async def _opened(port: int, slots: asyncio.Semaphore) -> "_Stream | None":
    async with slots:
        stream = None
        try:
            async with asyncio.timeout(_OPEN_LIMIT_S):
                loop = asyncio.get_running_loop()
                _, stream = await loop.create_connection(_Stream, "127.0.0.1", port)
                await stream.began
        except OSError:
            if stream is not None:
                stream.abort()
            return None
        return stream


class _Stream(asyncio.Protocol):
    """`began` is done with the first event, or with an error if there is to be none."""

    _transport: asyncio.Transport

    def __init__(self) -> None:
        self.began: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_open = False
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        body = prompts.short(stream=True).encode()
        head = (
            "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        self._transport.write(head.encode() + body)

    def data_received(self, data: bytes) -> None:
        if self.began.done():
            return
        self._received += data
        if b"data: " in self._received and self._received.startswith(b"HTTP/1.1 200 "):
            self.is_open = True
            self.began.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        if not self.began.done():
            self.began.set_exception(ConnectionError("closed before the first event"))

    def abort(self) -> None:
        self._transport.abort()
