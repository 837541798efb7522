"""Which blocks of which prompts an engine probably holds.

Holding a block implies holding every block before it, because each hash is seeded by its parent and
eviction takes leaves first; so a match is a binary search on the chain. Recency is kept per branch (a
run of blocks without a fork), not per block: a long conversation costs one update a turn.

How much an engine holds is learned from the cached tokens that it reports. It tells about *age*: an engine
that lost a block has lost all that was last used before it, one that has a block still has all that was used
since. The prompt that was found lost or found there is fresh in any case.
"""

import math
from collections.abc import Container, Sequence

from msgspec import Struct

from gateway.core.branches import Branch, Tree, believed, upwards
from gateway.core.capacity import EDGE, Capacity
from gateway.core.matches import NO_MATCH, Match, Sight, Versioned

SEAM = 1
"""Blocks by which a report may differ and say nothing: a template ends a prompt with tokens that the next
turn has not at that place, and engines count in whole blocks of their own."""


class _Run(Struct, eq=False, gc=False):
    """A running request: what was known of its prompt when it began, and when that had been used last.

    `marks` are (start, stamp) of the branches it met, deepest first; none if it can teach nothing (more).
    `inserted` is the cache's count of blocks that came to be believed, before it; `touched` the least stamp
    of what it uses. `leaf` is the branch of its last block, for as long as that `has` it, so surely at the
    tree's `shape`. It was held last at `held_s`, which gave `held_stamp`.
    """

    blocks: tuple[int, ...]
    found: Sight
    marks: list[tuple[int, int]]
    inserted: int
    touched: int
    leaf: Branch | None
    shape: int
    confirmed: bool = False
    held_stamp: int = -1
    held_s: float = 0.0

    def stamp_at(self, depth: int) -> int:
        return next(stamp for start, stamp in self.marks if start <= depth)


