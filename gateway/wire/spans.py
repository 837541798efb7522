"""Edits deep inside a JSON body's bytes: all other bytes stay as the client wrote them."""

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from gateway.core.splice import PLAIN, TOKEN

# From the document's root; numbers are places in arrays.
Path = tuple[str | int, ...]
Span = tuple[int, int]
Edit = tuple[Path, bytes | tuple[int, ...]]
"""What stands at a path: the JSON to put there, or which of an array's elements stay, in which order."""

_Tree = dict[str | int, Any]
"""Edits by the steps of their paths; at the end of a path stands what is to be there."""

_GAP = re.compile(rb"[\s,:]*")
_DEPTH = {b"{": 1, b"[": 1, b"}": -1, b"]": -1}


def edited(body: bytes, edits: Iterable[Edit]) -> bytes:
    """`body`, UTF-8 that has been parsed as an object, with `edits`, none of which lies within another.

    One walk makes all of them: the time grows with the body and the edits, not with their product. Where a
    key stands twice both are edited, so that parsers agree which take the first or the last; what is no array
    there is not put in order.
    """
    pieces: list[bytes] = []
    at = 0
    for (start, end), new in _Walk(body, _tree(edits)).changes:
        pieces += (body[at:start], new)
        at = end
    return b"".join((*pieces, body[at:]))


def _tree(edits: Iterable[Edit]) -> _Tree:
    root: _Tree = {}
    for path, new in edits:
        node = root
        for step in path[:-1]:
            node = node.setdefault(step, {})
        node[path[-1]] = new
    return root


class _Walk:
    """`changes` come in the order in which they stand in the body."""

    def __init__(self, body: bytes, tree: _Tree) -> None:
        self._body = body
        self.changes: list[tuple[Span, bytes]] = []
        self._container(body.index(b"{"), tree)

    def _container(self, at: int, node: _Tree) -> int:
        """Where it ends."""
        body = self._body
        is_object = body[at] == 123  # {
        number = 0
        at = _after(_GAP, body, at + 1)
        while body[at] not in b"]}":
            step: str | int = number
            if is_object:
                end = _after(PLAIN, body, at)
                step = _key(body[at:end])
                at = _after(_GAP, body, end)
            wanted = node.get(step)
            end = _end(body, at) if wanted is None else self._value(at, wanted)
            number += 1
            at = _after(_GAP, body, end)
        return at + 1

    def _value(self, at: int, wanted: Any) -> int:
        body = self._body
        if isinstance(wanted, dict):
            return self._container(at, wanted) if body[at] in b"{[" else _end(body, at)
        if isinstance(wanted, bytes) or body[at] != 91:  # [
            end = _end(body, at)
            new = wanted if isinstance(wanted, bytes) else body[at:end]
        else:
            new, end = _reordered(body, at, wanted)
        self.changes.append(((at, end), new))
        return end


def _key(written: bytes) -> str:
    return str(json.loads(written)) if b"\\" in written else written[1:-1].decode("utf-8", "surrogatepass")


def _elements(body: bytes, array: int) -> Iterator[Span]:
    at = _after(_GAP, body, array + 1)
    while body[at] != 93:  # ]
        end = _end(body, at)
        yield at, end
        at = _after(_GAP, body, end)


def _end(body: bytes, start: int) -> int:
    if body[start] not in b"{[":
        return _after(PLAIN, body, start)
    depth, at = 0, start
    while True:
        token = TOKEN.search(body, at)
        assert token is not None, "it has been parsed"
        at = token.end()
        depth += _DEPTH.get(token.group(), 0)
        if depth == 0:
            return at


def _after(pattern: re.Pattern[bytes], body: bytes, at: int) -> int:
    found = pattern.match(body, at)
    assert found is not None, "it has been parsed"
    return found.end()


def _reordered(body: bytes, array: int, order: Sequence[int]) -> tuple[bytes, int]:
    """Also where the array ended. Its own white space stays; where elements go, so does that after them."""
    spans = list(_elements(body, array))
    end = _after(_GAP, body, spans[-1][1] if spans else array + 1) + 1
    if max(order) >= len(spans):
        # Another array under the same key.
        return body[array:end], end
    gaps = [body[end:start] for (_, end), (start, _) in itertools.pairwise(spans)]
    pieces = [body[array : spans[0][0]]]
    for place, number in enumerate(order):
        start, stop = spans[number]
        pieces += (gaps[place - 1] if place else b"", body[start:stop])
    return b"".join((*pieces, body[spans[-1][1] : end])), end
