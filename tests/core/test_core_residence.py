import math

import pytest
from core_chains import blocks
from core_values import NOTHING, usage

from gateway.core import residence as module
from gateway.core.events import BlockEvent, Cleared, Removed, Stored
from gateway.core.lengths import Lengths, Ruler
from gateway.core.request import Request, Usage
from gateway.core.residence import LATE_S, SILENT_S, Residence

BLOCK = 16
"""Tokens in a block of the engine's; one of ours is 8 tokens (`ruler`)."""


def ruler(path: str) -> Ruler:
    return Lengths(256).ruler(blocks(path), 32.0)


def told(it: Residence, path: str, prompt_tokens: int = 1000) -> tuple[int, int, bool] | None:
    found = it.told(blocks(path), ruler(path), prompt_tokens)
    return None if found is None else (found.tokens, found.depth, found.whole)


def request(key: int, path: str, width: int = 1) -> Request:
    return Request(key=key, id="r", api="chat", model="m", blocks=blocks(path), width=width)


def hear(it: Residence, now: float, *events: BlockEvent) -> bool:
    return it.hear(events, now)


def end(it: Residence, key: int, path: str, prompt: int, cached: int, answer: int, now: float) -> None:
    ended = request(key, path)
    it.end(ended, ended.blocks, usage(prompt, cached, answer), now)


def ran(
    it: Residence, key: int, path: str, prompt: int, hashes: list[int], parent: int | None = None,
    *, cached: int = 0, answer: int = 1, at: float = 0.0,
) -> None:  # fmt: skip
    """A request began at `at`, had its blocks stored a second later, and ended after another one."""
    it.begin(key, at)
    hear(it, at + 1.0, Stored(hashes, parent))
    end(it, key, path, prompt, cached, answer, at + 2.0)
    it.place(at + 2.0)


def test_nothing_is_known_of_a_prompt_that_was_never_met() -> None:
    it = Residence(BLOCK)
    ran(it, 1, "abcd", 33, [1, 2])

    assert told(it, "xyzw") is None
    assert told(it, "x") is None
    assert told(it, "") is None


def test_a_prompt_that_goes_on_from_a_known_one_has_all_blocks_of_that() -> None:
    it = Residence(BLOCK)
    ran(it, 1, "abcd", 33, [1, 2])

    assert told(it, "abcdefgh") == (32, 4, True)


def test_a_prompt_is_known_by_as_much_as_it_shares() -> None:
    it = Residence(BLOCK)
    ran(it, 1, "abcdefgh", 65, [1, 2, 3, 4])

    assert told(it, "abcxyz") == (16, 3, True)
    assert told(it, "abcdexyz") == (32, 5, True)
    assert told(it, "axyz") is None


def test_a_request_that_has_just_ended_is_known_at_once() -> None:
    it = Residence(BLOCK)
    it.begin(1, 0.0)
    hear(it, 1.0, Stored([1, 2]))
    end(it, 1, "abcd", 33, 0, 1, 2.0)

    assert told(it, "abcdef") == (32, 4, True)


def test_what_was_before_all_requests_is_none_of_theirs() -> None:
    it = Residence(BLOCK)
    it.begin(1, 0.0)
    hear(it, -math.inf, Stored([1, 2]), Stored([11, 12]))
    hear(it, 1.0, Stored([3], 2))
    end(it, 1, "abcdef", 49, 32, 1, 2.0)

    assert told(it, "abcdef") == (48, 6, True)
    assert it.held.unclaimed == []


@pytest.mark.parametrize("likely_depth", range(13))
@pytest.mark.parametrize("path", ["abcdefgh", "abcdefghijkl", "abcdefxyzxyz", "abcdxyzxyzxy", "xyzxyzxyzxyz"])
def test_what_is_known_elsewhere_only_shortens_the_search(path: str, likely_depth: int) -> None:
    it = Residence(BLOCK)
    ran(it, 1, "abcdefgh", 65, [1, 2, 3, 4])

    found = it.told(blocks(path), ruler(path), 1000, min(likely_depth, len(path)))

    assert found == it.told(blocks(path), ruler(path), 1000)


def test_the_last_token_of_a_prompt_is_always_computed() -> None:
    it = Residence(BLOCK)
    ran(it, 1, "abcd", 33, [1, 2])

    assert told(it, "abcd", 32) == (16, 4, True)
    assert told(it, "abcd", 16) == (0, 4, True)


