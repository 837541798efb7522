"""What was seen: which streams count as what, and the two figures everything is made of."""

import pytest
from doctor_values import a_capped_round, a_failed, a_refused, a_stream, findings

from gateway.doctor.seen import Role, Round, median, spread


@pytest.mark.parametrize(
    ("status", "refused"), [(429, True), (503, True), (529, True), (500, False), (400, False)]
)
def test_turned_away_for_load(status: int, refused: bool) -> None:
    one = a_refused(status=status)

    assert (one.is_refused, one.is_ok) == (refused, False)


def test_an_answer_with_an_error_in_it_is_none() -> None:
    assert a_stream().is_ok
    assert not a_stream(error="out of memory").is_ok


def test_a_round_knows_who_was_answered_and_who_was_refused() -> None:
    round_ = a_capped_round(2, 2, more=[a_refused(2), a_failed(3)])

    assert [it.number for it in round_.answered] == [0, 1]
    assert [it.number for it in round_.refused] == [2]
    assert round_.streamed


def test_a_round_is_streamed_if_every_first_token_was_seen() -> None:
    mixed = Round(role=Role.RAMP, wanted=2, streams=(a_stream(), a_stream(1, ttft_s=None)))

    assert not mixed.streamed
    assert not Round(role=Role.RAMP, wanted=1, streams=(a_refused(),)).streamed


def test_rounds_of_a_role_and_the_last_of_them() -> None:
    one, two = a_capped_round(1, 1), a_capped_round(2, 1)
    seen = findings([one, a_capped_round(3, 1, role=Role.LOOK), two])

    assert seen.of(Role.RAMP) == [one, two]
    assert seen.last(Role.RAMP) is two
    assert seen.last(Role.TINY) is None


def test_median_and_spread() -> None:
    assert median([3.0, 1.0, 2.0]) == 2.0
    assert median([4.0, 1.0, 2.0, 3.0]) == 2.5
    assert spread([1.0, 2.0, 9.0]) == 1.0
    assert spread([]) == 0.0
