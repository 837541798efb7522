"""An engine that speaks exact bytes: what a test's handler writes, and nothing else."""

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable

from harness import until

# What the prober wants to have counted and rendered (gateway/engines/rendering.py).
_QUESTIONS = (b"You are helpful.", b"zztoolzz")


class RawCall:
    """One POST as it arrived. `left` is set when the gateway has closed the connection."""

    def __init__(self, connection, head: bytes, body: bytes) -> None:
        lines = head.decode("latin-1").split("\r\n")
        self.line = lines[0]
        self.path = lines[0].split(" ")[1]
        self.head = head
        self.headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:])}
        self.body = body
        self.connection = connection
        self.left = connection.left

    def write(self, *parts: bytes) -> None:
        for part in parts:
            self.connection.transport.write(part)

    def close(self) -> None:
        self.connection.transport.close()

    def reset(self) -> None:
        self.connection.reset()


Handler = Callable[[RawCall], Awaitable[None]]


class _Connection(asyncio.Protocol):
    def __init__(self, engine: "RawEngine") -> None:
        self.engine = engine
        self.left = asyncio.Event()
        self.buffer = b""

    def connection_made(self, transport) -> None:
        self.transport = transport
        self.engine.connections.add(self)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while b"\r\n\r\n" in self.buffer:
            head, _, rest = self.buffer.partition(b"\r\n\r\n")
            length = next(
                (
                    int(line[15:])
                    for line in head.lower().split(b"\r\n")
                    if line.startswith(b"content-length:")
                ),
                0,
            )
            if head.startswith(b"POST") and self.engine.reset_on_head:
                self.reset()
                return
            if head.startswith(b"POST") and self.engine.answer_on_head:
                self.transport.pause_reading()
                self.transport.write(self.engine.answer_on_head)
                return
            if len(rest) < length:
                return
            self.buffer = rest[length:]
            self.engine.arrived(self, head, rest[:length])

    def connection_lost(self, error) -> None:
        self.engine.connections.discard(self)
        self.left.set()

    def reset(self) -> None:
        sock = self.transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()


class RawEngine:
    """A prober is answered; `handler` writes the answer to each other POST. `calls` are those seen.

    `reset_on_head`: a POST is reset as soon as its head is here, its body unread. `answer_on_head`: it is
    answered with these bytes then, and nothing more is read.
    """

    def __init__(
        self, handler: Handler, models: tuple[str, ...] = ("m",), host="127.0.0.1", tls=None
    ) -> None:
        self.handler = handler
        self.host = host
        self.tls = tls
        self.models = models
        self.reset_on_head = False
        self.answer_on_head = b""
        self.calls: list[RawCall] = []
        self.failures: list[BaseException] = []
        self.connections: set[_Connection] = set()
        self.accepted = 0
        self._tasks: set[asyncio.Task] = set()

    async def start(self) -> None:
        def accept() -> _Connection:
            self.accepted += 1
            return _Connection(self)

        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(accept, self.host, 0, backlog=1024, ssl=self.tls)
        host = f"[{self.host}]" if ":" in self.host else self.host
        scheme = "https" if self.tls else "http"
        self.url = f"{scheme}://{host}:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        self._server.close()
        for connection in list(self.connections):
            connection.reset()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)

    def refuse(self) -> None:
        """No further connection; those that are open are reset."""
        self._server.close()
        for connection in list(self.connections):
            connection.reset()

    def entry(self, **more) -> dict:
        return {"url": self.url, "kind": "openai", "slots": 4, **more}

    def arrived(self, connection: _Connection, head: bytes, body: bytes) -> None:
        if not head.startswith(b"POST") or any(it in body for it in _QUESTIONS):
            self._probe(connection, head)
            return
        call = RawCall(connection, head, body)
        self.calls.append(call)
        task = asyncio.get_running_loop().create_task(self.handler(call))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.failures.append(task.exception())

    def _probe(self, connection: _Connection, head: bytes) -> None:
        cards = [{"id": model, "object": "model"} for model in self.models]
        if b" /v1/models " in head:
            connection.transport.write(whole(json.dumps({"object": "list", "data": cards}).encode()))
        elif b" /health " in head:
            connection.transport.write(whole(b""))
        else:
            connection.transport.write(whole(b"{}", status=b"404 Not Found"))


@contextlib.asynccontextmanager
async def raw_engine(handler: Handler, **settings) -> AsyncIterator[RawEngine]:
    engine = RawEngine(handler, **settings)
    await engine.start()
    try:
        yield engine
        assert engine.failures == []
    finally:
        await engine.close()


def answers(*parts: bytes, close: bool = False) -> Handler:
    """A handler that always writes the same."""

    async def handler(call: RawCall) -> None:
        call.write(*parts)
        if close:
            call.close()

    return handler


def whole(body: bytes, *headers: bytes, status: bytes = b"200 OK") -> bytes:
    lines = [b"HTTP/1.1 " + status, b"content-type: application/json", b"content-length: %d" % len(body)]
    return b"\r\n".join([*lines, *headers, b"", b""]) + body


def stream_head(*headers: bytes, chunked: bool = True) -> bytes:
    lines = [b"HTTP/1.1 200 OK", b"content-type: text/event-stream", *headers]
    if chunked:
        lines.append(b"transfer-encoding: chunked")
    return b"\r\n".join([*lines, b"", b""])


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


END = b"0\r\n\r\n"
DONE = b"data: [DONE]\n\n"


def event(text: str, finish: str | None = None, model: str = "m") -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    value = {"id": "c", "object": "chat.completion.chunk", "model": model, "choices": [choice]}
    return b"data: " + json.dumps(value).encode() + b"\n\n"


async def seen(engine: RawEngine, count: int = 1) -> RawCall:
    """The last call, once `count` have arrived."""

    async def arrived():
        return len(engine.calls) >= count

    await until(arrived)
    return engine.calls[-1]
