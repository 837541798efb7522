"""The head of a message as llhttp tells it, within limits."""

from typing import Any

from gateway.core.call import Header

MAX_HEAD_BYTES = 64 * 1024
MAX_HEADERS = 200
HEAD_LIMIT = f"The head is larger than {MAX_HEAD_BYTES} bytes."


class HeadTooLarge(Exception):
    pass


class Collector:
    """What llhttp's callbacks for a head have in common."""

    def __init__(self) -> None:
        self.headers: list[Header] = []
        self.in_head = False
        self._head_bytes = 0
        self._headers = 0
        self._stalled_bytes = 0

    def on_message_begin(self) -> None:
        self.headers = []
        self.in_head = True
        self._head_bytes = self._headers = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        self._stalled_bytes = 0
        self._headers += 1
        self._head_bytes += len(name) + len(value) + 4
        if self._head_bytes > MAX_HEAD_BYTES:
            raise HeadTooLarge(HEAD_LIMIT)
        if self._headers > MAX_HEADERS:
            raise HeadTooLarge(f"The head has more than {MAX_HEADERS} headers.")
        # Trailers are dropped (RFC 9110, section 6.5.1): a credential or a route must not come in by them.
        if self.in_head:
            self.headers.append((name.lower(), value))

    def _parse(self, parser: Any, data: bytes) -> None:
        """llhttp keeps a header to itself until its last byte is there, however long it gets."""
        self._stalled_bytes += len(data)
        parser.feed_data(data)
        if self._stalled_bytes > MAX_HEAD_BYTES:
            raise HeadTooLarge(HEAD_LIMIT)
