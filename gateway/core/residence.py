"""Which of a prompt's KV blocks an engine holds, where its events tell of blocks and not of prompts.

An engine's block is a hash of tokens, ours one of bytes, and only the engine has a tokenizer. So the two are
joined by shape: a request's usage says with which block of its chain the engine began to compute (cached
tokens) and with which it ended (prompt and completion), and mostly just one run of blocks began and ended so
while the request ran. From then on a prompt with the same first bytes has the same first blocks.
"""

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence

from msgspec import Struct

from gateway.core.events import BlockEvent
from gateway.core.held import Held, Stretch
from gateway.core.lengths import Ruler
from gateway.core.request import Request, Usage

STRIDE = 2
"""Blocks of bytes between two at which a prompt can be found."""

MAX_BLOCKS = 1 << 20
"""Engine blocks in all chains that are remembered: 8 MB, and the prompts of 16 million tokens."""

MAX_FORKS = 1 << 14
LATE_S = 1.0
"""How long a request's events may be on their way when its answer has ended."""

SILENT_S = 10.0
"""Requests have ended for so long without any event: nobody publishes them, or somewhere else."""

_NEAR_TOKENS = 8
"""By how many tokens an engine may have computed more or less than it told: it runs ahead of a stop."""

_KEEP = 0.95


class Told(Struct, frozen=True, gc=False):
    """`tokens` of a prompt are there, of those that are known by its first `depth` blocks of bytes; `whole`:
    nothing of these is missing, so there may be more."""

    tokens: int
    depth: int
    whole: bool


class _Chain(Struct, eq=False, gc=False):
    """One conversation: the bytes of its last prompt and the engine's blocks of that and of the answer.
    `forked_from` has its first blocks, too."""

    blocks: "array[int]"
    hashes: "array[int]"
    prompt_tokens: int
    marked_from: int
    forked_from: "_Chain | None"


class _Ended(Struct, frozen=True, gc=False):
    blocks: Sequence[int]
    began_s: float
    ended_s: float
    prompt_tokens: int
    cached_tokens: int
    computed_tokens: int


