from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from gateway.core.prefix import NO_MATCH, Branch, Match, PooledCache


def blocks(path: str) -> tuple[int, ...]:
    """A chain as the hashes make it: equal at i only where all before is equal. One block a letter."""
    return tuple(hash(path[: end + 1]) for end in range(len(path)))


def cache_with(bound: int, *paths: str) -> PooledCache:
    """Holds `paths`, used in this order."""
    cache = PooledCache(bound)
    for key, path in enumerate(paths, 1000):
        cache.begin(key, blocks(path))
        cache.confirm(key)
        cache.end(key)
    return cache


def test_an_empty_cache_matches_nothing() -> None:
    assert PooledCache(10).match(blocks("abc")) == NO_MATCH
    assert cache_with(10, "abc").match(()) == NO_MATCH


def test_a_prompt_is_pending_until_it_is_confirmed() -> None:
    cache = PooledCache(10)
    cache.begin(1, blocks("abc"))
    assert cache.match(blocks("abcd")) == Match(0, 3)
    cache.confirm(1)
    assert cache.match(blocks("abcd")) == Match(3, 0)
    cache.end(1)
    assert cache.match(blocks("abcd")) == Match(3, 0)


def test_only_the_new_part_of_a_turn_is_pending() -> None:
    cache = cache_with(10, "ab")
    cache.begin(1, blocks("abcd"))
    assert cache.match(blocks("abcd")) == Match(2, 2)


def test_a_request_that_ends_early_leaves_nothing_behind() -> None:
    cache = cache_with(10, "ab")
    cache.begin(1, blocks("abcd"))
    cache.end(1)
    assert cache.match(blocks("abcd")) == Match(2, 0)
    assert len(cache) == 2


def test_what_two_compute_stays_pending_until_the_last_of_them_leaves() -> None:
    cache = PooledCache(10)
    cache.begin(1, blocks("abc"))
    cache.begin(2, blocks("abd"))
    cache.end(1)
    assert cache.match(blocks("abc")) == Match(0, 2)
    cache.end(2)
    assert len(cache) == 0


def test_one_confirmation_is_enough_for_all_that_share() -> None:
    cache = PooledCache(10)
    cache.begin(1, blocks("abc"))
    cache.begin(2, blocks("abd"))
    cache.confirm(2)
    cache.end(1)
    assert cache.match(blocks("abc")) == Match(2, 0)
    assert cache.match(blocks("abd")) == Match(3, 0)


def test_a_prompt_inside_a_longer_one_is_found() -> None:
    cache = cache_with(10, "abcd")
    cache.begin(1, blocks("ab"))
    assert cache.match(blocks("ab")) == Match(2, 0)
    assert cache.match(blocks("abcd")) == Match(4, 0)


def test_the_least_recently_used_prompt_goes_first() -> None:
    cache = cache_with(6, "abc", "xyz", "abc", "pq")
    assert cache.match(blocks("abc")) == Match(3, 0)
    assert cache.match(blocks("xyz")) == Match(1, 0)
    assert cache.match(blocks("pq")) == Match(2, 0)
    assert len(cache) == 6


def test_a_whole_branch_goes_when_all_of_it_is_too_much() -> None:
    cache = cache_with(4, "abc", "wxyz")
    assert cache.match(blocks("abc")) == NO_MATCH
    assert cache.match(blocks("wxyz")) == Match(4, 0)


def test_a_shared_beginning_outlives_its_leaves() -> None:
    cache = cache_with(6, "abcd", "abxy", "pq")
    assert cache.match(blocks("abcd")) == Match(2, 0)
    assert cache.match(blocks("abxy")) == Match(4, 0)


def test_a_prompt_longer_than_the_bound_keeps_its_beginning() -> None:
    cache = cache_with(3, "abcdef")
    assert cache.match(blocks("abcdef")) == Match(3, 0)


def test_a_bound_that_came_down_holds_from_the_next_request_on() -> None:
    cache = cache_with(6, "abc", "xyz")
    cache.bound_blocks = 3
    cache.begin(1, blocks("x"))
    assert len(cache) == 3
    assert cache.match(blocks("xyz")) == Match(3, 0)


def test_a_growing_conversation_stays_one_branch() -> None:
    cache = cache_with(20, "ab", "abcd", "abcdef")
    assert len({id(it) for it in cache._branch_of.values()}) == 1
    assert repr(cache._branch_of[blocks("a")[0]]) == "<Branch 0..6 resident children=0>"


def test_a_pending_branch_shows_who_computes_it() -> None:
    assert repr(Branch(None, 2, [7, 8], {5, 4})) == "<Branch 2..4 pending on [4, 5] children=0>"


def test_a_forgotten_engine_holds_nothing_and_its_requests_may_still_end() -> None:
    cache = cache_with(10, "abc")
    cache.begin(1, blocks("abcd"))
    cache.forget()
    assert cache.match(blocks("abc")) == NO_MATCH
    cache.end(1)
    assert len(cache) == 0


def test_a_confirmation_after_the_engine_was_forgotten_counts() -> None:
    cache = PooledCache(10)
    cache.begin(1, blocks("abc"))
    cache.forget()
    cache.confirm(1)
    assert cache.match(blocks("abc")) == Match(3, 0)


