"""Connections to engines: one protocol per connection, a pool per engine. Their number is not limited
here: slots are, by leases, where it can be seen."""

import asyncio
import socket
import ssl
from typing import Protocol, cast
from urllib.parse import urlsplit

from gateway.core.call import Header, Prepared
from gateway.wire import http1
from gateway.wire.answers import AnswerReader
from gateway.wire.heads import Heads

IDLE_S = 4.0
"""Idle connections are dropped before uvicorn (vLLM, SGLang) and cpp-httplib close theirs, after 5 s: a
request on a dying connection is lost (llm-d-benchmark#1675, kserve#5446)."""

SETTLE_S = 1.0
"""llama-server announces keep-alive with a stream and closes right after its last chunk (seen on build
10434). So until an engine has kept a connection this long after a stream, none is reused after one: one at a
time is kept to see, the others are closed, as thousands of short streams would leave a socket each."""

_MAX_HEADS, _MAX_HEAD_BYTES = 128, 2048
"""So many heads that went to an engine are kept, none longer than that."""


class Attempt(Protocol):
    """One try of one request. Of `connected` and `connect_failed` exactly one is called."""

    def connected(self, connection: "EngineConnection") -> None: ...

    def connect_failed(self, error: OSError) -> None: ...

    def answered(self, connection: "EngineConnection") -> None: ...

    def flowed(self, piece: bytes) -> None:
        """One more piece of a stream that has begun and goes on: most of all calls."""

    def lost(self, connection: "EngineConnection", error: Exception | None) -> None: ...

    def crashed(self, error: Exception) -> None: ...


class EngineConnection(asyncio.Protocol):
    """At most one attempt at a time. `all_written`: nothing of its request waits for the engine to read.
    `flows` is the attempt's to set: a stream without a length has begun, of which it wants the pieces."""

    def __init__(self, pool: "Pool") -> None:
        self.reader = AnswerReader(pool.heads)
        self.all_written = True
        self.attempt: Attempt | None = None
        self.flows = False
        self.idle_since = 0.0
        self._pool = pool
        self._tls = pool.tls is not None
        self._ended = False
        self._is_paused = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        # With no room for buffering, pausing tells exactly what a lost transport cannot tell any more.
        self._transport.set_write_buffer_limits(high=0)
        if self._tls:
            self._tune_tls(self._transport)

    @staticmethod
    def _tune_tls(transport: asyncio.Transport) -> None:
        # With 0 uvloop's TLS transport pauses and resumes by turns (0.23.0, `_control_app_writing`).
        transport.set_write_buffer_limits(high=1, low=0)
        # While we do not read it still would, to 256 KiB, and forget all that if the engine closes.
        transport.set_read_buffer_limits(high=1, low=0)  # type: ignore[attr-defined]

    def pause_writing(self) -> None:
        self.all_written = False

    def resume_writing(self) -> None:
        self.all_written = True

    @property
    def usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def send(self, attempt: Attempt, head: bytes, body: bytes) -> None:
        assert self._transport is not None
        self.attempt = attempt
        if self._tls and len(body) > 1:
            # One call to a TLS transport hands all of it on. What comes after it is held back, and pauses us,
            # while more than 64 KiB of that (uvloop's limit) wait for the engine to read.
            self._transport.writelines((head, memoryview(body)[:-1]))
            self._transport.write(body[-1:])
            return
        self._transport.writelines((head, body) if body else (head,))

    def data_received(self, data: bytes) -> None:
        attempt = self.attempt
        if attempt is None:
            # An answer nobody asked for: the connection cannot be trusted.
            self.abort()
            return
        piece = None
        try:
            if self.flows:
                piece = self.reader.more(data)
            else:
                self.reader.feed(data)
        except ValueError as error:
            self.attempt = None
            self.abort()
            attempt.lost(self, error)
            return
        if piece is None:
            attempt.answered(self)
        else:
            attempt.flowed(piece)

    def eof_received(self) -> None:
        """Over TLS only for its own farewell (close_notify): a plain end may be anybody's doing, and is no
        end of an answer (RFC 9112, section 9.8)."""
        self._ended = True

    def connection_lost(self, error: Exception | None) -> None:
        self._pool.forget(self)
        attempt, self.attempt = self.attempt, None
        if attempt is None:
            return
        whole = self._ended or not self._tls or self.reader.complete
        if error is None and whole and self.reader.eof():
            attempt.answered(self)
        else:
            attempt.lost(self, error)

    def pause_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._is_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._is_paused and self._transport is not None and not self._transport.is_closing():
            self._is_paused = False
            self._transport.resume_reading()

    def release(self) -> None:
        """The answer is complete: back to the pool, if the engine keeps the connection."""
        self.attempt = None
        self.flows = False
        reader = self.reader
        # An engine that answered without reading the request to its end may never read the next one.
        keep = reader.keep_alive and self.all_written and self.usable
        streamed = reader.head.is_stream
        reader.reset()
        if keep:
            self.resume_reading()
            self._pool.keep(self, streamed)
        else:
            self.abort()

    def abort(self) -> None:
        """Close at once; the engine sees that nobody wants the answer."""
        self.attempt = None
        if self._transport is not None:
            self._transport.abort()


