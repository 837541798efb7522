"""Valid bytes with a few things wrong in them, the same for the same seed."""

import random
from collections.abc import Callable, Sequence

_TOKENS = [
    b"\r\n", b"\n", b"\r", b"\r\n\r\n", b"\0", b"\t", b" ", b":", b";", b",", b"\xff", b"\x7f", b"%0d%0a",
    b"HTTP/1.0", b"HTTP/1.1", b"HTTP/2.0", b"chunked", b"identity", b"gzip", b"close", b"keep-alive",
    b"upgrade", b"content-length: 5\r\n", b"content-length: 99999999999999999999\r\n",
    b"content-length: 40000000\r\n", b"transfer-encoding: chunked\r\n", b"connection: close\r\n",
    b"connection: upgrade\r\nupgrade: h2c\r\n", b"expect: 100-continue\r\n",
    b"content-type: text/event-stream\r\n", b"content-encoding: gzip\r\n", b"x-gateway-priority: low\r\n",
    b"x-gateway-max-wait-ms: 1\r\n", b"0\r\n\r\n", b"5\r\nhello\r\n", b"-1", b"0", b"ffffffffffffffff",
    b"1e999", b"NaN", b"null", b"true", b"[]", b"{}", b'"', b"\\ud800", b"\\", b"[" * 600, b"data: ",
    b"data:", b"data: [DONE]\n\n", b": ping\n\n", b"event: error\n", b"\n\n", b"\r\r",
    b'"usage":{"prompt_tokens":-1}', b'"choices":[]', b'"error":{}', b'"model":5', b'"stream":true',
    b'"n":1e9', b"\xef\xbb\xbf", "\u2028".encode(), b"\xed\xa0\x80", b"1" * 70, b"a" * 3000, b"/../", b"//",
    b"?", b"#",
]  # fmt: skip


class Mutator:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def __call__(self, data: bytes, others: Sequence[bytes]) -> bytes:
        """`data` with one to six changes; `others` lend pieces."""
        for _ in range(self.random.choice((1, 1, 1, 2, 3, 6))):
            data = self.random.choice(self._changes())(data, others)
        return data

    def pieces(self, data: bytes) -> list[bytes]:
        """`data` cut at random places: whole, in a few pieces, or in single bytes at its start."""
        kind = self.random.randrange(4)
        if kind == 0 or len(data) < 2:
            return [data]
        if kind == 1:
            return [data[at : at + 1] for at in range(40)] + [data[40:]]
        cuts = sorted(
            self.random.sample(range(1, len(data)), min(len(data) - 1, self.random.randrange(1, 5)))
        )
        return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]

    def _changes(self) -> tuple[Callable[[bytes, Sequence[bytes]], bytes], ...]:
        return (
            self._flip,
            self._token,
            self._token,
            self._overwrite,
            self._delete,
            self._repeat,
            self._splice,
            self._cut,
        )

    def _at(self, data: bytes) -> int:
        return self.random.randrange(len(data) + 1)

    def _span(self, data: bytes) -> tuple[int, int]:
        start = self._at(data)
        return start, min(len(data), start + self.random.choice((1, 2, 8, 60)))

    def _flip(self, data: bytes, _: Sequence[bytes]) -> bytes:
        if not data:
            return data
        at = self.random.randrange(len(data))
        return data[:at] + bytes([data[at] ^ 1 << self.random.randrange(8)]) + data[at + 1 :]

    def _token(self, data: bytes, _: Sequence[bytes]) -> bytes:
        at = self._at(data)
        return data[:at] + self.random.choice(_TOKENS) + data[at:]

    def _overwrite(self, data: bytes, _: Sequence[bytes]) -> bytes:
        at, token = self._at(data), self.random.choice(_TOKENS)
        return data[:at] + token + data[at + len(token) :]

    def _delete(self, data: bytes, _: Sequence[bytes]) -> bytes:
        start, end = self._span(data)
        return data[:start] + data[end:]

    def _repeat(self, data: bytes, _: Sequence[bytes]) -> bytes:
        start, end = self._span(data)
        return data[:end] + data[start:end] * self.random.choice((1, 2, 50)) + data[end:]

    def _splice(self, data: bytes, others: Sequence[bytes]) -> bytes:
        other = self.random.choice(others)
        start, end = self._span(other)
        at = self._at(data)
        return data[:at] + other[start:end] + data[at:]

    def _cut(self, data: bytes, _: Sequence[bytes]) -> bytes:
        return data[: self._at(data)]
