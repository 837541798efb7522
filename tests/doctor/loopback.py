"""Small servers on loopback for the doctor to look at: scripted answers, a proxy that lets few through."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from gateway.doctor.client import Client
from gateway.doctor.examine import Examination, Options
from gateway.sim.server import SimEngine
from gateway.sim.settings import SimSettings

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Json = dict[str, Any]
_BUSY_S = 0.03
MODELS = {"object": "list", "data": [{"id": "m", "object": "model"}]}


@contextlib.asynccontextmanager
async def listening(handler: Handler) -> AsyncIterator[str]:
    """Its URL. Each connection is answered by `handler` and closed."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await handler(reader, writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


@contextlib.asynccontextmanager
async def answering(answer: bytes, *, resets: bool = False) -> AsyncIterator[str]:
    """Answers every request with these bytes."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        if resets:
            writer.transport.abort()

    async with listening(handler) as url:
        yield url


def response(status: int, body: bytes, kind: str = "application/json", more: str = "") -> bytes:
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\n{more}Connection: close\r\n\r\n"
    return head.encode() + body


def sse(*data: str) -> bytes:
    return response(200, "".join(f"data: {it}\n\n" for it in data).encode(), "text/event-stream")


class Api:
    """An endpoint of one model whose answer to a POST is what `post` makes of path and body."""

    def __init__(
        self, post: Callable[[str, Json], web.Response | Awaitable[web.Response]], models: object = MODELS
    ) -> None:
        self.bodies: list[Json] = []
        self.keys: set[str | None] = set()
        self._post = post
        self._models = models

    async def _handle(self, request: web.Request) -> web.Response:
        self.keys.add(request.headers.get("Authorization"))
        if request.method == "GET":
            if request.path == "/v1/models" and isinstance(self._models, web.Response):
                return web.Response(status=self._models.status)
            if request.path == "/v1/models":
                return web.json_response(self._models)
            return web.Response(status=404)
        body = await request.json()
        self.bodies.append(body)
        made = self._post(request.path, body)
        return made if isinstance(made, web.Response) else await made

    async def __aenter__(self) -> str:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()


def whole_answer(tokens: int) -> web.Response:
    usage = {"prompt_tokens": 20, "completion_tokens": tokens, "total_tokens": 20 + tokens}
    return web.json_response({"choices": [{"message": {"content": "x " * tokens}}], "usage": usage})


class Front:
    """A reverse proxy, one request a connection, that lets `count` connections through, GETs as well."""

    def __init__(self, engine: SimEngine, count: int) -> None:
        self._port = int(engine.url.rpartition(":")[2])
        self._gate = asyncio.Semaphore(count)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with self._gate:
            from_engine, to_engine = await asyncio.open_connection("127.0.0.1", self._port)
            up = asyncio.create_task(_pipe(reader, to_engine))
            try:
                await _pipe(from_engine, writer)
            finally:
                up.cancel()
                to_engine.close()


async def _pipe(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await source.read(1 << 16):
            sink.write(data)
            await sink.drain()


def a_sim(**settings: Any) -> SimEngine:
    """Quick: an answer of 24 tokens takes 0.15 s."""
    quick: Json = {"kind": "llamacpp", "slots": 2, "prefill_rate": 20_000.0, "decode_rate": 160.0}
    return SimEngine(SimSettings(**quick | settings))


class Examined:
    """An examination of `url`; as a context manager it has its client open."""

    def __init__(self, url: str, *, key: str | None = None, **options: Any) -> None:
        usual: Json = {"base": url, "max_concurrency": 4, "output_tokens": 24, "max_s": 60.0}
        self.told: list[str] = []
        self._options = Options(**usual | options)
        self._client = Client(key, self._options.max_s)

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        self.examination = Examination(self._client, self._options, self._tell)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.__aexit__(kind, error, trace)

    def _tell(self, what: str, share: float) -> None:
        assert 0 <= share <= 1
        self.told.append(what)


async def examined(url: str, **options: Any) -> Examination:
    """Again where the machine was too busy for answers as short as these."""
    for _ in range(3):
        async with Examined(url, **options) as it:
            await it.examination.run()
        if max((round_.lag_s for round_ in it.examination.findings.rounds), default=0.0) < _BUSY_S:
            break
    return it.examination
