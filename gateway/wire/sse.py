"""Server-sent events as bytes: where events end, and what their data is. Never re-encodes.

Line ends may be LF, CRLF or CR, mixed (WHATWG HTML, section 9.2); sse-starlette writes CRLF.
"""

import re
from collections.abc import Iterator, Sequence

_BLANK_LINE = re.compile(rb"(?:\r\n|\n|\r(?!\n)){2}")
_BEFORE_DONE = re.compile(rb"(?:^|[\r\n])data: ?\Z")
_BEFORE_DONE_BYTES = len(b"\ndata: ")
_LINE = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"

STRADDLE_BYTES = 3
"""All of a blank line (CRLF CRLF) but its last byte."""


def first_boundary(buffer: bytes) -> int:
    """Index just past the first blank line, 0 where no event is complete."""
    match = _BLANK_LINE.search(buffer)
    return match.end() if match else 0


def last_boundary(buffer: bytes, start: int = 0) -> int:
    """Index just past the last blank line, 0 where no event is complete.

    Looks from `start` on: of bytes that held no boundary before more came, only the last `STRADDLE_BYTES`
    must be looked at again.
    """
    if buffer.find(b"\r", start) < 0:
        end = buffer.rfind(b"\n\n", start)
        return end + 2 if end >= 0 else 0
    end = 0
    for match in _BLANK_LINE.finditer(buffer, start):
        end = match.end()
    return end


def events(complete: bytes) -> Iterator[bytes]:
    """The events of `complete`, each with the blank line that ends it; joined they are `complete`."""
    start = 0
    if b"\r" not in complete:
        while (end := complete.find(b"\n\n", start)) >= 0:
            yield complete[start : end + 2]
            start = end + 2
    else:
        for match in _BLANK_LINE.finditer(complete):
            yield complete[start : match.end()]
            start = match.end()
    if start < len(complete):
        yield complete[start:]


def spans_with(complete: bytes, words: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    """(start, end) of each event of `complete` that holds one of `words`. Looks at no other."""
    if b"\r" in complete:
        start = 0
        for event in events(complete):
            if any(word in event for word in words):
                yield start, start + len(event)
            start += len(event)
        return
    end = 0
    hits = {word: hit for word in words if (hit := complete.find(word)) >= 0}
    while hits:
        first = min(hits.values())
        before = complete.rfind(b"\n\n", end, first)
        start = before + 2 if before >= 0 else end
        after = complete.find(b"\n\n", first)
        end = after + 2 if after >= 0 else len(complete)
        yield start, end
        passed = [word for word, hit in hits.items() if hit < end]
        hits |= {word: complete.find(word, end) for word in passed}
        hits = {word: hit for word, hit in hits.items() if hit >= 0}


def data_of(event: bytes) -> bytes | None:
    """The event's data lines joined by LF; None where it has none (a comment, say)."""
    lines = []
    for line in _LINE.split(event.removeprefix(_BOM)):
        if line.startswith(b"data:"):
            value = line[5:]
            lines.append(value[1:] if value.startswith(b" ") else value)
    return b"\n".join(lines) if lines else None


def has_done(complete: bytes) -> bool:
    """Whether an event's data is `[DONE]`; the same text inside a JSON string does not count."""
    at = complete.find(b"[DONE]")
    while at >= 0:
        # A search for the whole line from the start would try every line of a long burst.
        if _BEFORE_DONE.search(complete, max(0, at - _BEFORE_DONE_BYTES), at):
            return True
        at = complete.find(b"[DONE]", at + 1)
    return False