def test_what_was_removed_is_not_there() -> None:
    it = Residence(BLOCK)
    ran(it, 1, "abcdefgh", 65, [1, 2, 3, 4])

    assert hear(it, 5.0, Removed([4]))
    assert told(it, "abcdefgh") == (48, 8, False)
    assert hear(it, 6.0, Removed([2, 3]))
    assert told(it, "abcdefgh") == (16, 8, False)
    assert hear(it, 7.0, Removed([1]))
    assert told(it, "abcdefgh") == (0, 8, False)


def test_an_engine_that_was_cleared_has_nothing_of_what_is_known() -> None:
    it = Residence(BLOCK)
    ran(it, 1, "abcd", 33, [1, 2])

    assert hear(it, 5.0, Cleared())

    assert told(it, "abcdef") == (0, 4, False)


def test_requests_at_the_same_time_are_told_apart_by_what_they_computed() -> None:
    it = Residence(BLOCK)
    it.begin(1, 0.0)
    it.begin(2, 0.0)
    hear(it, 1.0, Stored([1, 2]), Stored([11, 12, 13]))
    end(it, 2, "wxyzwx", 50, 0, 1, 2.0)
    end(it, 1, "abcd", 33, 0, 1, 2.0)

    assert it.place(2.0)

    assert told(it, "abcd") == (32, 4, True)
    assert told(it, "wxyzwx") == (48, 6, True)
    assert (it.placed, it.unplaced) == (2, 0)


def test_requests_that_cannot_be_told_apart_are_left_out() -> None:
    it = Residence(BLOCK)
    it.begin(1, 0.0)
    it.begin(2, 0.0)
    hear(it, 1.0, Stored([1, 2]), Stored([11, 12]))
    end(it, 2, "wxyz", 33, 0, 1, 2.0)
    end(it, 1, "abcd", 33, 0, 1, 2.0)

    assert not it.place(2.0 + LATE_S)

    assert told(it, "abcd") is None
    assert (it.placed, it.unplaced) == (0, 2)


def test_of_two_alike_the_one_that_goes_on_from_the_known_chain_is_it() -> None:
    it = Residence(BLOCK)
    ran(it, 1, "abcd", 33, [1, 2])
    ran(it, 2, "wxyz", 33, [11, 12], at=5.0)
    it.begin(3, 10.0)
    it.begin(4, 10.0)
    hear(it, 11.0, Stored([3], 2), Stored([13], 12))
    end(it, 3, "abcdef", 49, 32, 1, 12.0)
    end(it, 4, "wxyzwx", 49, 32, 1, 12.0)

    it.place(12.0)

    assert told(it, "abcdef") == (48, 6, True)
    assert hear(it, 13.0, Removed([13]))
    assert told(it, "wxyzwx") == (32, 6, False)
    assert told(it, "abcdef") == (48, 6, True)


def test_events_may_come_a_little_later_than_the_answer() -> None:
    it = Residence(BLOCK)
    it.begin(1, 0.0)
    end(it, 1, "abcd", 33, 0, 1, 2.0)
    assert not it.place(2.0)

    assert hear(it, 2.5, Stored([1, 2]))

    assert told(it, "abcd") == (32, 4, True)


def test_blocks_that_came_before_a_request_are_not_its() -> None:
    it = Residence(BLOCK)
    hear(it, 1.0, Stored([1, 2]))
    it.begin(1, 2.0)
    end(it, 1, "abcd", 33, 0, 1, 3.0)

    it.place(3.0 + LATE_S)

    assert told(it, "abcd") is None
    assert it.unplaced == 1


def test_an_engine_may_compute_a_few_tokens_more_than_it_tells() -> None:
    it = Residence(BLOCK)
    ran(it, 1, "abcd", 31, [1, 2])

    assert told(it, "abcdef") == (16, 4, True)
    assert it.placed == 1


def test_the_next_turn_may_begin_before_it_is_known_whose_the_blocks_are() -> None:
    it = Residence(BLOCK)
    it.begin(1, 0.0)
    hear(it, 1.0, Stored([1, 2]))
    end(it, 1, "abcd", 33, 0, 1, 2.0)
    it.begin(2, 2.0)

    hear(it, 2.5, Stored([3], 2))
    end(it, 2, "abcdef", 49, 32, 1, 3.0)
    it.place(3.0)

    assert told(it, "abcdef") == (48, 6, True)
    assert it.placed == 2


