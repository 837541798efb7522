"""Heads that come again: a client's next request, or an engine's next answer, mostly begins with the bytes of
the last one, but for the digits of its length."""

from collections.abc import Sequence
from typing import Generic, TypeVar

from gateway.core.call import Header

MAX_HEAD_BYTES = 4096
"""A longer head is read anew each time, far below the limits that it would have to be held against."""

_TRIES = 8
"""So many heads in a row that did not come again, one with a time or an id in it say, and no more are
remembered on this connection."""

_MAX_DIGITS = 15
_LENGTH = b"\r\ncontent-length:"
_END = b"\r\n\r\n"
# What frames a body in another way than by its length, or asks for more than an answer.
_OTHER_FRAMING = frozenset((b"transfer-encoding", b"upgrade", b"trailer", b"expect"))

H = TypeVar("H")


class Shape:
    """The bytes of a head before and after the digits of its one content-length: so many `bytes`."""

    __slots__ = ("after", "before", "bytes", "start", "window")

    def __init__(self, before: bytes, after: bytes) -> None:
        self.before = before
        self.after = after
        self.start = len(before)
        self.bytes = len(before) + len(after)
        self.window = self.bytes + _MAX_DIGITS

    def digits(self, data: bytes) -> bytes | None:
        """The length in the head that `data` begins with, if that is of this shape."""
        if not data.startswith(self.before):
            return None
        start = self.start
        end = data.find(self.after, start, self.window)
        digits = data[start:end]
        return digits if end > 0 and digits.isdigit() else None


def shape_of(data: bytes, headers: Sequence[Header]) -> Shape | None:
    """That of the head that `data` begins with, if it is certain that llhttp has read `headers` in just these
    bytes, and that a body follows whose length they tell."""
    end = data.find(_END, 0, MAX_HEAD_BYTES) + len(_END)
    names = [name for name, _ in headers]
    if end < len(_END) or names.count(b"content-length") != 1 or not _OTHER_FRAMING.isdisjoint(names):
        return None
    digits = headers[names.index(b"content-length")][1]
    raw = data[:end]
    start = _value_at(raw, _LENGTH)
    if start < 0 or not digits.isdigit() or len(digits) > _MAX_DIGITS:
        return None
    return Shape(raw[:start], raw[start + len(digits) :]) if raw.startswith(digits, start) else None


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


class Repeated(Generic[H]):
    """The last head of a connection, with the `head` that the parser made of it: that holds when it comes
    again, and that it is valid."""

    __slots__ = ("_shape", "_tries", "head")

    head: H

    def __init__(self) -> None:
        self._shape: Shape | None = None
        self._tries = _TRIES

    def body(self, data: bytes) -> bytes | None:
        """What follows the head, if `data` is one whole message with the same head."""
        shape = self._shape
        if shape is None or (digits := shape.digits(data)) is None:
            return None
        start = shape.bytes + len(digits)
        if len(data) != start + int(digits):
            return None
        self._tries = _TRIES
        return data[start:]

    def learn(self, data: bytes, head: H, headers: Sequence[Header], body_bytes: int) -> None:
        """`data` began with `head`, and ends with its body of `body_bytes`; another may have been between."""
        if not self._tries:
            return
        self._tries -= 1
        self._shape = None
        shape = shape_of(data, headers)
        digits = shape.digits(data) if shape is not None else None
        if shape is None or digits is None or int(digits) != body_bytes:
            return
        if shape.bytes + len(digits) + body_bytes == len(data):
            self._shape, self.head = shape, head
