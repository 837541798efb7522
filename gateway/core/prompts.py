"""A prompt as it is remembered, and one that is compared with it."""

import json
from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence

from msgspec import Struct

from gateway.core.differ import Change, differ
from gateway.core.shapes import MESSAGE_CHARS, Outline, Segment, Shape

EVIDENCE_BYTES = 32
"""Messages that are the same later on tell of the same conversation from so many bytes on: "ok" is
anybody's."""

_ARGUMENTS = '"arguments":"{'

Look = Callable[[int], Shape | None]


class Prompt(Struct, gc=False):
    """The part that a client's conversations share (system texts, tools), and the rest."""

    shared: Outline
    body: Outline

    @property
    def total_bytes(self) -> int:
        return self.shared.total_bytes + self.body.total_bytes


class Found(Struct, frozen=True, gc=False):
    """What happened at `index` of the segments, the shared ones or the rest. `old_text` where it may be kept;
    `part` where it is not that segment's."""

    kind: str
    index: int
    change: Change | None = None
    old_text: str | None = None
    part: str = ""


class Pair(Struct, gc=False):
    """An earlier prompt and a new one, whose segments are at hand. `look` finds shapes by digest; None where
    one has been forgotten. `turns`: how many of the old one's segments the prompts had that it went on from.
    `has_others`: other conversations began with the new one's first message; `is_crowded`: so many are like
    it that its own last prompt may have been forgotten."""

    old: Prompt
    new: Prompt
    shared_segments: Callable[[], Sequence[Segment]]
    body_segments: Sequence[Segment]
    look: Look
    turns: Container[int] = ()
    is_named: bool = True
    has_others: bool = False
    is_crowded: bool = False

    def change(self, old: int, new: int, segment: Segment) -> Change | None:
        """Of one segment with its version in the new prompt, both by digest."""
        one, other = self.look(old), self.look(new)
        return None if one is None or other is None else differ(one, other, unfolded(segment).text)

    def found(self, kind: str, index: int, change: Change | None, old: int) -> Found:
        shape = self.look(old)
        return Found(kind, index, change, None if shape is None else shape.text)

    def likeness(self, old: int, new: int, *, is_session: bool) -> float:
        """The share of pieces that both have: of the longer one's, within a session of the old one's."""
        if self.is_same_but(old, new):
            return 1.0
        one, other = self.pieces(old), self.pieces(new)
        of = one.total() if is_session else max(one.total(), other.total())
        return (one & other).total() / of if of else 0.0

    def pieces(self, digest: int) -> Counter[int]:
        shape = self.look(digest)
        return Counter() if shape is None else Counter(shape.pieces)

    def is_same_but(self, old: int, new: int) -> bool:
        """Whether only white space, dates, ids, numbers or reminders differ."""
        if old == new:
            return True
        one, other = self.look(old), self.look(new)
        if one is None or other is None:
            return False
        return one.same_but(other) or (one.bare or one.solid) == (other.bare or other.solid)

    def is_reminder(self, digest: int) -> bool:
        shape = self.look(digest)
        return shape is not None and shape.is_reminder

    def stands_in(self, pieces: Counter[int], digests: Iterable[int]) -> bool:
        """Whether all of `pieces` are in those segments."""
        left = set(pieces)
        for digest in digests:
            if not left:
                break
            if (shape := self.look(digest)) is not None:
                left.difference_update(shape.pieces)
        return bool(pieces) and not left


def unfolded(segment: Segment) -> Segment:
    """A call with its arguments as JSON: most APIs have them as a string, whose keys nobody would sort."""
    text = segment.text
    if segment.code != "c" or len(text) > MESSAGE_CHARS or _ARGUMENTS not in text:
        return segment
    try:
        call = json.loads(text)
        call["arguments"] = json.loads(call["arguments"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return segment
    return segment._replace(text=json.dumps(call, ensure_ascii=False, separators=(",", ":")))


def common_bytes(old: Outline, new: Outline, start: int = 0) -> int:
    """Of segments that both have from `start` on, wherever they stand."""
    both = Counter(old.digests[start:]) & Counter(new.digests[start:])
    sizes = dict(zip(new.digests, new.sizes, strict=True))
    return sum(sizes[digest] * count for digest, count in both.items())
