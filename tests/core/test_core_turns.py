import pytest

from gateway.core.turns import HORIZON_S, Turns


def conversation(number: int, blocks: int = 2) -> tuple[int, ...]:
    return tuple(1000 * number + at for at in range(blocks))


def went_on(turns: Turns, numbers: range, gap_s: float, at: float = 0.0) -> None:
    """Each conversation's answer ends, and its next turn comes `gap_s` later."""
    for number in numbers:
        turns.ended(conversation(number), at)
    for number in numbers:
        turns.arrived(conversation(number, 3), at + gap_s)


def test_nothing_goes_on_while_too_few_have_been_seen() -> None:
    turns = Turns()
    went_on(turns, range(31), 1.0)
    assert turns.return_share(0.0, 2.0) == 0.0
    went_on(turns, range(40, 41), 1.0, at=2.0)
    assert turns.return_share(0.0, 4.0) == 1.0


def test_nothing_goes_on_after_longer_than_anything_ever_has() -> None:
    turns = Turns()
    went_on(turns, range(40), 9.0)
    assert turns.return_share(15.9, 10.0) == 1.0
    assert turns.return_share(16.0, 10.0) == 0.0


def test_those_that_are_still_open_count_as_over() -> None:
    turns = Turns()
    went_on(turns, range(40), 1.0)
    for number in range(100, 140):
        turns.ended(conversation(number), 1.0)
    assert turns.return_share(0.0, 5.0) == 0.5


def test_the_longer_it_is_ago_the_fewer_go_on() -> None:
    turns = Turns()
    for number in range(200, 240):
        turns.ended(conversation(number), 0.0)
    went_on(turns, range(40), 1.0, at=400.0)
    went_on(turns, range(40, 80), 40.0, at=400.0)
    assert turns.return_share(0.0, 440.0) == pytest.approx(80 / 120)
    assert turns.return_share(3.0, 440.0) == pytest.approx(40 / 80)
    assert turns.return_share(70.0, 440.0) == 0.0


def test_a_conversation_that_has_not_gone_on_for_long_is_over() -> None:
    turns = Turns()
    turns.ended(conversation(100), 0.0)
    turns.ended(conversation(101), HORIZON_S + 0.1)
    turns.arrived(conversation(100, 3), HORIZON_S + 0.2)
    went_on(turns, range(31), 1.0, at=HORIZON_S + 1.0)
    assert turns.return_share(0.0, HORIZON_S + 3.0) == 0.0


def test_only_the_last_ends_are_watched() -> None:
    turns = Turns()
    for number in range(4097):
        turns.ended(conversation(number), 0.0)
    turns.arrived(conversation(0, 3), 1.0)
    for number in range(1, 33):
        turns.arrived(conversation(number, 3), 1.0)
    assert turns.return_share(0.0, 2.0) == 32 / 4097


def test_the_gap_is_from_the_last_answer_even_to_the_same_prompt() -> None:
    turns = Turns()
    for number in range(40):
        turns.ended(conversation(number), 0.0)
        turns.ended(conversation(number), 9.0)
        turns.arrived(conversation(number, 3), 9.1)
    assert turns.return_share(0.0, 10.0) == 1.0
    assert turns.return_share(0.5, 10.0) == 0.0


def test_a_turn_counts_once() -> None:
    turns = Turns()
    went_on(turns, range(31), 1.0)
    turns.arrived(conversation(5, 4), 1.0)
    assert turns.return_share(0.0, 2.0) == 0.0


def test_a_turn_that_is_asked_for_again_goes_on_too() -> None:
    turns = Turns()
    for number in range(40):
        turns.ended(conversation(number), 0.0)
        turns.arrived(conversation(number), 0.1)
    assert turns.return_share(0.0, 1.0) == 1.0


@pytest.mark.parametrize(
    "arriving",
    [
        pytest.param((), id="no blocks"),
        pytest.param(conversation(999, 3), id="another prompt"),
        pytest.param((7, *conversation(31)), id="the same hash at another depth"),
        pytest.param(conversation(31, 1000), id="more new blocks than are looked at"),
    ],
)
def test_what_does_not_go_on_from_an_end_counts_for_none(arriving: tuple[int, ...]) -> None:
    turns = Turns()
    turns.ended((), 0.0)
    turns.ended(conversation(31), 0.0)
    went_on(turns, range(31), 1.0)
    turns.arrived(arriving, 1.0)
    assert turns.return_share(0.0, 2.0) == 0.0


def test_shares_are_counted_again_once_a_second() -> None:
    turns = Turns()
    went_on(turns, range(40), 0.1)
    assert turns.return_share(0.0, 1.0) == 1.0
    for number in range(100, 140):
        turns.ended(conversation(number), 1.1)
    assert turns.return_share(0.0, 1.9) == 1.0
    assert turns.return_share(0.0, 2.0) == 0.5


def test_what_was_long_ago_counts_for_less() -> None:
    turns = Turns()
    for number in range(2000, 2512):
        turns.ended(conversation(number), 0.0)
    went_on(turns, range(1025), 1.0, at=400.0)
    assert turns.return_share(0.0, 402.0) == pytest.approx(512.5 / (512.5 + 256))
    went_on(turns, range(1025, 1425), 1.0, at=402.0)
    assert turns.return_share(0.0, 404.0) == pytest.approx(912.5 / (912.5 + 256))
