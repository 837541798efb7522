"""The simulated engine as an HTTP server: the surface of one engine kind, its faults, its own counts."""

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Self

import msgspec
from aiohttp import web
from msgspec import Struct

from gateway.sim import surface
from gateway.sim.answers import Writer
from gateway.sim.ask import Refused, decode_body, error_body, read_ask
from gateway.sim.driver import Driver
from gateway.sim.faults import Faults, parse_faults
from gateway.sim.limiter import Bucket, Pacer
from gateway.sim.listener import Listener, reset
from gateway.sim.model import SimModel
from gateway.sim.replies import get_json, json_reply
from gateway.sim.settings import SimSettings
from gateway.sim.stream import stream_answer
from gateway.sim.token_routes import token_routes
from gateway.sim.work import Counts, Work

_MAX_BODY_BYTES = 64 * 1024 * 1024
_REQUESTS_KEPT = 1000
_SERVER_NAMES = {"vllm": "uvicorn", "sglang": "uvicorn", "llamacpp": "llama.cpp"}
_OVERLOADED = {
    "vllm": "The engine is overloaded.",
    "sglang": "The request queue is full.",
    "llamacpp": "no slot available",
}
_TOO_MANY = {"error": {"message": "Too many requests.", "type": "rate_limit_error", "code": 429}}


class SimStats(Struct, frozen=True, kw_only=True):
    """What the engine itself counted, as GET /sim/stats shows it.

    `max_running`, `running` and `waiting` are sequences; `running` has those whose client left and whose
    slot is still busy. `requests_seen` are the x-request-id of the last 1000 inference requests, faults
    included. `headers` are those of the last POST, lower case. `connections_open` has the asking one.
    """

    max_running: int
    running: int
    waiting: int
    deferred_total: int
    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    requests: int
    cancelled: int
    connections_open: int
    requests_seen: tuple[str, ...]
    headers: Mapping[str, str]


