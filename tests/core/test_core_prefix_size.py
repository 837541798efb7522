"""What misses and hits tell of an engine's size, told as scripts."""

import pytest
from core_chains import blocks, cache_with, finish

from gateway.core.capacity import FIRST_OVERSHOOT
from gateway.core.matches import Match


def test_what_came_later_cannot_have_displaced_what_was_missed() -> None:
    cache = cache_with(100, "abc", "pqr", "xyz")
    cache.begin(1, blocks("pqrs"))
    cache.confirm(1)
    finish(cache, 2, "ijkl", cached_blocks=0)
    cache.delivered(1, 0, 0)
    # Of "pqrs", "xyz" and "ijkl" the engine had but "xyz" and what was missed in it.
    assert cache.match(blocks("abc")) == Match(0, 0, ghost=3)
    assert cache.believed_blocks == 6


def test_what_was_given_up_while_its_request_ran_shows_no_less_than_that() -> None:
    cache = cache_with(100, "abc", "xyz")
    cache.begin(1, blocks("xyz"))
    cache.begin(2, blocks("abcd"))
    cache.believed_blocks = 7
    cache.confirm(2)
    cache.end(1)
    finish(cache, 3, "ijklm", cached_blocks=0)
    before = cache.believed_blocks
    cache.delivered(2, 0, 0)
    assert cache.believed_blocks <= before


def test_a_miss_never_makes_an_engine_larger() -> None:
    cache = cache_with(100, "abc")
    cache.begin(1, blocks("pqrstu"))
    cache.confirm(1)
    cache.begin(2, blocks("abc"))
    cache.confirm(2)
    cache.believed_blocks = 2
    cache.delivered(2, 0, 0)
    assert cache.believed_blocks == 2


@pytest.mark.parametrize(("path", "overshoot"), [("abc", 0.0), ("pqr", FIRST_OVERSHOOT)])
@pytest.mark.parametrize("is_told", [False, True], ids=["as it ends well", "from its report"])
def test_a_hit_near_the_edge_of_a_belief_that_came_down_says_that_it_is_right(
    path: str, overshoot: float, is_told: bool
) -> None:
    cache = cache_with(100, "jkl", "abc", "defghi", "pqr", "xyz")
    finish(cache, 1, "jkl", cached_blocks=0)
    cache._capacity.overshoot = FIRST_OVERSHOOT
    cache.begin(2, blocks(path))
    if is_told:
        cache.confirm(2)
        cache.delivered(2, 3, 3)
    cache.end(2, well=True)
    assert cache._capacity.overshoot == overshoot


def test_what_an_older_ghost_has_brought_back_is_there_already() -> None:
    cache = cache_with(100, "abc", "ghi", "lmn", "pqr")
    cache.believed_blocks = 3
    finish(cache, 9, "pqr", cached_blocks=3)
    for key, path in ((2, "lmn"), (1, "abc")):
        cache.begin(key, blocks(path))
        cache.confirm(key)
    cache.believed_blocks = 100
    cache.delivered(1, 3, 3)
    assert cache.match(blocks("ghi")) == Match(3, 0)
    cache.delivered(2, 3, 3)
    assert cache.match(blocks("ghi")) == Match(3, 0)


def test_all_that_is_older_than_everything_is_near_the_edge() -> None:
    recency = cache_with(100, "abc", "pqr")._recency
    assert recency.is_near_edge(recency.stamp, 6)
    assert not recency.is_near_edge(recency.stamp, 5)


def test_ghosts_make_room_for_what_comes_though_the_engine_has_room() -> None:
    cache = cache_with(6, "abc", "xyz")
    cache.believed_blocks = 3
    finish(cache, 1, "xyz", cached_blocks=3)
    cache.believed_blocks = 6
    cache.begin(2, blocks("pq"))
    assert cache.match(blocks("abc")) == Match(0, 0, ghost=1)
    assert cache.believed_blocks == 6
