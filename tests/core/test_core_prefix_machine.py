"""Any order of calls on the cache of one engine, and an engine's real one beside it."""

import math
import random
from collections import OrderedDict
from collections.abc import Sequence

import pytest
from core_chains import blocks, cache_with, leaf
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from gateway.core.matches import Match
from gateway.core.prefix import PooledCache


class LeafFirstLru:
    """An engine's real cache: what runs stays, the rest goes as it was released, from a prompt's end on."""

    def __init__(self, capacity_blocks: int) -> None:
        self.capacity_blocks = capacity_blocks
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._users: dict[int, int] = {}

    def begin(self, prompt: Sequence[int]) -> int:
        held = [block in self._users or block in self._idle for block in prompt]
        for block in prompt:
            self._idle.pop(block, None)
            self._users[block] = self._users.get(block, 0) + 1
        self._trim()
        return (*held, False).index(False)

    def end(self, prompt: Sequence[int]) -> None:
        for block in reversed(prompt):
            self._users[block] -= 1
            if not self._users[block]:
                del self._users[block]
                self._idle[block] = None
        self._trim()

    def _trim(self) -> None:
        while self._idle and len(self._idle) + len(self._users) > self.capacity_blocks:
            self._idle.popitem(last=False)


class Conversations:
    """40 conversations that share one of two heads and grow by a few blocks a turn, four at a time."""

    def __init__(self, seed: int, real: LeafFirstLru, cache: PooledCache) -> None:
        self.draw = random.Random(seed)
        self.real = real
        self.cache = cache
        self.heads = [self.fresh(20), self.fresh(20)]
        self.paused = [self.opened(self.draw.randint(5, 150)) for _ in range(40)]
        self.running: list[tuple[int, tuple[int, ...], int]] = []

    def fresh(self, count: int) -> tuple[int, ...]:
        return tuple(self.draw.getrandbits(64) for _ in range(count))

    def opened(self, own_blocks: int) -> tuple[int, ...]:
        return self.draw.choice(self.heads) + self.fresh(own_blocks)

    def play(self, keys: range) -> tuple[float, float]:
        """(predicted, delivered) blocks as shares of all prompts, once the first third is over."""
        predicted = delivered = offered = 0
        for key in keys:
            if len(self.running) == 4:
                self.finish(*self.running.pop(self.draw.randrange(4)))
            # Those used last are the likeliest to go on.
            prompt = self.paused.pop(int(len(self.paused) * self.draw.random() ** 0.5))
            prompt = self.opened(30) if len(prompt) > 300 else prompt + self.fresh(self.draw.randint(1, 12))
            found = self.cache.match(prompt)
            self.cache.begin(key, prompt)
            cached = self.real.begin(prompt)
            self.running.append((key, prompt, cached))
            if key - keys.start > len(keys) // 3:
                predicted += found.resident + found.pending
                delivered += cached
                offered += len(prompt)
        return predicted / offered, delivered / offered

    def finish(self, key: int, prompt: tuple[int, ...], cached: int) -> None:
        self.cache.confirm(key)
        self.cache.delivered(key, cached, cached)
        self.cache.end(key)
        self.real.end(prompt)
        self.paused.append(prompt)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_believed_follows_what_the_engine_really_holds(seed: int) -> None:
    real, cache = LeafFirstLru(2500), PooledCache(5000)
    conversations = Conversations(seed, real, cache)
    predicted, delivered = conversations.play(range(900))
    assert 0.2 < delivered < 0.9
    assert predicted == pytest.approx(delivered, abs=0.04)
    assert 0.8 * 2500 <= cache.believed_blocks <= 1.15 * 2500
    real.capacity_blocks = 5000
    predicted, delivered = conversations.play(range(900, 1800))
    assert delivered > 0.7
    assert predicted == pytest.approx(delivered, abs=0.02)
    assert cache.believed_blocks > 0.9 * 5000


paths = st.text(alphabet="ab", max_size=7)
wholes = st.integers(0, 50)


