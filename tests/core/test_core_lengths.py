import pytest

from gateway.core.lengths import Lengths

HEAD = tuple(range(8))
FIRST = (*HEAD, *range(100, 108))
USUAL = 4.0
"""Bytes per token; a block of 256 bytes is then 64 tokens."""


def lengths(max_marks: int = 1000) -> Lengths:
    return Lengths(256, max_marks)


def test_what_nobody_has_counted_is_by_the_usual_ratio_and_right_to_a_half() -> None:
    ruler = lengths().ruler(FIRST, USUAL)
    assert [ruler.tokens_at(depth) for depth in (0, 1, 16)] == [0, 64, 1024]
    assert ruler.depths(512, 0) == (5, 15)


def test_a_prompt_that_was_counted_is_known_as_a_whole_and_estimated_inside() -> None:
    it = lengths()
    it.learn(FIRST, 1600)
    ruler = it.ruler(FIRST, USUAL)
    assert ruler.tokens_at(16) == 1600
    assert ruler.tokens_at(8) == 800
    # At most the whole is more than any part of it.
    assert ruler.depths(1600, 0)[0] == 16
    assert ruler.depths(800, 0) == (5, 10)


def test_the_next_turn_begins_with_what_is_known() -> None:
    it = lengths()
    it.learn(FIRST, 1600)
    turn = (*FIRST, *range(200, 204))
    assert it.ruler(turn, USUAL).tokens_at(20) == 1600 + 4 * 100
    it.learn(turn, 1700)
    ruler = it.ruler((*turn, 300), USUAL)
    assert [ruler.tokens_at(depth) for depth in (16, 18, 20, 21)] == [1600, 1650, 1700, 1785]
    assert ruler.depths(1650, 0) == (17, 18)
    assert ruler.depths(1599, 1)[1] == 15
    assert ruler.depths(1600, 0)[0] == 16


def test_an_engine_that_counts_in_large_blocks_may_have_had_more_than_it_says() -> None:
    it = lengths()
    it.learn(FIRST, 1600)
    it.learn((*FIRST, *range(200, 216)), 3200)
    ruler = it.ruler((*FIRST, *range(200, 216)), USUAL)
    assert ruler.depths(1536, 0)[1] < 16
    assert ruler.depths(1536, 128)[1] >= 16


def test_a_turn_too_short_for_a_mark_leaves_what_was_known_before_it() -> None:
    it = lengths()
    it.learn(FIRST, 1600)
    it.learn((*FIRST, 200), 1601)
    assert it.ruler((*FIRST, 200, 201), USUAL).tokens_at(16) == 1600


def test_prompts_that_share_a_head_agree_on_it() -> None:
    it = lengths()
    it.learn(FIRST, 1600)
    other = (*HEAD, *range(300, 308))
    assert it.ruler(other, USUAL).tokens_at(8) == 800
    # Where in a known prompt it leaves it nobody has counted: right to a half there, too.
    assert it.ruler(other, USUAL).depths(800, 0) == (5, 15)
    it.learn(other, 1000)
    assert [it.ruler(other, USUAL).tokens_at(depth) for depth in (8, 12, 16)] == [800, 900, 1000]
    assert it.ruler(FIRST, USUAL).tokens_at(16) == 1600
    # Another one shows that the head is shorter than was thought.
    short = (*HEAD, *range(400, 408))
    it.learn(short, 700)
    assert [it.ruler(short, USUAL).tokens_at(depth) for depth in (12, 16)] == [525, 700]


def test_one_depth_may_be_asked_for_alone() -> None:
    it = lengths()
    it.learn(FIRST, 1600)
    ruler = it.ruler((*HEAD, *range(300, 308)), USUAL)
    for cached_tokens, unit in ((0, 0), (0, 16), (399, 0), (800, 0), (800, 128), (1600, 0)):
        at_most = ruler.depths(cached_tokens, unit)[1]
        assert [ruler.may_have(depth, cached_tokens, unit) for depth in range(17)] == [
            depth <= at_most for depth in range(17)
        ]


@pytest.mark.parametrize("tokens", [1500, 1600])
def test_a_prompt_that_goes_on_without_more_tokens_teaches_nothing(tokens: int) -> None:
    it = lengths()
    it.learn(FIRST, 1600)
    marks = len(it)
    it.learn((*FIRST, *range(200, 208)), tokens)
    assert len(it) == marks
    assert it.ruler(FIRST, USUAL).tokens_at(16) == 1600


def test_what_was_said_last_of_a_prompt_holds() -> None:
    it = lengths()
    it.learn(FIRST, 1600)
    it.learn((*FIRST, *range(200, 208)), 2000)
    it.learn(FIRST, 1700)
    assert it.ruler(FIRST, USUAL).tokens_at(16) == 1700


def test_what_was_not_asked_for_is_forgotten() -> None:
    it = lengths(max_marks=4)
    for first in (0, 1000, 2000, 3000):
        it.learn(range(first, first + 16), 1600)
        it.ruler(range(16), USUAL)
    assert len(it) <= 10
    assert it.ruler(range(16), USUAL).tokens_at(16) == 1600
    assert it.ruler(range(1000, 1016), USUAL).tokens_at(16) == 1024


def test_of_a_chain_forgotten_in_part_the_rest_is_by_the_usual_ratio() -> None:
    it = lengths(max_marks=4)
    it.learn(FIRST, 1600)
    ruler = it.ruler(FIRST, USUAL)
    for first in (1000, 2000, 3000):
        it.learn(range(first, first + 20), 1600)
    assert ruler.tokens_at(8) == 512


def test_what_was_seen_ends_with_an_earlier_prompt_or_at_a_mark() -> None:
    it = lengths()
    assert it.ruler(FIRST, USUAL).whole() == (1024, 0)
    it.learn(FIRST[:14], 1400)
    assert it.ruler(FIRST, USUAL).whole() == (1600, 1400)
    assert it.ruler(FIRST[:14], USUAL).whole() == (1400, 1400)
    forked = (*FIRST[:11], 300, 301)
    # Eleven blocks were there, of which the marks tell eight.
    assert it.ruler(forked, USUAL).whole() == (1300, 800)
    assert it.ruler(FIRST[:8], USUAL).whole() == (800, 800)
    assert it.ruler((300, *FIRST), USUAL).whole() == (17 * 64, 0)
