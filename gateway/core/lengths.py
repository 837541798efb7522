"""How many tokens the first blocks of a prompt are, learned from whole prompts that engines have counted.

Bytes per token vary twofold between the parts of one prompt (prose, code, tool schemas, other languages), so
one ratio for a model mistakes a tenth of a prefix for evicted. But a conversation's next prompt begins with
the one before, whose length an engine has told: there the count is known, and between two such points it is
interpolated.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence

from msgspec import Struct

STRIDE = 4
"""Blocks between two marks of a chain."""

MAX_MARKS = 1 << 17
"""Marks remembered, of those used last up to twice as many: 33 million prompt tokens and 12 MB each."""

VARIES = 0.5
"""By how much of itself a length may be wrong that lies between two known ones."""


class Span(Struct):
    """A stretch of a chain between two depths at which its length is known, or was estimated when the later
    one became known. `sure` is the deepest known at its start; `last` the hash of its last block."""

    start: int
    start_tokens: float
    sure_tokens: float
    end: int
    end_tokens: float
    last: int

    def is_passed_by(self, blocks: Sequence[int]) -> bool:
        """Whether `blocks`, which share some of it, hold all of it."""
        return self.end <= len(blocks) and blocks[self.end - 1] == self.last

    def tokens_at(self, depth: int) -> float:
        start, start_tokens = self.start, self.start_tokens
        return start_tokens + (depth - start) / (self.end - start) * (self.end_tokens - start_tokens)


class Lengths:
    """Marks of all chains, whatever the engine. A chain's hashes are seeded by the model's name, so models do
    not mix. `block_bytes`: canonical bytes behind each hash."""

    def __init__(self, block_bytes: int, max_marks: int = MAX_MARKS) -> None:
        self._block_bytes = block_bytes
        self._max_marks = max_marks
        self._young: dict[int, Span] = {}
        self._old: dict[int, Span] = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def ruler(self, blocks: Sequence[int], bytes_per_token: float) -> "Ruler":
        strides = len(blocks) // STRIDE
        # A prompt that was asked before is marked to its end.
        last = self._young.get(blocks[strides * STRIDE - 1]) if strides else None
        if last is None:
            strides, last = self._deepest(blocks)
        return Ruler(blocks, self._block_bytes / bytes_per_token, self._find, strides, last)

    def learn(self, blocks: Sequence[int], tokens: float) -> None:
        """`blocks`, all of them, are so many tokens."""
        self.learn_by(self.ruler(blocks, 1.0), tokens)

    def learn_by(self, ruler: "Ruler", tokens: float) -> bool:
        """All blocks of the ruler are so many tokens. Whether it knows that: not if marks have just aged, so
        that it would not keep them young."""
        blocks, span = ruler.blocks, ruler.last
        end = len(blocks)
        if span is not None and span.end == end and span.end_tokens == tokens and blocks[-1] == span.last:
            return True
        stride, start, start_tokens, sure_tokens = ruler.deepest, 0, 0.0, 0.0
        if span is not None and span.is_passed_by(blocks):
            if span.end == end:
                # Another template, or a reload with another tokenizer: what was said last holds.
                span.end_tokens = max(tokens, span.start_tokens)
            start, start_tokens = span.end, span.end_tokens
            sure_tokens = start_tokens
        elif span is not None:
            start, sure_tokens = stride * STRIDE, span.sure_tokens
            start_tokens = span.tokens_at(start)
            if start_tokens >= tokens:
                start_tokens = tokens * start / end
        if start >= end or tokens <= start_tokens:
            return True
        made = Span(start, start_tokens, sure_tokens, end, tokens, blocks[end - 1])
        strides = end // STRIDE
        for at in range(stride + 1, strides + 1):
            self._young[blocks[at * STRIDE - 1]] = made
        if strides > stride:
            ruler.deepest, ruler.last = strides, made
        if len(self._young) <= self._max_marks:
            return True
        self._old, self._young = self._young, {}
        return False

    def _find(self, block: int) -> Span | None:
        span = self._young.get(block)
        if span is None and block in self._old:
            span = self._young[block] = self._old.pop(block)
        return span

    def _deepest(self, blocks: Sequence[int]) -> tuple[int, Span | None]:
        """The last stride of `blocks` that is marked, and what that tells; 0: none."""
        strides = len(blocks) // STRIDE
        if not strides:
            return _UNMARKED
        # A prompt that was asked before is marked to its end, a new one not even at its start.
        span = self._find(blocks[strides * STRIDE - 1])
        if span is not None:
            return strides, span
        if self._find(blocks[STRIDE - 1]) is None:
            return _UNMARKED
        young, old, low, high = self._young, self._old, 0, strides
        while low < high:
            middle = (low + high) >> 1
            block = blocks[middle * STRIDE + STRIDE - 1]
            if block in young or (block in old and self._find(block) is not None):
                low = middle + 1
            else:
                high = middle
        return low, self._find(blocks[low * STRIDE - 1])


_LEAST, _MOST = 1.0 - VARIES, 1.0 + VARIES
_ROUNDING = 1e-6
_UNMARKED: tuple[int, Span | None] = (0, None)


class Ruler(Struct, eq=False, gc=False):
    """The lengths of one chain, in tokens. `usual_tokens`: of a block of which nothing is known. `deepest` is
    the last stride that is marked, with `last`."""

    blocks: Sequence[int]
    usual_tokens: float
    find: Callable[[int], Span | None]
    deepest: int
    last: Span | None

    def tokens_at(self, depth: int) -> float:
        """Of the first `depth` blocks, as well as it is known."""
        return self.tokens_by(self._span_at(depth), depth)

    def tokens_by(self, span: Span | None, depth: int) -> float:
        """`span` is the one that tells of this depth: `last`, of all blocks."""
        if span is None:
            return depth * self.usual_tokens
        known = span.end if span.is_passed_by(self.blocks) else self.deepest * STRIDE
        if depth <= known:
            return span.tokens_at(depth)
        return _extended(span.tokens_at(known), known, depth)

    def whole(self) -> tuple[float, float]:
        """Of all blocks, and of those that were there in some prompt before: to the end of that, or else to
        the last mark, which may be up to `STRIDE` - 1 blocks too little."""
        count, span = len(self.blocks), self.last
        if span is None:
            return count * self.usual_tokens, 0.0
        known = span.end if span.is_passed_by(self.blocks) else self.deepest * STRIDE
        seen_tokens = span.tokens_at(known)
        return seen_tokens if count <= known else _extended(seen_tokens, known, count), seen_tokens

    def may_have(self, depth: int, cached_tokens: int, unit_tokens: int) -> bool:
        """Whether an engine that reports `cached_tokens` may have had the first `depth` blocks: those of
        `depths`, for one depth and at once."""
        if depth <= 0:
            return True
        span, most = self._span_at(depth), cached_tokens + unit_tokens
        # What it is at least is no more than the greater of what it is estimated at and what is sure.
        if (span is None or span.sure_tokens < most) and self.tokens_by(span, depth) < most - _ROUNDING:
            return True
        return self._at(depth)[1] < most

    def depths(self, cached_tokens: int, unit_tokens: int) -> tuple[int, int]:
        """How many blocks an engine surely had, and how many it may have had, that reports `cached_tokens`
        and counts in units of its own."""
        count = len(self.blocks)
        at_least = _last(count, lambda depth: self._at(depth)[2] <= cached_tokens)
        at_most = _last(count, lambda depth: self._at(depth)[1] < cached_tokens + unit_tokens)
        return at_least, max(at_least, at_most)

    def _at(self, depth: int) -> tuple[float, float, float]:
        """Tokens of the first `depth` blocks: as estimated, at least, at most."""
        span = self._span_at(depth)
        if span is None:
            return _within(depth * self.usual_tokens, 0.0)
        is_passed = span.is_passed_by(self.blocks)
        # How much of it the span tells; what is deeper is extended from there.
        known = span.end if is_passed else self.deepest * STRIDE
        if known < depth:
            tokens = span.tokens_at(known)
            sure_tokens = tokens if is_passed else span.sure_tokens
            return _within(_extended(tokens, known, depth), sure_tokens)
        estimate, least, most = _within(span.tokens_at(depth), span.sure_tokens)
        if not is_passed:
            return estimate, least, most
        rest = span.end_tokens - estimate
        least = max(least, span.end_tokens - _MOST * rest)
        return estimate, least, min(most, span.end_tokens - _LEAST * rest)

    def _span_at(self, depth: int) -> Span | None:
        """That which tells of a depth: from the deepest mark on it is `last`."""
        if self.last is None or depth >= self.deepest * STRIDE:
            return self.last
        span = self._span(-(-depth // STRIDE))
        if span is not None and depth <= span.start:
            span = self._span(depth // STRIDE)
        return span

    def _span(self, stride: int) -> Span | None:
        """That of the mark at `stride`."""
        return self.find(self.blocks[stride * STRIDE - 1]) if stride else None


def _within(estimate: float, sure: float) -> tuple[float, float, float]:
    return estimate, sure + _LEAST * (estimate - sure), sure + _MOST * (estimate - sure)


def _extended(tokens: float, known: int, depth: int) -> float:
    """The length of `depth` blocks in the ratio of the `tokens` of the first `known`."""
    return tokens + (depth - known) * tokens / known


def _last(count: int, holds: Callable[[int], bool]) -> int:
    """The largest number up to `count` for which `holds`, as it does for all smaller ones; 0 always does."""
    return bisect_left(range(1, count + 1), True, key=lambda number: not holds(number))