class PooledCacheMachine(RuleBasedStateMachine):
    """Any order of calls on many keys, beside a model of plain sets that knows no eviction.

    With a bound that is never reached the two agree exactly; with a small one the cache holds less.
    """

    keys = Bundle("keys")
    bound = 10_000
    letter_blocks = 1

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[tuple[int, ...], tuple[int, Match]] = {}
        self.cache = PooledCache(self.bound)
        self.resident: set[str] = set()
        self.computing: dict[int, str] = {}
        self.next_key = 0

    @rule(target=keys, path=paths)
    def begin(self, path: str) -> int:
        return self.began(path)

    def began(self, path: str) -> int:
        self.next_key += 1
        self.computing[self.next_key] = self.long(path)
        self.cache.begin(self.next_key, blocks(self.long(path)))
        return self.next_key

    def long(self, path: str) -> str:
        return "".join(letter * self.letter_blocks for letter in path)

    @rule(key=keys)
    def confirm(self, key: int) -> None:
        self.cache.confirm(key)
        path = self.computing[key]
        self.resident |= {path[: end + 1] for end in range(len(path))}

    @rule(key=keys, cached_blocks=wholes)
    def deliver(self, key: int, cached_blocks: int) -> None:
        if self.bound < 1000:
            self.confirm(key)
            self.cache.delivered(key, cached_blocks, cached_blocks)

    @rule(key=consumes(keys))
    def end(self, key: int) -> None:
        self.cache.end(key)
        del self.computing[key]

    @rule(path=paths)
    def match(self, path: str) -> None:
        path = self.long(path)
        found = self.cache.match(blocks(path))
        pending = {it[: end + 1] for it in self.computing.values() for end in range(len(it))}
        resident = sum(path[: end + 1] in self.resident for end in range(len(path)))
        known = sum(path[: end + 1] in self.resident | pending for end in range(len(path)))
        self.compare(found, Match(resident, known - resident))

    @rule(more=st.integers(0, 300), letters=st.sets(st.sampled_from("ab")))
    def room(self, more: int, letters: set[str]) -> None:
        """Asking changes nothing that a match could tell: only an order that is not eviction's yet."""
        wanted = {leaf(self.cache, blocks(self.long(it))) for it in letters}
        before = (self.cache.versioned.version, len(self.cache), self.cache.ghosts)
        used_s = self.cache.displaces(more, wanted, 9.0)
        assert (self.cache.versioned.version, len(self.cache), self.cache.ghosts) == before
        fits = len(self.cache) + more <= self.cache.believed_blocks
        assert (used_s is None) == fits
        if more > self.cache.believed_blocks:
            assert used_s == math.inf
        # What is not running may go, one letter after the other.
        idle = self.believed_but_not_running()
        if not fits and len(self.cache) + more - idle <= self.cache.believed_blocks:
            assert used_s is not None
            assert used_s < math.inf

    def believed_but_not_running(self) -> int:
        running = {block for it in self.computing.values() for block in blocks(it)}
        return sum(
            block not in running
            for branch in self.cache._recency
            for block in branch.blocks[: branch.believed]
        )

    @rule(path=paths)
    def remember_a_match(self, path: str) -> None:
        chain = blocks(self.long(path))
        self.seen[chain] = (self.cache.versioned.version, self.cache.match(chain))

    @invariant()
    def a_match_holds_while_the_version_does(self) -> None:
        for chain, (version, found) in self.seen.items():
            assert version != self.cache.versioned.version or self.cache.match(chain) == found

    def compare(self, found: Match, expected: Match) -> None:
        assert found == expected

    @invariant()
    def what_is_counted_is_there(self) -> None:
        assert len(self.cache) == sum(it.believed for it in self.cache._recency)
        assert self.cache.ghosts == sum(it.ghosts for it in self.cache._recency)
        anchors = {}
        for branch in self.cache._recency:
            for at, block in enumerate(branch.blocks):
                if at == 0 or (branch.start + at) % 16 == 0:
                    anchors[block] = branch
        assert self.cache._tree.anchors == anchors

    @invariant()
    def branches_stand_before_their_parents_and_count_their_children(self) -> None:
        order = {branch: at for at, branch in enumerate(self.cache._recency)}
        stamps = [branch.stamp for branch in order]
        assert stamps == sorted(stamps)
        for branch, at in order.items():
            assert branch.blocks
            assert branch.children == sum(it.parent is branch for it in order)
            assert (branch.parent is None) == (branch.start == 0)
            if branch.parent is not None:
                assert at < order[branch.parent]
                assert branch.parent.start + len(branch.parent.blocks) == branch.start

    @invariant()
    def ghosts_are_older_and_deeper_than_what_is_believed(self) -> None:
        is_older = True
        for branch in self.cache._recency:
            is_older = is_older and branch is not self.cache._recency.edge
            assert is_older == (branch.believed == 0)
            assert branch.ghosts == 0 or is_older or branch is self.cache._recency.edge
            if branch.parent is not None and branch.believed:
                assert branch.parent.ghosts == 0

    @invariant()
    def pending_blocks_belong_to_running_requests(self) -> None:
        for branch in self.cache._recency:
            if branch.owners is not None:
                assert branch.believed
                assert branch.owners
                assert branch.owners <= set(self.computing)
            if branch.believed and branch.parent is not None and branch.parent.owners is not None:
                assert branch.owners is not None
                assert branch.owners <= branch.parent.owners

    @invariant()
    def the_bounds_hold(self) -> None:
        assert len(self.cache) <= self.cache.believed_blocks <= self.cache.bound_blocks
        assert len(self.cache) + self.cache.ghosts <= self.cache.bound_blocks

    def teardown(self) -> None:
        for key in list(self.computing):
            self.cache.end(key)
        assert all(branch.owners is None for branch in self.cache._recency)
        assert not self.cache._running