def test_a_confirmation_makes_resident_what_another_began_meanwhile() -> None:
    cache = PooledCache(10)
    cache.begin(1, blocks("abcd"))
    cache.forget()
    cache.begin(2, blocks("ab"))
    cache.confirm(1)
    assert cache.match(blocks("ab")) == Match(2, 0)
    cache.end(2)
    assert cache.match(blocks("abcd")) == Match(4, 0)


def test_prompts_without_blocks_and_unknown_requests_change_nothing() -> None:
    cache = cache_with(10, "abc")
    cache.begin(1, ())
    cache.confirm(1)
    cache.confirm(99)
    cache.end(1)
    cache.end(99)
    assert len(cache) == 3


paths = st.text(alphabet="ab", max_size=7)


class PooledCacheMachine(RuleBasedStateMachine):
    """Any order of calls on many keys, beside a model of plain sets that knows no eviction.

    With a bound that is never reached the two agree exactly; with a small one the cache holds less.
    """

    keys = Bundle("keys")
    bound = 10_000

    def __init__(self) -> None:
        super().__init__()
        self.cache = PooledCache(self.bound)
        self.resident: set[str] = set()
        self.computing: dict[int, str] = {}
        self.next_key = 0

    @rule(target=keys, path=paths)
    def begin(self, path: str) -> int:
        return self.began(path)

    def began(self, path: str) -> int:
        self.next_key += 1
        self.cache.begin(self.next_key, blocks(path))
        self.computing[self.next_key] = path
        return self.next_key

    @rule(key=keys)
    def confirm(self, key: int) -> None:
        self.cache.confirm(key)
        path = self.computing[key]
        self.resident |= {path[: end + 1] for end in range(len(path))}

    @rule(key=consumes(keys))
    def end(self, key: int) -> None:
        self.cache.end(key)
        del self.computing[key]

    @rule(path=paths)
    def match(self, path: str) -> None:
        found = self.cache.match(blocks(path))
        pending = {it[: end + 1] for it in self.computing.values() for end in range(len(it))}
        resident = sum(path[: end + 1] in self.resident for end in range(len(path)))
        known = sum(path[: end + 1] in self.resident | pending for end in range(len(path)))
        self.compare(found, Match(resident, known - resident))

    def compare(self, found: Match, expected: Match) -> None:
        assert found == expected

    @invariant()
    def holding_a_block_implies_holding_all_before_it(self) -> None:
        for block, branch in self.cache._branch_of.items():
            assert block in branch.blocks
            if branch.start:
                assert branch.parent is not None
                assert branch.parent.start + len(branch.parent.blocks) == branch.start
                assert branch.parent.blocks[-1] in self.cache._branch_of
                assert self.cache._branch_of[branch.parent.blocks[-1]] is branch.parent

    @invariant()
    def branches_stand_before_their_parents_and_count_their_children(self) -> None:
        order = {branch: at for at, branch in enumerate(self.cache._recency)}
        assert set(order) == set(self.cache._branch_of.values())
        for branch, at in order.items():
            assert branch.blocks
            assert branch.children == sum(it.parent is branch for it in order)
            if branch.parent is not None:
                assert at < order[branch.parent]

    @invariant()
    def pending_blocks_belong_to_running_requests(self) -> None:
        for branch in self.cache._recency:
            if branch.owners is not None:
                assert branch.owners
                assert branch.owners <= set(self.computing)
            if branch.parent is not None and branch.parent.owners is not None:
                assert branch.owners is not None
                assert branch.owners <= branch.parent.owners

    @invariant()
    def the_bound_holds(self) -> None:
        assert len(self.cache) <= self.cache.bound_blocks

    def teardown(self) -> None:
        for key in list(self.computing):
            self.cache.end(key)
        assert all(branch.owners is None for branch in self.cache._recency)
        assert not self.cache._running


class SmallCacheMachine(PooledCacheMachine):
    """The same under eviction and restarts: the cache never claims what was not put in."""

    bound = 6

    def compare(self, found: Match, expected: Match) -> None:
        assert found.resident + found.pending <= expected.resident + expected.pending
        assert found.resident <= expected.resident

    @rule(target=PooledCacheMachine.keys, bound=st.integers(0, 12), path=paths.filter(bool))
    def move_the_bound(self, bound: int, path: str) -> int:
        self.cache.bound_blocks = bound
        return self.began(path)

    @rule()
    def forget(self) -> None:
        self.cache.forget()
        self.resident.clear()


TestPooledCache = PooledCacheMachine.TestCase
TestPooledCache.settings = settings(max_examples=80, stateful_step_count=30)
TestSmallCache = SmallCacheMachine.TestCase
TestSmallCache.settings = settings(max_examples=80, stateful_step_count=30)


@given(st.lists(paths, max_size=12), paths)
def test_a_match_is_the_longest_common_beginning_with_any_prompt_held(held: list[str], path: str) -> None:
    cache = cache_with(1000, *held)
    common = [sum(blocks(path)[at] in blocks(it) for at in range(len(path))) for it in held]
    assert cache.match(blocks(path)) == Match(max(common, default=0), 0)