def test_that_a_turn_was_not_found_does_not_lose_the_ones_after_it() -> None:
    it = Residence(BLOCK)
    it.begin(1, 0.0)
    it.begin(2, 0.0)
    hear(it, 1.0, Stored([1, 2]), Stored([11, 12]))
    end(it, 1, "abcd", 33, 0, 1, 2.0)
    end(it, 2, "wxyz", 33, 0, 1, 2.0)
    it.place(2.0 + LATE_S)
    it.begin(3, 10.0)
    hear(it, 11.0, Stored([3], 2))
    end(it, 3, "abcdef", 49, 32, 1, 12.0)

    it.place(12.0)

    assert told(it, "abcdef") == (48, 6, True)


def test_where_a_prompt_leaves_another_is_learned_from_the_first_that_does() -> None:
    it = Residence(BLOCK)
    ran(it, 1, "abcdefgh", 65, [1, 2, 3, 4])
    assert told(it, "abcdwxyz") == (32, 4, True)

    # A block of theirs is shared beyond the four of ours.
    ran(it, 2, "abcdwxyz", 65, [13, 14], 2, cached=32, at=5.0)
    ran(it, 3, "abcdstuv", 65, [24], 3, cached=48, at=10.0)

    assert told(it, "abcdklmn") == (48, 4, True)
    assert told(it, "abcdwxyz") == (64, 8, True)


def test_the_next_prompt_is_found_to_have_the_answer_or_not() -> None:
    it = Residence(BLOCK)
    ran(it, 1, "abcd", 33, [1, 2, 3], answer=16)
    assert told(it, "abcdef") == (32, 4, True)

    ran(it, 2, "abcdef", 65, [4], 3, cached=48, at=5.0)
    ran(it, 3, "wxyz", 33, [11, 12, 13], answer=16, at=10.0)
    assert told(it, "wxyzwx") == (48, 4, True)

    ran(it, 4, "wxyzwx", 65, [23, 24], 12, cached=32, at=15.0)
    ran(it, 5, "wxyzwxyz", 97, [35, 36], 24, cached=64, answer=17, at=20.0)
    assert told(it, "wxyzwxyzwx") == (96, 8, True)


def test_the_same_prompt_again_is_known_by_its_new_answer() -> None:
    it = Residence(BLOCK)
    ran(it, 1, "abcd", 33, [1, 2, 3], answer=16)
    ran(it, 2, "abcd", 33, [9], 2, cached=32, answer=16, at=5.0)
    ran(it, 3, "abcdef", 65, [10], 9, cached=48, at=10.0)

    assert told(it, "abcdef") == (64, 6, True)


def test_a_prompt_that_is_the_start_of_a_known_one_changes_nothing() -> None:
    it = Residence(BLOCK)
    ran(it, 1, "abcdefgh", 65, [1, 2, 3, 4])
    ran(it, 2, "abcd", 33, [9], 2, cached=32, answer=16, at=5.0)

    assert told(it, "abcdefgh") == (64, 8, True)


def test_a_request_that_computed_no_whole_block_is_no_miss() -> None:
    it = Residence(BLOCK)
    it.begin(1, 0.0)
    end(it, 1, "abcd", 33, 32, 1, 1.0)

    assert not it.place(1.0 + LATE_S)

    assert (it.placed, it.unplaced) == (0, 0)


@pytest.mark.parametrize(("prompt", "cached"), [(None, 0), (33, None)])
def test_a_request_of_which_the_engine_tells_too_little_is_left_out(
    prompt: int | None, cached: int | None
) -> None:
    it = Residence(BLOCK)
    it.begin(1, 0.0)
    hear(it, 1.0, Stored([1, 2]))
    ended = request(1, "abcd")

    it.end(ended, ended.blocks, Usage(prompt_tokens=prompt, cached_tokens=cached), 2.0)
    it.place(2.0 + LATE_S)

    assert told(it, "abcd") is None
    assert it.unplaced == 0


