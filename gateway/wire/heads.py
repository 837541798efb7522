"""Answer heads that come again: an engine writes the same one each time, but for the digits of its length.

What llhttp has read once, and what the client is to get of it, is kept and found again by its bytes.
"""

from gateway.core.call import Header
from gateway.wire import http1

_MAX_BYTES = 4096
"""A longer head is read anew each time, far below the limits that it would have to be held against."""

_TRIES = 8
"""After so many heads in a row that were new, as with an id in each, only one in as many is kept."""

_MAX_DIGITS = 9
_LENGTH = b"\r\ncontent-length:"
_END = b"\r\n\r\n"
# What frames a body in another way than by its length, or ends HTTP/1.1.
_OTHER_FRAMING = frozenset((b"transfer-encoding", b"upgrade", b"trailer"))


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


class Form:
    """A head of status 200 and more with a length, as bytes `before` and `after` its digits; `headers` has
    them at `at`. It has `bytes` beside its digits."""

    __slots__ = ("after", "at", "before", "bytes", "head", "headers", "start", "status", "window")

    def __init__(
        self, before: bytes, after: bytes, status: int, headers: list[Header], at: int, head: AnswerHead
    ) -> None:
        self.head = head
        self.before = before
        self.after = after
        self.status = status
        self.headers = headers
        self.at = at
        self.start = len(before)
        self.bytes = len(before) + len(after)
        self.window = self.bytes + _MAX_DIGITS

    def digits(self, data: bytes) -> bytes | None:
        """The length in the head that `data` begins with, if that is of this form."""
        if not data.startswith(self.before):
            return None
        start = self.start
        end = data.find(self.after, start, self.window)
        digits = data[start:end]
        return digits if end > 0 and digits.isdigit() else None


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
        end = data.find(_END, 0, _MAX_BYTES) + len(_END)
        names = [name for name, _ in headers]
        if end < len(_END) or names.count(b"content-length") != 1 or not _OTHER_FRAMING.isdisjoint(names):
            return
        at = names.index(b"content-length")
        digits = headers[at][1]
        raw = data[:end]
        start = _value_at(raw, _LENGTH)
        # It must be certain that these are the bytes that llhttp has read so.
        if (
            start < 0
            or status in (204, 304)
            or not raw.startswith(b"HTTP/1.1 %d " % status)
            or not digits.isdigit()
            or len(digits) > _MAX_DIGITS
            or not raw.startswith(digits, start)
            or body_bytes != min(int(digits), len(data) - end)
        ):
            return
        self.form = Form(raw[:start], raw[start + len(digits) :], status, headers, at, self.told(headers))


def _value_at(raw: bytes, name: bytes) -> int:
    """Where the value of the one header `name` begins, -1 if there is not just one."""
    lower = raw.lower()
    at = lower.find(name)
    if at < 0 or lower.find(name, at + 1) >= 0:
        return -1
    at += len(name)
    while raw[at] in b" \t":
        at += 1
    return at
