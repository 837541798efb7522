"""Which blocks of which prompts an engine probably holds.

Holding a block implies holding every block before it, because each hash is seeded by its parent and
eviction takes leaves first; so a match is a binary search on the chain. Recency is kept per branch (a
run of blocks without a fork), not per block: a long conversation costs one update a turn.
"""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct


class Match(Struct, frozen=True):
    """How many leading blocks an engine holds, and how many more are being computed there now."""

    resident: int
    pending: int


NO_MATCH = Match(0, 0)


class EngineCache(Protocol):
    """One engine's blocks. `key` is a request's: what it computes is pending until it is confirmed."""

    bound_blocks: int

    def __len__(self) -> int: ...

    def match(self, blocks: Sequence[int]) -> Match: ...

    def begin(self, key: int, blocks: Sequence[int]) -> None: ...

    def confirm(self, key: int) -> None: ...

    def end(self, key: int) -> None: ...

    def forget(self) -> None: ...


class Branch:
    """A run of blocks with no fork inside. `start` is the depth of its first block in the chain.

    `owners` are the running requests that are computing it; None once it is resident.
    """

    __slots__ = ("blocks", "children", "owners", "parent", "start")

    def __init__(
        self, parent: "Branch | None", start: int, blocks: list[int], owners: set[int] | None
    ) -> None:
        self.parent = parent
        self.start = start
        self.blocks = blocks
        self.owners = owners
        self.children = 0

    def __repr__(self) -> str:
        state = "resident" if self.owners is None else f"pending on {sorted(self.owners)}"
        return f"<Branch {self.start}..{self.start + len(self.blocks)} {state} children={self.children}>"


class PooledCache:
    """An engine with one pool of KV blocks that all sequences share (vLLM, SGLang).

    `bound_blocks` is what the engine can hold; past it the least recently used leaf blocks go, as they
    do in the engine. Costs about 130 bytes a block.
    """

    def __init__(self, bound_blocks: int) -> None:
        self.bound_blocks = bound_blocks
        self._branch_of: dict[int, Branch] = {}
        # Least recently used first. A branch always stands before its parent, so the first is a leaf.
        self._recency: dict[Branch, None] = {}
        self._running: dict[int, tuple[int, ...]] = {}

    def __len__(self) -> int:
        return len(self._branch_of)

    def match(self, blocks: Sequence[int]) -> Match:
        depth = self._depth(blocks)
        if depth == 0:
            return NO_MATCH
        resident = depth
        branch: Branch | None = self._branch_of[blocks[depth - 1]]
        while branch is not None and branch.owners is not None:
            resident = branch.start
            branch = branch.parent
        return Match(resident, depth - resident)

    def begin(self, key: int, blocks: Sequence[int]) -> None:
        """A request was granted: its prompt's missing blocks are pending, those it shares become recent."""
        if not blocks:
            return
        self._running[key] = tuple(blocks)
        known = self._branch_of.get(blocks[-1])
        if known is not None and known.owners is None and known.blocks[-1] == blocks[-1]:
            # All of it is resident, which is the usual case and needs no look at the tree.
            self._touch(known)
            self._evict()
            return
        leaf = self._extend(blocks, {key})
        branch: Branch | None = leaf
        while branch is not None and branch.owners is not None:
            branch.owners.add(key)
            branch = branch.parent
        self._touch(leaf)
        self._evict()

    def confirm(self, key: int) -> None:
        """The request produced its first token: its whole prompt is in the engine now."""
        blocks = self._running.get(key)
        if not blocks or self._is_resident(blocks[-1]):
            self._evict()
            return
        leaf = self._extend(blocks, {key})
        branch: Branch | None = leaf
        while branch is not None and branch.owners is not None:
            branch.owners = None
            branch = branch.parent
        self._join(leaf)
        self._evict()

    def end(self, key: int) -> None:
        """The request is over; what it alone was computing and did not finish is not there."""
        blocks = self._running.pop(key, None)
        if not blocks or self._is_resident(blocks[-1]):
            return
        depth = self._depth(blocks)
        branch = self._branch_of[blocks[depth - 1]] if depth else None
        while branch is not None and branch.owners is not None:
            parent = branch.parent
            branch.owners.discard(key)
            # Whoever computes a child computes its parents too, so one without owners is a leaf.
            if not branch.owners:
                self._remove(branch)
            branch = parent

    def forget(self) -> None:
        """The engine restarted: it holds nothing. Running requests stay known, so `end` stays valid."""
        self._branch_of.clear()
        self._recency.clear()

    def _is_resident(self, block: int) -> bool:
        branch = self._branch_of.get(block)
        return branch is not None and branch.owners is None

    def _depth(self, blocks: Sequence[int]) -> int:
        known = self._branch_of
        if blocks and blocks[-1] in known:
            return len(blocks)
        low, high = 0, len(blocks)
        while low < high:
            middle = (low + high + 1) >> 1
            if blocks[middle - 1] in known:
                low = middle
            else:
                high = middle - 1
        return low

    def _extend(self, blocks: Sequence[int], owners: set[int]) -> Branch:
        """The branch that ends at the last of `blocks`, made where it is missing."""
        depth, parent = self._depth(blocks), None
        if depth:
            parent = self._split(self._branch_of[blocks[depth - 1]], depth)
            if depth == len(blocks):
                return parent
        branch = Branch(parent, depth, list(blocks[depth:]), owners)
        if parent is not None:
            parent.children += 1
        for block in branch.blocks:
            self._branch_of[block] = branch
        self._recency[branch] = None
        self._touch(parent)
        return branch

    def _split(self, branch: Branch, depth: int) -> Branch:
        """Cut `branch` so that a branch ends at `depth`; returns that one, the upper part."""
        at = depth - branch.start
        if at == len(branch.blocks):
            return branch
        owners = None if branch.owners is None else set(branch.owners)
        upper = Branch(branch.parent, branch.start, branch.blocks[:at], owners)
        upper.children = 1
        branch.parent, branch.start, branch.blocks = upper, depth, branch.blocks[at:]
        for block in upper.blocks:
            self._branch_of[block] = upper
        self._recency[upper] = None
        self._touch(upper)
        return upper

    def _join(self, branch: Branch) -> None:
        """Merge a resident leaf into a parent without other children: a conversation stays one branch."""
        parent = branch.parent
        if branch.children or parent is None or parent.children != 1:
            return
        parent.blocks.extend(branch.blocks)
        for block in branch.blocks:
            self._branch_of[block] = parent
        parent.children = 0
        del self._recency[branch]

    def _touch(self, branch: Branch | None) -> None:
        recency = self._recency
        while branch is not None:
            del recency[branch]
            recency[branch] = None
            branch = branch.parent

    def _remove(self, branch: Branch) -> None:
        for block in branch.blocks:
            del self._branch_of[block]
        del self._recency[branch]
        if branch.parent is not None:
            branch.parent.children -= 1

    def _evict(self) -> None:
        excess = len(self._branch_of) - self.bound_blocks
        while excess > 0:
            leaf = next(iter(self._recency))
            if len(leaf.blocks) <= excess:
                excess -= len(leaf.blocks)
                self._remove(leaf)
                continue
            for block in leaf.blocks[-excess:]:
                del self._branch_of[block]
            del leaf.blocks[-excess:]
            return
