from array import array

import pytest
from core_chains import blocks, cache_with, finish

from gateway.core.branches import Branch
from gateway.core.matches import NO_MATCH, Match
from gateway.core.prefix import PooledCache


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
    assert [repr(it) for it in cache._recency] == ["<Branch 0..6 resident children=0>"]


def test_a_pending_branch_shows_who_computes_it() -> None:
    assert repr(Branch(None, 2, array("Q", [7, 8]), {5, 4})) == "<Branch 2..4 pending on [4, 5] children=0>"


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


def test_a_lost_block_takes_all_that_was_last_used_before_it() -> None:
    cache = cache_with(100, "abc", "pqr", "xyz")
    finish(cache, 1, "pqrs", cached_blocks=0)
    assert cache.match(blocks("abc")) == Match(0, 0, ghost=3)
    assert cache.match(blocks("pqrs")) == Match(4, 0)
    # Nothing shows that there is room for the block that only this request brought.
    assert cache.match(blocks("xyz")) == Match(2, 0, ghost=1)
    assert (len(cache), cache.ghosts, cache.believed_blocks) == (6, 4, 6)


def test_from_then_on_older_ones_are_ghosts_when_new_ones_come() -> None:
    cache = cache_with(100, "abc", "pqr", "xyz")
    finish(cache, 1, "pqrs", cached_blocks=0)
    finish(cache, 2, "ij", cached_blocks=0)
    assert cache.match(blocks("xyz")) == Match(0, 0, ghost=3)
    assert cache.match(blocks("pqrs")) == Match(4, 0)


def test_a_ghost_that_is_there_brings_back_all_that_was_last_used_after_it() -> None:
    cache = cache_with(100, "abc", "lmn", "uvw", "pqr")
    cache.believed_blocks = 5
    finish(cache, 1, "pqr", cached_blocks=3)
    assert cache.match(blocks("lmn")) == Match(0, 0, ghost=3)
    finish(cache, 2, "lmno", cached_blocks=3)
    assert cache.match(blocks("lmno")) == Match(4, 0)
    assert cache.match(blocks("pqr")) == Match(3, 0)
    assert cache.match(blocks("abc")) == Match(0, 0, ghost=3)
    # Nothing shows that there was room for the new block beside all three.
    assert cache.match(blocks("uvw")) == Match(2, 0, ghost=1)
    assert cache.believed_blocks == 9


def test_a_ghost_branch_may_be_there_in_part() -> None:
    cache = cache_with(100, "abcdef", "pqr")
    finish(cache, 1, "pqr", cached_blocks=0)
    finish(cache, 2, "xyz", cached_blocks=0)
    cache.begin(3, blocks("abcdef"))
    cache.confirm(3)
    cache.delivered(3, 4, 4)
    assert 3 < cache.believed_blocks <= 9


def test_what_is_left_of_a_branch_counts_and_the_rest_is_a_ghost() -> None:
    cache = cache_with(100, "abcdef", "pqr")
    cache.believed_blocks = 5
    finish(cache, 1, "pqr", cached_blocks=3)
    assert cache.match(blocks("abcdef")) == Match(2, 0, ghost=4)
    assert [repr(it) for it in cache._recency] == [
        "<Branch 0..6 resident but 4 ghosts children=0>",
        "<Branch 0..3 resident children=0>",
    ]
    cache.begin(2, blocks("abcdef"))
    assert cache.match(blocks("abcdef")) == Match(2, 3, ghost=1)


def test_what_lies_deeper_than_the_ghost_that_was_there_may_be_gone() -> None:
    cache = cache_with(100, "abcdefgh", "ijkl")
    cache.believed_blocks = 6
    finish(cache, 1, "ijkl", cached_blocks=4)
    cache.believed_blocks = 100
    cache.begin(2, blocks("abcd"))
    cache.confirm(2)
    cache.delivered(2, 4, 4)
    assert cache.match(blocks("abcdefgh")) == Match(4, 0, ghost=4)


@pytest.mark.parametrize("cached_blocks", [2, 3, 4])
def test_a_difference_of_a_block_teaches_nothing(cached_blocks: int) -> None:
    cache = cache_with(100, "abc", "pqr", "xyz")
    finish(cache, 1, "pqr", cached_blocks)
    assert (len(cache), cache.ghosts, cache.believed_blocks) == (9, 0, 100)


def test_a_miss_on_what_another_was_computing_teaches_nothing() -> None:
    cache = cache_with(100, "xyz")
    cache.begin(1, blocks("abcdef"))
    finish(cache, 2, "abcdef", cached_blocks=0)
    cache.confirm(1)
    cache.delivered(1, 0, 0)
    assert (cache.ghosts, cache.believed_blocks) == (0, 100)


