"""Agents that talk to a gateway, some of which leave; every request is counted exactly."""

import asyncio
import json
import random
from collections import Counter

import httptools

TURNS, TURN_BYTES, SYSTEM_BYTES = 8, 2400, 1200
"""New text in such amounts that the gateway's tables (core/lengths.py) are full by minute ten."""
HALF, AT_ONCE, LATER = 0.02, 0.03, 0.05
"""Shares of requests whose client leaves: inside the request, right behind it, and inside the answer."""
IDLE_S = 30.0
"""Below the gateway's `limits.keepalive_timeout`, so that no request meets a connection being closed."""


class Session:
    """A conversation whose prompts depend on its number alone."""

    def __init__(self, number: int) -> None:
        self._random = random.Random(number)  # noqa: S311
        self._number = number
        self._messages = [{"role": "system", "content": "You are an agent. " * (SYSTEM_BYTES // 18)}]
        self.turns = 0

    def request(self, *, stream: bool) -> bytes:
        self.turns += 1
        self._messages.append({"role": "user", "content": self._random.randbytes(TURN_BYTES // 2).hex()})
        body = json.dumps({"model": "m", "stream": stream, "messages": self._messages}).encode()
        head = (
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\ncontent-type: application/json\r\n"
            b"x-session-id: s-%d\r\ncontent-length: %d\r\n\r\n" % (self._number, len(body))
        )
        return head + body


class Connection(asyncio.Protocol):
    """One request at a time. Tells its load of every end, once."""

    def __init__(self, load: "Load") -> None:
        self._load = load
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._status = 0
        self._failed = False
        self._bytes_left = -1
        self.idle_since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    @property
    def usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def send(self, request: bytes, kind: str) -> None:
        if self._transport is None:
            self._load.ended("no connection", 0)
            return
        if kind == "half":
            self._transport.write(request[: self._load.random.randrange(1, len(request))])
            self._leave("half")
            return
        self._load.sent += 1
        self._transport.write(request)
        if kind == "at once":
            self._leave("left")
            return
        self._parser = httptools.HttpResponseParser(self)
        self._status, self._failed = 0, False
        self._bytes_left = self._load.random.randrange(1, 4000) if kind == "later" else -1

    def data_received(self, data: bytes) -> None:
        if self._parser is None:
            return
        self._parser.feed_data(data)
        if self._parser is not None and self._bytes_left >= 0:
            self._bytes_left -= len(data)
            if self._bytes_left < 0:
                self._leave("left")

    def eof_received(self) -> None:
        """The transport closes by itself."""

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._load.lost(self)
        if self._parser is not None:
            self._parser = None
            self._load.ended("cut", 0)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    # From the parser

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        self._status = self._parser.get_status_code()

    def on_body(self, data: bytes) -> None:
        # Behind an error inside a stream the gateway closes, which its head could not say.
        self._failed = self._failed or b'"error"' in data

    def on_message_complete(self) -> None:
        assert self._parser is not None
        keep = self._parser.should_keep_alive() and not self._failed and self._bytes_left < 0
        self._parser = None
        ok = self._status == 200 and not self._failed
        if not keep:
            self.close()
        self._load.ended("ok" if ok else "truncated" if self._status == 200 else "refused", self._status)
        if keep:
            self._load.free(self)

    def _leave(self, what: str) -> None:
        self._parser = None
        # Whatever was written still goes out before the end: only then is it known what the gateway has read.
        self.close()
        self._load.ended(what, 0)


class Load:
    """`sent` are requests that were written to their last byte; `counts` how all of them ended."""

    def __init__(self, host: str, port: int, sessions: int, universe: int, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311
        self.sent = 0
        self.running = 0
        self.counts: Counter[str] = Counter()
        self.statuses: Counter[int] = Counter()
        self._host, self._port = host, port
        self._universe = universe
        self._next = 0
        self._live = [self._session() for _ in range(sessions)]
        self._idle: list[Connection] = []
        self._all: set[Connection] = set()
        self._again = False
        self._starting: set[asyncio.Task[None]] = set()

    async def closed_loop(self, at_once: int, seconds: float) -> float:
        """Requests per second of `at_once` clients that never pause. Returns when the last is done."""
        before, self._again = self.sent, True
        for _ in range(at_once):
            self._start()
        await asyncio.sleep(seconds)
        self._again = False
        sent = self.sent - before
        for _ in range(1000):
            if not self.running:
                break
            await asyncio.sleep(0.03)
        return sent / seconds

    async def open_loop(self, rate: float, until_s: float, most: int) -> None:
        """`rate` requests per second until the loop's clock says `until_s`, `most` at once."""
        loop = asyncio.get_running_loop()
        due, last = 0.0, loop.time()
        while (now := loop.time()) < until_s:
            due = min(due + (now - last) * rate, rate)
            last = now
            while due >= 1.0:
                due -= 1.0
                if self.running < most:
                    self._start()
            await asyncio.sleep(0.005)

    def close(self) -> None:
        for connection in list(self._all):
            connection.close()

    # From the connections

    def ended(self, what: str, status: int) -> None:
        self.running -= 1
        self.counts[what] += 1
        if status:
            self.statuses[status] += 1
        if self._again:
            asyncio.get_running_loop().call_soon(self._start)

    def free(self, connection: Connection) -> None:
        connection.idle_since = asyncio.get_running_loop().time()
        self._idle.append(connection)

    def lost(self, connection: Connection) -> None:
        self._all.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    # Inside

    def _session(self) -> Session:
        self._next += 1
        return Session(self._next % self._universe)

    def _start(self) -> None:
        self.running += 1
        index = self.random.randrange(len(self._live))
        session = self._live[index]
        request = session.request(stream=self.random.random() < 0.6)
        if session.turns >= TURNS:
            self._live[index] = self._session()
        kind = self._kind()
        oldest = asyncio.get_running_loop().time() - IDLE_S
        while self._idle:
            connection = self._idle.pop()
            if connection.usable and connection.idle_since > oldest:
                connection.send(request, kind)
                return
            connection.close()
        task = asyncio.get_running_loop().create_task(self._connect(request, kind))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    def _kind(self) -> str:
        dice = self.random.random()
        if dice < HALF:
            return "half"
        if dice < HALF + AT_ONCE:
            return "at once"
        return "later" if dice < HALF + AT_ONCE + LATER else "whole"

    async def _connect(self, request: bytes, kind: str) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_connection(lambda: Connection(self), self._host, self._port)
        except OSError:
            self.ended("no connection", 0)
            return
        self._all.add(connection)
        connection.send(request, kind)
