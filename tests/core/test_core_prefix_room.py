"""What goes from an engine's cache if a prompt comes."""

import math

import pytest
from core_chains import blocks, leaf

from gateway.core.matches import Match
from gateway.core.prefix import PooledCache


def cache_of(bound: int, *used: tuple[str, float]) -> PooledCache:
    """Holds each path, last used at its time."""
    cache = PooledCache(bound)
    for key, (path, now) in enumerate(used, 1000):
        ran(cache, key, path, now)
    return cache


def ran(cache: PooledCache, key: int, path: str, now: float) -> None:
    cache.begin(key, blocks(path), now)
    cache.confirm(key, now)
    cache.end(key, now)


@pytest.mark.parametrize(
    ("more", "used_s"), [(0, None), (1, None), (2, 1.0), (4, 1.0), (5, 2.0), (8, math.inf)]
)
def test_the_youngest_of_what_goes_tells_how_much_it_is_in_use(more: int, used_s: float | None) -> None:
    assert cache_of(7, ("abc", 1.0), ("xyz", 2.0)).displaces(more, (), 9.0) == used_s


def test_a_conversation_that_went_on_is_as_young_as_its_last_answer() -> None:
    cache = cache_of(6, ("abc", 1.0), ("xy", 2.0), ("abcd", 3.0))
    assert cache.displaces(2, (), 9.0) == 2.0
    assert cache.displaces(3, (), 9.0) == 3.0


def test_what_runs_cannot_go() -> None:
    cache = cache_of(6, ("abc", 1.0), ("xyz", 2.0))
    cache.begin(1, blocks("abc"), 5.0)
    assert cache.displaces(3, (), 9.0) == 2.0
    assert cache.displaces(4, (), 9.0) == math.inf


def test_what_ended_among_what_runs_can_go() -> None:
    cache = PooledCache(9)
    cache.begin(1, blocks("abc"), 1.0)
    ran(cache, 2, "pqr", 2.0)
    cache.begin(3, blocks("xyz"), 3.0)
    assert cache.displaces(3, (), 9.0) == 2.0
    assert cache.displaces(4, (), 9.0) == math.inf


def test_a_shared_beginning_cannot_go_while_one_that_goes_on_from_it_runs() -> None:
    cache = cache_of(6, ("abcd", 1.0), ("abxy", 2.0))
    cache.begin(1, blocks("abxy"), 3.0)
    assert cache.displaces(2, (), 9.0) == 1.0
    assert cache.displaces(3, (), 9.0) == math.inf


def test_what_somebody_waits_to_go_on_from_will_be_used() -> None:
    cache = cache_of(6, ("abc", 1.0), ("xyz", 2.0))
    abc = leaf(cache, blocks("abcd"))
    assert 9.0 < cache.displaces(3, {abc}, 9.0) < 9.1
    assert cache.displaces(3, {leaf(cache, blocks("xyz"))}, 9.0) == 1.0


def test_what_is_believed_gone_does_not_go_again() -> None:
    cache = cache_of(9, ("abc", 1.0), ("pqr", 2.0), ("xyz", 3.0))
    cache.believed_blocks = 6
    ran(cache, 1, "xyz", 4.0)
    assert cache.match(blocks("abc")) == Match(0, 0, ghost=3)
    assert cache.displaces(3, (), 9.0) == 2.0


def test_the_leaf_of_a_match_is_the_run_that_holds_the_last_resident_block() -> None:
    cache = cache_of(20, ("abc", 1.0), ("abxy", 2.0))
    assert leaf(cache, blocks("q")) is None
    one, other = (leaf(cache, blocks(path)) for path in ("abcd", "abxyz"))
    assert one is not other
    assert leaf(cache, blocks("abcdef")) is one
    cache.begin(1, blocks("abcde"), 3.0)
    assert leaf(cache, blocks("abcde")) is one


def test_asking_for_room_does_not_make_what_runs_younger() -> None:
    cache = cache_of(7, ("abc", 1.0))
    cache.begin(1, blocks("abc"), 2.0)
    ran(cache, 2, "pqr", 8.0)
    cache.begin(3, blocks("x"), 8.5)
    assert cache.displaces(3, (), 9.0) == 8.0
    cache.end(1, 9.0)
    assert cache.displaces(6, (), 9.0) == 8.0


def test_what_ends_well_was_used_until_then() -> None:
    cache = PooledCache(3)
    cache.begin(1, blocks("abc"), 1.0)
    cache.confirm(1, 2.0)
    assert cache.displaces(3, (), 9.0) == math.inf
    cache.end(1, 9.9)
    assert cache.displaces(3, (), 10.0) == 9.9


def test_what_has_ended_may_go_though_it_goes_on_from_what_runs() -> None:
    cache = PooledCache(6)
    cache.begin(1, range(1), 1.0)
    cache.begin(2, range(6), 2.0)
    cache.confirm(2, 3.0)
    cache.end(2, 4.0)
    assert cache.displaces(5, (), 5.0) == 4.0
    assert cache.displaces(6, (), 5.0) == math.inf


def test_what_is_asked_again_after_all_was_given_up_can_be_displaced() -> None:
    cache = PooledCache(40)
    cache.believed_blocks = 3
    first, abandoned = (1, 2, 3), (11, 12, 13)
    cache.begin(1, first, 1.0)
    cache.confirm(1, 1.0)
    cache.end(1, 1.0)
    cache.begin(2, abandoned, 2.0)
    cache.end(2, 3.0)
    cache.begin(3, first, 4.0)
    cache.confirm(3, 4.0)
    cache.end(3, 4.0)
    assert cache.displaces(3, (), 5.0) == 4.0
