"""Runs of blocks without a fork, in the order of their last use."""

from array import array
from collections.abc import Iterator, Sequence

_STRIDE = 16
_NONE = array("Q")
"""The blocks of a branch that is not in the tree any more."""


class Branch:
    """A run of blocks with no fork inside. `start` is the depth of its first block in the chain.

    `owners` are the running requests that are computing it; None once it is resident. The last `ghosts`
    of its blocks are believed gone from the engine, and none of them has an owner. `stamp` rises with
    each use, of whatever branch; `used_s` is the time of the last.
    """

    __slots__ = (
        "blocks",
        "children",
        "ghosts",
        "newer",
        "older",
        "owners",
        "parent",
        "stamp",
        "start",
        "used_s",
    )

    def __init__(
        self, parent: "Branch | None", start: int, blocks: "array[int]", owners: set[int] | None
    ) -> None:
        self.parent = parent
        self.start = start
        self.blocks = blocks
        self.owners = owners
        self.children = 0
        self.ghosts = 0
        self.stamp = 0
        self.used_s = 0.0
        self.older = self.newer = self

    @property
    def believed(self) -> int:
        return len(self.blocks) - self.ghosts

    def has(self, blocks: Sequence[int]) -> bool:
        """Whether the last of a chain's `blocks` is one of it."""
        at = len(blocks) - 1 - self.start
        return 0 <= at < len(self.blocks) and self.blocks[at] == blocks[-1]

    def __repr__(self) -> str:
        state = "resident" if self.owners is None else f"pending on {sorted(self.owners)}"
        if self.ghosts:
            state += f" but {self.ghosts} ghosts"
        return f"<Branch {self.start}..{self.start + len(self.blocks)} {state} children={self.children}>"


class Recency:
    """Every branch of a cache, the least recently used first; a branch stands before its parent.

    So the first is a leaf, and what is older than `edge`, the first of which a block is believed to be in
    the engine, lies deeper than what is believed of the same chain.
    """

    def __init__(self) -> None:
        # A ring: older than everything and newer than everything is the same node, which is no branch.
        self.ends = Branch(None, 0, array("Q"), None)
        self.edge = self.ends
        self.stamp = 0
        self.now = 0.0

    def clear(self) -> None:
        self.edge = self.ends.older = self.ends.newer = self.ends

    def __iter__(self) -> Iterator[Branch]:
        return self._since(self.ends.newer)

    @property
    def oldest(self) -> Branch:
        return self.ends.newer

    @property
    def newest_ghost(self) -> Branch | None:
        older = self.edge.older
        return None if older is self.ends else older

    def believed_ones(self) -> Iterator[Branch]:
        """Those of which a block is believed to be in the engine, the least recently used first."""
        return self._since(self.edge)

    def is_near_edge(self, stamp: int, blocks: int) -> bool:
        """Whether at most so many `blocks` that are believed were last used at or before `stamp`."""
        for branch in self.believed_ones():
            if branch.stamp > stamp:
                return True
            blocks -= branch.believed
            if blocks < 0:
                return False
        return True

    def touch(self, branch: Branch) -> None:
        """Make a branch, of which something is believed, the most recently used."""
        self.stamp += 1
        branch.stamp = self.stamp
        branch.used_s = self.now
        if branch.newer is not self.ends:
            self.renew(branch)

    def renew(self, branch: Branch) -> None:
        """Make a branch, new or known, but not the newest, the newest."""
        if branch.newer is not branch:
            self.remove(branch)
        self._insert(branch, self.ends)

    def remove(self, branch: Branch) -> None:
        if branch is self.edge:
            self.edge = branch.newer
        branch.older.newer, branch.newer.older = branch.newer, branch.older

    def follow(self, upper: Branch, lower: Branch) -> None:
        """`upper` was cut off `lower`: as old, and directly after it."""
        upper.stamp = lower.stamp
        upper.used_s = lower.used_s
        self._insert(upper, lower.newer)
        if self.edge is lower and not lower.believed:
            self.edge = upper

    def fade(self, branch: Branch) -> None:
        """A branch that became a ghost altogether is the newest of them."""
        self.remove(branch)
        branch.stamp = self.edge.older.stamp
        self._insert(branch, self.edge)

    def _since(self, branch: Branch) -> Iterator[Branch]:
        while branch is not self.ends:
            yield branch
            branch = branch.newer

    @staticmethod
    def _insert(branch: Branch, newer: Branch) -> None:
        branch.older, branch.newer = newer.older, newer
        newer.older.newer = newer.older = branch


