"""Whether the doctor's own client could be what limits: it is tried on itself first.

HTTP clients come with limits of their own (aiohttp's pool of 100 was read as a limit of the engine's:
vllm#14513, production-stack#765), and so do processes (open files).
"""

import asyncio
import contextlib

from gateway.doctor.client import Client
from gateway.doctor.seen import Shape

_TOGETHER_S = 5.0
_ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"
)


class _Counter:
    """A server on loopback that answers nobody before all are there."""

    def __init__(self, wanted: int) -> None:
        self.most = self._now = 0
        self._wanted = wanted
        self._all_here = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._now += 1
        self.most = max(self.most, self._now)
        if self.most >= self._wanted:
            self._all_here.set()
        with contextlib.suppress(TimeoutError, OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            async with asyncio.timeout(_TOGETHER_S):
                await self._all_here.wait()
            writer.write(_ANSWER)
            await writer.drain()
        self._now -= 1
        writer.close()


async def carries_at_once(client: Client, wanted: int) -> int | None:
    """How many of `wanted` requests the client has under way at once against a server of its own; None where
    such a server cannot be had."""
    counter = _Counter(wanted)
    try:
        server = await asyncio.start_server(counter.serve, "127.0.0.1", 0, backlog=max(128, wanted))
    except OSError:
        return None
    port = server.sockets[0].getsockname()[1]
    url = f"http://127.0.0.1:{port}/"
    began_at = client.now()
    try:
        await asyncio.gather(
            *(client.ask(url, {}, number, Shape(0, 0), began_at) for number in range(wanted))
        )
    finally:
        server.close()
    return counter.most
