"""The prefixes of an engine that keeps one prompt in each slot (llama.cpp), with its host-memory copies.

llama-server gives a new prompt the idle slot with the longest common prefix if that is more than a tenth
of the prompt, else the least recently used idle slot (`tools/server/server-context.cpp`,
`--slot-prompt-similarity` 0.10). A busy slot's prefix helps nobody. Where less than half of the slot's old
prompt is kept, that moves to host memory (`--cache-ram`) first, and a prompt of which at least a quarter is
kept comes back from there; where half or more is kept, neither happens, and the rest of it is lost. The
gateway cannot see that store: its size is assumed, and comes down when a prompt that should have been in it
was not.
"""

from collections.abc import Sequence

from gateway.core.matches import NO_MATCH, Match, Sight, Versioned

_SIMILARITY = 0.10
_HOST_KEEP = 0.25
_SLOT_KEEP = 0.5


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
        self.version = 0
        self._count = slots
        self._slots = [_Slot() for _ in range(slots)]
        self._host: list[tuple[int, ...]] = []
        self._from_host: set[int] = set()

    @property
    def versioned(self) -> Versioned:
        return self

    def __len__(self) -> int:
        return sum(len(slot.blocks) for slot in self._slots) + sum(map(len, self._host))

    def match(self, blocks: Sequence[int]) -> Match:
        if not blocks:
            return NO_MATCH
        slot = self._pick(blocks)
        if slot is None:
            return NO_MATCH
        kept = common_prefix(slot.blocks, blocks)
        return Match(max(kept, self._from_host_memory(slot, kept, blocks)[1]), 0)

    def sight(self, blocks: Sequence[int]) -> Sight:
        busy = [common_prefix(slot.blocks, blocks) for slot in self._slots if slot.key is not None]
        if not busy:
            return Sight(self.match(blocks).resident)
        is_full = len(busy) == len(self._slots)
        shut = self._from_host_memory(_Slot(), 0, blocks)[1] if is_full else 0
        return Sight(self.match(blocks).resident, busy=max(busy), shut=shut)

    def begin(self, key: int, blocks: Sequence[int], now: float = 0.0, sight: Sight | None = None) -> None:
        if not blocks:
            return
        self.version += 1
        prompt = tuple(blocks)
        slot = self._pick(prompt)
        if slot is None:
            return
        kept = common_prefix(slot.blocks, prompt)
        index, from_host = self._from_host_memory(slot, kept, prompt)
        if from_host > kept:
            self._from_host.add(key)
            del self._host[index]
        if self._is_displaced(slot, kept, prompt):
            self._store(slot.blocks)
        self._slots.remove(slot)
        self._slots.append(slot)
        slot.key, slot.blocks, slot.ready = key, prompt, False

    def confirm(self, key: int, now: float = 0.0) -> None:
        for slot in self._slots:
            if slot.key == key:
                slot.ready = True

    def end(self, key: int, now: float = 0.0, *, well: bool = False) -> None:
        """An unfinished prefill leaves an unknown part of the prompt behind: counted as nothing. `well`: it
        was finished."""
        self.version += 1
        self._from_host.discard(key)
        for slot in self._slots:
            if slot.key == key:
                slot.key = None
                if well:
                    slot.ready = True
                if not slot.ready:
                    slot.blocks, slot.ready = (), True
        self._trim()

    def forget(self) -> None:
        self.version += 1
        self._host.clear()
        for slot in self._slots:
            slot.blocks = ()

    def delivered(self, key: int, predicted_tokens: int, cached_tokens: int) -> None:
        """Compare with the engine's own count: a host copy that was not there halves the assumed size."""
        self.version += 1
        if key in self._from_host and cached_tokens * 2 < predicted_tokens:
            self.bound_blocks //= 2
            self._host.clear()

    def unshared(self, blocks: Sequence[int]) -> int:
        """How many of a prompt's blocks one slot holds and no other does: 0 if none holds them all."""
        held = sorted((common_prefix(slot.blocks, blocks) for slot in self._slots), reverse=True)
        if not held or held[0] < len(blocks):
            return 0
        return held[0] - (held[1] if len(held) > 1 else 0)

    def resize(self, slots: int) -> None:
        """The engine runs another number of slots now; busy ones go when their request ends."""
        self.version += 1
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

    def _is_displaced(self, slot: _Slot, kept: int, prompt: Sequence[int]) -> bool:
        """Whether the server turns to host memory before it gives `prompt` the slot."""
        similar = kept > _SIMILARITY * len(prompt)
        return bool(slot.blocks) and not (similar and kept >= _SLOT_KEEP * len(slot.blocks))

    def _from_host_memory(self, slot: _Slot, kept: int, blocks: Sequence[int]) -> tuple[int, int]:
        """(index, blocks kept) of the best copy in host memory, (-1, 0) where none is looked for."""
        index, best = -1, 0
        if slot.blocks and not self._is_displaced(slot, kept, blocks):
            return index, best
        for at, held in enumerate(self._host):
            # Equal at `best` or no longer match than that: there are hundreds where prompts are short.
            if best >= len(blocks) or best >= len(held) or held[best] != blocks[best]:
                continue
            kept = common_prefix(held, blocks)
            if kept > best and kept >= _HOST_KEEP * len(held):
                index, best = at, kept
        return index, best

    def _store(self, prompt: tuple[int, ...]) -> None:
        self._host.append(prompt)
        excess = sum(map(len, self._host)) - self.bound_blocks
        while self._host and excess > 0:
            excess -= len(self._host.pop(0))
