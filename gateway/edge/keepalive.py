"""Signs of life for streams whose engine is silent (`admission.keepalive`).

Proxies, load balancers and SDKs cut a connection on which nothing comes for a minute or five, and the retry
computes the same prompt again (litellm#34819, llama.cpp#22997). The first sign commits the answer to 200 and
an event stream; whatever comes after it is put in that form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from gateway.core.call import Header
from gateway.core.request import Request
from gateway.wire import http1, inband
from gateway.wire.errors import as_event
from gateway.wire.inflate import Inflater
from gateway.wire.pump import MAX_JSON_BYTES

if TYPE_CHECKING:
    from gateway.edge.client import ClientConnection

_COMMENT = b": keepalive\n\n"
_PING = b'event: ping\ndata: {"type":"ping"}\n\n'
"""Anthropic's own. Watchdogs of its clients count events, and a comment is none (jcode#976)."""

_KIND = (b"content-type", b"text/event-stream")


class Keepalive:
    """Stands between an exchange and its client, and takes the same calls. `beat` comes from the relay's
    sweep, so a sign is late by up to two sweeps."""

    def __init__(self, client: ClientConnection, request: Request, period_s: float, now: float) -> None:
        self._client = client
        self._api = request.api
        self._id = request.id.encode()
        self._period_s = period_s
        self._due = now + period_s
        self._sent = False
        self._wanted = True
        self._committed = False
        self._rewrites = False
        self._inflater: Inflater | None = None
        self._whole: _Whole | None = None

    def beat(self, now: float) -> None:
        exchange = self._client.exchange
        if self._sent:
            self._sent = False
            self._due = now + self._period_s
        elif now >= self._due and self._wanted and exchange is not None and not exchange.torn:
            # What a client does not read must not pile up.
            if self._client.paused:
                return
            self._due = now + self._period_s
            if not self._committed:
                self._commit()
            self._client.send_body(_PING if self._api == "messages" else _COMMENT)
            self._client.flush()

    # From the exchange

    @property
    def paused(self) -> bool:
        return self._client.paused

    def send_lines(self, status: int, lines: bytes, length: bytes | None) -> None:
        self._sent = True
        headers = http1.headers_in(lines)
        is_stream = http1.is_event_stream(headers)
        if not self._committed:
            self._committed = True
            self._wanted = is_stream
            self._client.send_lines(status, lines, length)
            return
        encoding = http1.header(headers, b"content-encoding") or b"identity"
        if encoding != b"identity":
            self._inflater = Inflater(encoding)
        if not is_stream or (self._inflater is not None and self._inflater.lost):
            engine = http1.header(headers, b"x-gateway-engine") or b"?"
            self._whole = _Whole(status, engine.decode())
        self._rewrites = self._inflater is not None or self._whole is not None
        if self._client.paused and self._client.exchange is not None:
            self._client.exchange.pause()

    def send_body(self, data: bytes) -> None:
        self._sent = True
        self._client.send_body(self._rewritten(data) if self._rewrites else data)

    def send_now(self, data: bytes) -> None:
        if self._rewrites:
            self.send_body(data)
            self._client.flush()
        elif data:
            self._sent = True
            self._client.send_now(data)

    def flush(self) -> None:
        self._client.flush()

    def send_end(self) -> None:
        if self._rewrites:
            self._client.send_body(self._rest())
        self._client.send_end()

    def end_body(self, *, close: bool = False) -> None:
        self._client.end_body(close=close or self._rewrites)

    def send_error(self, status: int, headers: list[Header], body: bytes) -> None:
        if self._committed:
            self._client.send_body(as_event(body, self._api))
            self._client.end_body(close=True)
        else:
            self._client.send_error(status, headers, body)

    def break_off(self, error: bytes) -> None:
        if self._whole is not None:
            self.send_error(0, [], error)
        else:
            self._client.break_off(error)

    def abort(self) -> None:
        self._client.abort()

    # Inside

    def _commit(self) -> None:
        self._committed = True
        self._client.send_head(200, [(b"x-request-id", self._id), _KIND, *http1.unbuffered(())], None)

    def _rewritten(self, data: bytes) -> bytes:
        """What can go out of an answer that has to be taken apart first."""
        if self._inflater is not None:
            data = self._inflater.feed(data)
        if self._whole is None:
            return data
        self._whole.keep(data)
        return b""

    def _rest(self) -> bytes:
        """What ends such an answer."""
        whole = self._whole
        if self._inflater is not None and self._inflater.lost:
            event = inband.unreadable(self._api, "its content-encoding cannot be undone")
            return event if whole is not None else b"\n\n" + event
        if whole is None:
            return b""
        if whole.too_long:
            return inband.unreadable(self._api, f"it has more than {MAX_JSON_BYTES} bytes and is no stream")
        return inband.answer(whole.status, whole.body, self._api, whole.engine)


Receiver: TypeAlias = "ClientConnection | Keepalive"
"""Whom an exchange answers."""


class _Whole:
    """An answer that is no stream, kept until it can be told in one event."""

    def __init__(self, status: int, engine: str) -> None:
        self.status = status
        self.engine = engine
        self.too_long = False
        self._pieces: list[bytes] = []
        self._size = 0

    @property
    def body(self) -> bytes:
        return b"".join(self._pieces)

    def keep(self, data: bytes) -> None:
        self._size += len(data)
        self.too_long = self._size > MAX_JSON_BYTES
        if self.too_long:
            self._pieces.clear()
        else:
            self._pieces.append(data)
