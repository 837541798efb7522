from gateway.core.tally import Tally


def tally(*held: int, needed: int = 3) -> Tally:
    """One start for each number, all of them held up, each after another end."""
    made = Tally(needed)
    for ended, running in enumerate(held):
        made.saw(running)
        made.hold(running, ended)
    return made


def test_a_cap_is_where_it_was_held_up_often_enough() -> None:
    assert tally(4, 4).cap() is None
    assert tally(4, 4, 4).cap() == 4
    assert Tally(3).cap() is None


def test_a_few_times_below_the_cap_belong_to_it() -> None:
    assert tally(4, 3, 4, 4).cap() == 4
    assert tally(4, 3, 2, needed=1).cap() is None


def test_one_start_above_is_excused_by_sixteen_at_it() -> None:
    seen = tally(*[4] * 15)
    seen.saw(5)
    assert seen.cap() is None
    seen.saw(4)
    seen.hold(4, 99)
    assert seen.cap() == 4
    seen.saw(6)
    assert seen.cap() is None


def test_what_is_held_up_at_many_numbers_has_no_cap() -> None:
    assert tally(9, 9, 9, 6, 5, 7, 4).cap() is None


def test_starts_after_one_end_count_once_at_the_last_of_them() -> None:
    seen = Tally(2)
    for ended in (10, 14):
        for running in (1, 2, 3, 4):
            seen.saw(running)
            seen.hold(running, ended)
    assert seen.held == 2
    assert seen.cap() == 4


def test_a_cap_is_exceeded_by_more_than_a_chance_start_above_it() -> None:
    seen = tally(4, 4, 4)
    seen.saw(5)
    assert not seen.is_exceeded(4)
    seen.saw(7)
    assert seen.is_exceeded(4)
    assert not seen.is_exceeded(5)
