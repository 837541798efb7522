"""Whole requests out of any split of bytes.

Parsing is llhttp's (`httptools`), which refuses conflicting lengths, bare LF and bad chunk sizes.
"""

from collections import deque

import httptools
from msgspec import Struct

from gateway.core.call import Header
from gateway.wire import http1
from gateway.wire.collector import HEAD_LIMIT, MAX_HEAD_BYTES, Collector, HeadTooLarge
from gateway.wire.errors import BadRequest
from gateway.wire.repeated import Repeated


class Head(Struct, kw_only=True):
    """A request's head. Header names are lower case; `url` is the raw target with its query.

    Requests of one connection share a head that comes again, whatever its content-length: `kept` is for
    what its reader makes of it.
    """

    method: bytes
    url: bytes
    headers: list[Header]
    keep_alive: bool = True
    http10: bool = False
    kept: object = None


class Incoming(Struct):
    """One whole request. `body` is empty once it has been handed on."""

    head: Head
    body: bytes


class _BadFraming(Exception):
    """What llhttp lets pass and another parser may read differently."""


_WRONG_VERSION = "Not a valid HTTP/1.1 request: its first line must end with HTTP/1.1 or HTTP/1.0."
_WRONG_CODING = "Not a valid HTTP/1.1 request: its Transfer-Encoding must be chunked, once and alone."
_WRONG_CODING_VERSION = "Not a valid HTTP/1.0 request: Transfer-Encoding needs HTTP/1.1."


class RequestReader(Collector):
    """Feeds on a client's bytes. Whole requests stand in `ready`, in order.

    `refusal` is set for a body over `max_body_bytes` (as it was when the request began): its rest is read and
    dropped, and nothing gets ready any more. `wants_continue` is set while a client waits for
    `100 Continue`. `reading` is true between a request's first byte and its last, `in_head` until its head
    is complete; `url` is its raw target, as far as it has come. What follows a request with
    `Connection: close` is ignored.
    """

    def __init__(self, max_body_bytes: int) -> None:
        super().__init__()
        self.ready: deque[Incoming] = deque()
        self.refusal: BadRequest | None = None
        self.wants_continue = False
        self.reading = False
        self.url = b""
        self.max_body_bytes = self._limit_bytes = max_body_bytes
        self._pieces: list[bytes] = []
        self._size = 0
        self._over = False
        self._repeated: Repeated[Head] = Repeated()
        self._parser = httptools.HttpRequestParser(self)

    def _again(self, data: bytes) -> Incoming | None:
        """The request in `data`, if that is one whole request with the head of the last one, and none is
        being read. llhttp has read that head before, and is between two requests."""
        repeated = self._repeated
        if self.reading or (body := repeated.body(data)) is None or len(body) > self.max_body_bytes:
            return None
        self._stalled_bytes = 0
        return Incoming(repeated.head, body)

    def feed(self, data: bytes) -> None:
        """Raises `BadRequest` for what is no HTTP/1.1; the connection cannot go on after that."""
        if self._over:
            return
        if (again := self._again(data)) is not None:
            self.ready.append(again)
            return
        fresh = not self.reading
        self._read(data)
        if fresh and self.ready and not (self.reading or self._over or self.refusal):
            last = self.ready[-1]
            self._repeated.learn(data, last.head, last.head.headers, len(last.body))

    def _read(self, data: bytes) -> None:
        try:
            self._parse(self._parser, data)
        except httptools.HttpParserUpgrade as upgrade:
            self._stay(data[upgrade.args[0] :])
        except HeadTooLarge as error:
            raise BadRequest(str(error), param="headers") from None
        except httptools.HttpParserCallbackError as error:
            raise BadRequest(str(error.__context__), param="headers") from None
        except httptools.HttpParserError as error:
            if not self._over:
                raise BadRequest(f"Not a valid HTTP/1.1 request: {error}.") from None

    def _stay(self, rest: bytes) -> None:
        """Go on with HTTP/1.1 where the client offers another protocol, as a server may (RFC 9110, section
        7.8): Java's HttpClient offers h2c with every first request. llhttp would drop the body, so it gets
        the head again without the offer."""
        method = self._parser.get_method()
        if method == b"CONNECT":
            raise BadRequest("This endpoint is no proxy: it does not take CONNECT.")
        if self.refusal is not None:
            return
        version = self._parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (method, self.url, version)]
        lines += [b"%b: %b" % item for item in http1.without_upgrade(self.headers)]
        self._parser = httptools.HttpRequestParser(self)
        self.feed(b"\r\n".join(lines) + b"\r\n\r\n" + rest)

    def on_message_begin(self) -> None:
        self.headers = []
        self.in_head = True
        self._head_bytes = self._headers = 0
        self.url = b""
        self._pieces = []
        self._size = 0
        self.reading = True
        self._limit_bytes = self.max_body_bytes

    def on_url(self, url: bytes) -> None:
        self._stalled_bytes = 0
        self.url += url
        self._head_bytes += len(url)
        if self._head_bytes > MAX_HEAD_BYTES:
            raise HeadTooLarge(HEAD_LIMIT)

    def on_headers_complete(self) -> None:
        self.in_head = False
        self._stalled_bytes = 0
        version = self._parser.get_http_version()
        if version not in ("1.1", "1.0"):
            raise _BadFraming(_WRONG_VERSION)
        length, expects = None, False
        for name, value in self.headers:
            if name == b"content-length":
                length = int(value)
            elif name == b"expect":
                expects = expects or http1.has_token(value, b"100-continue")
        if length is None:
            self._check_coding(version)
        elif length > self._limit_bytes:
            self._refuse(length)
        if expects and self.refusal is None:
            self.wants_continue = version != "1.0"

    def on_body(self, data: bytes) -> None:
        self.wants_continue = False
        self._stalled_bytes = 0
        self._size += len(data)
        if self._size > self._limit_bytes:
            self._refuse(None)
        if self.refusal is None:
            self._pieces.append(data)

    def on_message_complete(self) -> None:
        if self._parser.should_upgrade():
            return
        self.wants_continue = self.reading = False
        self._over = not self._parser.should_keep_alive()
        if self.refusal is not None:
            return
        pieces, self._pieces = self._pieces, []
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        head = Head(
            method=self._parser.get_method(),
            url=self.url,
            headers=self.headers,
            keep_alive=not self._over,
            http10=self._parser.get_http_version() == "1.0",
        )
        self.ready.append(Incoming(head, body))

    def _check_coding(self, version: str) -> None:
        """`chunked` is the only transfer coding read here, and HTTP/1.0 has none (RFC 9112, section 6.1)."""
        codings = [value.strip().lower() for name, value in self.headers if name == b"transfer-encoding"]
        if codings and codings != [b"chunked"]:
            raise _BadFraming(_WRONG_CODING)
        if codings and version == "1.0":
            raise _BadFraming(_WRONG_CODING_VERSION)

    def _refuse(self, length: int | None) -> None:
        if self.refusal is None:
            self._pieces = []
            size = f"has {length} bytes" if length is not None else "is too long"
            self.refusal = BadRequest(
                f"The request body {size}; the limit is {self._limit_bytes} bytes (limits.max_body).",
                code="body_too_large",
            )
