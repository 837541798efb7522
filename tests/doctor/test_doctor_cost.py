"""What a cap costs, and the curves."""

import pytest
from doctor_values import a_capped_round, a_ramp, a_refused, a_stream

from gateway.doctor import cost
from gateway.doctor.cost import Line, Point
from gateway.doctor.seen import Role, Round


def a_point(concurrency: int, stream: float | None = 10.0, aggregate: float = 0.0) -> Point:
    return Point(
        concurrency=concurrency,
        aggregate_tokens_per_s=aggregate,
        stream_tokens_per_s=stream,
        ttft_p50_s=None,
        ttft_max_s=None,
        answer_p50_s=1.0,
        answer_max_s=1.0,
    )


def test_a_point_of_four_streams_behind_two_slots() -> None:
    (point,) = cost.points([a_capped_round(4, 2, 2.0, ttft_s=0.4)], 2)

    assert point.concurrency == 4
    assert (point.ttft_p50_s, point.ttft_max_s) == (pytest.approx(1.4), pytest.approx(2.4))
    assert (point.answer_p50_s, point.answer_max_s) == (3.0, 4.0)
    # 32 tokens after the first in 1.6 s.
    assert point.stream_tokens_per_s == pytest.approx(20.0)
    assert point.aggregate_tokens_per_s == pytest.approx(4 * 33 / 4.0)


def test_a_last_wave_that_is_half_empty_does_not_count() -> None:
    (point,) = cost.points([a_capped_round(3, 2, 2.0, ttft_s=0.0)], 2)

    # Both slots are busy until 2.0; what the third has by then is its first token.
    assert point.aggregate_tokens_per_s == pytest.approx((2 * 33 + 1) / 2.0)


def test_answers_in_one_piece_count_whole() -> None:
    (point,) = cost.points([a_capped_round(3, 2, 2.0, ttft_s=None)], 2)

    assert (point.stream_tokens_per_s, point.ttft_p50_s) == (None, None)
    assert point.aggregate_tokens_per_s == pytest.approx(3 * 33 / 4.0)


def test_of_two_rounds_of_a_number_the_later_counts_and_of_none_answered_none() -> None:
    rounds = [
        a_capped_round(2, 2, 1.0),
        a_capped_round(2, 2, 3.0),
        Round(role=Role.RAMP, wanted=4, streams=(a_refused(),)),
        a_capped_round(8, 2, role=Role.UNEQUAL),
    ]

    assert [(it.concurrency, it.answer_p50_s) for it in cost.points(rounds, None)] == [(2, 3.0)]


def test_an_answer_of_one_moment_has_no_rate() -> None:
    (point,) = cost.points(
        [Round(role=Role.RAMP, wanted=1, streams=(a_stream(took_s=0.0, ttft_s=0.0),))], None
    )

    assert (point.stream_tokens_per_s, point.aggregate_tokens_per_s) == (None, 0.0)


def test_the_line_through_what_a_token_takes() -> None:
    known = cost.points(a_ramp(4, alone_s=0.1, each_s=0.02), 4)

    line = cost.fit(known, 4)

    assert line is not None
    assert (line.alone_s, line.each_s) == (pytest.approx(0.1), pytest.approx(0.02))
    assert line.stream_rate(4) == pytest.approx(1 / 0.18)
    assert line.aggregate_rate(4) == pytest.approx(4 / 0.18)


def test_one_number_is_no_line() -> None:
    assert cost.fit([a_point(1), a_point(2), a_point(4)], 1) is None
    assert cost.fit([a_point(1, None), a_point(2, None)], None) is None


def test_where_more_streams_cost_nothing_the_line_is_level() -> None:
    assert cost.fit([a_point(1, 10.0), a_point(2, 11.0)], None) == Line(
        pytest.approx((0.1 + 1 / 11) / 2), 0.0
    )


def test_where_each_takes_all_the_line_goes_through_nought() -> None:
    line = cost.fit([a_point(1, 10.0), a_point(2, 2.5)], None)

    assert line == Line(0.0, pytest.approx(0.25 / 1.5))


def test_what_two_more_slots_would_give() -> None:
    assert cost.gain(Line(0.1, 0.02), 4, 2) == pytest.approx(6 / 0.22 / (4 / 0.18) - 1)
    assert cost.gain(Line(0.0, 0.02), 4, 2) == pytest.approx(0.0)
    assert cost.gain(None, 4, 2) is None


def test_the_share_of_time_that_is_waiting() -> None:
    # 0.4, 0.4, 2.4, 2.4: of 5.6 s 4.0 are waiting.
    assert cost.waiting_share(a_capped_round(4, 2, 2.0), 2) == pytest.approx(4.0 / 5.6)
    # 2, 2, 4, 4
    assert cost.waiting_share(a_capped_round(4, 2, 2.0, ttft_s=None), 2) == pytest.approx(4 / 12)


def test_who_does_not_wait_waits_nothing() -> None:
    assert cost.waiting_share(a_capped_round(2, 2), 2) == 0.0
    assert cost.waiting_share(Round(role=Role.RAMP, wanted=1, streams=(a_refused(),)), 2) is None
    instant = Round(role=Role.RAMP, wanted=2, streams=(a_stream(took_s=0.0, ttft_s=None),) * 2)
    assert cost.waiting_share(instant, 1) is None


def test_time_to_the_first_token_without_waiting() -> None:
    assert cost.unqueued_s(a_capped_round(4, 2), 2) == pytest.approx(0.4)
    assert cost.unqueued_s(a_capped_round(4, 2), None) == pytest.approx(1.4)


KNOWN = [a_point(1, 20.0), a_point(2, 15.0), a_point(4, 10.0), a_point(8, 10.0)]
LINE = Line(1 / 30, 1 / 60)


@pytest.mark.parametrize(
    ("rate", "slots"),
    [
        (25.0, 0),
        (20.0, 1),
        (15.0, 2),
        (12.0, 3),
        (10.0, 4),
        (6.0, 8),
        (5.0, 8),
    ],
)
def test_the_most_slots_that_keep_a_rate(rate: float, slots: int) -> None:
    assert cost.most_slots(KNOWN, LINE, 4, rate) == slots


def test_without_a_line_only_what_was_measured_counts() -> None:
    assert cost.most_slots(KNOWN, None, 4, 12.0) == 2
    assert cost.most_slots(KNOWN, Line(0.05, 0.0), 4, 1.0) == 4
    assert cost.most_slots([a_point(1, None)], LINE, 4, 1.0) is None


@pytest.mark.parametrize(
    ("aggregates", "at"),
    [
        ([(1, 10.0), (2, 20.0), (4, 40.0)], None),
        ([(1, 10.0), (2, 20.0), (4, 21.9)], 2),
        ([(1, 10.0), (2, 20.0), (4, 22.0)], None),
        ([(1, 10.0), (2, 9.0), (4, 40.0)], None),
        ([(16, 160.0), (17, 170.0)], None),
        ([(16, 160.0), (17, 160.5)], 16),
        ([(1, 10.0)], None),
        ([], None),
    ],
)
def test_where_the_aggregate_hardly_grows(aggregates: list[tuple[int, float]], at: int | None) -> None:
    assert cost.saturates_at([a_point(n, aggregate=x) for n, x in aggregates]) == at