class PooledCache:
    """An engine with one pool of KV blocks that all sequences share (vLLM, SGLang).

    Hashes are unsigned 64-bit. `bound_blocks` is what the engine says that it can hold: never more are
    remembered. `believed_blocks`, at most that, is what it has shown to hold (`capacity`): past it the least
    recently used leaf blocks go, as they do in the engine, and are remembered as ghosts.
    """

    def __init__(self, bound_blocks: int) -> None:
        self._capacity = Capacity(bound_blocks)
        self._tree = Tree()
        self._recency = self._tree.recency
        self._running: dict[int, _Run] = {}
        self._keep_from = 0

    def __len__(self) -> int:
        """Blocks believed to be there, those being computed included."""
        return self._tree.believed

    @property
    def ghosts(self) -> int:
        """Blocks remembered but believed gone."""
        return self._tree.ghosts

    @property
    def versioned(self) -> Versioned:
        return self._tree

    @property
    def bound_blocks(self) -> int:
        return self._capacity.bound

    @bound_blocks.setter
    def bound_blocks(self, blocks: int) -> None:
        """Holds from the next request on."""
        self._capacity.rebound(blocks)

    @property
    def believed_blocks(self) -> int:
        return self._capacity.believed

    @believed_blocks.setter
    def believed_blocks(self, blocks: int) -> None:
        self._capacity.believed = blocks

    def match(self, blocks: Sequence[int]) -> Match:
        found = self.sight(blocks)
        return NO_MATCH if found is None else Match(found.resident, found.pending, found.ghost)

    def sight(self, blocks: Sequence[int]) -> Sight | None:
        """The match, and where it lies; None if nothing is known of the prompt."""
        tree = self._tree
        depth, deepest = tree.find(blocks)
        if deepest is None:
            return None
        if deepest.owners is None and not deepest.ghosts:
            return Sight(depth, 0, 0, deepest, deepest, tree.version, tree.shape)
        resident, known, leaf = believed(depth, deepest)
        return Sight(resident, known - resident, depth - known, leaf, deepest, tree.version, tree.shape)

    def begin(self, key: int, blocks: Sequence[int], now: float = 0.0, sight: Sight | None = None) -> None:
        """A request was granted: its prompt's missing blocks are pending, those it shares become recent.
        `sight`: what was seen of it before, perhaps, of this cache."""
        if not blocks:
            return
        tree, recency = self._tree, self._recency
        recency.now = now
        if sight is None or sight.shape != tree.shape or sight.version != tree.version:
            sight = self.sight(blocks) or Sight(0)
        marks: list[tuple[int, int]] = []
        inserted, touched = tree.inserted, recency.stamp + 1
        if not self._running:
            self._keep_from = touched
        depth = sight.resident + sight.pending + sight.ghost
        leaf = self._use(blocks, depth, sight.deepest, key, marks)
        self._running[key] = _Run(
            tuple(blocks), sight, marks if depth else [], inserted, touched, leaf, tree.shape
        )
        capacity = self._capacity
        if tree.believed > capacity.believed:
            capacity.overflows(tree.inserted - inserted)
            self._settle()
        elif tree.believed + tree.ghosts > capacity.bound:
            self._settle()

    def found(self, key: int) -> Sight | None:
        """What was known of a running request's prompt when it began; None if it can teach nothing."""
        run = self._running.get(key)
        return run.found if run is not None and run.marks else None

    def confirm(self, key: int, now: float = 0.0) -> None:
        """The request produced its first token: its whole prompt is in the engine now."""
        self._recency.now = now
        run = self._running.get(key)
        if run is None:
            self._settle()
            return
        run.confirmed = True
        if self._hold(run):
            self._settle()

    def delivered(self, key: int, at_least: int, at_most: int) -> None:
        """Learn from how many blocks the engine had of a confirmed request that is about to end.

        A prompt that was pending when it began teaches nothing by a miss: whoever computed it may have
        been behind it in the engine. Nor can a miss be due to what came to the engine later.
        """
        tree, capacity = self._tree, self._capacity
        run = self._running.get(key)
        if run is None or not run.marks:
            return
        resident, known = run.found.resident, run.found.resident + run.found.pending
        if at_most + SEAM < resident:
            newer, stamp = tree.inserted - run.inserted, run.stamp_at(at_most)
            if self._recency.edge.stamp > stamp:
                # It was given up meanwhile, for no other reason than what came: only the request's own part
                # is known not to have displaced it.
                newer = len(run.blocks) - known
            self._lose(stamp)
            capacity.is_below(tree.believed - newer)
        elif run.found.ghost and at_least > known + SEAM:
            newer = tree.inserted - run.inserted - run.found.ghost
            self._regain(run.stamp_at(min(at_least, known + run.found.ghost) - 1))
            # Room for what came since is not shown: it may have displaced the ghosts meanwhile.
            capacity.is_at_least(tree.believed - newer)
        elif capacity.overshoot and resident:
            self._note_hit(run)
        run.marks = []
        self._settle()

    def end(self, key: int, now: float = 0.0, *, well: bool = False) -> None:
        """The request is over; what it alone was computing and did not finish is not there. `well`: it did
        finish, so that this confirms it, too.

        The rest counts as used now: a sequence's blocks cannot go before it ends, and then in the order of
        their release (vLLM `v1/core/block_pool.py`, `free_blocks`).
        """
        self._recency.now = now
        run = self._running.get(key)
        if run is None:
            if well:
                self._settle()
            return
        if well and self._capacity.overshoot and run.marks and run.found.resident:
            self._note_hit(run)
        if not well and not run.confirmed:
            self._abandon(key, run.blocks)
        elif self._hold(run):
            self._end_too_full(key, run, well=well)
            return
        del self._running[key]

    def forget(self) -> None:
        """The engine restarted: it holds nothing, and what it can hold is to be learned again.

        Running requests stay known, so `end` stays valid.
        """
        self._tree.clear()
        self._capacity.forget()
        for run in self._running.values():
            run.confirmed, run.marks, run.leaf = False, [], None

    def _use(
        self,
        blocks: Sequence[int],
        depth: int,
        branch: Branch | None,
        key: int | None,
        marks: list[tuple[int, int]],
    ) -> Branch:
        """Make `blocks`, known as deep as `depth`, the most recently used; returns the branch of the last.
        `marks` gets (start, stamp) of each branch, as it was.

        What was not resident is pending on `key`, or resident if that is None.
        """
        if branch is None or depth != len(blocks) or branch.start + len(branch.blocks) != depth:
            branch = self._fit(blocks, depth, branch, key)
        recency = self._recency
        it: Branch | None = branch
        while it is not None:
            if it.ghosts or it.owners is not None:
                self._compute(it, key)
            marks.append((it.start, it.stamp))
            recency.touch(it)
            it = it.parent
        if recency.edge is recency.ends:
            recency.edge = branch
        return branch

    def _fit(self, blocks: Sequence[int], depth: int, branch: Branch | None, key: int | None) -> Branch:
        """A branch that ends with the last of `blocks`; they are known as deep as `depth`, in `branch`."""
        tree, missing = self._tree, blocks[depth:]
        # A resident run that goes on past `blocks` need not be cut only because it is used once more.
        if (
            branch is not None
            and branch.start + len(branch.blocks) != depth
            and (missing or key is not None or branch.owners is not None or branch.ghosts)
        ):
            branch = tree.split(branch, depth)
        if missing:
            branch = tree.append(branch, missing, depth, None if key is None else {key})
        assert branch is not None
        return branch

    def _compute(self, branch: Branch, key: int | None) -> None:
        """What is pending or a ghost is pending on `key`, too, or resident if that is None."""
        tree = self._tree
        if branch.ghosts:
            if key is not None and branch.believed:
                tree.split(branch, branch.start + branch.believed)
            tree.believe(branch)
            branch.owners = None if key is None else {key}
        elif key is None:
            branch.owners = None
            tree.version += 1
        else:
            assert branch.owners is not None
            branch.owners.add(key)

    def _hold(self, run: _Run) -> bool:
        """All of its prompt is in the engine and was used just now. Whether more is believed than may be."""
        tree, recency = self._tree, self._recency
        if run.held_stamp != recency.stamp or run.held_s != recency.now or run.shape != tree.shape:
            depth, leaf = len(run.blocks), run.leaf
            if run.shape != tree.shape and (leaf is None or not leaf.has(run.blocks)):
                depth, leaf = tree.find(run.blocks)
            branch = self._use(run.blocks, depth, leaf, None, [])
            while (above := branch.parent) is not None and above.children == 1 and not branch.children:
                tree.join(branch, above)
                branch = above
            run.leaf, run.shape = branch, tree.shape
            run.held_stamp, run.held_s = recency.stamp, recency.now
        capacity = self._capacity
        return tree.believed > capacity.believed or tree.believed + tree.ghosts > capacity.bound

    def _end_too_full(self, key: int, run: _Run, *, well: bool) -> None:
        """Evict for a request that has been held, `well` before it ends and in any case afterwards."""
        if well:
            self._settle()
            self._hold(run)
        del self._running[key]
        self._settle()

    def _abandon(self, key: int, blocks: Sequence[int]) -> None:
        _, deepest = self._tree.find(blocks)
        for branch in upwards(deepest):
            if branch.owners is None:
                continue
            branch.owners.discard(key)
            # Whoever computes a child computes its parents too, so what hangs on this can only be ghosts.
            if not branch.owners and branch.children:
                self._tree.disbelieve(branch, branch.believed)
                self._recency.fade(branch)
            elif not branch.owners:
                self._tree.remove(branch)

    def _lose(self, stamp: int) -> None:
        """All last used at or before `stamp` is gone, but for what running requests keep there."""
        inserted = self._tree.inserted
        for run in self._running.values():
            depth, branch = self._tree.find(run.blocks)
            if run.confirmed and branch is not None and branch.stamp <= stamp:
                self._use(run.blocks, depth, branch, None, [])
        while self._tree.believed and self._recency.edge.stamp <= stamp:
            self._give_up(self._tree.believed)
        self._tree.inserted = inserted

    def _regain(self, stamp: int) -> None:
        """All last used after `stamp` is there."""
        recency, inserted = self._recency, self._tree.inserted
        if recency.edge.stamp > stamp:
            self._tree.believe(recency.edge)
        while (ghost := recency.newest_ghost) is not None and ghost.stamp > stamp:
            self._tree.believe(ghost)
            recency.edge = ghost
            for it in upwards(ghost.parent):
                # One that is being computed again was there all the time if what lies below it was.
                it.owners = None
        self._tree.inserted = inserted

    def _note_hit(self, run: _Run) -> None:
        """What it needed was there. If little that is believed is older, no more than that may be gone."""
        capacity = self._capacity
        if self._recency.is_near_edge(run.stamp_at(run.found.resident - 1), capacity.believed // EDGE):
            capacity.is_about_right()

    def _give_up(self, at_most: int) -> None:
        """The least recently used of what is believed becomes a ghost, up to the end of a branch."""
        edge = self._recency.edge
        self._tree.disbelieve(edge, min(at_most, edge.believed))
        if not edge.believed:
            self._recency.edge = edge.newer

    def displaces(self, blocks: int, wanted: Container[object], now: float) -> float | None:
        """When the youngest was last used of all that goes if so many `blocks` come: None if there is room,
        infinite if what running requests use would have to go too. What is `wanted` will be used: later than
        `now`."""
        excess = self._tree.believed + blocks - self._capacity.believed
        if excess <= 0:
            return None
        used_s = self._youngest_displaced(excess, wanted, now)
        if used_s == math.inf:
            # Ended conversations may stand among what runs.
            self._keep_running(math.inf)
            used_s = self._youngest_displaced(excess, wanted, now)
        return used_s

    def _youngest_displaced(self, excess: int, wanted: Container[object], now: float) -> float:
        youngest_s = -math.inf
        for branch in self._recency.believed_ones():
            if self._running and branch.stamp >= self._keep_from:
                break
            used_s = math.nextafter(now, math.inf) if branch in wanted else branch.used_s
            youngest_s = max(youngest_s, used_s)
            excess -= branch.believed
            if excess <= 0:
                return youngest_s
        return math.inf

    def _keep_running(self, oldest: float) -> None:
        """What running requests use is not evicted: what of it is as old as `oldest` becomes recent again."""
        recency = self._recency
        for run in self._running.values():
            if run.touched > oldest:
                continue
            depth, branch = self._tree.find(run.blocks)
            if branch is not None and not branch.ghosts:
                # What goes on from a running prompt and has ended may go.
                branch = self._tree.split(branch, depth)
            while branch is not None and branch.ghosts:
                branch = branch.parent
            run.touched = recency.stamp + 1
            for it in upwards(branch):
                used_s = it.used_s
                recency.touch(it)
                it.used_s = used_s
        self._keep_from = min((run.touched for run in self._running.values()), default=0)

    def _settle(self) -> None:
        tree, recency, capacity, all_in_use = self._tree, self._recency, self._capacity, False
        while (excess := tree.believed - capacity.believed) > 0:
            if self._running and not all_in_use and recency.edge.stamp >= self._keep_from:
                self._keep_running(recency.edge.stamp)
                all_in_use = recency.edge.stamp >= self._keep_from
            self._give_up(excess)
        tree.drop_ghosts(tree.believed + tree.ghosts - capacity.bound)