class Pool:
    """One engine's connections, with `tls` for an https URL. `prefix` is the path of its URL, put before
    every path."""

    def __init__(
        self,
        url: str,
        api_key: str | None,
        connect_timeout_s: float,
        loop: asyncio.AbstractEventLoop,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self.host = parts.hostname
        self.port = parts.port or (443 if tls else 80)
        self.tls = tls
        self.prefix = parts.path.rstrip("/").encode()
        self.host_header = parts.netloc.rpartition("@")[2].encode()
        self.secret = api_key.encode() if api_key else b""
        self.heads = Heads(self.secret)
        self._frames: dict[tuple[str, str, tuple[Header, ...]], http1.Frame] = {}
        self.connect_timeout_s = connect_timeout_s
        self._retired = False
        self._loop = loop
        self._idle: list[EngineConnection] = []
        self._all: set[EngineConnection] = set()
        self._connecting: set[asyncio.Task[None]] = set()
        self._keeps_streams = False
        self._on_probation: EngineConnection | None = None

    def request_head(self, prepared: Prepared, query: str, request_id: str) -> bytes:
        key = (prepared.path, query, prepared.headers)
        before, between, after = self._frames.get(key) or self._frame(key)
        return b"%b%d%b%b%b" % (before, len(prepared.body), between, request_id.encode(), after)

    def _frame(self, key: tuple[str, str, tuple[Header, ...]]) -> http1.Frame:
        """Remembered: a client's head is mostly that of its last request."""
        path, query, headers = key
        more = b"authorization: Bearer %b\r\n" % self.secret if self.secret else b""
        target = self.prefix + (path + query).encode()
        frame = http1.request_frame(target, self.host_header, http1.lines(headers), more)
        if sum(map(len, frame)) <= _MAX_HEAD_BYTES:
            if len(self._frames) >= _MAX_HEADS:
                self._frames.clear()
            self._frames[key] = frame
        return frame

    def idle(self) -> EngineConnection | None:
        """The connection that was used last, if one is open and young enough."""
        idle = self._idle
        oldest = self._loop.time() - IDLE_S if idle else 0.0
        while idle:
            connection = idle.pop()
            if connection.idle_since >= oldest and connection.usable:
                return connection
            connection.abort()
        return None

    def connect(self, attempt: Attempt) -> None:
        task = self._loop.create_task(self._connect(attempt))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    def keep(self, connection: EngineConnection, streamed: bool) -> None:
        connection.idle_since = self._loop.time()
        if self._retired:
            connection.abort()
        elif not streamed or self._keeps_streams:
            self._idle.append(connection)
        elif self._on_probation is None:
            self._on_probation = connection
            self._loop.call_later(SETTLE_S, self._settled, connection)
        else:
            connection.abort()

    def forget(self, connection: EngineConnection) -> None:
        self._all.discard(connection)
        if connection is self._on_probation:
            self._on_probation = None
        if connection in self._idle:
            self._idle.remove(connection)
            if connection.idle_since > self._loop.time() - IDLE_S:
                # The engine closed it: perhaps another program has this address now.
                self._keeps_streams = False

    def _settled(self, connection: EngineConnection) -> None:
        if connection is self._on_probation and connection.usable:
            self._on_probation = None
            self._keeps_streams = True
            self._idle.append(connection)

    def trim(self) -> None:
        """Close what has been idle too long."""
        oldest = self._loop.time() - IDLE_S
        for connection in [it for it in self._idle if it.idle_since < oldest]:
            connection.abort()

    def retire(self) -> None:
        """No further request comes: what is idle closes now, the rest when its answer is complete."""
        self._retired = True
        for connection in [it for it in self._all if it.attempt is None]:
            connection.abort()

    @property
    def in_use(self) -> bool:
        return bool(self._all or self._connecting)

    def close(self) -> None:
        for task in self._connecting:
            task.cancel()
        for connection in list(self._all):
            connection.abort()

    async def _connect(self, attempt: Attempt) -> None:
        try:
            async with asyncio.timeout(self.connect_timeout_s):
                _, connection = await self._loop.create_connection(
                    lambda: EngineConnection(self),
                    self.host,
                    self.port,
                    ssl=self.tls,
                    ssl_shutdown_timeout=self.connect_timeout_s if self.tls else None,
                )
        except TimeoutError:
            text = f"no connection to {self.host}:{self.port} within {self.connect_timeout_s:g} s"
            attempt.connect_failed(OSError(text))
        except OSError as error:
            attempt.connect_failed(error)
        except Exception as error:
            # Not a failure of the engine, but the request must not hold its lease for ever.
            self._loop.call_exception_handler({"message": "no connection could be made", "exception": error})
            attempt.crashed(error)
        else:
            self._tune(connection)
            self._all.add(connection)
            self._hand_over(connection, attempt)

    def _hand_over(self, connection: EngineConnection, attempt: Attempt) -> None:
        try:
            attempt.connected(connection)
        except Exception as error:
            self._loop.call_exception_handler({"message": "a call could not be sent", "exception": error})
            attempt.crashed(error)

    @staticmethod
    def _tune(connection: EngineConnection) -> None:
        transport = connection._transport
        sock = transport.get_extra_info("socket") if transport is not None else None
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
