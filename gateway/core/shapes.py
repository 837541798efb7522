"""What is kept of one segment of a prompt so that the next version of it can be compared with it: hashes, the
places that change by themselves, and a masked shape from which no text can be read.

Hashes are those of the running process, salted by Python at its start: they mean nothing outside of it.
"""

from __future__ import annotations

from array import array
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from msgspec import Struct
from xxhash import xxh3_64_intdigest

from gateway.core.pieces import ordered, split, without_reminders
from gateway.core.volatile import COUNTER, MASKS, Place, masked, may_change, places, shown

HEAD_CHARS = 49_152
"""Of a system text or a tool so much is looked at, from its start and its end."""

MESSAGE_CHARS = 24_576
"""Of a message so much is looked at."""

MASKED_CHARS = 4_096
"""Of a message, dates, ids and numbers are looked for in so much, at its start and its end."""

SHAPE_BYTES = 512
"""The masked shape of a segment is at most so long."""

MAX_SPANS = 256
MAX_PIECES = 1_024
MAX_PLACES = 512
"""Of a segment so many dates, ids and numbers are told from the text, and those of one piece more."""

MAX_LINES = 16_384
MAX_LINE_PLACES = 32_768
"""Of all lines that are remembered: some 6 MiB, with the lines 8."""

SEGMENT_CHARS = 200
PLACE_CHARS = 48
"""A segment, and a place in it, take as long as so many characters of prose."""

STORE_BYTES = 32 << 20
"""All shapes together, those used last."""

_WORDS = str.maketrans(dict.fromkeys(",;[](){}", " "))
_RESULTS = ("tool", "function", "function_call_output", "custom_tool_call_output", "local_shell_call_output")
_NOTHING = (hash(()), hash(()), hash(()))
_NO_DIGESTS, _NO_SIZES = array("Q"), array("I")


class Segment(NamedTuple):
    """A part of a prompt in the order in which it is rendered. `code` is what it is: `s` system, `n`, `d`,
    `p` a tool's name, description and parameters, `t` what else a tool has, `m` a message, `c` a call in it.
    `part` is how a client would name it, as `tools[3].description`; `item` the message it is of."""

    code: str
    part: str
    text: str
    role: str = ""
    item: int = 0


class Span(NamedTuple):
    """A place that changes by itself: its kind, the piece it is in, its offset, its hash and how it is
    shown."""

    kind: str
    piece: int
    offset: int
    value: int
    look: str


class Shape(Struct, frozen=True, gc=False):
    """`chars` long. `solid` is the hash without white space, `ordered` with JSON keys sorted (0: no JSON),
    `loose` with its words in any order, `bare` without its `reminders`, tagged ones (0: none). `pieces` are
    hashes of its lines, without what changes by itself, `starts` their offsets. `rest`: for each kind the
    hash of all of its places, also those not in `spans`. `text` only where it may be kept."""

    chars: int
    solid: int
    ordered: int
    loose: int
    bare: int
    reminders: int
    pieces: array[int]
    starts: array[int]
    spans: tuple[Span, ...]
    rest: tuple[int, int, int]
    is_reminder: bool
    text: str | None = None

    @property
    def kept_bytes(self) -> int:
        looks = sum(len(span.look.encode()) for span in self.spans)
        return 500 + 12 * len(self.pieces) + 120 * len(self.spans) + looks + len(self.text or "")

    @property
    def skeleton(self) -> int:
        """Equal for two segments that differ only in places that change by themselves."""
        return hash(self.pieces.tobytes())

    def same_but(self, other: Shape) -> bool:
        """Whether they differ only in white space or in what changes by itself."""
        return self.solid == other.solid or self.pieces == other.pieces

    def likeness(self, other: Shape) -> float:
        """The share of the longer one's pieces that both have."""
        both = (Counter(self.pieces) & Counter(other.pieces)).total()
        return both / max(len(self.pieces), len(other.pieces))


def first_difference(old: array[int], new: array[int]) -> int:
    """How many are the same from the start on."""
    low, high = 0, min(len(old), len(new))
    if old[:high] == new[:high]:
        return high
    # The first `low` are the same, the first `high` are not.
    while high - low > 1:
        middle = (low + high) // 2
        if old[low:middle] == new[low:middle]:
            low = middle
        else:
            high = middle
    return low


class Outline(Struct, gc=False):
    """Segments by their codes, digests and sizes in bytes, `total_bytes` in all."""

    codes: str = ""
    digests: array[int] = _NO_DIGESTS
    sizes: array[int] = _NO_SIZES
    total_bytes: int = 0

    @property
    def kept_bytes(self) -> int:
        return 200 + 13 * len(self.codes)


def outline(segments: Iterable[Segment]) -> Outline:
    codes, digests, sizes = [], array("Q"), array("I")
    for code, _, text, role, _ in segments:
        data = text.encode("utf-8", "surrogatepass")
        codes.append(code)
        digests.append(xxh3_64_intdigest(data, hash(role) & 0xFFFFFFFF))
        sizes.append(len(data))
    return Outline("".join(codes), digests, sizes, sum(sizes))


