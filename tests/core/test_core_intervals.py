"""Intervals against values from tables and by hand."""

import random

import pytest

from gateway.core.intervals import (
    MIN_SESSIONS,
    Estimate,
    interval,
    quantile,
    ratio,
    student_t,
    weighted_quantile,
)

ALONE = [0] * 1000


@pytest.mark.parametrize(
    ("freedom", "value"), [(4, 2.776), (5, 2.571), (10, 2.228), (30, 2.042), (120, 1.980), (10**6, 1.960)]
)
def test_students_t_is_that_of_the_tables(freedom: int, value: float) -> None:
    assert student_t(freedom) == pytest.approx(value, abs=0.001)


def test_a_ratio_is_one_of_sums_with_the_variance_of_the_textbook() -> None:
    made = ratio([50, 0, 90, 20, 40], [100, 100, 100, 100, 100], ALONE[:5])
    assert made is not None
    assert made.value == 0.4
    # With equal denominators it is the variance of a mean: 4720 / 4 / 5 / 100 squared.
    rests = [10, -40, 50, -20, 0]
    assert made.variance == pytest.approx(sum(it**2 for it in rests) / 4 * 5 / 500**2)
    half = 2.776 * (sum(it**2 for it in rests) / 4 / 5) ** 0.5 / 100
    told = made.estimate(1.0)
    assert told.low == pytest.approx(max(0, 0.4 - half), abs=0.001)
    assert told.high == pytest.approx(0.4 + half, abs=0.001)


def test_large_prompts_weigh_more() -> None:
    made = ratio([0, 9000], [1000, 9000], [0, 0])
    assert made is not None
    assert made.value == 0.9


def test_ends_stay_within_what_can_be() -> None:
    told = ratio([0, 0, 0, 0, 100], [100] * 5, ALONE[:5])
    assert told is not None
    assert told.estimate(1.0).low == 0.0
    told = ratio([100, 100, 100, 100, 0], [100] * 5, ALONE[:5])
    assert told is not None
    assert told.estimate(1.0).high == 1.0
    assert (told.estimate().high or 0) > 1.0


@pytest.mark.parametrize(
    ("cached", "count", "low", "high"),
    [
        (0, 6, 0, 0.4593),
        (100, 6, 0.5407, 1),
        (0, 100, 0, 0.0362),
        (30, 6, 0, 0.3 + 0.7 * 0.4593),
        (70, 100, 0.7 - 0.7 * 0.0362, 0.7 + 0.7 * 0.0362),
    ],
)
def test_alike_ones_have_the_exact_binomial_limit(cached: int, count: int, low: float, high: float) -> None:
    made = ratio([cached] * count, [100] * count, ALONE[:count], 1.0)
    assert made is not None
    told = made.estimate(1.0)
    assert (told.low, told.high) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))
    assert ratio([cached] * 4, [100] * 4, ALONE[:4], 1.0).variance is None  # type: ignore[union-attr]


def test_alike_up_to_rounding_is_alike() -> None:
    lengths = [7, 11, 13, 17, 19, 23]
    made = ratio([it * 0.1 for it in lengths], lengths, ALONE[:6], 1.0)
    assert made is not None
    assert made.estimate(1.0).high == pytest.approx(0.1 + 0.9 * 0.4593, abs=1e-4)


def test_nothing_by_nothing_is_unknown() -> None:
    assert ratio([], [], []) is None
    assert ratio([0.0], [0.0], [0]) is None


def test_of_few_sessions_there_is_a_value_and_why_there_is_no_interval() -> None:
    made = ratio([1] * 400, [2] * 400, [1, 2, 3, 4] * 100)
    assert made is not None
    told = made.estimate(1.0)
    assert (told.value, told.low, told.high) == (0.5, None, None)
    assert told.why == f"4 sessions: an interval needs at least {MIN_SESSIONS}, or requests that name none"
    assert interval(0.5, None, 1).why.startswith("1 session: ")


def test_requests_of_one_session_are_one_observation() -> None:
    """Ten alike requests in each of ten sessions tell no more than one in each."""
    shares = [10, 30, 50, 70, 90, 20, 40, 60, 80, 50]
    once = ratio(shares, [100] * 10, range(1, 11))
    tenfold = ratio(shares * 10, [100] * 100, list(range(1, 11)) * 10)
    apart = ratio(shares * 10, [100] * 100, ALONE[:100])
    assert once is not None
    assert tenfold is not None
    assert apart is not None
    assert tenfold.variance == pytest.approx(once.variance)
    assert tenfold.estimate(1.0).low == pytest.approx(once.estimate(1.0).low)
    assert apart.variance is not None
    assert once.variance is not None
    assert once.variance / apart.variance == pytest.approx(11, abs=0.01)


