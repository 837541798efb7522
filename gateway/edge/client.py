"""One client connection: requests in, one at a time; answers out, framed for the client's HTTP version.

The socket is read while a request runs: otherwise a client that leaves is not seen. What a client sends
ahead is kept up to `MAX_PIPELINED_BYTES`; no request is begun before the answers to earlier ones have been
read, so that a client which only writes cannot fill the memory.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import TYPE_CHECKING, cast

from gateway.core.call import Header
from gateway.wire import http1
from gateway.wire.errors import BadRequest
from gateway.wire.reader import Head, Incoming, RequestReader

if TYPE_CHECKING:
    from gateway.edge.exchange import Exchange
    from gateway.edge.relay import Relay

MAX_PIPELINED_BYTES = 64 * 1024

_TLS_BUFFER_BYTES = 64 * 1024
"""As much as a plain transport keeps; asyncio's own limit for TLS is 512 KiB on top of that."""

LINGER_S = 30.0
"""How long what follows the last answer is read and dropped, so that the answer is not lost to a reset."""
_NEVER = float("inf")
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class ClientConnection(asyncio.Protocol):
    def __init__(self, relay: Relay) -> None:
        self.paused = False
        self.exchange: Exchange | None = None
        self.deadline = _NEVER
        self._relay = relay
        self._reader = RequestReader(relay.limits.max_body_bytes)
        self._transport: asyncio.Transport | None = None
        self._incoming: Incoming | None = None
        self._ahead = b""
        self._refusal: BadRequest | None = None
        self._out: list[bytes] = []
        self._chunked = False
        self._ends_by_close = False
        self._closing = False
        self._deaf = False
        self._serving = False
        self._parting = False

    def limit_body(self, max_body_bytes: int) -> None:
        """From the next request on."""
        self._reader.max_body_bytes = max_body_bytes

    # From the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if not self._relay.register(self):
            self._transport.abort()
            return
        self.deadline = self._relay.now() + self._relay.limits.header_timeout_s
        # Without room for buffering a transport writes at once, not when all that has come has been handled;
        # TLS ones need some.
        high = 0 if self._transport.can_write_eof() else _TLS_BUFFER_BYTES
        self._transport.set_write_buffer_limits(high=high)

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        if self._incoming is not None or self.paused:
            self._keep(data)
        else:
            self._feed(data)

    def eof_received(self) -> None:
        """With a request running this is a client that left. Else the transport closes by itself, once all
        is written."""
        self._closing = True
        if self.exchange is not None:
            exchange, self.exchange = self.exchange, None
            exchange.client_left()
            self.abort()
        else:
            self.deadline = self._relay.now() + self._relay.limits.write_timeout_s

    def connection_lost(self, error: Exception | None) -> None:
        self._relay.unregister(self)
        self._transport = None
        self._closing = self._deaf = True
        if self.exchange is not None:
            exchange, self.exchange = self.exchange, None
            exchange.client_left()

    def pause_writing(self) -> None:
        self.paused = True
        if self.exchange is not None:
            self.exchange.pause()

    def resume_writing(self) -> None:
        self.paused = False
        if self.exchange is not None:
            self.exchange.resume()
        elif self._incoming is None and not self._serving:
            self._next()

    # From the relay

    @property
    def unwritten(self) -> bool:
        """Whether some of an answer is still to be read by the client."""
        return self._transport is not None and (self._parting or self._transport.get_write_buffer_size() > 0)

    def expired(self) -> None:
        """No request came in time, or the rest of one; or the client does not read or close."""
        if self._reader.reading and not self._closing:
            seconds = self._relay.limits.header_timeout_s
            message = (
                f"The request did not arrive within {seconds:g} s of its last byte (limits.header_timeout)."
            )
            self._refuse(BadRequest(message))
        else:
            self.abort()

    def shut_down(self) -> None:
        """No further request on this connection, but for one that is already on its way."""
        if self._incoming is not None:
            self._closing = True
        elif not self._reader.reading:
            self._close()

    # From the exchange or the relay's own answers

    def send_head(self, status: int, headers: list[Header], length: bytes | None) -> None:
        """`send_lines` of headers that are no lines yet."""
        self.send_lines(status, http1.lines(headers), length)

    def send_lines(self, status: int, lines: bytes, length: bytes | None) -> None:
        """An answer's head, of ready-made header `lines`. `length` None: chunked, or up to the end of the
        connection for HTTP/1.0."""
        incoming = self._incoming
        if self._transport is None or incoming is None:
            return
        head = incoming.head
        self._chunked = False
        framing = b""
        if status in (204, 304):
            # Without a body (RFC 9112, section 6.3): a last chunk would be taken for the next answer.
            pass
        elif length is not None:
            framing = b"content-length: %b\r\n" % length
        elif head.http10:
            self._closing = self._ends_by_close = True
        else:
            self._chunked = True
            framing = b"transfer-encoding: chunked\r\n"
        if not head.keep_alive or head.http10 or self._relay.closing:
            self._closing = True
        if self._closing:
            framing += b"connection: close\r\n"
        self._out.append(http1.response_head(status, lines, framing))

    def send_body(self, data: bytes) -> None:
        """What is sent leaves with `flush`, or with the answer's end: a system call costs more than all that
        is done for an event."""
        if self._transport is not None and data:
            self._out.append(http1.chunk(data) if self._chunked else data)

    def send_now(self, data: bytes) -> None:
        """`send_body` and `flush` of an answer whose head is out."""
        if self._out or not data or self._transport is None:
            self.send_body(data)
            self.flush()
        else:
            self._transport.write(http1.chunk(data) if self._chunked else data)

    def flush(self) -> None:
        out = self._out
        if out and self._transport is not None:
            self._out = []
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))

    def send_end(self) -> None:
        """The answer is complete. `end_body` is still to come: the client need not wait for what the gateway
        does in between."""
        if self._chunked:
            self._chunked = False
            self._out.append(http1.LAST_CHUNK)
        self.flush()

    def end_body(self, *, close: bool = False) -> None:
        """The answer is complete; the next request may begin."""
        if close:
            self._closing = True
        self.exchange = None
        if self._transport is None:
            return
        if self._out or self._chunked:
            self.send_end()
        self._incoming = None
        if self._closing:
            # The last 64 KiB that a TLS transport has taken are not counted by it: only its end tells.
            self._parting = not self._transport.can_write_eof()
            self._close()
        elif not self._serving:
            self._next()

    def send_error(self, status: int, headers: list[Header], body: bytes) -> None:
        self.send_whole(status, [(b"content-type", b"application/json"), *headers], body)

    def send_whole(self, status: int, headers: list[Header], body: bytes) -> None:
        """A complete answer of the gateway's own."""
        incoming = self._incoming
        if incoming is None:
            return
        self.send_head(status, headers, b"%d" % len(body))
        self._chunked = False
        if incoming.head.method != b"HEAD":
            self.send_body(body)
        self.end_body()

    def break_off(self, error: bytes) -> None:
        """End an answer that has begun and has no place for the JSON of an `error`."""
        self.abort()

    def abort(self) -> None:
        """Close at once, so that an answer which is not complete cannot be taken for one that is."""
        self._closing = self._deaf = True
        self.exchange = None
        if self._transport is None:
            return
        self.flush()
        if self._ends_by_close and (self._incoming is not None or self.unwritten):
            sock = self._transport.get_extra_info("socket")
            if sock is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self._transport.abort()

    # Inside

    def _feed(self, data: bytes) -> None:
        reader = self._reader
        fresh = not reader.reading
        try:
            reader.feed(data)
            self._refusal = reader.refusal
        except BadRequest as refusal:
            self._refusal = refusal
        self._deaf = self._refusal is not None
        if reader.ready or self._deaf:
            self._next()
        elif reader.reading:
            if reader.wants_continue and self._transport is not None:
                reader.wants_continue = False
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            if fresh or not reader.in_head:
                self.deadline = self._relay.now() + self._relay.limits.header_timeout_s

    def _next(self) -> None:
        """Serve what has arrived, in order, as long as answers come at once."""
        reader = self._reader
        while (reader.ready or self._ahead or self._refusal is not None) and self._is_free():
            if reader.ready:
                self._serve(reader.ready.popleft())
            elif self._refusal is not None:
                self._refuse(self._refusal)
                return
            else:
                data, self._ahead = self._ahead, b""
                self._feed(data)
                break
        if self._incoming is None and not self._closing:
            limits = self._relay.limits
            patience_s = limits.keepalive_timeout_s
            if self.paused:
                patience_s = limits.write_timeout_s
            elif reader.reading:
                # The next request has begun to come behind the last.
                patience_s = limits.header_timeout_s
            self.deadline = self._relay.now() + patience_s

    def _is_free(self) -> bool:
        """Whether the next request may be served."""
        return self._incoming is None and not self._closing and not self.paused

    def _serve(self, incoming: Incoming) -> None:
        self.deadline = _NEVER
        self._serving = True
        self._incoming = incoming
        try:
            self._relay.serve(self, incoming)
        finally:
            self._serving = False
        # The body goes with the exchange, which needs it only until its answer begins.
        incoming.body = b""

    def _keep(self, data: bytes) -> None:
        self._ahead += data
        if len(self._ahead) > MAX_PIPELINED_BYTES:
            self._closing = self._deaf = True
            self._ahead = b""
            if self._incoming is None:
                self._close()

    def _refuse(self, refusal: BadRequest) -> None:
        """Answer a request that cannot be read to its end, then listen for its rest without keeping it: a
        connection closed on unread bytes is reset, and the client would never see the answer."""
        self._deaf = True
        reader = self._reader
        # What broke before its first line was read must not go under the name of the request before it.
        url = reader.url if reader.reading and not reader.in_head else b""
        headers = reader.headers if reader.reading else []
        self._incoming = Incoming(Head(method=b"POST", url=url, headers=headers, keep_alive=False), b"")
        self._relay.refuse(self, self._incoming.head, refusal)

    def _close(self) -> None:
        """Say the end once everything is written, then wait for the client's, for a while: bytes that still
        come would reset a closed connection, and the answer with it (RFC 9112, section 9.6). Some clients
        send a line end behind their body."""
        self._closing = self._deaf = True
        if self._transport is None:
            return
        limits = self._relay.limits
        self.deadline = self._relay.now() + (limits.write_timeout_s if self.unwritten else LINGER_S)
        # Closing a TLS transport also drops what still comes, until the client has closed.
        if self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.close()