class LongLettersMachine(PooledCacheMachine):
    """Forks and ends at places that a lookup meets and at places that it does not."""

    letter_blocks = 5


class SmallCacheMachine(PooledCacheMachine):
    """Under eviction, feedback and restarts: the cache never claims what was not put in."""

    bound = 6

    def compare(self, found: Match, expected: Match) -> None:
        assert found.resident + found.pending + found.ghost <= expected.resident + expected.pending
        assert found.resident <= expected.resident

    @rule(target=PooledCacheMachine.keys, share=st.integers(0, 16), path=paths.filter(bool))
    def move_the_bound(self, share: int, path: str) -> int:
        self.cache.bound_blocks = self.bound * share // 8
        return self.began(path)

    @rule()
    def forget(self) -> None:
        self.cache.forget()
        self.resident.clear()


class SmallLongLettersMachine(SmallCacheMachine):
    bound = 60
    letter_blocks = 5


class TightLongLettersMachine(SmallCacheMachine):
    bound = 200
    letter_blocks = 7


machine_settings = settings(max_examples=80, stateful_step_count=30)
TestPooledCache = PooledCacheMachine.TestCase
TestPooledCache.settings = machine_settings
TestLongLetters = LongLettersMachine.TestCase
TestLongLetters.settings = machine_settings
TestSmallCache = SmallCacheMachine.TestCase
TestSmallCache.settings = machine_settings
TestSmallLongLetters = SmallLongLettersMachine.TestCase
TestSmallLongLetters.settings = machine_settings
TestTightLongLetters = TightLongLettersMachine.TestCase
TestTightLongLetters.settings = machine_settings


@given(st.lists(paths, max_size=12), paths)
def test_a_match_is_the_longest_common_beginning_with_any_prompt_held(held: list[str], path: str) -> None:
    cache = cache_with(1000, *held)
    common = [sum(blocks(path)[at] in blocks(it) for at in range(len(path))) for it in held]
    assert cache.match(blocks(path)) == Match(max(common, default=0), 0)
