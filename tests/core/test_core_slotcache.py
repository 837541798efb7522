from hypothesis import given
from hypothesis import strategies as st

from gateway.core.matches import NO_MATCH, Match
from gateway.core.slotcache import SlotCache, common_prefix


def blocks(path: str) -> tuple[int, ...]:
    """A chain with one block a letter: equal at i only where all before is equal."""
    return tuple(hash(path[: end + 1]) for end in range(len(path)))


def ran(cache: SlotCache, key: int, path: str) -> None:
    cache.begin(key, blocks(path))
    cache.confirm(key)
    cache.end(key)


def found(cache: SlotCache, path: str) -> int:
    match = cache.match(blocks(path))
    assert match.pending == 0
    return match.resident


@given(st.text(alphabet="ab", max_size=9), st.text(alphabet="ab", max_size=9))
def test_the_common_prefix_of_two_chains(a: str, b: str) -> None:
    expected = next((at for at in range(min(len(a), len(b))) if a[at] != b[at]), min(len(a), len(b)))
    assert common_prefix(blocks(a), blocks(b)) == expected


def test_an_empty_prompt_matches_nothing() -> None:
    cache = SlotCache(1, 0)
    ran(cache, 1, "abc")
    assert cache.match(()) == NO_MATCH


def test_a_slot_keeps_the_prompt_that_ran_in_it() -> None:
    cache = SlotCache(2, 0)
    ran(cache, 1, "abc")
    assert found(cache, "abcd") == 3
    assert len(cache) == 3


def test_a_busy_slots_prompt_helps_nobody() -> None:
    cache = SlotCache(2, 0)
    cache.begin(1, blocks("abc"))
    cache.confirm(1)
    assert found(cache, "abcd") == 0
    cache.end(1)
    assert found(cache, "abcd") == 3


def test_nothing_matches_where_all_slots_are_busy() -> None:
    cache = SlotCache(1, 0)
    cache.begin(1, blocks("abc"))
    assert found(cache, "abc") == 0
    cache.begin(2, blocks("xyz"))
    cache.end(2)
    cache.confirm(1)
    cache.end(1)
    assert found(cache, "abc") == 3


def test_a_prefill_that_was_not_finished_leaves_nothing() -> None:
    cache = SlotCache(1, 0)
    cache.begin(1, blocks("abc"))
    cache.end(1)
    assert found(cache, "abc") == 0


def test_a_prompt_takes_the_slot_that_it_shares_most_with() -> None:
    cache = SlotCache(2, 0)
    ran(cache, 1, "abcd")
    ran(cache, 2, "wxyz")
    cache.begin(3, blocks("wxyz!"))
    assert found(cache, "abcd") == 4
    assert found(cache, "wxyz") == 0


def test_a_prompt_that_shares_too_little_takes_the_least_recently_used_slot() -> None:
    cache = SlotCache(2, 0)
    ran(cache, 1, "old")
    ran(cache, 2, "young")
    # One block of ten is not more than a tenth: llama-server does not go by it, so neither does the match.
    assert found(cache, "y123456789") == 0
    cache.begin(3, blocks("y123456789"))
    assert found(cache, "old") == 0
    assert found(cache, "young") == 5


def test_a_displaced_prompt_is_expected_in_host_memory() -> None:
    cache = SlotCache(1, 100)
    ran(cache, 1, "abcd")
    ran(cache, 2, "wxyz")
    assert found(cache, "abcdef") == 4
    assert len(cache) == 8


def test_a_prompt_that_grows_in_its_slot_leaves_no_copy() -> None:
    cache = SlotCache(1, 100)
    ran(cache, 1, "abcd")
    ran(cache, 2, "abcdef")
    assert len(cache) == 6


def test_a_prompt_of_which_half_is_kept_is_lost_beyond_that() -> None:
    cache = SlotCache(1, 100)
    ran(cache, 1, "abcdefgh")
    ran(cache, 2, "abcdWXYZ")
    assert len(cache) == 8
    assert found(cache, "abcdefgh") == 4


def test_a_prompt_of_which_less_than_half_is_kept_goes_to_host_memory() -> None:
    cache = SlotCache(1, 100)
    ran(cache, 1, "abcdefgh")
    ran(cache, 2, "abcVWXYZ")
    assert len(cache) == 16
    assert found(cache, "abcdefgh") == 8


