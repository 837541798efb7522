"""Answer heads that come again: an engine writes the same one each time, but for the digits of its length.

What llhttp has read once, and what the client is to get of it, is kept and found again by its bytes.
"""

from msgspec import Struct

from gateway.core.call import Header
from gateway.wire import http1
from gateway.wire.repeated import Shape, shape_of

_TRIES = 8
"""After so many heads in a row that were new, as with an id in each, only one in as many is kept."""


class AnswerHead:
    """What is told of an engine's headers: `lines` go to the client, for a stream with `unbuffered` after
    them, which keeps proxies from holding it back."""

    __slots__ = ("encoding", "is_stream", "lines", "unbuffered")

    def __init__(self, headers: list[Header], secret: bytes) -> None:
        kept = http1.for_client(headers, secret)
        self.lines = http1.lines(kept)
        self.encoding = http1.header(headers, b"content-encoding") or b"identity"
        self.is_stream = http1.is_event_stream(headers)
        self.unbuffered = http1.lines(http1.unbuffered(kept)) if self.is_stream else b""


class Form(Struct, frozen=True, eq=False):
    """An answer's head of status 200 and more with a length. `headers` has that at `at`."""

    shape: Shape
    status: int
    headers: list[Header]
    at: int
    head: AnswerHead


class Heads:
    """Of one engine, for all its connections. `secret` is its key, which no client gets to see."""

    def __init__(self, secret: bytes = b"") -> None:
        self.form: Form | None = None
        self.misses = 0
        self._secret = secret
        self._headers: list[Header] = []
        self._head = AnswerHead([], secret)

    def told(self, headers: list[Header]) -> AnswerHead:
        """What `headers` come to, made once for those that come again."""
        if headers != self._headers:
            self._head = AnswerHead(headers, self._secret)
            self._headers = headers
        return self._head

    def learn(self, data: bytes, status: int, headers: list[Header], body_bytes: int) -> None:
        """`data` began an answer and had its whole head, and llhttp took it for `status` and `headers` with
        `body_bytes` behind it."""
        self.misses += 1
        if self.misses > _TRIES and self.misses % _TRIES:
            return
        shape = shape_of(data, headers)
        digits = shape.digits(data) if shape is not None else None
        if shape is None or digits is None or status in (204, 304):
            return
        # It must be certain that this is the head that llhttp has read so.
        here = min(int(digits), len(data) - shape.bytes - len(digits))
        if data.startswith(b"HTTP/1.1 %d " % status) and body_bytes == here:
            at = [name for name, _ in headers].index(b"content-length")
            self.form = Form(shape, status, headers, at, self.told(headers))