def test_a_request_teaches_once_and_one_that_is_unknown_nothing() -> None:
    cache = cache_with(100, "abc", "pqr")
    cache.begin(1, blocks("pqr"))
    cache.confirm(1)
    cache.delivered(1, 0, 0)
    cache.begin(2, blocks("ghi"))
    cache.delivered(1, 0, 0)
    cache.delivered(99, 0, 0)
    assert cache.believed_blocks == 3


def test_what_a_running_request_uses_is_not_lost() -> None:
    cache = PooledCache(100)
    cache.begin(1, blocks("abc"))
    cache.confirm(1)
    finish(cache, 2, "pqr", cached_blocks=0)
    finish(cache, 3, "pqr", cached_blocks=0)
    assert cache.match(blocks("abc")) == Match(3, 0)
    assert cache.believed_blocks == 6


def test_what_a_running_request_uses_outlives_what_came_after_it() -> None:
    cache = PooledCache(6)
    cache.begin(1, blocks("abc"))
    finish(cache, 2, "pqr", cached_blocks=0)
    finish(cache, 3, "x", cached_blocks=0)
    assert cache.match(blocks("abc")) == Match(0, 3)
    assert cache.match(blocks("pqr")) == Match(2, 0)


def test_of_running_requests_that_need_more_than_there_is_the_last_to_come_is_a_ghost() -> None:
    cache = cache_with(20, "abcdef")
    cache.believed_blocks = 6
    cache.begin(1, blocks("abcdefgh"))
    assert cache.match(blocks("abcdefgh")) == Match(6, 0, ghost=2)
    cache.begin(2, blocks("xyz"))
    assert cache.match(blocks("abcdefgh")) == Match(6, 0, ghost=2)
    assert cache.match(blocks("xyz")) == Match(0, 0, ghost=3)
    cache.end(1)
    assert cache.match(blocks("abcdefgh")) == Match(6, 0, ghost=2)


def test_ghosts_are_pending_when_they_are_computed_again_and_ghosts_if_that_fails() -> None:
    cache = cache_with(100, "abcd", "pqr")
    finish(cache, 1, "pqr", cached_blocks=0)
    cache.believed_blocks = 100
    cache.begin(2, blocks("ab"))
    assert cache.match(blocks("abcd")) == Match(0, 2, ghost=2)
    cache.end(2)
    assert cache.match(blocks("abcd")) == Match(0, 0, ghost=4)
    assert cache.match(blocks("pqr")) == Match(3, 0)


def test_a_ghost_that_is_there_is_so_with_all_before_it() -> None:
    cache = cache_with(100, "pqr", "abcd", "xyz")
    cache.believed_blocks = 3
    finish(cache, 1, "xyz", cached_blocks=3)
    cache.believed_blocks = 100
    cache.begin(2, blocks("ab"))
    assert cache.match(blocks("abcd")) == Match(0, 2, ghost=2)
    finish(cache, 3, "pqr", cached_blocks=3)
    assert cache.match(blocks("abcd")) == Match(4, 0)


def test_an_engine_that_restarted_is_believed_again() -> None:
    cache = cache_with(100, "abc", "pqr")
    finish(cache, 1, "pqr", cached_blocks=0)
    cache.begin(2, blocks("pqr"))
    cache.forget()
    cache.confirm(2)
    cache.delivered(2, 0, 0)
    assert (len(cache), cache.ghosts, cache.believed_blocks) == (3, 0, 100)


def test_what_was_learned_stays_the_same_share_of_the_bound() -> None:
    cache = PooledCache(100)
    cache.believed_blocks = 50
    cache.bound_blocks = 90
    assert (cache.bound_blocks, cache.believed_blocks) == (90, 45)


def test_a_bound_that_was_not_known_is_believed_when_it_is() -> None:
    cache = PooledCache(0)
    cache.bound_blocks = 90
    assert cache.believed_blocks == 90


def test_chains_that_meet_in_one_hash_do_no_harm() -> None:
    held, other = blocks("abcdefghijklmnopqrst"), blocks("xyz")
    meets = (held[16], *other)
    cache = cache_with(100, "abcdefghijklmnopqrst")
    assert cache.match(meets) == NO_MATCH
    cache.begin(1, meets)
    cache.confirm(1)
    cache.end(1)
    assert cache.match(meets) == Match(4, 0)
    assert cache.match(held[:16]) == Match(16, 0)
    for key in range(2, 8):
        cache.begin(key, blocks(str(key) * 50))
        cache.confirm(key)
        cache.end(key)
    assert len(cache) == 100