class Residence:
    """One engine's. `block_tokens`: tokens in one of its blocks. Nothing is known until it is told."""

    def __init__(self, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self.held = Held()
        self.placed = 0
        self.unplaced = 0
        """Requests whose blocks were found, and whose were not."""
        self._began: dict[int, float] = {}
        self._ended: list[_Ended] = []
        self._late: list[_Ended] = []
        self._chains: dict[int, _Chain] = {}
        self._marks: dict[int, _Chain] = {}
        self._forks: dict[int, int] = {}
        self._prompt_error = self._answer_error = 0.0
        self._blocks = 0
        self._heard_s = -math.inf
        self._waits_since: float | None = None

    # What happens

    def begin(self, key: int, now: float) -> None:
        self._began[key] = now

    def drop(self, key: int) -> None:
        """The request is over, and its blocks will not be looked for."""
        self._began.pop(key, None)

    def end(self, request: Request, blocks: Sequence[int], usage: Usage, now: float) -> None:
        """The request has ended well. `blocks`: of its prompt under the model that answered."""
        began_s = self._began.pop(request.key, None)
        prompt, cached = usage.prompt_tokens, usage.cached_tokens
        if began_s is None or request.width != 1 or len(blocks) < STRIDE or prompt is None or cached is None:
            return
        # The last token of an answer is told and not computed any more.
        computed = prompt + max(usage.completion_tokens or 0, 1) - 1
        self._ended.append(_Ended(blocks, began_s, now, prompt, cached, computed))
        has_stored = prompt - cached > self.block_tokens
        if has_stored and self._heard_s < began_s and self._waits_since is None:
            self._waits_since = now

    def hear(self, events: Iterable[BlockEvent], now: float) -> bool:
        """Whether what `told` says may be different now. Minus infinity: of what was before all requests."""
        self._waits_since = None
        self._heard_s = max(self._heard_s, now)
        # Before what comes may go on where theirs ended.
        changed = self._place()
        for event in events:
            changed |= self.held.hear(event, now)
        return self.place(now) or changed

    def place(self, now: float) -> bool:
        """Look for the blocks of requests that have ended, also of those that were looked for before. Whether
        some were found."""
        changed = self._place()
        if self._late:
            placed, late = self.placed, self._late
            self._late = [it for it in late if not self._is_placed(it) and not self._is_given_up(it, now)]
            changed |= self.placed != placed
        return changed

    def _place(self) -> bool:
        """Of those that were not looked for before. Whether some were found."""
        if not self._ended:
            return False
        placed, ended = self.placed, self._ended
        self._ended = []
        self._late += [it for it in ended if not self._is_placed(it)]
        return self.placed != placed

    def _is_given_up(self, it: _Ended, now: float) -> bool:
        is_over = now - it.ended_s >= LATE_S
        self.unplaced += is_over
        return is_over

    def is_silent(self, now: float) -> bool:
        """Whether requests have long ended that must have stored blocks, and no event came."""
        return self._waits_since is not None and now - self._waits_since >= SILENT_S

    def clear(self) -> None:
        """Events were lost, or the engine restarted: what it holds is not known any more."""
        self.held.clear()
        self._ended.clear()
        self._late.clear()
        self._chains.clear()
        self._marks.clear()
        self._forks.clear()
        self._blocks = 0
        self._waits_since = None

    # What is known

    def told(
        self, blocks: Sequence[int], ruler: Ruler, prompt_tokens: int, likely_depth: int = 0
    ) -> Told | None:
        """How much of a prompt is there; None if nothing of it was met before. `likely_depth`: so many of its
        blocks are known elsewhere."""
        if self._ended:
            self._place()
        depth, chain = self._deepest(blocks, likely_depth)
        if chain is None:
            return None
        hashes, unit = chain.hashes, self.block_tokens
        reach = min(self._reach(blocks, depth, chain, ruler), len(hashes), (prompt_tokens - 1) // unit)
        held = self.held
        if reach <= 0 or hashes[reach - 1] in held:
            # A block is used whenever one after it is, and so never goes before that.
            return Told(max(0, reach) * unit, depth, True)
        present = bisect_left(range(1, reach), True, key=lambda number: hashes[number - 1] not in held)
        return Told(present * unit, depth, False)

    def _deepest(self, blocks: Sequence[int], likely: int = 0) -> tuple[int, _Chain | None]:
        """How many of `blocks` a prompt began with that is known, and its chain."""
        marks, strides = self._marks, len(blocks) // STRIDE
        if not strides or blocks[STRIDE - 1] not in marks:
            return 0, None
        low, high, at = 1, strides, likely // STRIDE
        if at > 1:
            if blocks[at * STRIDE - 1] not in marks:
                high = at - 1
            else:
                low = at
                if at < high and blocks[(at + 1) * STRIDE - 1] not in marks:
                    high = at
        while low < high:
            middle = (low + high + 1) >> 1
            if blocks[middle * STRIDE - 1] in marks:
                low = middle
            else:
                high = middle - 1
        depth = low * STRIDE
        chain = marks[blocks[depth - 1]]
        own = chain.blocks
        end = min(len(own), len(blocks))
        while depth < end and own[depth] == blocks[depth]:
            depth += 1
        return depth, chain

    def _reach(self, blocks: Sequence[int], depth: int, chain: _Chain, ruler: Ruler) -> int:
        """How many of the chain's engine blocks a prompt has that shares its first `depth` blocks of bytes.

        One that goes on from all of them has the whole prompt, and mostly the answer as well, word for word.
        """
        if depth < len(chain.blocks):
            seen = self._forks.get(blocks[depth - 1])
            return int(ruler.tokens_at(depth)) // self.block_tokens if seen is None else seen
        if self._answer_error < self._prompt_error:
            return len(chain.hashes)
        return chain.prompt_tokens // self.block_tokens

    # Whose blocks these are

    def _is_placed(self, it: _Ended) -> bool:
        """Whether its blocks were found, or there are none."""
        depth, chain = self._deepest(it.blocks)
        unit = self.block_tokens
        start, end = it.cached_tokens // unit, it.computed_tokens // unit
        if start >= end:
            # It computed no whole block, so nothing tells of it; where its start is known all of it is.
            return True
        hashes = self._path(it, start, end, chain)
        if hashes is None:
            return False
        self.placed += 1
        if chain is not None:
            self._learn_reach(it, depth, chain, hashes)
        self._keep(it, depth, chain, hashes)
        return True

    def _path(self, it: _Ended, start: int, end: int, chain: _Chain | None) -> "array[int] | None":
        """The request's chain of engine blocks, if only one stretch can be it."""
        near = chain.hashes if chain is not None else array("Q")
        for until_s in (it.ended_s, it.ended_s + LATE_S):
            found = self._shaped(it.began_s, until_s, start, end)
            if len(found) > 1:
                found = [stretch for stretch in found if _follows(stretch, near)]
            if len(found) == 1:
                path = self.held.path(found[0], near)
                self.held.claim(found[0])
                return path
        return None

    def _shaped(self, since_s: float, until_s: float, start: int, end: int) -> list[Stretch]:
        """What grew from block `start` to `end`, or about there."""
        grown = [it for it in self.held.grown(since_s, until_s) if it.start == start]
        found = [it for it in grown if it.end == end]
        if found:
            return found
        slack = -(-_NEAR_TOKENS // self.block_tokens)
        return [it for it in grown if abs(it.end - end) <= slack]

    def _learn_reach(self, it: _Ended, depth: int, chain: _Chain, hashes: "array[int]") -> None:
        known = chain.hashes
        most = min(len(known), len(hashes))
        common = bisect_left(
            range(1, most + 1), True, key=lambda count: known[count - 1] != hashes[count - 1]
        )
        if depth < len(chain.blocks):
            if len(self._forks) >= MAX_FORKS:
                del self._forks[next(iter(self._forks))]
            self._forks[it.blocks[depth - 1]] = common
            return
        self._prompt_error = _KEEP * self._prompt_error + abs(
            chain.prompt_tokens // self.block_tokens - common
        )
        self._answer_error = _KEEP * self._answer_error + abs(len(known) - common)

    def _keep(self, it: _Ended, depth: int, chain: _Chain | None, hashes: "array[int]") -> None:
        if chain is not None and depth == len(chain.blocks):
            self._blocks -= len(chain.hashes)
            chain.blocks.extend(it.blocks[depth:])
            chain.hashes, chain.prompt_tokens = hashes, it.prompt_tokens
        elif depth < len(it.blocks):
            first = depth // STRIDE * STRIDE
            chain = _Chain(array("Q", it.blocks), hashes, it.prompt_tokens, first, chain)
        else:
            return
        self._blocks += len(hashes)
        for at in range((depth // STRIDE + 1) * STRIDE - 1, len(it.blocks), STRIDE):
            self._marks[it.blocks[at]] = chain
        self._use(chain)
        while self._blocks > MAX_BLOCKS and len(self._chains) > 1:
            self._forget(self._chains.pop(next(iter(self._chains))))

    def _use(self, chain: _Chain) -> None:
        """What a chain was forked from is used after it, and so remembered for longer."""
        it: _Chain | None = chain
        while it is not None:
            self._chains.pop(id(it), None)
            self._chains[id(it)] = it
            it = it.forked_from

    def _forget(self, chain: _Chain) -> None:
        self._blocks -= len(chain.hashes)
        for at in range(chain.marked_from + STRIDE - 1, len(chain.blocks), STRIDE):
            self._marks.pop(chain.blocks[at], None)


def _follows(stretch: Stretch, near: Sequence[int]) -> bool:
    """Whether a stretch goes on from a chain."""
    return 0 < stretch.start <= len(near) and near[stretch.start - 1] == stretch.parent