def test_host_memory_is_not_looked_into_where_half_of_the_slot_is_kept() -> None:
    cache = SlotCache(1, 100)
    ran(cache, 1, "abcdefgh")
    ran(cache, 2, "abcVWX")
    # The slot's prompt is half "abc", so the server goes on with it, though the copy has all of this one.
    assert found(cache, "abcdefgh") == 3


def test_a_short_prompt_kept_whole_by_one_much_longer_is_not_similar_and_goes_to_host_memory() -> None:
    cache = SlotCache(1, 100)
    ran(cache, 1, "a")
    ran(cache, 2, "abcdefghijkl")
    assert len(cache) == 13


def test_blocks_that_no_other_slot_holds() -> None:
    cache = SlotCache(3, 0)
    ran(cache, 1, "abcdefgh")
    assert cache.unshared(blocks("abcdefgh")) == 8
    cache.begin(2, blocks("zzzz"))
    cache.begin(3, blocks("abcdefgh"))
    cache.begin(4, blocks("abcxyz"))
    assert cache.unshared(blocks("abcdefgh")) == 5
    assert cache.unshared(blocks("abcxyz")) == 3
    assert cache.unshared(blocks("zzzz")) == 4


def test_a_prompt_that_two_slots_hold_has_nothing_of_its_own() -> None:
    cache = SlotCache(2, 0)
    cache.begin(1, blocks("abcd"))
    cache.begin(2, blocks("abcd"))
    assert cache.unshared(blocks("abcd")) == 0
    cache.end(2)
    assert cache.unshared(blocks("abcd")) == 4


def test_a_prompt_that_lies_in_no_slot_has_nothing_to_lose() -> None:
    cache = SlotCache(1, 0)
    ran(cache, 1, "abcd")
    assert cache.unshared(blocks("abcde")) == 0
    assert SlotCache(0, 0).unshared(blocks("abcd")) == 0


def test_a_prompt_taken_back_from_host_memory_is_not_there_any_more() -> None:
    cache = SlotCache(1, 100)
    ran(cache, 1, "abcd")
    ran(cache, 2, "wxyz")
    ran(cache, 3, "abcdef")
    assert found(cache, "abcdef") == 6
    assert found(cache, "wxyz") == 4
    assert len(cache) == 10
    assert not cache._from_host


def test_a_host_copy_of_which_little_would_be_kept_is_not_taken() -> None:
    cache = SlotCache(1, 100)
    ran(cache, 1, "abcdefghi")
    ran(cache, 2, "wxyz")
    assert found(cache, "ab!") == 0
    assert found(cache, "abc!") == 3


def test_host_memory_is_bounded_and_the_oldest_copy_goes_first() -> None:
    cache = SlotCache(1, 8)
    for key, path in enumerate(["aaaa", "bbbb", "cccc", "dddd"]):
        ran(cache, key, path)
    assert found(cache, "aaaa") == 0
    assert found(cache, "bbbb") == 4
    assert found(cache, "cccc") == 4
    assert len(cache) == 12


def test_a_host_copy_that_did_not_come_halves_the_assumption_and_empties_it() -> None:
    cache = SlotCache(1, 100)
    ran(cache, 1, "abcd")
    ran(cache, 2, "wxyz")
    cache.begin(3, blocks("abcde"))
    cache.delivered(3, predicted_tokens=400, cached_tokens=20)
    cache.confirm(3)
    cache.end(3)
    assert cache.bound_blocks == 50
    assert found(cache, "wxyz") == 0
    ran(cache, 4, "pqrs")
    assert found(cache, "abcde") == 5


def test_host_copies_that_never_come_end_the_assumption() -> None:
    cache = SlotCache(1, 20)
    for key in range(0, 10, 2):
        ran(cache, key, "wxyz")
        cache.begin(key + 1, blocks("abcd"))
        cache.delivered(key + 1, predicted_tokens=400, cached_tokens=0)
        cache.confirm(key + 1)
        cache.end(key + 1)
    # Of the two prompts only one is ever in host memory; below four blocks it does not fit.
    assert cache.bound_blocks == 2
    assert len(cache) == 4


