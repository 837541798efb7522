"""Where a prompt leaves an earlier one, and what it did there.

A prompt may end, go on, or ask something else: none of that breaks a prefix. It is broken where what follows
would have been the same, or the conversation goes on, and something before that has changed.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from gateway.core.differ import (
    ALIKE,
    CHUNK_ORDER,
    MOVED_REMINDER,
    OTHER,
    TOOL_ORDER,
    TOOLS_CHANGED,
    Change,
)
from gateway.core.history import body_change
from gateway.core.prompts import EVIDENCE_BYTES, Found, Pair, common_bytes, unfolded
from gateway.core.shapes import Outline, Segment, first_difference

FAMILY_BYTES = 256
"""What a client's sessions lose of what they share is told from so many bytes on, unless it changes by
itself: then it will be more another time."""

NEAR = 0.9
"""Of another session's system text so much is the same if it is the same client in the same mode."""

TEXT_CHARS = 200
"""Of a text that may be shown, around the place where it changed."""

_SHOWN_TOOLS = 12
_ONLY_IF_IT_COSTS = (OTHER, TOOLS_CHANGED, MOVED_REMINDER)


class Break(Struct, frozen=True, gc=False):
    """`part` of the new prompt changed in the way of `kind`, `at_bytes` from its start. `lost_bytes` were the
    same prefix until then, or would have been. `before` and `after` are masked; `text` is what stood and
    stands there, where that may be kept."""

    kind: str
    part: str
    at_bytes: int
    lost_bytes: int
    before: str = ""
    after: str = ""
    text: tuple[str, str] | None = None


def session_break(pair: Pair) -> Break | None:
    """Where the new prompt breaks from the same conversation's earlier one; None if it does not, or is none
    of that conversation."""
    old, new = pair.old, pair.new
    end_bytes = min(old.total_bytes, new.total_bytes)
    if old.shared.digests == new.shared.digests:
        found = body_change(pair)
        if found is None:
            return None
        return _told(pair, found, pair.body_segments, (old.body, new.body), new.shared.total_bytes, end_bytes)
    if not _has_same_start(pair):
        return None
    found = _shared_change(pair, is_session=True)
    return (
        None
        if found is None
        else _told(pair, found, pair.shared_segments(), (old.shared, new.shared), 0, end_bytes)
    )


def family_break(pair: Pair) -> Break | None:
    """Where the shared part breaks from that of another prompt of the same client; None if it is another
    client's, or nothing is lost by it."""
    old, new = pair.old.shared, pair.new.shared
    found = _shared_change(pair, is_session=False)
    if found is None:
        return None
    end_bytes = min(old.total_bytes, new.total_bytes)
    told = _told(pair, found, pair.shared_segments(), (old, new), 0, end_bytes)
    return None if found.kind in _ONLY_IF_IT_COSTS and told.lost_bytes < FAMILY_BYTES else told


def system_count(outline: Outline) -> int:
    """How many of the shared segments are system texts; tools follow."""
    return len(outline.codes) - len(outline.codes.lstrip("s"))


def _told(
    pair: Pair,
    found: Found,
    segments: Sequence[Segment],
    outlines: tuple[Outline, Outline],
    bytes_before: int,
    end_bytes: int,
) -> Break:
    new = outlines[1]
    segment, change = unfolded(segments[min(found.index, len(segments) - 1)]), found.change
    at_bytes = bytes_before + sum(new.sizes[: found.index])
    text = None
    if change is not None:
        at_bytes += len(segment.text[: change.offset].encode("utf-8", "surrogatepass"))
        before, after = change.before, change.after
        if found.old_text is not None:
            text = _around(found.old_text, change.old_offset), _around(segment.text, change.offset)
    else:
        before, after = (f"{len(it.codes):,} parts, {it.total_bytes:,} bytes" for it in outlines)
    lost_bytes = max(0, end_bytes - at_bytes)
    return Break(found.kind, found.part or segment.part, at_bytes, lost_bytes, before, after, text)


