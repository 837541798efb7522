"""A client that sends exact bytes, and reads answers one at a time or up to the end of the connection."""

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import AsyncIterator
from typing import Any

from msgspec import Struct

LIMIT_S = 10.0


class Answered(Struct):
    """`ended` is false where the connection broke off before the answer's own end."""

    status: int
    headers: dict[str, str]
    body: bytes
    ended: bool = True

    @property
    def error(self) -> dict[str, Any]:
        return json.loads(self.body)["error"]


class RawClient:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def send_all(self, data: bytes) -> None:
        self.writer.write(data)
        async with asyncio.timeout(LIMIT_S):
            await self.writer.drain()

    async def head(self) -> Answered:
        """The head of the next answer; its body is left to be read."""
        async with asyncio.timeout(LIMIT_S):
            text = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        lines = text.split("\r\n")
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:-2])}
        return Answered(int(lines[0].split(" ")[1]), headers, b"")

    async def answer(self, *, method: str = "POST") -> Answered:
        """The next whole answer, or as much of it as came."""
        answer = await self.head()
        if method == "HEAD" or answer.status in (100, 204):
            return answer
        async with asyncio.timeout(LIMIT_S):
            if "content-length" in answer.headers:
                try:
                    answer.body = await self.reader.readexactly(int(answer.headers["content-length"]))
                except (asyncio.IncompleteReadError, ConnectionError) as cut:
                    answer.body, answer.ended = getattr(cut, "partial", b""), False
            elif answer.headers.get("transfer-encoding") == "chunked":
                await self._chunks(answer)
            else:
                answer.body = await self.reader.read()
        return answer

    async def _chunks(self, answer: Answered) -> None:
        try:
            while size := int(await self.reader.readuntil(b"\r\n"), 16):
                answer.body += await self.reader.readexactly(size)
                await self.reader.readexactly(2)
            await self.reader.readexactly(2)
        except (asyncio.IncompleteReadError, ConnectionError):
            answer.ended = False

    async def chunk(self) -> bytes:
        """The next chunk of a chunked body."""
        async with asyncio.timeout(LIMIT_S):
            size = int(await self.reader.readuntil(b"\r\n"), 16)
            return (await self.reader.readexactly(size + 2))[:-2]

    async def until_closed(self) -> bytes:
        """All that comes until the gateway closes; fails if it does not, or resets the connection."""
        async with asyncio.timeout(LIMIT_S):
            return await self.reader.read()

    async def closed(self) -> bool:
        """Whether the gateway ends the connection, without another byte, by a close or a reset."""
        async with asyncio.timeout(LIMIT_S):
            try:
                return await self.reader.read(1) == b""
            except ConnectionError:
                return True

    def leave(self) -> None:
        """Go away as a client does that closes its socket."""
        self.writer.close()

    def reset(self) -> None:
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


@contextlib.asynccontextmanager
async def connect(gateway, **options) -> AsyncIterator[RawClient]:
    """A connection to a `harness.Running`'s API port."""
    reader, writer = await asyncio.open_connection(*gateway.address, **options)
    try:
        yield RawClient(reader, writer)
    finally:
        writer.transport.abort()


def request(
    body: Any = b"",
    *headers: str,
    path: str = "/v1/chat/completions",
    method: str = "POST",
    version: str = "1.1",
) -> bytes:
    """A whole request; `body` is encoded unless it is bytes."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/{version}", "host: gateway", *headers]
    if method == "POST":
        lines.append(f"content-length: {len(data)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + data
