"""What relaying costs on one core: an aiohttp handler, a bare protocol, the gateway, HAProxy, in one run.

usage: python benchmarks/hot_path.py [--rounds 3] [--seconds 3]

The relay is pinned to core 0, the engine and the load (wrk) to core 1. The engine answers at once: 2 KB
prompts with plain JSON, and with 32 events in one burst; or, for 100 open streams, an event each 10 ms.
The aiohttp handler and the bare protocol (asyncio.Protocol with httptools) both parse the body, send it on
and write what comes back: no routing, no slots, no accounting. The gateway does all of that. Prints medians
and each relay's ratio to the aiohttp handler.
"""

import argparse
import asyncio
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

EVENTS = 32
PACED_EVENTS, PACED_STREAMS, GAP_S = 50, 100, 0.01
HTTP_OK = b"HTTP/1.1 200 OK\r\n"
MESSAGES = [{"role": "system", "content": "You are helpful. " * 120}, {"role": "user", "content": "hi"}]


class Engine(asyncio.Protocol):
    """Answers any POST with JSON or events, anything else with a model list. No engine, a measuring stick."""

    def __init__(self, paced: bool) -> None:
        self._paced = paced
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:end].lower()
            found = re.search(rb"content-length: *(\d+)", head)
            size = end + 4 + (int(found[1]) if found else 0)
            if b"transfer-encoding: chunked" in head:
                last = self._buffer.find(b"0\r\n\r\n", end)
                size = last + 5 if last >= 0 else sys.maxsize
            if len(self._buffer) < size:
                return
            request, self._buffer = self._buffer[:size], self._buffer[size:]
            self._answer(request)

    def _answer(self, request: bytes) -> None:
        if not request.startswith(b"POST"):
            self._transport.write(whole({"data": [{"id": "m", "object": "model", "owned_by": "vllm"}]}))
        elif b'"stream": true' not in request:
            self._transport.write(whole({"choices": [{"message": {"content": "hello"}}], "usage": USAGE}))
        elif self._paced:
            self._task = asyncio.ensure_future(self._pace())
        else:
            self._transport.write(STREAM_HEAD + EVENT * EVENTS + STREAM_TAIL)

    async def _pace(self) -> None:
        self._transport.write(STREAM_HEAD)
        for _ in range(PACED_EVENTS):
            await asyncio.sleep(GAP_S)
            self._transport.write(EVENT)
        self._transport.write(STREAM_TAIL)


def whole(value: object) -> bytes:
    body = json.dumps(value).encode()
    return HTTP_OK + b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body


def event(value: object) -> bytes:
    text = b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(text), text)


USAGE = {"prompt_tokens": 500, "completion_tokens": EVENTS, "prompt_tokens_details": {"cached_tokens": 480}}
EVENT = event({"id": "x", "choices": [{"index": 0, "delta": {"content": " hello"}, "finish_reason": None}]})
STREAM_HEAD = HTTP_OK + b"content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
STREAM_TAIL = (
    event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    + event({"choices": [], "usage": USAGE})
    + event(b"[DONE]")
    + b"0\r\n\r\n"
)


async def aiohttp_handler(port: int, engine: str) -> None:
    from aiohttp import ClientSession, ClientTimeout, TCPConnector, web

    session = ClientSession(connector=TCPConnector(limit=0), timeout=ClientTimeout(total=None))

    async def relay(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        json.loads(body)
        headers = {"content-type": "application/json"}
        async with session.post(engine + request.path_qs, data=body, headers=headers) as answer:
            if answer.content_type != "text/event-stream":
                return web.Response(body=await answer.read(), content_type="application/json")
            out = web.StreamResponse(headers={"content-type": "text/event-stream"})
            await out.prepare(request)
            async for piece in answer.content.iter_any():
                await out.write(piece)
            await out.write_eof()
            return out

    app = web.Application(client_max_size=1 << 26)
    app.router.add_post("/{path:.*}", relay)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


class BareClient(asyncio.Protocol):
    """The least a relay must do, by hand: one connection to the engine for each client's."""

    def __init__(self, engine_port: int) -> None:
        self._engine_port = engine_port
        self._engine: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        import httptools

        self._transport = transport
        self._parser = httptools.HttpRequestParser(self)
        self._body = b""

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, data: bytes) -> None:
        self._body += data

    def on_message_complete(self) -> None:
        json.loads(self._body)
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: e\r\ncontent-length: %d\r\n\r\n" % len(
            self._body
        )
        request, self._body = head + self._body, b""
        if self._engine is not None:
            self._engine.write(request)
        else:
            self._connecting = asyncio.ensure_future(self._connect(request))

    async def _connect(self, request: bytes) -> None:
        loop = asyncio.get_running_loop()
        answer = BareAnswer(self._transport)
        self._engine, _ = await loop.create_connection(lambda: answer, "127.0.0.1", self._engine_port)
        self._engine.write(request)

    def connection_lost(self, error: Exception | None) -> None:
        if self._engine is not None:
            self._engine.close()


class BareAnswer(asyncio.Protocol):
    """Parses the engine's answer and frames it again for the client."""

    def __init__(self, client: asyncio.BaseTransport) -> None:
        import httptools

        self._client = client
        self._parser = httptools.HttpResponseParser(self)
        self._headers: list[bytes] = []
        self._pieces: list[bytes] = []
        self._done = False

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)
        out = b"".join(self._pieces)
        if out:
            self._client.write(b"%x\r\n%b\r\n" % (len(out), out))
            self._pieces = []
        if self._done:
            self._client.write(b"0\r\n\r\n")
            self._done = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() not in (b"content-length", b"transfer-encoding"):
            self._headers.append(name + b": " + value)

    def on_headers_complete(self) -> None:
        lines = [b"HTTP/1.1 200 OK", *self._headers, b"transfer-encoding: chunked"]
        self._client.write(b"\r\n".join(lines) + b"\r\n\r\n")
        self._headers = []

    def on_body(self, data: bytes) -> None:
        self._pieces.append(data)

    def on_message_complete(self) -> None:
        self._done = True