def _around(text: str, at: int) -> str:
    start = max(0, at - TEXT_CHARS // 4)
    return text[start : start + TEXT_CHARS]


def _has_same_start(pair: Pair) -> bool:
    """Whether the messages are those of the earlier prompt."""
    old, new = pair.old.body, pair.new.body
    if not old.digests or not new.digests:
        return not old.digests and not new.digests
    return pair.is_same_but(old.digests[0], new.digests[0]) or common_bytes(old, new) >= EVIDENCE_BYTES


def _shared_change(pair: Pair, *, is_session: bool) -> Found | None:
    old, new = pair.old.shared, pair.new.shared
    at = first_difference(old.digests, new.digests)
    old_systems, new_systems = system_count(old), system_count(new)
    if old.digests[:old_systems] != new.digests[:new_systems]:
        if not _has_like_systems(pair, old_systems, new_systems, is_session=is_session):
            return None
        found = _system_change(pair, at, old_systems, new_systems)
        if is_session or found.kind != OTHER or _is_near(pair, at, min(old_systems, new_systems)):
            return found
        return None
    return _tools_change(pair, at, old_systems, is_session=is_session)


def _has_like_systems(pair: Pair, old_count: int, new_count: int, *, is_session: bool) -> bool:
    """Whether at least half of the longer system text is in the other; within a session half of the earlier
    one."""
    old, new = pair.old.shared, pair.new.shared
    both = Counter(old.digests[:old_count]) & Counter(new.digests[:new_count])
    sizes = dict(zip(new.digests, new.sizes, strict=True))
    same = sum(sizes[digest] * count for digest, count in both.items()) * 1.0
    for one, other in zip(old.digests[:old_count], new.digests[:new_count], strict=False):
        if one not in both and other not in both:
            same += pair.likeness(one, other, is_session=is_session) * sizes[other]
    weights = sum(old.sizes[:old_count]), sum(new.sizes[:new_count])
    return same >= ALIKE * (weights[0] if is_session else max(weights)) and same > 0.0


def _is_near(pair: Pair, at: int, count: int) -> bool:
    """Whether a system text of another session is the same but for a few lines: what a client finds around
    it, and not another of its modes."""
    old, new = pair.old.shared.digests, pair.new.shared.digests
    return at >= count or pair.likeness(old[at], new[at], is_session=False) >= NEAR


def _system_change(pair: Pair, at: int, old_count: int, new_count: int) -> Found:
    old, new = pair.old.shared.digests[:old_count], pair.new.shared.digests[:new_count]
    if sorted(old) == sorted(new):
        return Found(CHUNK_ORDER, at)
    if at == len(new) or new[at] in old[at + 1 :]:
        gone = pair.pieces(old[at])
        return Found(MOVED_REMINDER if pair.stands_in(gone, pair.new.body.digests) else OTHER, at)
    if at == len(old) or old[at] in new[at + 1 :]:
        come = pair.pieces(new[at])
        return Found(MOVED_REMINDER if pair.stands_in(come, pair.old.body.digests) else OTHER, at)
    change = pair.change(old[at], new[at], pair.shared_segments()[at])
    kind = OTHER if change is None else change.kind
    if kind == OTHER:
        before, after = pair.pieces(old[at]), pair.pieces(new[at])
        if pair.stands_in(after - before, pair.old.body.digests) or pair.stands_in(
            before - after, pair.new.body.digests
        ):
            kind = MOVED_REMINDER
    return pair.found(kind, at, change, old[at])


class _Tool(Struct, frozen=True, gc=False):
    """`index` of its first segment."""

    index: int
    codes: str
    digests: array[int]


def _tools_change(pair: Pair, at: int, start: int, *, is_session: bool) -> Found | None:
    old, new = _tools(pair.old.shared, start), _tools(pair.new.shared, start)
    old_names, new_names = (array("Q", [it.digests[0] for it in tools]) for tools in (old, new))
    if old_names == new_names:
        return _tool_change(pair, old, new)
    which = first_difference(old_names, new_names)
    index = new[which].index if which < len(new) else at
    part = f"tools[{which}]"
    if sorted(old_names) == sorted(new_names):
        was = " ".join(map(str, range(which, len(old))[:_SHOWN_TOOLS]))
        now = " ".join(str(old_names.index(it)) for it in new_names[which : which + _SHOWN_TOOLS])
        return Found(TOOL_ORDER, index, Change(TOOL_ORDER, 0, 0, f"tools {was}", f"tools {now}"), part=part)
    both = (Counter(old_names) & Counter(new_names)).total()
    if not is_session and 2 * both < max(len(old), len(new)):
        return None
    before, after = f"{len(old)} tools", f"{len(new)} tools, {both} of them as before"
    return Found(TOOLS_CHANGED, index, Change(TOOLS_CHANGED, 0, 0, before, after), part=part)


def _tools(outline: Outline, start: int) -> list[_Tool]:
    codes = outline.codes
    begins = [at for at in range(start, len(codes)) if codes[at] == "n"]
    return [
        _Tool(begin, codes[begin:end], outline.digests[begin:end])
        for begin, end in zip(begins, [*begins[1:], len(codes)], strict=True)
    ]


def _tool_change(pair: Pair, old: Sequence[_Tool], new: Sequence[_Tool]) -> Found:
    which, one, other = next((at, a, b) for at, (a, b) in enumerate(zip(old, new, strict=True)) if a != b)
    within = first_difference(one.digests, other.digests)
    index = other.index + min(within, len(other.digests) - 1)
    if within == min(len(one.digests), len(other.digests)) or one.codes != other.codes:
        return Found(OTHER, index, part=f"tools[{which}]")
    change = pair.change(one.digests[within], other.digests[within], pair.shared_segments()[index])
    return pair.found(OTHER if change is None else change.kind, index, change, one.digests[within])
