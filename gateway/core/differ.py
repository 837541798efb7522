"""How one segment of a prompt differs from an earlier version of itself, told by their shapes alone."""

from __future__ import annotations

import re
from array import array
from collections import Counter
from itertools import pairwise

from msgspec import Struct

from gateway.core.shapes import Shape, first_difference
from gateway.core.volatile import COUNTER, RANDOM_ID, TIMESTAMP, hidden

TOOL_ORDER, CHUNK_ORDER, KEY_ORDER = "tool_order", "chunk_order", "key_order"
WHITESPACE, MOVED_REMINDER, EDITED_HISTORY = "whitespace", "moved_reminder", "edited_history"
COMPACTION, TOOLS_CHANGED, OTHER = "compaction", "tools_changed", "other"

KINDS = (
    TIMESTAMP,
    RANDOM_ID,
    COUNTER,
    TOOL_ORDER,
    CHUNK_ORDER,
    KEY_ORDER,
    WHITESPACE,
    MOVED_REMINDER,
    EDITED_HISTORY,
    COMPACTION,
    TOOLS_CHANGED,
    OTHER,
)
"""The closed set behind `prefix_breaks_total{kind}`."""

ALIKE = 0.5
"""Two texts of which less is the same are two texts, and not one that has changed."""

_REORDERED = 0.9
_JSON_KEY = re.compile(r"[\s{\[,]*\"[^\"\n]{1,80}\"\s*:")


class Change(Struct, frozen=True, gc=False):
    """`offset`: characters of the new text that are as they were. `before` and `after` are masked,
    `old_offset` is where it is in the old text."""

    kind: str
    offset: int
    old_offset: int
    before: str
    after: str


def differ(old: Shape, new: Shape, text: str) -> Change | None:
    """What has become of `old`; `text` is the new one's. None: another text stands there now."""
    if old.solid == new.solid:
        at = first_difference(old.starts, new.starts)
        return _at_piece(WHITESPACE, old, new, max(0, at - 1), text)
    first = first_difference(old.pieces, new.pieces)
    is_whole = first == len(old.pieces) == len(new.pieces)
    if old.ordered and old.ordered == new.ordered and not is_whole:
        return _at_piece(KEY_ORDER, old, new, first, text)
    if not is_whole and _is_reordered(old, new):
        is_json = _JSON_KEY.match(text, _start(new, first)) is not None
        return _at_piece(KEY_ORDER if is_json else CHUNK_ORDER, old, new, first, text)
    if not is_whole and old.loose == new.loose:
        return _at_piece(CHUNK_ORDER, old, new, first, text)
    place = _first_place(old, new, first)
    if place is not None:
        return place
    if is_whole:
        beyond = new.spans[-1].piece if new.spans else first - 1
        return _at_piece(_kind_of_rest(old, new), old, new, beyond, text)
    if old.reminders != new.reminders and (old.bare or old.solid) == (new.bare or new.solid):
        return _at_piece(MOVED_REMINDER, old, new, first, text)
    if old.likeness(new) >= ALIKE:
        return _at_piece(OTHER, old, new, first, text)
    return None


def grows(old: Shape, new: Shape) -> bool:
    """Whether the new text is the old one and more: its last line may have gone on."""
    count = len(old.pieces)
    if not 1 < count <= len(new.pieces) or old.pieces[:-1] != new.pieces[: count - 1]:
        return False
    if any(a.value != b.value for a, b in zip(old.spans, new.spans, strict=False) if a.piece < count - 1):
        return False
    # Its last line is another one, or is the same to its last digit.
    return old.pieces[-1] != new.pieces[count - 1] or _values(old, count) == _values(new, count)


def _values(shape: Shape, pieces: int) -> list[int]:
    return [span.value for span in shape.spans if span.piece < pieces]


def missing(old: Shape, new: Shape) -> Counter[int]:
    """The pieces that the old text had and the new one has not, if the new one has no others."""
    gone = Counter(old.pieces)
    gone.subtract(new.pieces)
    if any(count < 0 for count in gone.values()):
        return Counter()
    return +gone


def _first_place(old: Shape, new: Shape, first: int) -> Change | None:
    """The first place that changed by itself, if it is before the first piece that changed otherwise."""
    for one, other in zip(old.spans, new.spans, strict=False):
        if one.piece >= first or other.piece >= first:
            break
        if one.value != other.value:
            kind = other.kind if other.kind == one.kind else RANDOM_ID
            # Those of the first places only are kept.
            look = other.look or one.look
            return Change(kind, other.offset, one.offset, one.look or look, look)
    return None


def _kind_of_rest(old: Shape, new: Shape) -> str:
    """Of places beyond those that are kept one by one."""
    kinds = (TIMESTAMP, RANDOM_ID, COUNTER)
    return next((kind for kind, a, b in zip(kinds, old.rest, new.rest, strict=True) if a != b), OTHER)


def _is_reordered(old: Shape, new: Shape) -> bool:
    """Whether the same pieces, nearly all of them, stand in another order, and what changes by itself with
    them."""
    count = max(len(old.pieces), len(new.pieces))
    both = Counter(old.pieces) & Counter(new.pieces)
    if count < 2 or both.total() < _REORDERED * count:
        return False
    values, others = (Counter(span.value for span in shape.spans) for shape in (old, new))
    if 2 * (values & others).total() < max(values.total(), others.total()):
        return False
    where = {piece: at for at, piece in enumerate(old.pieces) if both[piece] == 1}
    order = [where[piece] for piece in new.pieces if piece in where]
    return any(later < earlier for earlier, later in pairwise(order))


def _start(shape: Shape, piece: int) -> int:
    starts: array[int] = shape.starts
    return starts[piece] if 0 <= piece < len(starts) else shape.chars


def _at_piece(kind: str, old: Shape, new: Shape, piece: int, text: str) -> Change:
    start, old_start = _start(new, piece), _start(old, piece)
    line = hidden(text[start : start + 200].split("\n", 1)[0].strip())
    return Change(
        kind,
        start,
        old_start,
        f"{old.chars:,} characters, {len(old.pieces)} lines",
        f"{new.chars:,} characters, {len(new.pieces)} lines, from line {piece + 1}: {line}",
    )
