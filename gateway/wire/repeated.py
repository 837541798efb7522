"""Heads that come again: a client's next request, or an engine's next answer, mostly begins with the bytes of
the last one, but for the length of the body."""

import re
from collections.abc import Iterable
from typing import Generic, TypeVar

from gateway.core.call import Header

MAX_HEAD_BYTES = 4096
"""A longer head is not remembered: thousands of connections keep one each."""

_TRIES = 8
"""So many heads in a row that did not come again, one with a time or an id in it say, and no more are
remembered on this connection."""

_MAX_DIGITS = 15
_LENGTH = re.compile(rb"\r\ncontent-length: ?([0-9]{1,15})\r\n", re.IGNORECASE)
_CHANGES_FRAMING = frozenset((b"transfer-encoding", b"expect", b"upgrade", b"trailer"))

H = TypeVar("H")


class Repeated(Generic[H]):
    """The last head of a connection, with the `head` that the parser made of it.

    Only the digits of its one content-length may be others when it comes again, so what the parser found in
    it, and that it is valid, still holds.
    """

    __slots__ = ("_after", "_at", "_before", "_tries", "head")

    head: H

    def __init__(self) -> None:
        self._before = b""
        self._at = 0
        self._after = b""
        self._tries = _TRIES

    def body(self, data: bytes) -> bytes | None:
        """What follows the head, if `data` is one whole message with the same head."""
        at = self._at
        if not at or not data.startswith(self._before):
            return None
        stop = data.find(b"\r", at, at + _MAX_DIGITS + 1)
        if stop < 0 or not data.startswith(self._after, stop):
            return None
        digits = data[at:stop]
        start = stop + len(self._after)
        if not digits.isdigit() or len(data) != start + int(digits):
            return None
        self._tries = _TRIES
        return data[start:]

    def learn(self, data: bytes, head: H, headers: Iterable[Header], body_bytes: int) -> None:
        """`data` began with `head`, and ends with its body of `body_bytes`; another may have been between."""
        if not self._tries:
            return
        self._tries -= 1
        self._at = 0
        end = data.find(b"\r\n\r\n", 0, MAX_HEAD_BYTES)
        length = _LENGTH.search(data, 0, end + 2) if end > 0 else None
        names = [name for name, _ in headers]
        if length is None or end + 4 + body_bytes != len(data) or int(length[1]) != body_bytes:
            return
        if names.count(b"content-length") != 1 or not _CHANGES_FRAMING.isdisjoint(names):
            return
        self._at, stop = length.span(1)
        self._before, self._after, self.head = data[: self._at], data[stop : end + 4], head
