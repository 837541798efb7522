"""Edits deep inside a JSON body's bytes: all other bytes stay as the client wrote them."""

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence

from gateway.core.splice import PLAIN, TOKEN
from gateway.wire.body import compact

# From the document's root; numbers are places in arrays.
Path = tuple[str | int, ...]
Span = tuple[int, int]
Edit = tuple[Path, bytes | tuple[int, ...]]
"""What stands at a path: the JSON to put there, or which of an array's elements stay, in which order."""

_GAP = re.compile(rb"[\s,:]*")


def edited(body: bytes, edits: Iterable[Edit]) -> bytes:
    """`body`, UTF-8 that has been parsed as an object, with `edits`, none of which lies within another.

    Where a key stands twice both are edited, so that parsers agree which take the first or the last.
    """
    changes = [
        (span, new if isinstance(new, bytes) else _reordered(body, span, new))
        for path, new in edits
        for span in _find(body, path)
    ]
    pieces: list[bytes] = []
    at = 0
    for (start, end), new in sorted(changes):
        pieces += (body[at:start], new)
        at = end
    return b"".join((*pieces, body[at:]))


def _find(body: bytes, path: Path) -> list[Span]:
    start = body.index(b"{")
    found = [(start, len(body))]
    for step in path:
        found = [span for at, _ in found for span in _step(body, at, step)]
    return found


def _step(body: bytes, container: int, step: str | int) -> Iterator[Span]:
    is_object = body[container : container + 1] == b"{"
    if isinstance(step, str) and is_object:
        children = _children(body, container)
        for start, end in children:
            value = next(children)
            if _is_key(body[start:end], step):
                yield value
    elif isinstance(step, int) and body[container : container + 1] == b"[":
        for number, span in enumerate(_children(body, container)):
            if number == step:
                yield span
                return


def _is_key(written: bytes, key: str) -> bool:
    if b"\\" in written:
        return bool(json.loads(written) == key)
    return written == compact(key).encode()


def _children(body: bytes, container: int) -> Iterator[Span]:
    """An array's elements; an object's keys and values in turn."""
    at = container + 1
    while True:
        at = _after(_GAP, body, at)
        if body[at] in b"]}":
            return
        end = _end(body, at)
        yield at, end
        at = end


def _end(body: bytes, start: int) -> int:
    if body[start] not in b"{[":
        return _after(PLAIN, body, start)
    depth, at = 0, start
    while True:
        token = TOKEN.search(body, at)
        assert token is not None, "it has been parsed"
        at = token.end()
        depth += {b"{": 1, b"[": 1, b"}": -1, b"]": -1}.get(token.group(), 0)
        if depth == 0:
            return at


def _after(pattern: re.Pattern[bytes], body: bytes, at: int) -> int:
    found = pattern.match(body, at)
    assert found is not None, "it has been parsed"
    return found.end()


def _reordered(body: bytes, array: Span, order: Sequence[int]) -> bytes:
    """The array's own white space stays; where elements go, so does the space after them."""
    spans = list(_children(body, array[0]))
    if max(order) >= len(spans):
        # Another array under the same key.
        return body[array[0] : array[1]]
    gaps = [body[end:start] for (_, end), (start, _) in itertools.pairwise(spans)]
    pieces = [body[array[0] : spans[0][0]]]
    for place, number in enumerate(order):
        start, end = spans[number]
        pieces += (gaps[place - 1] if place else b"", body[start:end])
    return b"".join((*pieces, body[spans[-1][1] : array[1]]))
