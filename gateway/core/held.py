"""Which KV blocks an engine says that it holds, and how they came there."""

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from msgspec import Struct

from gateway.core.events import BlockEvent, Removed, Stored

MAX_RUNS = 1024
"""Runs remembered of which no request is known: of those that failed, and of other clients of the engine."""

_UNKNOWN = -1


class Run(Struct, eq=False, gc=False):
    """Blocks that an engine computed one after the other: the first of them is number `start` of its chain
    (counted from 0; below that where it is not known) and follows `parent`. It had `sizes` blocks once it had
    grown at `grown_s`. `claimed`: its request is known or will never be, so what comes after it is another's.
    """

    start: int
    parent: int | None
    hashes: list[int]
    grown_s: list[float]
    sizes: list[int]
    claimed: bool = False


class Stretch(Struct, frozen=True, eq=False, gc=False):
    """What a run grew by in some time: blocks `start` to `end` of a chain."""

    run: Run
    start: int
    end: int

    @property
    def parent(self) -> int | None:
        """The block before the first."""
        run = self.run
        return run.hashes[self.start - run.start - 1] if self.start > run.start else run.parent


class Held:
    """One engine's KV blocks, as its events tell."""

    def __init__(self) -> None:
        self._runs: dict[int, Run] = {}
        self._again: dict[int, int] = {}
        self.unclaimed: list[Run] = []

    def __len__(self) -> int:
        return len(self._runs)

    def __contains__(self, block: object) -> bool:
        return block in self._runs

    def hear(self, event: BlockEvent, now: float) -> bool:
        """Whether a block went of which it is known whose it was. `now` is minus infinity for what was before
        all requests."""
        if isinstance(event, Stored):
            self._store(event.hashes, event.parent, now)
            return False
        if isinstance(event, Removed):
            return self._remove(event.hashes)
        self.clear()
        return True

    def clear(self) -> None:
        self._runs.clear()
        self._again.clear()
        self.unclaimed.clear()

    def grown(self, since_s: float, until_s: float) -> list[Stretch]:
        """What grew in that time and has no request."""
        return [
            grown
            for it in self.unclaimed
            if it.grown_s[-1] >= since_s and (grown := _cut(it, since_s, until_s))
        ]

    def claim(self, stretch: Stretch) -> None:
        """The request of a stretch is known. What its run grew by later is another's."""
        run, at = stretch.run, stretch.end - stretch.run.start
        run.claimed = True
        self.unclaimed.remove(run)
        if at == len(run.hashes):
            return
        step = run.sizes.index(at) + 1
        rest, sizes = run.hashes[at:], [size - at for size in run.sizes[step:]]
        later = Run(stretch.end, run.hashes[at - 1], rest, run.grown_s[step:], sizes)
        self.unclaimed.append(later)
        for block in rest:
            if block in self._runs:
                self._runs[block] = later
        del run.hashes[at:], run.grown_s[step:], run.sizes[step:]

    def path(self, stretch: Stretch, near: Sequence[int]) -> "array[int] | None":
        """The chain of blocks from a prompt's start to the end of a stretch; None where a part is not known.
        `near`: a chain that most likely has its first blocks."""
        run, end = stretch.run, stretch.end
        parts = []
        while True:
            start, parent = run.start, run.parent
            parts.append(run.hashes[: end - start])
            if start == 0:
                return _joined(array("Q"), parts)
            if start <= len(near) and near[start - 1] == parent:
                return _joined(array("Q", near[:start]), parts)
            above = None if parent is None else self._runs.get(parent)
            if above is None or above.start == _UNKNOWN:
                return None
            run, end = above, start

    def _store(self, hashes: list[int], parent: int | None, now: float) -> None:
        runs = self._runs
        run = self._continued(parent, hashes, now)
        if not runs.keys().isdisjoint(hashes):
            # Two requests computed the same side by side: the engine has it twice, and removes it twice.
            for block in hashes:
                if block in runs:
                    self._again[block] = self._again.get(block, 0) + 1
        runs.update(dict.fromkeys(hashes, run))

    def _continued(self, parent: int | None, hashes: list[int], now: float) -> Run:
        """The run that `hashes` belong to, with them."""
        above = None if parent is None else self._runs.get(parent)
        if above is not None and not above.claimed and above.hashes[-1] == parent:
            above.hashes.extend(hashes)
            above.grown_s.append(now)
            above.sizes.append(len(above.hashes))
            return above
        start = 0
        if parent is not None:
            start = _UNKNOWN
            if above is not None and above.start != _UNKNOWN:
                start = above.start + above.hashes.index(parent) + 1
        run = Run(start, parent, list(hashes), [now], [len(hashes)])
        if start == _UNKNOWN or now == -math.inf:
            run.claimed = True
            return run
        self.unclaimed.append(run)
        if len(self.unclaimed) > MAX_RUNS:
            self.unclaimed.sort(key=_last_grown)
            del self.unclaimed[: MAX_RUNS // 2]
        return run

    def _remove(self, hashes: list[int]) -> bool:
        runs, again, known = self._runs, self._again, False
        for block in hashes:
            if again and (count := again.pop(block, 0)):
                if count > 1:
                    again[block] = count - 1
                continue
            run = runs.pop(block, None)
            if run is not None and run.claimed:
                known = True
        return known


def _joined(first: "array[int]", parts: list[list[int]]) -> "array[int]":
    """`first`, then `parts` from the last to the first."""
    for part in reversed(parts):
        first.extend(part)
    return first


def _cut(run: Run, since_s: float, until_s: float) -> Stretch | None:
    first, last = bisect_left(run.grown_s, since_s), bisect_right(run.grown_s, until_s)
    if first >= last:
        return None
    return Stretch(run, run.start + (run.sizes[first - 1] if first else 0), run.start + run.sizes[last - 1])


def _last_grown(run: Run) -> float:
    return run.grown_s[-1]