async def bare_protocol(port: int, engine_port: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: BareClient(engine_port), "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


async def engine(port: int, paced: bool) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Engine(paced), "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


@contextmanager
def process(command: list[str], core: int) -> Iterator[subprocess.Popen[bytes]]:
    pinned = ["taskset", "-c", str(core), *command]
    child = subprocess.Popen(pinned, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield child
    finally:
        child.terminate()
        child.wait(10)


def wait_for(port: int) -> None:
    body = json.dumps({"model": "m", "messages": []}).encode()
    for _ in range(100):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/chat/completions", body, timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise SystemExit(f"nothing answers on port {port}")


def load(port: int, script: str, connections: int, seconds: int) -> float:
    """Requests per second."""
    command = ["taskset", "-c", "1", "wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-s", script]
    out = subprocess.run(
        [*command, f"http://127.0.0.1:{port}/v1/chat/completions"], capture_output=True, text=True
    )
    if "Non-2xx" in out.stdout or "Socket errors" in out.stdout:
        raise SystemExit(f"bad answers:\n{out.stdout}")
    return float(re.search(r"Requests/sec:\s+([\d.]+)", out.stdout)[1])


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def relay_command(name: str, port: int, engine_port: int, folder: str) -> list[str]:
    target = f"http://127.0.0.1:{engine_port}"
    if name == "gateway":
        serve = [sys.executable, "-m", "gateway", "--log-level", "error", "serve"]
        return [
            *serve,
            "--engine",
            f"{target},slots=1024",
            "--listen",
            f"127.0.0.1:{port}",
            "--admin",
            "127.0.0.1:0",
        ]
    if name in ("aiohttp", "protocol"):
        return [sys.executable, __file__, "--role", name, "--port", str(port), "--target", target]
    path = Path(folder, f"haproxy-{port}.cfg")
    path.write_text(
        "global\n nbthread 1\ndefaults\n mode http\n timeout client 60s\n timeout server 60s\n"
        f" timeout connect 5s\nlisten l\n bind 127.0.0.1:{port}\n server e 127.0.0.1:{engine_port}\n"
    )
    return ["haproxy", "-f", str(path)]


def scripts(folder: str) -> dict[str, str]:
    paths = {}
    for name, stream in (("json", False), ("stream", True)):
        body = json.dumps({"model": "m", "stream": stream, "messages": MESSAGES})
        lua = f'wrk.method="POST"; wrk.headers["content-type"]="application/json"; wrk.body=[==[{body}]==]\n'
        paths[name] = f"{folder}/{name}.lua"
        Path(paths[name]).write_text(lua)
    return paths


def measure(name: str, base_port: int, seconds: int, folder: str) -> dict[str, float]:
    lua = scripts(folder)
    out = {}
    with process(relay_command(name, base_port, 19701, folder), 0):
        wait_for(base_port)
        load(base_port, lua["json"], 16, 1)
        out["json requests/s"] = load(base_port, lua["json"], 16, seconds)
        out["burst requests/s"] = load(base_port, lua["stream"], 16, seconds)
    with process(relay_command(name, base_port + 1, 19702, folder), 0) as relay:
        wait_for(base_port + 1)
        before = cpu_s(relay.pid)
        rate = load(base_port + 1, lua["stream"], PACED_STREAMS, seconds + 2)
        events = rate * (seconds + 2) * (PACED_EVENTS + 3)
        out["CPU µs/event"] = (cpu_s(relay.pid) - before) / events * 1e6
    return out


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--role", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--target", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.role:
        import uvloop

        if arguments.role == "aiohttp":
            uvloop.run(aiohttp_handler(arguments.port, arguments.target))
        elif arguments.role == "protocol":
            uvloop.run(bare_protocol(arguments.port, int(arguments.target.rpartition(":")[2])))
        else:
            uvloop.run(engine(arguments.port, arguments.role == "paced"))
        return
    if not shutil.which("wrk") or not shutil.which("taskset"):
        raise SystemExit("needs wrk and taskset")
    names = ["aiohttp", "protocol", "gateway"] + (["haproxy"] if shutil.which("haproxy") else [])
    results: dict[str, dict[str, list[float]]] = {name: {} for name in names}
    me = [sys.executable, __file__, "--role"]
    with (
        tempfile.TemporaryDirectory() as folder,
        process([*me, "burst", "--port", "19701"], 1),
        process([*me, "paced", "--port", "19702"], 1),
    ):
        wait_for(19701)
        wait_for(19702)
        for round_ in range(arguments.rounds):
            for index, name in enumerate(names):
                figures = measure(name, 19710 + 10 * index + 2 * round_, arguments.seconds, folder)
                for what, value in figures.items():
                    results[name].setdefault(what, []).append(value)
    medians = {name: {what: statistics.median(v) for what, v in row.items()} for name, row in results.items()}
    for what in medians["aiohttp"]:
        print(what)
        for name in names:
            value, base = medians[name][what], medians["aiohttp"][what]
            print(f"  {name:8} {value:10.1f}   {value / base:5.2f} x aiohttp")


if __name__ == "__main__":
    main()