def test_a_host_copy_that_came_confirms_the_assumption() -> None:
    cache = SlotCache(1, 100)
    ran(cache, 1, "abcd")
    ran(cache, 2, "wxyz")
    cache.begin(3, blocks("abcde"))
    cache.delivered(3, predicted_tokens=400, cached_tokens=390)
    assert cache.bound_blocks == 100
    assert found(cache, "wxyz") == 0
    cache.end(3)
    assert found(cache, "wxyz") == 4


def test_a_miss_in_a_slot_says_nothing_of_host_memory() -> None:
    cache = SlotCache(1, 100)
    ran(cache, 1, "abcd")
    cache.begin(2, blocks("abcde"))
    cache.delivered(2, predicted_tokens=400, cached_tokens=0)
    assert cache.bound_blocks == 100


def test_a_restarted_engine_holds_nothing() -> None:
    cache = SlotCache(2, 100)
    for key, path in enumerate(["abcd", "wxyz", "pqrs"]):
        ran(cache, key, path)
    cache.begin(9, blocks("busy"))
    cache.forget()
    assert len(cache) == 0
    cache.end(9)
    assert len(cache) == 0


def test_more_slots_hold_more_prompts() -> None:
    cache = SlotCache(1, 0)
    ran(cache, 1, "abcd")
    cache.resize(2)
    ran(cache, 2, "wxyz")
    assert (found(cache, "abcd"), found(cache, "wxyz")) == (4, 4)


def test_fewer_slots_lose_the_least_recently_used_prompts() -> None:
    cache = SlotCache(3, 0)
    for key, path in enumerate(["abcd", "wxyz", "pqrs"]):
        ran(cache, key, path)
    cache.resize(1)
    assert (found(cache, "abcd"), found(cache, "wxyz"), found(cache, "pqrs")) == (0, 0, 4)


def test_busy_slots_beyond_a_smaller_number_go_when_their_request_ends() -> None:
    cache = SlotCache(2, 0)
    cache.begin(1, blocks("abcd"))
    cache.begin(2, blocks("wxyz"))
    cache.resize(1)
    for key in (1, 2):
        cache.confirm(key)
        cache.end(key)
    assert len(cache) == 4
    assert (found(cache, "abcd"), found(cache, "wxyz")) == (0, 4)


calls = st.lists(
    st.tuples(
        st.sampled_from(["begin", "confirm", "end", "forget", "resize", "delivered"]),
        st.integers(0, 5),
        st.text(alphabet="ab", min_size=1, max_size=8),
    ),
    max_size=40,
)


@given(calls, st.integers(0, 12))
def test_any_order_of_calls_keeps_the_bounds_and_leaves_no_slot_busy(
    script: list[tuple[str, int, str]], bound: int
) -> None:
    cache, running, slots = SlotCache(2, bound), set[int](), 2
    for call, key, path in script:
        if call == "begin" and key not in running:
            running.add(key)
            cache.begin(key, blocks(path))
        elif call == "confirm":
            cache.confirm(key)
        elif call == "end":
            running.discard(key)
            cache.end(key)
        elif call == "forget":
            cache.forget()
        elif call == "resize":
            slots = 1 + key % 3
            cache.resize(slots)
        elif call == "delivered":
            cache.delivered(key, 100, 10 * key)
        assert sum(map(len, cache._host)) <= cache.bound_blocks
        assert len(cache._slots) >= slots
        assert cache.match(blocks(path)).resident <= len(path)
        assert isinstance(cache.match(blocks(path)), Match)
    for key in running:
        cache.end(key)
    assert all(slot.key is None for slot in cache._slots)
    assert len(cache._slots) == slots
    assert not cache._from_host


def test_what_busy_slots_have_and_what_lies_behind_them_is_told_apart() -> None:
    cache = SlotCache(2, 100)
    ran(cache, 1, "abcd")
    idle = cache.sight(blocks("abcde"))
    assert (idle.resident, idle.busy, idle.shut) == (4, 0, 0)
    cache.begin(2, blocks("xyz"))
    cache.begin(3, blocks("uvw"))
    behind = cache.sight(blocks("abcde"))
    assert (behind.resident, behind.busy, behind.shut) == (0, 0, 4)
    running = cache.sight(blocks("xyab"))
    assert (running.resident, running.busy, running.shut) == (0, 2, 0)
    cache.end(3)
    assert cache.sight(blocks("xyab")).busy == 2
