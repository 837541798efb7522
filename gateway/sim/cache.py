"""What a simulated engine keeps of earlier prompts: shared KV blocks, or one prefix in each slot."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol

# llama.cpp --slot-prompt-similarity: the part of the new prompt that a slot must hold to be chosen for it.
SLOT_SIMILARITY = 0.1


class Need:
    """One sequence that wants to start: its prompt, and the room its answer may take.

    `follows` marks a further choice of the same prompt: it shares the prompt's KV with the first one.
    """

    __slots__ = ("chain", "follows", "output_tokens", "prompt", "salt")

    def __init__(
        self, prompt: tuple[int, ...], output_tokens: int, *, salt: str = "", follows: bool = False
    ) -> None:
        self.prompt = prompt
        self.output_tokens = output_tokens
        self.salt = salt
        self.follows = follows
        self.chain: list[int] | None = None


class Holding:
    """What one running sequence holds. `cached_tokens` of its prompt were there before it started."""

    __slots__ = ("cached_tokens", "hashes", "need", "private_blocks", "slot")

    def __init__(self, need: Need, cached_tokens: int) -> None:
        self.need = need
        self.cached_tokens = cached_tokens
        self.hashes: list[int] = []
        self.private_blocks = 0
        self.slot = -1


class Cache(Protocol):
    """Where the KV of running and of earlier sequences lives."""

    @property
    def usage(self) -> float:
        """The part in use by running sequences, 0 to 1."""
        ...

    def acquire(self, needs: Sequence[Need]) -> list[Holding] | None:
        """Room for all of `needs`, or None and nothing changed."""
        ...

    def fill(self, holding: Holding, tokens: tuple[int, ...]) -> None:
        """The KV of `tokens` (prompt, or prompt and answer) has been computed."""
        ...

    def release(self, holding: Holding) -> None:
        """The sequence is gone; what was filled stays until its room is needed."""
        ...


class BlockPool:
    """Shared blocks of `block_tokens`, found by the hash of all up to them, evicted least recently used.

    As in vLLM: only full blocks are kept, a hit stops before the last token of the prompt, and the blocks
    of a sequence are given back from its end, so that no block outlives the one before it.
    Room for the whole answer is reserved at the start: there is no preemption.
    """

    def __init__(self, kv_tokens: int, block_tokens: int) -> None:
        self.total_blocks = max(1, kv_tokens // block_tokens)
        self._block_tokens = block_tokens
        self._refs: dict[int, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._private_blocks = 0

    @property
    def usage(self) -> float:
        return min(1.0, self._used_blocks / self.total_blocks)

    @property
    def _used_blocks(self) -> int:
        return len(self._refs) + self._private_blocks

    def acquire(self, needs: Sequence[Need]) -> list[Holding] | None:
        hits = [self._hits(need) for need in needs]
        private = [self._blocks(need) - len(found) for need, found in zip(needs, hits, strict=True)]
        woken = {block for found in hits for block in found if block in self._idle}
        wanted_blocks = len(woken) + sum(private)
        # A request larger than the pool runs alone: real engines refuse it by max_model_len before.
        if self._used_blocks and self._used_blocks + wanted_blocks > self.total_blocks:
            return None
        holdings = []
        for need, found, private_blocks in zip(needs, hits, private, strict=True):
            holding = Holding(need, len(found) * self._block_tokens)
            holding.private_blocks = private_blocks
            self._private_blocks += private_blocks
            for block in found:
                self._take(holding, block)
            holdings.append(holding)
        self._evict()
        return holdings

    def fill(self, holding: Holding, tokens: tuple[int, ...]) -> None:
        if holding.need.follows:
            return
        for block in self._chain(tokens, holding.need.salt)[len(holding.hashes) :]:
            self._take(holding, block)
            holding.private_blocks -= 1
            self._private_blocks -= 1
        self._evict()

    def release(self, holding: Holding) -> None:
        self._private_blocks -= holding.private_blocks
        holding.private_blocks = 0
        for block in reversed(holding.hashes):
            self._refs[block] -= 1
            if not self._refs[block]:
                del self._refs[block]
                self._idle[block] = None
        holding.hashes.clear()
        self._evict()

    def _take(self, holding: Holding, block: int) -> None:
        self._idle.pop(block, None)
        self._refs[block] = self._refs.get(block, 0) + 1
        holding.hashes.append(block)

    def _evict(self) -> None:
        while self._idle and len(self._idle) + self._used_blocks > self.total_blocks:
            self._idle.popitem(last=False)

    def _blocks(self, need: Need) -> int:
        # The KV of the last token is never computed.
        tokens = max(0, need.output_tokens - 1) + (0 if need.follows else len(need.prompt))
        return -(-tokens // self._block_tokens)

    def _hits(self, need: Need) -> list[int]:
        if need.follows:
            return []
        if need.chain is None:
            need.chain = self._chain(need.prompt, need.salt)
        found: list[int] = []
        for block in need.chain[: (len(need.prompt) - 1) // self._block_tokens]:
            if block not in self._refs and block not in self._idle:
                break
            found.append(block)
        return found

    def _chain(self, tokens: tuple[int, ...], salt: str) -> list[int]:
        step = self._block_tokens
        parent = hash(tuple(salt.encode()))
        chain = []
        for start in range(0, len(tokens) - step + 1, step):
            parent = hash((parent, tokens[start : start + step]))
            chain.append(parent)
        return chain


class SlotPrefixes:
    """One prefix in each slot, the last one computed there, as in llama.cpp without its host prompt cache.

    An idle slot that holds more than a tenth of the new prompt is chosen, the one with the most; else the
    slot unused for longest. A busy slot's prefix helps nobody.
    """

    def __init__(self, slots: int, kv_tokens: int) -> None:
        self._kv_tokens = kv_tokens
        self._tokens: list[tuple[int, ...]] = [()] * slots
        self._salts = [""] * slots
        self._used_at = list(range(-slots, 0))
        self._idle = set(range(slots))
        self._tick = 0

    @property
    def usage(self) -> float:
        busy_tokens = sum(len(t) for slot, t in enumerate(self._tokens) if slot not in self._idle)
        return min(1.0, busy_tokens / self._kv_tokens)

    def acquire(self, needs: Sequence[Need]) -> list[Holding] | None:
        if len(needs) > len(self._idle):
            return None
        return [self._acquire(need) for need in needs]

    def fill(self, holding: Holding, tokens: tuple[int, ...]) -> None:
        self._tokens[holding.slot] = tokens
        self._salts[holding.slot] = holding.need.salt

    def release(self, holding: Holding) -> None:
        self._tick += 1
        self._used_at[holding.slot] = self._tick
        self._idle.add(holding.slot)

    def _acquire(self, need: Need) -> Holding:
        common = {slot: self._common(slot, need) for slot in self._idle}
        slot = max(common, key=lambda s: (common[s], -self._used_at[s]))
        if need.follows or common[slot] <= SLOT_SIMILARITY * len(need.prompt):
            slot = min(self._idle, key=self._used_at.__getitem__)
        self._idle.remove(slot)
        # At least one token is always evaluated.
        holding = Holding(need, max(0, min(common[slot], len(need.prompt) - 1)))
        holding.slot = slot
        return holding

    def _common(self, slot: int, need: Need) -> int:
        return common_prefix(self._tokens[slot], need.prompt) if self._salts[slot] == need.salt else 0


def common_prefix(left: tuple[int, ...], right: tuple[int, ...]) -> int:
    """How many leading tokens two sequences share."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
