"""Whole requests and pieces of answers out of any split of bytes.

Parsing is llhttp's (`httptools`), which refuses conflicting lengths, bare LF and bad chunk sizes.
"""

from collections import deque

import httptools
from msgspec import Struct

from gateway.core.call import Header
from gateway.wire import http1
from gateway.wire.errors import BadRequest

MAX_HEAD_BYTES = 64 * 1024
MAX_HEADERS = 200


class Incoming(Struct, frozen=True, kw_only=True):
    """One whole request. Header names are lower case; `url` is the raw target with its query."""

    method: bytes
    url: bytes
    headers: list[Header]
    body: bytes
    keep_alive: bool
    http10: bool


class _HeadTooLarge(Exception):
    pass


class _Collector:
    """What llhttp's callbacks for a head have in common."""

    def __init__(self) -> None:
        self.headers: list[Header] = []
        self._head_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))
        self._count(len(name) + len(value) + 4)
        if len(self.headers) > MAX_HEADERS:
            raise _HeadTooLarge(f"The head has more than {MAX_HEADERS} headers.")

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD_BYTES:
            raise _HeadTooLarge(f"The head is larger than {MAX_HEAD_BYTES} bytes.")


class RequestReader(_Collector):
    """Feeds on a client's bytes. Whole requests stand in `ready`, in order.

    `refusal` is set for a body over `max_body_bytes`: its rest is read and dropped, `drained` tells when
    that is done. `wants_continue` is set while a client waits for `100 Continue`. `reading` is true between a
    request's first byte and its last, `in_head` until its head is complete.
    """

    def __init__(self, max_body_bytes: int) -> None:
        super().__init__()
        self.ready: deque[Incoming] = deque()
        self.refusal: BadRequest | None = None
        self.drained = False
        self.wants_continue = False
        self.reading = False
        self.in_head = False
        self._max_body_bytes = max_body_bytes
        self._url = b""
        self._pieces: list[bytes] = []
        self._size = 0
        self._unparsed = 0
        self._parser = httptools.HttpRequestParser(self)

    def feed(self, data: bytes) -> None:
        """Raises `BadRequest` for what is no HTTP/1.1; the connection cannot go on after that."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            raise BadRequest("This endpoint does not speak the protocol named in 'upgrade'.") from None
        except httptools.HttpParserCallbackError as error:
            raise BadRequest(str(error.__context__), param="headers") from None
        except httptools.HttpParserError as error:
            raise BadRequest(f"Not a valid HTTP/1.1 request: {error}.") from None

    def on_message_begin(self) -> None:
        self.headers = []
        self._url = b""
        self._pieces = []
        self._size = self._head_bytes = 0
        self.reading = self.in_head = True

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._count(len(url))

    def on_headers_complete(self) -> None:
        self.in_head = False
        length = http1.header(self.headers, b"content-length")
        if length is not None and int(length) > self._max_body_bytes:
            self._refuse(int(length))
        elif http1.is_listed(self.headers, b"expect", b"100-continue"):
            self.wants_continue = True

    def on_body(self, data: bytes) -> None:
        self.wants_continue = False
        self._size += len(data)
        if self._size > self._max_body_bytes:
            self._refuse(None)
        if self.refusal is None:
            self._pieces.append(data)

    def on_message_complete(self) -> None:
        self.wants_continue = self.reading = False
        if self.refusal is not None:
            self.drained = True
            return
        pieces = self._pieces
        self.ready.append(
            Incoming(
                method=self._parser.get_method(),
                url=self._url,
                headers=self.headers,
                body=pieces[0] if len(pieces) == 1 else b"".join(pieces),
                keep_alive=self._parser.should_keep_alive(),
                http10=self._parser.get_http_version() == "1.0",
            )
        )

    def _refuse(self, length: int | None) -> None:
        if self.refusal is None:
            self._pieces = []
            size = f"has {length} bytes" if length is not None else "is too long"
            self.refusal = BadRequest(
                f"The request body {size}; the limit is {self._max_body_bytes} bytes (limits.max_body).",
                code="body_too_large",
            )


class AnswerReader(_Collector):
    """Feeds on an engine's bytes, for one answer after another. After each `feed`: `status` is set once
    the head is complete, `take` gives the body bytes that came, `complete` says that it was the last."""

    def __init__(self) -> None:
        super().__init__()
        self.status = 0
        self.complete = False
        self.keep_alive = False
        self.any_byte = False
        self._pieces: list[bytes] = []
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        """Raises `ValueError` for what is no HTTP/1.1 answer."""
        self.any_byte = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            raise ValueError("the engine switched protocols") from None
        except httptools.HttpParserCallbackError as error:
            raise ValueError(str(error.__context__)) from None
        except httptools.HttpParserError as error:
            raise ValueError(f"the engine's answer is not valid HTTP/1.1: {error}") from None

    def take(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def eof(self) -> bool:
        """The engine closed: whether that is how this answer says that it is complete."""
        ends_so = (
            self.status > 0
            and http1.header(self.headers, b"content-length") is None
            and not http1.is_listed(self.headers, b"transfer-encoding", b"chunked")
        )
        self.complete = self.complete or ends_so
        return self.complete

    def reset(self) -> None:
        """Ready for the next answer on the same connection."""
        self.status = 0
        self.complete = self.any_byte = False

    def on_message_begin(self) -> None:
        self.headers = []
        self._head_bytes = 0

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200:
            self.status = status

    def on_body(self, data: bytes) -> None:
        self._pieces.append(data)

    def on_message_complete(self) -> None:
        if self.status:
            self.complete = True
            self.keep_alive = self._parser.should_keep_alive()
