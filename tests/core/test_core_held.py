from array import array

from gateway.core.events import Cleared, Removed, Stored
from gateway.core.held import MAX_RUNS, Held, Stretch


def stored(held: Held, *hashes: int, after: int | None = None, at: float = 0.0) -> None:
    held.hear(Stored(list(hashes), after), at)


def shapes(held: Held, since_s: float = 0.0, until_s: float = 100.0) -> list[tuple[int, int]]:
    return [(it.start, it.end) for it in held.grown(since_s, until_s)]


def only(held: Held, since_s: float = 0.0, until_s: float = 100.0) -> Stretch:
    (it,) = held.grown(since_s, until_s)
    return it


def path(held: Held, it: Stretch, *near: int) -> list[int] | None:
    found = held.path(it, array("Q", near))
    return None if found is None else list(found)


def test_a_block_is_held_until_it_is_removed() -> None:
    held = Held()
    stored(held, 1, 2)

    held.hear(Removed([2]), 1.0)

    assert 1 in held
    assert 2 not in held
    assert len(held) == 1


def test_a_block_that_is_not_known_can_be_removed() -> None:
    held = Held()

    assert not held.hear(Removed([7]), 0.0)


def test_what_two_requests_computed_side_by_side_is_held_until_it_was_removed_twice() -> None:
    held = Held()
    for _ in range(3):
        stored(held, 1, 2)

    held.hear(Removed([1, 2]), 1.0)
    held.hear(Removed([1]), 1.0)
    assert (1 in held, 2 in held) == (True, True)

    held.hear(Removed([1]), 1.0)
    assert (1 in held, 2 in held) == (False, True)


def test_of_blocks_that_come_again_in_part_the_others_are_held_once() -> None:
    held = Held()
    stored(held, 1)
    stored(held, 1, 2)

    held.hear(Removed([1, 2]), 1.0)

    assert (1 in held, 2 in held) == (True, False)


def test_nothing_is_held_by_an_engine_that_was_cleared() -> None:
    held = Held()
    stored(held, 1, 2)
    stored(held, 1, 2)

    assert held.hear(Cleared(), 1.0)

    assert len(held) == 0
    assert shapes(held) == []


def test_blocks_that_come_one_after_the_other_are_one_run() -> None:
    held = Held()
    stored(held, 1, 2, at=1.0)
    stored(held, 3, after=2, at=2.0)
    stored(held, 9, at=2.0)

    assert shapes(held) == [(0, 3), (0, 1)]


def test_a_run_that_forks_off_begins_where_its_parent_ends() -> None:
    held = Held()
    stored(held, 1, 2, 3, at=1.0)
    stored(held, 8, after=2, at=2.0)

    assert shapes(held) == [(0, 3), (2, 3)]


def test_a_stretch_is_what_grew_in_a_time() -> None:
    held = Held()
    stored(held, 1, 2, at=1.0)
    stored(held, 3, after=2, at=2.0)
    stored(held, 4, 5, after=3, at=3.0)

    assert shapes(held, 0.0, 0.5) == []
    assert shapes(held, 0.0, 2.0) == [(0, 3)]
    assert shapes(held, 1.5, 2.5) == [(2, 3)]
    assert shapes(held, 1.5, 9.0) == [(2, 5)]
    assert shapes(held, 3.5, 9.0) == []
    assert only(held, 0.0, 2.0).parent is None
    assert only(held, 1.5, 2.5).parent == 2


def test_after_a_block_that_is_not_known_no_place_in_a_chain_is() -> None:
    held = Held()
    stored(held, 5, 6, after=4)
    stored(held, 7, after=6)
    stored(held, 8, after=5)

    assert shapes(held) == []
    assert len(held) == 4


def test_a_path_leads_from_the_start_of_a_prompt() -> None:
    held = Held()
    stored(held, 1, 2, 3, at=1.0)
    stored(held, 8, 9, after=2, at=2.0)
    stored(held, 10, after=8, at=3.0)

    assert path(held, only(held, 3.0)) == [1, 2, 8, 10]
    assert path(held, only(held, 1.0, 1.5)) == [1, 2, 3]


def test_a_path_goes_on_from_a_chain_that_is_known_to_have_its_start() -> None:
    held = Held()
    stored(held, 1, 2, 3, at=1.0)
    stored(held, 8, 9, after=2, at=2.0)
    held.hear(Removed([1, 2, 3]), 3.0)

    assert path(held, only(held, 2.0), 1, 2, 3) == [1, 2, 8, 9]
    assert path(held, only(held, 2.0)) is None


def test_what_comes_after_a_claimed_stretch_is_another_run() -> None:
    held = Held()
    stored(held, 1, 2, at=1.0)
    held.claim(only(held))
    stored(held, 3, after=2, at=2.0)

    assert shapes(held) == [(2, 3)]
    assert path(held, only(held)) == [1, 2, 3]


def test_a_run_that_grew_on_is_cut_where_it_is_claimed() -> None:
    held = Held()
    stored(held, 1, 2, at=1.0)
    stored(held, 3, 4, after=2, at=2.0)
    held.hear(Removed([4]), 2.5)

    held.claim(only(held, 0.0, 1.5))
    stored(held, 5, after=3, at=3.0)

    assert shapes(held) == [(2, 4), (3, 4)]
    assert path(held, only(held, 3.0)) == [1, 2, 3, 5]


def test_that_a_claimed_block_went_is_told() -> None:
    held = Held()
    stored(held, 1, 2, at=1.0)
    stored(held, 3, at=2.0)
    held.claim(only(held, 0.0, 1.5))

    assert not held.hear(Removed([3]), 3.0)
    assert held.hear(Removed([2]), 3.0)


def test_runs_of_which_nobody_asks_are_forgotten_the_oldest_first() -> None:
    held = Held()
    for block in range(MAX_RUNS):
        stored(held, block, at=2.0 if block == 0 else 1.0)
    stored(held, MAX_RUNS, at=3.0)

    kept = held.grown(0.0, 9.0)

    assert len(kept) == MAX_RUNS // 2 + 1
    assert [it.run.hashes[0] for it in kept[-2:]] == [0, MAX_RUNS]
    assert len(held) == MAX_RUNS + 1
