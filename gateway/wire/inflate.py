"""Compressed answers: the client gets the engine's bytes, and an inflated copy is read along."""

import zlib

from gateway.core.request import Usage
from gateway.wire.pump import JsonPump, SsePump

MAX_FEED_BYTES = 4 * 1024 * 1024
"""Inflated bytes of one read from the engine (at most 256 KiB), beyond which its answer is read no further:
deflate packs up to 1032:1 (zlib's own figure), so a few reads could fill the memory."""

MAX_TOTAL_BYTES = 128 * 1024 * 1024
"""The same for a whole answer, which bounds the time that inflating takes."""

_GZIP, _ZLIB, _RAW = 31, 15, -15
_FORMATS = {b"gzip": _GZIP, b"x-gzip": _GZIP, b"deflate": _ZLIB}
_NO_USAGE = Usage()


class Inflater:
    """One answer's `content-encoding` undone, fed any split of its bytes.

    `lost` is true where there is nothing to read, and from then on: an encoding other than gzip and deflate,
    bytes that are not what they should be, or more of them than the limits allow.
    """

    def __init__(self, encoding: bytes) -> None:
        self._format = _FORMATS.get(encoding.strip().lower(), 0)
        self.lost = self._format == 0
        self._total_bytes = 0
        self._first = b""
        if not self.lost:
            self._stream = zlib.decompressobj(self._format)

    def feed(self, data: bytes) -> bytes:
        """What `data` adds to the inflated answer; empty once it is lost."""
        if self.lost:
            return b""
        try:
            out = self._inflate(data)
        except zlib.error:
            self.lost = True
            return b""
        self._total_bytes += len(out)
        self.lost = self.lost or self._total_bytes > MAX_TOTAL_BYTES
        return out

    def _inflate(self, data: bytes) -> bytes:
        pieces: list[bytes] = []
        room = MAX_FEED_BYTES
        while data:
            piece = self._some(data, room)
            pieces.append(piece)
            room -= len(piece)
            if self._stream.unconsumed_tail or room <= 0:
                self.lost = True
                break
            if not self._stream.eof:
                break
            # RFC 1952, section 2.2: a gzip file may be several, one after the other.
            data = self._stream.unused_data.lstrip(b"\0")
            if data and self._format != _GZIP:
                self.lost = True
                break
            if data:
                self._stream = zlib.decompressobj(self._format)
        return b"".join(pieces)

    def _some(self, data: bytes, room: int) -> bytes:
        """At most `room` bytes. "deflate" means zlib's format, and many send the bare one (RFC 9110, section
        8.4.1.2): the first two bytes tell."""
        if self._format != _ZLIB or len(self._first) == 2:
            return self._stream.decompress(data, room)
        try:
            piece = self._stream.decompress(data, room)
        except zlib.error:
            self._format = _RAW
            self._stream = zlib.decompressobj(_RAW)
            return self._stream.decompress(self._first + data, room)
        # One byte alone may be the first of either: it is kept until the second decides.
        self._first = (self._first + data)[:2]
        return piece


class InflatingPump:
    """A compressed body as it is, with what a `JsonPump` or an `SsePump` finds in it.

    Nothing can be written into it: neither another model's name nor the error that ends a stream.
    """

    torn = True

    def __init__(self, encoding: bytes, *, stream: bool) -> None:
        self._inflater = Inflater(encoding)
        self._inner: JsonPump | SsePump = SsePump() if stream else JsonPump()
        self._empty = True

    @property
    def started(self) -> bool:
        return self._inner.started

    @property
    def failed(self) -> bytes | None:
        return self._inner.failed

    @property
    def usage(self) -> Usage:
        return self._inner.usage

    @property
    def whole(self) -> bool:
        """What could not be read is taken for whole, and so is no body at all: only the client can tell."""
        return self._empty or self._inflater.lost or self._inner.whole

    def feed(self, data: bytes) -> bytes:
        self._empty = False
        inflated = self._inflater.feed(data)
        if inflated:
            self._inner.feed(inflated)
        return data

    def end(self) -> bytes:
        if not self._inflater.lost:
            self._inner.end()
        return b""