def test_requests_of_several_sequences_short_ones_failed_ones_and_strangers_are_left_out() -> None:
    it = Residence(BLOCK)
    for key in (1, 2, 3):
        it.begin(key, 0.0)
    hear(it, 1.0, Stored([1, 2]))
    wide = request(1, "abcd", width=2)

    it.end(wide, wide.blocks, usage(33, 0, 1), 2.0)
    end(it, 2, "a", 33, 0, 1, 2.0)
    it.drop(3)
    it.drop(3)
    end(it, 3, "abcd", 33, 0, 1, 2.0)
    ended = request(4, "abcd")
    it.end(ended, ended.blocks, NOTHING, 2.0)
    it.place(2.0 + LATE_S)

    assert (it.placed, it.unplaced) == (0, 0)


def test_an_answer_of_which_no_tokens_are_told_counts_as_one() -> None:
    it = Residence(BLOCK)
    it.begin(1, 0.0)
    hear(it, 1.0, Stored([1, 2]))
    ended = request(1, "abcd")

    it.end(ended, ended.blocks, Usage(prompt_tokens=32, cached_tokens=0), 2.0)
    it.place(2.0)

    assert told(it, "abcd") == (32, 4, True)


def test_a_path_with_a_hole_is_no_path() -> None:
    it = Residence(BLOCK)
    hear(it, 0.0, Stored([1, 2, 9]))
    it.begin(1, 1.0)
    hear(it, 2.0, Stored([3], 2), Removed([1, 2]))
    end(it, 1, "abcdef", 49, 32, 1, 3.0)

    it.place(3.0 + LATE_S)

    assert told(it, "abcdef") is None
    assert it.unplaced == 1


def test_what_was_lost_is_not_known_any_more() -> None:
    it = Residence(BLOCK)
    ran(it, 1, "abcd", 33, [1, 2])

    it.clear()

    assert told(it, "abcd") is None
    assert len(it.held) == 0


def test_an_engine_is_silent_if_requests_end_and_no_event_comes() -> None:
    it = Residence(BLOCK)
    assert not it.is_silent(100.0)
    it.begin(1, 0.0)
    it.begin(2, 0.0)
    end(it, 1, "abcd", 33, 0, 1, 1.0)
    end(it, 2, "abcd", 33, 0, 1, 9.0)

    assert not it.is_silent(SILENT_S)
    assert it.is_silent(SILENT_S + 1.0)

    hear(it, SILENT_S + 2.0)
    assert not it.is_silent(100.0)


def test_an_engine_that_told_of_the_last_request_is_idle_and_not_silent() -> None:
    it = Residence(BLOCK)
    it.begin(1, 0.0)
    hear(it, 1.0, Stored([1, 2]))
    end(it, 1, "abcd", 33, 0, 1, 2.0)

    assert not it.is_silent(100.0)


def test_a_request_that_stored_nothing_shows_no_silence() -> None:
    it = Residence(BLOCK)
    it.begin(1, 0.0)
    end(it, 1, "abcd", 33, 32, 1, 1.0)

    assert not it.is_silent(100.0)


def test_the_chains_used_longest_ago_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BLOCKS", 8)
    it = Residence(BLOCK)
    ran(it, 1, "abcdefgh", 65, [1, 2, 3, 4])
    ran(it, 2, "wxyzwxyz", 65, [11, 12, 13, 14], at=5.0)
    ran(it, 3, "abcdefklmn", 65, [24], 3, cached=48, at=10.0)

    assert told(it, "wxyzwxyz") is None
    assert told(it, "abcdefgh") == (64, 8, True)
    assert told(it, "abcdefklmn") == (64, 10, True)

    ran(it, 4, "stuvst", 49, [31, 32, 33], at=15.0)

    assert told(it, "abcdefklmn") == (48, 6, True)
    assert told(it, "stuvst") == (48, 6, True)


def test_one_chain_is_kept_whatever_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BLOCKS", 1)
    it = Residence(BLOCK)
    ran(it, 1, "abcd", 33, [1, 2])

    assert told(it, "abcd") == (32, 4, True)


def test_where_prompts_part_is_remembered_of_the_last_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FORKS", 1)
    it = Residence(BLOCK)
    ran(it, 1, "abcdefgh", 65, [1, 2, 3, 4])
    ran(it, 2, "abcdwxyz", 65, [24], 3, cached=48, at=5.0)
    assert told(it, "abcdstuv") == (48, 4, True)

    ran(it, 3, "abcdefklmn", 65, [34], 3, cached=48, at=10.0)

    assert told(it, "abcdstuv") == (32, 4, True)
