"""What a `RequestReader` makes of bytes, in any split."""

from collections.abc import Iterable

from splits import ways

from gateway.wire.errors import BadRequest
from gateway.wire.reader import Incoming, RequestReader

LIMIT = 1000
HEAD = b"POST /v1/chat/completions?a=b HTTP/1.1\r\nHost: h\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n\r\n"
NO_BODY = b"content-length: 0\r\n\r\n"


def read(parts: Iterable[bytes], limit: int = LIMIT) -> tuple[list[Incoming], str]:
    """The whole requests, and what the reader says against the bytes."""
    reader = RequestReader(limit)
    try:
        for part in parts:
            reader.feed(part)
    except BadRequest as refusal:
        return list(reader.ready), refusal.message
    return list(reader.ready), reader.refusal.message if reader.refusal else ""


def only(data: bytes) -> Incoming:
    """The one request in `data`, the same in any split."""
    results = [read(parts) for parts in ways(data)]
    assert all(result == results[0] for result in results)
    [incoming], refusal = results[0]
    assert refusal == ""
    return incoming


def refused(data: bytes) -> str:
    """What is said against `data`, the same in any split."""
    results = [read(parts) for parts in ways(data)]
    assert all(result == results[0] for result in results)
    assert results[0][0] == []
    assert results[0][1] != ""
    return results[0][1]