def shape_of(segment: Segment, lines: Lines, *, keep_text: bool = False) -> Shape:
    text, is_message = segment.text, segment.code in "mc"
    seen = _ends(text, MESSAGE_CHARS if is_message else HEAD_CHARS)
    pieces, starts, spans, rest = _pieces(seen, MASKED_CHARS if is_message else HEAD_CHARS, lines)
    bare, reminders = without_reminders(seen) if "</" in seen else (seen, 0)
    return Shape(
        chars=len(text),
        solid=hash("".join(seen.split())),
        ordered=ordered(seen),
        loose=hash(sum(map(hash, seen.translate(_WORDS).split()))),
        bare=hash("".join(bare.split())) if reminders else 0,
        reminders=reminders,
        pieces=pieces,
        starts=starts,
        spans=spans,
        rest=rest,
        is_reminder=segment.role not in _RESULTS
        and (
            (reminders > 0 and len(bare.strip()) * 2 < len(seen))
            or (is_message and segment.role in ("system", "developer") and not seen.isspace())
        ),
        text=seen if keep_text else None,
    )


def _ends(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return f"{text[: most * 3 // 4]}\n{text[-(most // 4) :]}"


class Lines:
    """What was found in lines, by their hash: the next version of a text has most of them again. Bounded by
    their number and that of their places, after which all are forgotten."""

    def __init__(self, max_lines: int = MAX_LINES, max_places: int = MAX_LINE_PLACES) -> None:
        self._max, self._max_places = max_lines, max_places
        self.places = 0
        self.looked_at = 0
        """All places that were found in lines not known yet."""
        self._known: dict[int, tuple[int, Sequence[Place]]] = {}

    def look(self, line: str) -> tuple[int, Sequence[Place]]:
        """Its hash without the places that change by themselves, and these."""
        key = hash(line)
        known = self._known.get(key)
        if known is None:
            found = places(line)
            known = hash(masked(line, found).strip() if found else line.strip()), found
            self.places += len(found)
            self.looked_at += len(found)
            if len(self._known) >= self._max or self.places > self._max_places:
                self._known.clear()
                self.places = len(found)
            self._known[key] = known
        return known


def _pieces(
    text: str, masked_chars: int, lines: Lines
) -> tuple[array[int], array[int], tuple[Span, ...], tuple[int, int, int]]:
    if not may_change(text):
        return *_plain_pieces(text), (), _NOTHING
    hashes, starts = array("q"), array("I")
    spans: list[Span] = []
    values: dict[str, list[int]] = {kind: [] for kind in MASKS}
    shown_bytes = 0
    until, since = masked_chars * 3 // 4, len(text) - masked_chars // 4
    left = MAX_PLACES
    for start, piece in islice(split(text), MAX_PIECES):
        starts.append(start)
        if left <= 0 or until < start < since:
            hashes.append(hash(piece.strip()))
            continue
        line_hash, found = lines.look(piece)
        left -= len(found)
        hashes.append(line_hash)
        for place in found:
            value = hash(piece[place.start : place.end])
            values[place.kind].append(value)
            if len(spans) < MAX_SPANS:
                # Numbers are many, and tell least.
                most = SHAPE_BYTES // 4 if place.kind == COUNTER else SHAPE_BYTES
                look = shown(piece, place) if shown_bytes < most else ""
                shown_bytes += len(look.encode())
                look = look if shown_bytes <= most else ""
                spans.append(Span(place.kind, len(hashes) - 1, start + place.start, value, look))
    _add_rest(text, hashes, starts)
    stamps, ids, counters = (hash(tuple(it)) for it in values.values())
    return hashes, starts, tuple(spans), (stamps, ids, counters)


def _plain_pieces(text: str) -> tuple[array[int], array[int]]:
    found = list(islice(split(text), MAX_PIECES))
    hashes = array("q", [hash(piece.strip()) for _, piece in found])
    starts = array("I", [start for start, _ in found])
    _add_rest(text, hashes, starts)
    return hashes, starts


def _add_rest(text: str, hashes: array[int], starts: array[int]) -> None:
    """What is behind the last of so many pieces counts as one."""
    if len(starts) == MAX_PIECES:
        hashes[-1] = hash(text[starts[-1] :])


class Shapes:
    """Shapes by the digest of their segment, each made once; those used last, at most `max_bytes`."""

    def __init__(self, max_bytes: int = STORE_BYTES, *, keep_text: bool = False) -> None:
        self._max_bytes = max_bytes
        self.keep_text = keep_text
        self._shapes: OrderedDict[int, Shape] = OrderedDict()
        self._lines = Lines()
        self.kept_bytes = 0
        self.made_chars = 0
        """Of all texts that were looked at, with what their places took."""
        self.until_chars: int | None = None
        """No more is looked at once `made_chars` would be more. None: all is."""
        self.passed_over = 0
        """Segments that were not looked at because of that."""

    def __len__(self) -> int:
        return len(self._shapes)

    def get(self, key: int) -> Shape | None:
        """None where it has been forgotten."""
        shape = self._shapes.get(key)
        if shape is not None:
            self._shapes.move_to_end(key)
        return shape

    def put(self, key: int, segment: Segment) -> Shape | None:
        """Of a segment whose digest is `key`; None where so much was looked at that it has to wait until it
        comes again."""
        shape = self.get(key)
        if shape is None:
            chars = min(len(segment.text), MESSAGE_CHARS if segment.code in "mc" else HEAD_CHARS)
            if self.until_chars is not None and self.made_chars + chars > self.until_chars:
                self.passed_over += 1
                return None
            before = self._lines.looked_at
            shape = self._shapes[key] = shape_of(segment, self._lines, keep_text=self.keep_text)
            self.made_chars += SEGMENT_CHARS + chars + PLACE_CHARS * (self._lines.looked_at - before)
            self.kept_bytes += shape.kept_bytes
            while self.kept_bytes > self._max_bytes and len(self._shapes) > 1:
                self.kept_bytes -= self._shapes.popitem(last=False)[1].kept_bytes
        return shape
