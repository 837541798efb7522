"""The prefixes of an engine that keeps one prompt in each slot (llama.cpp), with its host-memory copies.

llama-server gives a new prompt the idle slot with the longest common prefix if that is more than a tenth
of the prompt, else the least recently used idle slot (`tools/server/server-context.cpp`,
`--slot-prompt-similarity` 0.10). A busy slot's prefix helps nobody. The prompt that is displaced moves to
host memory (`--cache-ram`), from where a later one that keeps at least a quarter of it takes it back
(`server-task.cpp`). The gateway cannot see that store, so it is assumed, and given up for the engine once
a prompt that should have come from it did not.
"""

from collections.abc import Sequence

from gateway.core.prefix import NO_MATCH, Match

_SIMILARITY = 0.10
_HOST_KEEP = 0.25


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the common head of two chains; equal hashes at i imply equal heads, so it bisects."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) >> 1
        if a[middle - 1] == b[middle - 1]:
            low = middle
        else:
            high = middle - 1
    return low


class _Slot:
    __slots__ = ("blocks", "key", "ready")

    def __init__(self) -> None:
        self.blocks: tuple[int, ...] = ()
        self.key: int | None = None
        self.ready = True


class SlotCache:
    """`slots` prompts and at most `bound_blocks` of blocks in host memory, least recently used first."""

    def __init__(self, slots: int, bound_blocks: int) -> None:
        self.bound_blocks = bound_blocks
        self._count = slots
        self._slots = [_Slot() for _ in range(slots)]
        self._host: list[tuple[int, ...]] = []
        self._from_host: set[int] = set()

    def __len__(self) -> int:
        return sum(len(slot.blocks) for slot in self._slots) + sum(map(len, self._host))

    def match(self, blocks: Sequence[int]) -> Match:
        if not blocks:
            return NO_MATCH
        slot = self._pick(blocks)
        kept = 0 if slot is None else common_prefix(slot.blocks, blocks)
        return Match(max(kept, self._best_host(blocks)[1]), 0)

    def begin(self, key: int, blocks: Sequence[int]) -> None:
        prompt = tuple(blocks)
        slot = self._pick(prompt)
        if slot is None:
            return
        kept = common_prefix(slot.blocks, prompt)
        index, from_host = self._best_host(prompt)
        if from_host > kept:
            self._from_host.add(key)
            del self._host[index]
        if slot.blocks and kept < len(slot.blocks):
            self._store(slot.blocks)
        self._slots.remove(slot)
        self._slots.append(slot)
        slot.key, slot.blocks, slot.ready = key, prompt, False

    def confirm(self, key: int) -> None:
        for slot in self._slots:
            if slot.key == key:
                slot.ready = True

    def end(self, key: int) -> None:
        """An unfinished prefill leaves an unknown part of the prompt behind: counted as nothing."""
        self._from_host.discard(key)
        for slot in self._slots:
            if slot.key == key:
                slot.key = None
                if not slot.ready:
                    slot.blocks, slot.ready = (), True
        self._trim()

    def forget(self) -> None:
        self._host.clear()
        for slot in self._slots:
            slot.blocks = ()

    def delivered(self, key: int, predicted_tokens: int, cached_tokens: int) -> None:
        """Compare with the engine's own count: a host copy that was not there ends the assumption."""
        if key in self._from_host and cached_tokens * 2 < predicted_tokens:
            self.bound_blocks = 0
            self._host.clear()

    def resize(self, slots: int) -> None:
        """The engine runs another number of slots now; busy ones go when their request ends."""
        self._count = slots
        while len(self._slots) < slots:
            self._slots.insert(0, _Slot())
        self._trim()

    def _trim(self) -> None:
        excess = len(self._slots) - self._count
        if excess > 0:
            idle = [slot for slot in self._slots if slot.key is None]
            for slot in idle[:excess]:
                self._slots.remove(slot)

    def _pick(self, prompt: Sequence[int]) -> _Slot | None:
        """The idle slot that llama-server would take."""
        idle = [slot for slot in self._slots if slot.key is None]
        if not idle:
            return None
        best = max(idle, key=lambda slot: common_prefix(slot.blocks, prompt))
        if prompt and common_prefix(best.blocks, prompt) > _SIMILARITY * len(prompt):
            return best
        return idle[0]

    def _best_host(self, blocks: Sequence[int]) -> tuple[int, int]:
        index, best = -1, 0
        for at, held in enumerate(self._host):
            kept = common_prefix(held, blocks)
            if kept > best and kept >= _HOST_KEEP * len(held):
                index, best = at, kept
        return index, best

    def _store(self, prompt: tuple[int, ...]) -> None:
        self._host.append(prompt)
        excess = sum(map(len, self._host)) - self.bound_blocks
        while self._host and excess > 0:
            excess -= len(self._host.pop(0))