class Tree:
    """Chains of blocks as branches, counted and in the order of their last use.

    Only the first block of a branch and each sixteenth of a chain can be looked up, the others lie in their
    branch. That is 16 bytes a block (`benchmarks/micro`), and no large table has to grow all at once.
    """

    def __init__(self) -> None:
        self.recency = Recency()
        self.believed = 0
        self.ghosts = 0
        self.inserted = 0
        """Blocks that came to the engine, ever: not those that had only been taken for gone."""
        self.version = 0
        self.shape = 0
        """Changes whenever blocks may lie in another branch than before."""
        self.anchors: dict[int, Branch] = {}

    def clear(self) -> None:
        self.recency.clear()
        self.anchors.clear()
        self.believed = self.ghosts = 0
        self.version += 1
        self.shape += 1

    def find(self, blocks: Sequence[int]) -> tuple[int, Branch | None]:
        """How deep `blocks` are known, ghosts included, and the branch that holds the last of these."""
        count = len(blocks)
        # All of a prompt that was asked before lies up to where its last block that can be looked up does.
        branch = self.anchors.get(blocks[(count - 1) // _STRIDE * _STRIDE]) if count else None
        if branch is not None:
            at = count - 1 - branch.start
            if 0 <= at < len(branch.blocks) and branch.blocks[at] == blocks[-1]:
                return count, branch
        return self._search(blocks)

    def _search(self, blocks: Sequence[int]) -> tuple[int, Branch | None]:
        anchors, count = self.anchors, len(blocks)
        if not count or blocks[0] not in anchors:
            return 0, None
        low, high = 0, (count - 1) // _STRIDE
        while low < high:
            middle = (low + high + 1) >> 1
            if blocks[middle * _STRIDE] in anchors:
                low = middle
            else:
                high = middle - 1
        depth = low * _STRIDE
        branch = anchors[blocks[depth]]
        at = depth - branch.start
        if not 0 <= at < len(branch.blocks) or branch.blocks[at] != blocks[depth]:
            return 0, None  # Two chains met in one hash at different depths: not worth more than a miss.
        while True:
            end = branch.start + len(branch.blocks)
            high = end if end < count else count
            # Were it a stride or more, the next block to be looked up would have been found.
            if high > depth + _STRIDE:
                high = depth + _STRIDE
            if branch.blocks[high - 1 - branch.start] == blocks[high - 1]:
                depth = high
            else:
                depth = _follow(branch, blocks, depth, high - 1)
            if depth == count or depth < end:
                return depth, branch
            child = anchors.get(blocks[depth])
            if child is None or child.parent is not branch:
                return depth, branch
            branch = child

    def append(
        self, parent: Branch | None, blocks: Sequence[int], start: int, owners: set[int] | None
    ) -> Branch:
        """A new branch below `parent`; the caller touches it."""
        branch = Branch(parent, start, array("Q", blocks), owners)
        if parent is not None:
            parent.children += 1
        self._anchor(branch, start, branch.blocks)
        self.anchors[blocks[0]] = branch
        count = len(blocks)
        self.believed += count
        self.inserted += count
        self.version += 1
        self.shape += 1
        return branch

    def split(self, branch: Branch, depth: int) -> Branch:
        """Cut `branch` so that a branch ends at `depth`; returns that one, the upper part."""
        at = depth - branch.start
        if at == len(branch.blocks):
            return branch
        owners = None if branch.owners is None else set(branch.owners)
        upper = Branch(branch.parent, branch.start, branch.blocks[:at], owners)
        upper.children = 1
        upper.ghosts = max(0, at - branch.believed)
        branch.ghosts -= upper.ghosts
        branch.parent, branch.start, branch.blocks = upper, depth, branch.blocks[at:]
        if not branch.believed:
            branch.owners = None
        self._anchor(upper, upper.start, upper.blocks)
        self.anchors[upper.blocks[0]] = upper
        self.anchors[branch.blocks[0]] = branch
        self.recency.follow(upper, branch)
        self.shape += 1
        return upper

    def join(self, branch: Branch, parent: Branch) -> None:
        """Merge a leaf into its parent, which has no other children.

        Both are resident and were used just now. So a conversation stays one branch.
        """
        self.anchors.pop(branch.blocks[0], None)
        self._anchor(parent, branch.start, branch.blocks)
        parent.blocks.extend(branch.blocks)
        branch.blocks = _NONE
        parent.children = 0
        self.recency.remove(branch)
        self.shape += 1

    def remove(self, leaf: Branch) -> None:
        self._unanchor(leaf.start, leaf.blocks)
        self.anchors.pop(leaf.blocks[0], None)
        self.recency.remove(leaf)
        self.believed -= leaf.believed
        self.ghosts -= leaf.ghosts
        leaf.blocks = _NONE
        self.version += 1
        self.shape += 1
        if leaf.parent is not None:
            leaf.parent.children -= 1

    def believe(self, branch: Branch) -> None:
        """All of `branch` is in the engine after all."""
        self.believed += branch.ghosts
        self.inserted += branch.ghosts
        self.ghosts -= branch.ghosts
        branch.ghosts = 0
        self.version += 1

    def disbelieve(self, branch: Branch, blocks: int) -> None:
        """The last `blocks` that are believed of `branch` become ghosts."""
        self.believed -= blocks
        self.ghosts += blocks
        branch.ghosts += blocks
        if not branch.believed:
            branch.owners = None
        self.version += 1

    def drop_ghosts(self, excess: int) -> None:
        """Forget the oldest `excess` blocks, all of them ghosts."""
        while excess > 0:
            leaf = self.recency.oldest
            if len(leaf.blocks) <= excess:
                excess -= len(leaf.blocks)
                self.remove(leaf)
                continue
            self._unanchor(leaf.start + len(leaf.blocks) - excess, leaf.blocks[-excess:])
            del leaf.blocks[-excess:]
            leaf.ghosts -= excess
            self.ghosts -= excess
            self.version += 1
            self.shape += 1
            return

    def _anchor(self, branch: Branch, start: int, blocks: "array[int]") -> None:
        anchors = self.anchors
        for at in range(-start % _STRIDE, len(blocks), _STRIDE):
            anchors[blocks[at]] = branch

    def _unanchor(self, start: int, blocks: "array[int]") -> None:
        anchors = self.anchors
        for block in blocks[-start % _STRIDE :: _STRIDE]:
            anchors.pop(block, None)


def upwards(branch: Branch | None) -> Iterator[Branch]:
    while branch is not None:
        yield branch
        branch = branch.parent


def believed(depth: int, branch: Branch | None) -> tuple[int, int, Branch | None]:
    """Of a chain of which `depth` blocks are known, the last of them in `branch`, how many are resident, and
    how many are or will be; and the branch of the last resident one."""
    known = depth
    while branch is not None and branch.ghosts:
        known = min(known, branch.start + branch.believed)
        if branch.believed:
            break
        branch = branch.parent
    resident = known
    while branch is not None and branch.owners is not None:
        resident = branch.start
        branch = branch.parent
    return resident, known, branch


def _follow(branch: Branch, blocks: Sequence[int], low: int, high: int) -> int:
    """How deep `blocks`, equal up to `low`, stay in the branch: not beyond `high`."""
    own, start = branch.blocks, branch.start
    while low < high:
        middle = (low + high + 1) >> 1
        if own[middle - 1 - start] == blocks[middle - 1]:
            low = middle
        else:
            high = middle - 1
    return low
