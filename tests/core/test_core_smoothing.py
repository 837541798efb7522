import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.smoothing import smoothed

samples = st.floats(-1e6, 1e6)


def test_the_first_sample_stands_for_itself() -> None:
    assert smoothed(None, 7.0) == 7.0


def test_a_later_sample_counts_a_fifth() -> None:
    assert smoothed(10.0, 20.0) == 12.0
    assert smoothed(0.0, 5.0) == 1.0


def test_a_figure_that_stays_is_learned() -> None:
    value: float | None = 100.0
    for _ in range(60):
        value = smoothed(value, 3.0)
    assert value == pytest.approx(3.0, abs=0.01)


@given(samples, samples)
def test_the_average_lies_between_what_was_and_what_came(old: float, sample: float) -> None:
    assert min(old, sample) - 1e-6 <= smoothed(old, sample) <= max(old, sample) + 1e-6
