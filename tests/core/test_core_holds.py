import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.holds import MAX_HOLD_S, MIN_HOLD_S, Hold, Returns


def prompt(name: int, depth: int = 3) -> tuple[int, ...]:
    """A chain of `depth` blocks; of one name, each shorter one is the head of each longer one."""
    return tuple(100 * name + at for at in range(depth))


def came_back(returns: Returns, name: int, ended: float, gap_s: float) -> None:
    returns.ended(prompt(name), ended)
    returns.arrived(prompt(name, 4), ended + gap_s)


# Whose slot it is


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        (prompt(1, 3), True),
        (prompt(1, 9), True),
        (prompt(1, 2), False),
        (prompt(2, 3), False),
        ((*prompt(1, 2), 5, 6), False),
        ((), False),
    ],
)
def test_a_slot_is_kept_for_the_prompts_that_go_on_from_what_lies_in_it(
    blocks: tuple[int, ...], expected: bool
) -> None:
    assert Hold(prompt(1)[-1], 3, 1, 5.0).is_for(blocks) is expected


# Whether they come back, and how soon


def test_until_something_is_known_a_return_is_expected_at_once() -> None:
    returns = Returns()
    assert returns.worth_s(MIN_HOLD_S) == MIN_HOLD_S
    assert returns.worth_s(MIN_HOLD_S - 0.01) == 0.0


def test_a_slot_is_kept_for_some_times_the_usual_gap() -> None:
    returns = Returns()
    for turn in range(40):
        came_back(returns, 1, 10.0 * turn, 0.3)
    assert returns.share == pytest.approx(1.0)
    assert returns.gap_s == pytest.approx(0.3, abs=0.01)
    assert returns.worth_s(9.0) == pytest.approx(0.9, abs=0.03)


def test_a_slot_is_kept_two_seconds_at_most() -> None:
    returns = Returns()
    for turn in range(40):
        came_back(returns, 1, 10.0 * turn, 1.9)
    assert returns.worth_s(9.0) == MAX_HOLD_S
    assert returns.worth_s(MAX_HOLD_S - 0.1) == 0.0


def test_sessions_that_come_back_late_teach_that_few_come_back_and_nothing_of_the_gap() -> None:
    returns = Returns()
    for turn in range(20):
        came_back(returns, 1, 100.0 * turn, 50.0)
    assert returns.share < 0.02
    assert returns.gap_s == 0.0
    assert returns.worth_s(9.0) == 0.0


def test_sessions_that_never_come_back_are_learned_of_as_others_end() -> None:
    returns = Returns()
    for turn in range(20):
        returns.ended(prompt(turn), 10.0 * turn)
    assert returns.share < 0.02
    assert len(returns.watched) == 1


def test_a_return_is_counted_once() -> None:
    returns = Returns()
    came_back(returns, 1, 0.0, 0.5)
    returns.arrived(prompt(1, 4), 0.9)
    assert returns.gap_s == pytest.approx(0.1)
    assert returns.watched == {}


def test_a_prompt_that_goes_on_from_none_of_them_says_nothing() -> None:
    returns = Returns()
    returns.ended(prompt(1), 0.0)
    for blocks in (prompt(2, 9), prompt(1, 2), ()):
        returns.arrived(blocks, 9.0)
    assert (returns.share, returns.gap_s, len(returns.watched)) == (1.0, 0.0, 1)


def test_the_share_recovers_when_sessions_come_back_again() -> None:
    returns = Returns()
    for turn in range(20):
        returns.ended(prompt(turn), 10.0 * turn)
    for turn in range(20, 40):
        came_back(returns, turn, 10.0 * turn, 0.1)
    assert returns.worth_s(1.0) > 0.0


def test_the_last_64_are_watched() -> None:
    returns = Returns()
    for name in range(100):
        returns.ended(prompt(name), 0.0)
    assert len(returns.watched) == 64
    returns.arrived(prompt(35, 4), 0.5)
    assert returns.gap_s == 0.0
    returns.arrived(prompt(36, 4), 0.5)
    assert returns.gap_s > 0.0


def test_a_prompt_that_ends_again_is_as_young_as_its_last_end() -> None:
    returns = Returns()
    returns.ended(prompt(1), 0.0)
    returns.ended(prompt(2), 0.1)
    returns.ended(prompt(1), 2.0)
    # By now 2 is late, and 1, which was there before it, is not.
    returns.ended(prompt(3), 2.5)
    assert [depth for depth, _ in returns.watched.values()] == [3, 3]
    assert prompt(2)[-1] not in returns.watched
    assert returns.share == pytest.approx(0.8)


events = st.lists(
    st.tuples(st.booleans(), st.integers(0, 90), st.sampled_from([0.0, 0.01, 0.5, 3.0])), max_size=150
)


@given(events, st.floats(0.0, 100.0))
def test_whatever_comes_the_memory_is_bounded_and_a_slot_is_kept_within_bounds(
    script: list[tuple[bool, int, float]], saved_s: float
) -> None:
    returns, now = Returns(), 0.0
    for is_end, name, passed_s in script:
        now += passed_s
        if is_end:
            returns.ended(prompt(name), now)
        else:
            returns.arrived(prompt(name, 4), now)
        times = [at for _, at in returns.watched.values()]
        assert len(times) <= 64
        assert times == sorted(times)
        assert 0.0 <= returns.share <= 1.0
        assert 0.0 <= returns.gap_s <= MAX_HOLD_S
    kept_s = returns.worth_s(saved_s)
    assert kept_s == 0.0 or MIN_HOLD_S <= kept_s <= MAX_HOLD_S
    assert kept_s <= saved_s
