"""A request begins alike whether its prompt was looked for before or not, and however long ago."""

from core_chains import blocks, leaf
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.matches import Sight
from gateway.core.prefix import PooledCache

paths = st.text(alphabet="ab", max_size=9)
acts = st.one_of(
    st.tuples(st.sampled_from(["look", "begin", "begin", "begin"]), paths, st.just(0)),
    st.tuples(st.sampled_from(["confirm", "deliver", "end", "end"]), st.just(""), st.integers(0, 5)),
    st.tuples(st.sampled_from(["displaces", "bound", "forget"]), st.just(""), st.integers(1, 9)),
)


def state(cache: PooledCache) -> object:
    branches = [(repr(it), it.stamp, it.used_s) for it in cache._recency]
    return branches, cache.believed_blocks, cache.ghosts, cache.versioned.version, cache._tree.shape


@given(st.integers(1, 12), st.lists(acts, max_size=40))
def test_what_was_seen_before_changes_nothing(bound: int, all_acts: list[tuple[str, str, int]]) -> None:
    it, other = PooledCache(bound), PooledCache(bound)
    seen: dict[str, Sight | None] = {}
    running: list[int] = []
    for now, (act, path, number) in enumerate(all_acts):
        key = running[number % len(running)] if running else -1
        if act == "look":
            seen[path] = it.sight(blocks(path))
        elif act == "begin":
            running.append(now)
            it.begin(now, blocks(path), now, seen.get(path))
            other.begin(now, blocks(path), now)
        for cache in (it, other):
            if act == "confirm":
                cache.confirm(key, now)
            elif act == "deliver":
                cache.confirm(key, now)
                cache.delivered(key, number, number)
            elif act == "end":
                cache.end(key, now)
            elif act == "displaces":
                cache.displaces(number, (), now)
            elif act == "bound":
                cache.bound_blocks = number
            elif act == "forget":
                cache.forget()
        if act == "end" and running:
            running.remove(key)
        assert state(it) == state(other)


@given(st.integers(1, 12), st.lists(acts, max_size=40))
def test_an_end_that_is_well_confirms(bound: int, all_acts: list[tuple[str, str, int]]) -> None:
    it, other = PooledCache(bound), PooledCache(bound)
    running: list[int] = []
    for now, (act, path, number) in enumerate(all_acts):
        key = running[number % len(running)] if running else -1
        if act == "begin":
            running.append(now)
        for cache in (it, other):
            if act == "begin":
                cache.begin(now, blocks(path), now)
            elif act == "confirm":
                cache.confirm(key, now)
            elif act == "deliver":
                cache.confirm(key, now)
                cache.delivered(key, number, number)
            elif act == "bound":
                cache.bound_blocks = number
            elif act == "forget":
                cache.forget()
        if act == "end":
            if running:
                running.remove(key)
            it.end(key, now, well=True)
            other.confirm(key, now)
            other.end(key, now)
        assert state(it) == state(other)


def test_a_branch_that_left_the_tree_has_nothing() -> None:
    cache = PooledCache(9)
    cache.begin(1, blocks("abc"))
    branch = leaf(cache, blocks("abc"))
    assert branch is None
    (pending,) = cache._recency
    assert pending.has(blocks("abc"))
    assert not pending.has(blocks("abd"))
    assert not pending.has(blocks("abcd"))
    cache.end(1)
    assert not pending.has(blocks("abc"))