class SimEngine:
    """A simulated engine that listens on an address of its own.

    `start` after `close` is a new process of the same engine: nothing cached, counts at zero. `killed` is
    set when a kill-on fault ended it. `last_body` is the last POST's body, for tests of what a gateway sends.
    """

    def __init__(
        self,
        settings: SimSettings | None = None,
        *,
        wall_clock: Callable[[], float] = time.time,  # noqa: TID251 - answers carry Unix time, as an engine's
    ) -> None:
        self.settings = settings or SimSettings()
        self.killed = asyncio.Event()
        self.last_body = b""
        self._wall_clock = wall_clock
        self._faults = parse_faults(self.settings.faults)
        self._bucket: Bucket | None = None
        self._pacer: Pacer | None = None
        self._listener: Listener | None = None
        self._port = self.settings.port
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """The base URL, without a path; the same while refusing and after a restart."""
        return f"http://{self.settings.host}:{self._port}"

    @property
    def stats(self) -> SimStats:
        self._driver.settle()
        model, since = self._model, self._counted_from
        counts = model.counts
        return SimStats(
            max_running=counts.max_running,
            running=model.running,
            waiting=model.waiting,
            deferred_total=counts.deferred_total - since.deferred_total,
            prompt_tokens=counts.prompt_tokens - since.prompt_tokens,
            cached_tokens=counts.cached_tokens - since.cached_tokens,
            generated_tokens=counts.generated_tokens - since.generated_tokens,
            requests=counts.requests - since.requests,
            cancelled=counts.cancelled - since.cancelled,
            connections_open=self._listener.connections if self._listener else 0,
            requests_seen=tuple(self._requests_seen),
            headers=self._last_headers,
        )

    async def start(self, port: int = 0) -> None:
        """Listens; port 0 is the one of the settings or of the last start, else any. Raises OSError."""
        settings = self.settings
        self._model = SimModel(
            slots=settings.slots,
            kv_tokens=settings.kv_tokens,
            prefill_rate=settings.prefill_rate,
            decode_rate=settings.decode_rate,
            kind=settings.kind,
            batching=settings.batching,
            jitter=settings.jitter,
            seed=settings.seed,
        )
        self._driver = Driver(self._model, settings.speed)
        self._started_at = self._wall_clock()
        self._media_marker = f"<__media_{secrets.token_urlsafe(24)}__>"
        self._requests_seen: deque[str] = deque(maxlen=_REQUESTS_KEPT)
        self._last_headers: Mapping[str, str] = {}
        self._counted_from = Counts()
        self.killed.clear()
        self._listener = Listener(self._application(), settings.host)
        await self._listener.start(port or self._port)
        self._port = self._listener.port
        await self.set_faults(self._faults)

    async def close(self) -> None:
        """Stops at once: connections are reset."""
        for task in self._tasks:
            task.cancel()
        if self._listener is not None:
            self._driver.close()
            await self._listener.close()
            self._listener = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def set_faults(self, faults: Faults) -> None:
        """Puts `faults` in the place of those in force. Limits on requests/s start anew."""
        self._faults = faults
        self._bucket = None if faults.rate_per_s is None else Bucket(faults.rate_per_s)
        self._pacer = None if faults.rate_delay_per_s is None else Pacer(faults.rate_delay_per_s)
        self._model.slow_cancel_s = faults.slow_cancel_s
        if self._listener is None:
            return
        if faults.refuse_s is None:
            await self._listener.listen()
            return
        if faults.refuse_s != float("inf"):
            self._spawn_listen_again(faults.refuse_s)
        self._listener.refuse()

    def reset_counts(self) -> None:
        """Starts the sums and the maximum of `stats` anew; Prometheus counters go on."""
        self._driver.settle()
        self._model.counts.max_running = self._model.running
        self._counted_from = msgspec.structs.replace(self._model.counts)
        self._requests_seen.clear()

    def kill(self) -> None:
        """Ends as a process that dies: no more listening, every connection reset."""
        self._driver.close()
        if self._listener is not None:
            self._listener.refuse()
        self.killed.set()

    def _spawn_listen_again(self, after_s: float) -> None:
        async def listen_again() -> None:
            await asyncio.sleep(after_s)
            await self.set_faults(msgspec.structs.replace(self._faults, refuse_s=None))

        task = asyncio.create_task(listen_again())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _application(self) -> web.Application:
        app = web.Application(client_max_size=_MAX_BODY_BYTES, middlewares=[self._middleware])
        app.add_routes(
            [
                web.get("/sim/stats", self._get_stats),
                web.post("/sim/reset", self._post_reset),
                web.post("/sim/fault", self._post_fault),
                web.post("/v1/chat/completions", self._chat),
                web.post("/v1/completions", self._completion),
                web.post("/v1/embeddings", self._embedding),
                get_json("/v1/models", lambda: surface.model_list(self.settings, int(self._started_at))),
                web.get("/health", self._health),
                *token_routes(self.settings),
                *([] if self.settings.quiet else self._load_routes()),
            ]
        )
        return app

    def _load_routes(self) -> list[web.RouteDef]:
        settings = self.settings
        metrics = web.get("/metrics", self._metrics)
        if settings.kind == "llamacpp":
            return [
                metrics,
                get_json("/props", lambda: surface.llamacpp_props(settings, self._media_marker)),
                get_json("/slots", self._slots),
            ]
        if settings.kind == "sglang":
            return [
                metrics,
                get_json("/v1/loads", self._loads),
                get_json("/server_info", lambda: surface.sglang_server_info(settings)),
            ]
        routes = [metrics, get_json("/version", lambda: {"version": surface.VLLM_VERSION})]
        if settings.dev:
            routes.append(get_json("/server_info", lambda: surface.vllm_server_info(settings)))
        return routes

    @web.middleware
    async def _middleware(
        self, request: web.Request, handler: Callable[[web.Request], Any]
    ) -> web.StreamResponse:
        if self._listener is None or request.path.startswith("/sim/"):
            return await self._answer(request, handler)
        self._listener.note_busy(request.transport)
        if self._faults.reset:
            await self._die(request)
        if request.method == "POST":
            await self._note(request)
        response = (
            await self._limit(request) or await self._refusal(request) or await self._answer(request, handler)
        )
        if self._faults.close_idle_s is not None:
            self._listener.note_idle(request.transport, self._faults.close_idle_s)
        return response

    async def _answer(
        self, request: web.Request, handler: Callable[[web.Request], Any]
    ) -> web.StreamResponse:
        kind = self.settings.kind
        try:
            response: web.StreamResponse = await handler(request)
        except Refused as refused:
            response = json_reply(refused.body, refused.status)
        except web.HTTPNotFound:
            body = error_body(kind, 404, "File Not Found") if kind == "llamacpp" else {"detail": "Not Found"}
            response = json_reply(body, 404)
        if not response.prepared:
            response.headers["Server"] = _SERVER_NAMES[kind]
            # Seen on vLLM 0.32: its error answers end the connection.
            if kind == "vllm" and response.status >= 400:
                response.force_close()
        return response

    async def _note(self, request: web.Request) -> None:
        self.last_body = await request.read()
        self._last_headers = {name.lower(): value for name, value in request.headers.items()}
        if request.path.startswith("/v1/"):
            self._requests_seen.append(request.headers.get("x-request-id", ""))

    async def _limit(self, request: web.Request) -> web.StreamResponse | None:
        if request.method != "POST" or not request.path.startswith("/v1/"):
            return None
        loop = asyncio.get_running_loop()
        if self._bucket is not None and not self._bucket.admits(loop.time()):
            response = json_reply(_TOO_MANY, 429)
            response.headers["Retry-After"] = "1"
            return response
        if self._pacer is not None:
            await asyncio.sleep(self._pacer.delay_s(loop.time()))
        return None

    async def _refusal(self, request: web.Request) -> web.StreamResponse | None:
        kind, kill_on = self.settings.kind, self._faults.kill_on
        if request.method != "POST":
            return None
        # Not `last_body`: that can be another's by the time a limiter lets this one pass.
        raw = await request.read()
        if kill_on is not None and kill_on.encode() in raw:
            self.kill()
            await self._die(request)
        if self._faults.error_500:
            return json_reply(error_body(kind, 500, "Internal server error"), 500)
        if not self._faults.overload:
            return None
        error = error_body(kind, 503, _OVERLOADED[kind])
        if kind == "sglang" and self._wants_stream(raw):
            # SGLang has answered 200 before its scheduler refuses (its issue tracker and oh-my-pi#9812).
            event = {"error": {**error, "type": "SERVICE_UNAVAILABLE"}}
            body = b"data: " + msgspec.json.encode(event) + b"\n\ndata: [DONE]\n\n"
            return web.Response(body=body, content_type="text/event-stream")
        return json_reply(error, 503)

    def _wants_stream(self, raw: bytes) -> bool:
        try:
            return decode_body(raw, self.settings).get("stream") is True
        except Refused:
            return False

    async def _die(self, request: web.Request) -> None:
        reset(request.transport)
        # aiohttp cancels the handler of a lost connection.
        await asyncio.get_running_loop().create_future()

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._infer("chat", request)

    async def _completion(self, request: web.Request) -> web.StreamResponse:
        return await self._infer("completion", request)

    async def _embedding(self, request: web.Request) -> web.StreamResponse:
        return await self._infer("embedding", request)

    async def _infer(self, api: str, request: web.Request) -> web.StreamResponse:
        body = decode_body(await request.read(), self.settings)
        ask = read_ask(api, body, self.settings)
        work = Work(
            prompts=ask.prompts, outputs=ask.outputs, n=ask.n, salt=ask.salt, stall_s=self._faults.stall_s
        )
        ticket = self._driver.submit(work)
        writer = Writer(
            kind=self.settings.kind,
            model=str(body.get("model") or self.settings.model),
            ask=ask,
            job=ticket.job,
            created=int(self._wall_clock()),
        )
        try:
            if ask.stream and api != "embedding":
                headers = self._stream_headers()
                return await stream_answer(
                    request, headers, ticket, writer, self._faults, lambda: self._die(request)
                )
            async for _ in ticket.events():
                if self._faults.die_after_chunks == 0:
                    await self._die(request)
            return json_reply(writer.whole())
        finally:
            self._driver.leave(ticket)

    def _stream_headers(self) -> dict[str, str]:
        kind = self.settings.kind
        charset = "" if kind == "llamacpp" else "; charset=utf-8"
        return {"Content-Type": f"text/event-stream{charset}", "Server": _SERVER_NAMES[kind]}

    async def _health(self, _: web.Request) -> web.Response:
        if self._faults.slow_health_s is not None:
            await asyncio.sleep(self._faults.slow_health_s)
        return json_reply({"status": "ok"}) if self.settings.kind == "llamacpp" else web.Response()

    async def _metrics(self, _: web.Request) -> web.Response:
        self._driver.settle()
        text = surface.metrics_text(self.settings, self._model, self._started_at)
        response = web.Response(text=text, content_type="text/plain")
        if self.settings.kind == "llamacpp":
            # Milliseconds, so that a quick restart shows; live servers give no plain Unix seconds either.
            response.headers["Process-Start-Time-Unix"] = str(int(self._started_at * 1000))
        return response

    def _slots(self) -> object:
        self._driver.settle()
        return surface.llamacpp_slots(self.settings, self._model)

    def _loads(self) -> object:
        self._driver.settle()
        return surface.sglang_loads(self.settings, self._model, self._wall_clock())

    async def _get_stats(self, _: web.Request) -> web.Response:
        return json_reply(self.stats)

    async def _post_reset(self, _: web.Request) -> web.Response:
        self.reset_counts()
        return json_reply({})

    async def _post_fault(self, request: web.Request) -> web.StreamResponse:
        try:
            asked = msgspec.json.decode(await request.read(), type=_FaultBody)
            faults = parse_faults(asked.faults)
        except (msgspec.DecodeError, ValueError) as error:
            return json_reply({"error": str(error)}, 400)
        response = json_reply({"faults": asked.faults})
        # The answer goes out first: refusing resets this connection too.
        await response.prepare(request)
        await response.write_eof()
        await self.set_faults(faults)
        return response


class _FaultBody(Struct, frozen=True):
    faults: list[str]