@pytest.mark.parametrize(
    ("count", "share", "low", "high"),
    [
        # Conover's and others' tables of 95 % intervals for the median.
        (6, 0.5, 1, 6),
        (10, 0.5, 2, 9),
        (20, 0.5, 6, 15),
        (100, 0.5, 40, 61),
        (100, 0.9, 84, 96),
        (1000, 0.5, 469, 532),
    ],
)
def test_quantiles_lie_between_the_ranks_of_the_tables(count: int, share: float, low: int, high: int) -> None:
    values = [float(it) for it in range(count, 0, -1)]
    told = quantile(values, ALONE[:count], share)
    assert told == Estimate(float(round(count * share)), float(low), float(high))


def test_an_end_that_no_value_is_far_enough_out_for_is_unknown() -> None:
    told = quantile([float(it) for it in range(1, 21)], ALONE[:20], 0.9)
    assert (told.value, told.low, told.high) == (18.0, 15.0, None)
    assert told.why == "20 requests are too few for both ends"
    told = quantile([5.0] * 5, ALONE[:5], 0.5)
    assert (told.value, told.low, told.high) == (5.0, None, None)
    assert quantile([], [], 0.5) == Estimate(why="no request told it")


def test_of_few_sessions_a_quantile_has_no_interval() -> None:
    told = quantile([1.0, 2.0, 3.0], [7, 7, 8], 0.5)
    assert (told.value, told.low) == (2.0, None)
    assert told.why.startswith("2 sessions: ")


def test_sessions_that_are_alike_widen_a_quantiles_interval() -> None:
    """Ten sessions of twenty equal values are worth ten values, fewer by Student's t."""
    values = [float(session) for session in range(1, 11) for _ in range(20)]
    sessions = [session for session in range(1, 11) for _ in range(20)]
    together, apart = quantile(values, sessions, 0.5), quantile(values, ALONE[:200], 0.5)
    assert (apart.low, apart.high) == (5.0, 6.0)
    assert together.low is not None
    assert together.high is not None
    assert together.low <= 2.0
    assert together.high >= 9.0


def test_sessions_that_differ_less_than_chance_do_not_narrow_it() -> None:
    values = [float(it) for it in range(100)]
    sessions = [1 + it % 10 for it in range(100)]
    assert quantile(values, sessions, 0.5) == quantile(values, ALONE[:100], 0.5)


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_intervals_hold_the_truth_in_95_percent_of_cases(share: float) -> None:
    """Sessions with a rate of their own: 400 trials, between 92 and 100 % of which are right."""
    draw = random.Random(7)
    right_rates = right_quantiles = 0
    for _ in range(400):
        rates, values, sessions = [], [], []
        for session in range(1, 41):
            its = draw.betavariate(2, 2)
            for _ in range(5):
                rates.append(its)
                values.append(its)
                sessions.append(session)
        made = ratio(rates, [1.0] * len(rates), sessions)
        assert made is not None
        told = made.estimate(1.0)
        assert told.low is not None
        assert told.high is not None
        right_rates += told.low <= 0.5 <= told.high
        of_all = quantile(values, sessions, share)
        truth = {0.5: 0.5, 0.9: 0.80419}[share]
        right_quantiles += (of_all.low or 0.0) <= truth <= (1.0 if of_all.high is None else of_all.high)
    assert 0.92 <= right_rates / 400 <= 1
    assert 0.92 <= right_quantiles / 400 <= 1


def test_weights_count_as_so_many_values() -> None:
    assert weighted_quantile([(3.0, 1.0), (1.0, 1.0), (2.0, 1.0)], 0.5) == 2.0
    assert weighted_quantile([(1.0, 9.0), (2.0, 1.0)], 0.9) == 1.0
    assert weighted_quantile([(1.0, 9.0), (2.0, 1.0)], 0.91) == 2.0
    assert weighted_quantile([(1.0, 0.1)] * 3 + [(2.0, 0.1)] * 7, 0.3) == 1.0
