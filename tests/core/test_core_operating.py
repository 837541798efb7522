"""What a distribution comes to: percentiles, labels and the sentence, all from literal seconds."""

import pytest

from gateway.core.concurrency import HIGHEST, Spent
from gateway.core.operating import (
    LABELS,
    AtMost,
    at_most,
    busy,
    by_label,
    by_number,
    figures,
    sentence,
    share_of,
    shown,
)


def spent(**seconds_at: float) -> list[float]:
    """`n3=5.0`: five seconds at 3; `more` is all above 64."""
    out = [0.0] * (HIGHEST + 2)
    for name, seconds in seconds_at.items():
        out[HIGHEST + 1 if name == "more" else int(name[1:])] = seconds
    return out


@pytest.mark.parametrize(
    ("seconds", "wanted"),
    [
        (spent(), AtMost(None, None, None, None)),
        (spent(n0=10.0), AtMost(0, 0, 0, 0)),
        (spent(n1=50.0, n2=40.0, n3=9.0, n5=1.0), AtMost(1, 2, 3, 5)),
        (spent(n1=49.0, n2=40.0, n3=9.0, n5=2.0), AtMost(2, 3, 5, 5)),
        (spent(n0=98.0, n4=2.0), AtMost(0, 0, 4, 4)),
        (spent(n64=1.0, more=9.0), AtMost(65, 65, 65, 65)),
    ],
)
def test_percentiles_are_exact(seconds: list[float], wanted: AtMost) -> None:
    assert at_most(seconds) == wanted


def test_busy_time_is_that_with_a_request_in_flight() -> None:
    seconds = spent(n0=75.0, n1=20.0, n4=5.0)
    assert share_of(seconds) == 0.25
    assert at_most(busy(seconds)) == AtMost(1, 4, 4, 4)
    assert share_of(spent()) is None
    assert share_of(spent(n0=5.0)) == 0.0


def test_a_number_counts_to_the_first_label_that_is_not_below_it() -> None:
    seconds = [float(n) for n in range(HIGHEST + 2)]
    labelled = by_label(seconds)
    assert tuple(labelled) == LABELS
    assert sum(labelled.values()) == sum(seconds)
    assert (labelled["0"], labelled["4"], labelled["6"], labelled["8"]) == (0.0, 4.0, 5.0 + 6.0, 7.0 + 8.0)
    assert labelled["12"] == 9.0 + 10.0 + 11.0 + 12.0
    assert labelled["64"] == sum(range(49, 65))
    assert labelled["more"] == 65.0


def test_only_numbers_that_there_were_are_told() -> None:
    assert by_number(spent(n0=1.23456789, n64=2.0, more=3.0)) == {"0": 1.234568, "64": 2.0, "more": 3.0}
    assert by_number(spent()) == {}


def test_above_64_is_told_as_that() -> None:
    assert [shown(count) for count in (None, 0, 64, 65)] == [None, 0, 64, ">64"]
    assert figures(AtMost(1, 2, 64, 65)) == {"p50": 1, "p90": 2, "p99": 64, "max": ">64"}


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (spent(), "Nothing measured yet."),
        (spent(n0=120.4), "No request has been in flight yet, in 120 s. Slots: 32."),
        (
            spent(n1=60.0, n2=30.0, n3=9.5, n5=0.5),
            "99 % of the time at most 3 requests in flight; the median is 1; never more than 5. Slots: 32.",
        ),
        (
            spent(n0=60.0, n1=20.0, n2=15.0, n3=4.5, n4=0.5),
            "99 % of the time at most 3 requests in flight; the median is 0; never more than 4. "
            "Of the time with any in flight, 40.0 % of all: 99 % at most 4 requests, the median is 1. "
            "Slots: 32.",
        ),
        (
            spent(n0=99_990.0, n1=10.0),
            "99 % of the time no request in flight; the median is 0; never more than 1. "
            "Of the time with any in flight, under 0.1 % of all: 99 % at most 1 request, the median is 1. "
            "Slots: 32.",
        ),
        (
            spent(n64=50.0, more=50.0),
            "Over 1 % of the time more than 64 requests in flight; the median is 64; at times more than 64. "
            "Slots: 32.",
        ),
    ],
)
def test_the_sentence(seconds: list[float], words: str) -> None:
    assert sentence(Spent(seconds, seconds), 32, 0) == words


def test_the_sentence_says_which_slots_nobody_told() -> None:
    seconds = spent(n1=1.0)
    assert sentence(Spent(seconds, seconds), 264, 256).endswith(" Slots: 264, 256 of them assumed.")


def test_the_sentence_tells_what_was_wanted_if_that_was_more() -> None:
    there = Spent(spent(n3=10.0, n4=90.0), spent(n3=10.0, n4=80.0, n7=9.5, n9=0.5))
    assert sentence(there, 4, 0) == (
        "99 % of the time at most 4 requests in flight; the median is 4; never more than 4. "
        "With those that waited in the queue: 99 % of the time at most 7 requests. Slots: 4."
    )
