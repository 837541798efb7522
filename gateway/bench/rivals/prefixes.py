"""What a rival believes that engines hold: chains of blocks, forgotten leaf first."""

from collections.abc import Sequence
from heapq import heappop, heappush

from gateway.bench.engine import matched_blocks


class Index:
    """Least recently used first, a block only after all that follow it, each engine with its own bound.

    Systems that keep blocks or characters in a plain LRU may lose the head of a prompt and with it the whole
    match, so leaf first is at most in their favour.
    """

    def __init__(self, limits_blocks: Sequence[int | None]) -> None:
        self._holders: dict[int, int] = {}
        self._everybody = (1 << len(limits_blocks)) - 1
        self._chains = [_Chains(limit, 1 << n, self._holders) for n, limit in enumerate(limits_blocks)]

    def match(self, blocks: Sequence[int]) -> list[int]:
        """Leading blocks by engine: one bisection for all engines that part at the same place."""
        matched = [0] * len(self._chains)
        ranges = [(0, len(blocks), self._everybody)]
        while ranges:
            low, high, engines = ranges.pop()
            if low == high:
                while low and engines:
                    bit = engines & -engines
                    matched[bit.bit_length() - 1] = low
                    engines ^= bit
                continue
            middle = (low + high) // 2
            holders = engines & self._holders.get(blocks[middle], 0)
            if holders:
                ranges.append((middle + 1, high, holders))
            if holders != engines:
                ranges.append((low, middle, engines ^ holders))
        return matched

    def insert(self, engine: int, blocks: Sequence[int], now: float) -> None:
        self._chains[engine].insert(blocks, now)

    def expire(self, before_s: float) -> None:
        """Forgets what was last used before `before_s`."""
        for chains in self._chains:
            chains.expire(before_s)

    def clear(self, engine: int) -> None:
        self._chains[engine].clear()


class _Chains:
    """One engine's blocks, entered in `holders` by block as `bit`.

    Using a chain uses all its blocks; the time is written at its end only and handed up when a leaf goes, so
    that an insertion costs no more than its new blocks.
    """

    def __init__(self, limit: int | None, bit: int, holders: dict[int, int]) -> None:
        self._limit = limit
        self._bit = bit
        self._holders = holders
        self._parent: dict[int, int | None] = {}
        self._children: dict[int, int] = {}
        self._used_s: dict[int, float] = {}
        self._leaves: list[tuple[float, int]] = []

    def insert(self, blocks: Sequence[int], now: float) -> None:
        if not blocks:
            return
        held = matched_blocks(blocks, self._parent)
        if held < len(blocks):
            self._append(blocks[held - 1] if held else None, blocks[held:])
        self._use(blocks[-1], now)
        if self._limit is not None:
            while len(self._parent) > self._limit:
                self._drop_oldest()

    def expire(self, before_s: float) -> None:
        while self._leaves and self._leaves[0][0] < before_s:
            self._drop_oldest()

    def clear(self) -> None:
        for block in self._parent:
            self._leave(block)
        self._parent.clear()
        self._children.clear()
        self._used_s.clear()
        self._leaves.clear()

    def _append(self, end: int | None, new: Sequence[int]) -> None:
        holders, bit = self._holders, self._bit
        if end is not None:
            self._children[end] = self._children.get(end, 0) + 1
        self._parent[new[0]] = end
        self._parent.update(zip(new[1:], new, strict=False))
        self._children.update(dict.fromkeys(new[:-1], 1))
        holders.update({block: holders.get(block, 0) | bit for block in new})

    def _use(self, block: int, used_s: float) -> None:
        latest_s = max(used_s, self._used_s.get(block, used_s))
        self._used_s[block] = latest_s
        if block not in self._children:
            heappush(self._leaves, (latest_s, block))

    def _drop_oldest(self) -> None:
        used_s, block = heappop(self._leaves)
        # An entry is outdated when its block has been used since, has been continued, or is gone.
        if block in self._children or self._used_s.get(block) != used_s:
            return
        parent = self._parent.pop(block)
        del self._used_s[block]
        self._leave(block)
        if parent is None:
            return
        self._children[parent] -= 1
        if not self._children[parent]:
            del self._children[parent]
            self._use(parent, used_s)

    def _leave(self, block: int) -> None:
        left = self._holders[block] & ~self._bit
        if left:
            self._holders[block] = left
        else:
            del self._holders[block]
