"""How many ran at once, and what let the next one begin."""

from collections.abc import Sequence

import pytest
from doctor_values import a_capped_round, a_failed, a_paced_round, a_refused, a_stream, an_unequal_round

from gateway.doctor import overlap
from gateway.doctor.overlap import Starts
from gateway.doctor.seen import Role, Round, Stream


def of(*streams: Stream) -> Round:
    return Round(role=Role.RAMP, wanted=len(streams), streams=streams)


def starts(streams: Sequence[Stream], slots: int) -> Starts:
    found = overlap.starts(streams, slots)
    assert found is not None
    return found


# Streams


@pytest.mark.parametrize(("n", "slots", "ran"), [(1, 1, 1), (4, 4, 4), (8, 3, 3), (8, 1, 1)])
def test_of_streams_that_ran_at_once_the_most(n: int, slots: int, ran: int) -> None:
    assert overlap.running_at_once(a_capped_round(n, slots)) == ran


@pytest.mark.parametrize(("overlap_s", "ran"), [(0.059, 1), (0.061, 2)])
def test_a_moment_of_3_percent_is_needed(overlap_s: float, ran: int) -> None:
    second = a_stream(1, begun_at=2.0 - overlap_s, took_s=2.0, ttft_s=0.0)

    assert overlap.running_at_once(of(a_stream(ttft_s=0.0), second)) == ran


@pytest.mark.parametrize(("overlap_s", "ran"), [(0.003, 1), (0.005, 2)])
def test_and_of_4_ms(overlap_s: float, ran: int) -> None:
    one, two = a_stream(took_s=0.1, ttft_s=0.0), a_stream(1, begun_at=0.1 - overlap_s, took_s=0.1, ttft_s=0.0)

    assert overlap.running_at_once(of(one, two)) == ran


def test_of_answers_shorter_than_a_moment_one_ran() -> None:
    assert overlap.running_at_once(of(a_stream(took_s=0.0, ttft_s=0.0))) == 1


def test_without_an_answer_nothing_is_known() -> None:
    assert overlap.running_at_once(of(a_refused())) is None
    assert overlap.sent_at_once(of(a_refused())) == 0


def test_how_many_were_on_their_way_at_once() -> None:
    late = a_stream(2, sent_at=0.0, begun_at=4.0, written_at=3.0)

    assert overlap.sent_at_once(of(a_stream(), a_stream(1), late)) == 2
    assert overlap.sent_at_once(a_capped_round(8, 2)) == 8


# Answers in one piece


@pytest.mark.parametrize(
    ("took_s", "sizes"),
    [
        ([1.0, 1.05, 2.0, 2.1, 3.0], [2, 2, 1]),
        ([1.0, 1.0, 1.0], [3]),
        ([1.0, 1.59], [2]),
        ([1.0, 1.61], [1, 1]),
        ([1.0], [1]),
    ],
)
def test_those_that_end_together_are_a_wave(took_s: list[float], sizes: list[int]) -> None:
    assert overlap.waves(took_s) == sizes


@pytest.mark.parametrize(
    ("ends", "ran"),
    [
        ([1.0, 1.0, 2.0, 2.0, 3.0], 2),
        ([1.0, 1.1, 1.2], 3),
        # A batch engine that was empty began with the first alone.
        ([1.0, 2.0, 2.0, 2.0, 3.0], 3),
        ([1.0, 2.0, 3.0], 1),
        # One by one, as behind a limiter.
        ([1.0, 1.3, 1.6, 1.9], None),
    ],
)
def test_of_answers_in_one_piece_the_first_wave(ends: list[float], ran: int | None) -> None:
    round_ = of(*(a_stream(at, took_s=end, ttft_s=None) for at, end in enumerate(ends)))

    assert overlap.running_at_once(round_) == ran


@pytest.mark.parametrize(
    ("ends", "one_by_one"),
    [([3.0, 3.5, 4.0, 4.9], True), ([3.0, 3.5, 4.0, 4.8], False), ([3.0, 6.0], False), ([], False)],
)
def test_neither_together_nor_in_waves(ends: list[float], one_by_one: bool) -> None:
    streams = [a_stream(at, took_s=end, ttft_s=None) for at, end in enumerate(ends)]

    assert overlap.ends_one_by_one([*streams, a_failed()]) is one_by_one


@pytest.mark.parametrize(("ended_at", "held"), [(2.9, False), (3.0, True), (3.5, True)])
def test_a_short_one_that_waits_for_a_long_one(ended_at: float, held: bool) -> None:
    long = [a_stream(at, took_s=3.0 + at, ttft_s=None) for at in range(2)]

    assert overlap.held(of(*long, a_stream(2, begun_at=1.0, took_s=ended_at - 1, ttft_s=None))) is held


def test_a_short_ones_first_token_counts_where_it_was_seen() -> None:
    assert overlap.held(of(a_stream(took_s=3.0), a_stream(1, took_s=5.0, ttft_s=1.0))) is False


def test_a_probe_without_answers_tells_nothing() -> None:
    assert overlap.held(of(a_stream(), a_refused(1))) is None
    assert overlap.held(of(a_failed(), a_stream(1))) is None


# What let the next one begin


def test_behind_slots_each_follows_an_end() -> None:
    unequal = an_unequal_round(9, 3)

    found = starts(unequal.streams, 3)

    assert (found.count, found.behind_ends_s) == (6, pytest.approx(0.0))
    assert found.follow_ends
    assert not found.is_paced
    assert not found.in_batches
    assert overlap.followed_an_end(unequal.streams, 3) == 1.0


def test_at_a_pace_of_their_own_they_follow_nobody() -> None:
    streams = [a_stream(at, begun_at=0.5 * at, took_s=1.0 + 0.3 * (at % 3)) for at in range(9)]

    found = starts(streams, 2)

    assert found.every_s == pytest.approx(0.5)
    assert found.is_paced
    assert not found.follow_ends


@pytest.mark.parametrize(("paced_s", "is_paced"), [(0.24, True), (0.25, False)])
def test_a_pace_is_even_to_a_quarter(paced_s: float, is_paced: bool) -> None:
    found = Starts(2, 4, behind_ends_s=9.0, paced_s=paced_s, every_s=1.0, alone=0.0, together=0.0, breaks=0)

    assert found.is_paced is is_paced


@pytest.mark.parametrize(
    ("behind_s", "paced_s", "is_paced", "follow_ends"),
    [
        (0.11, 0.05, True, False),
        (0.1, 0.05, False, False),
        (0.05, 0.1, False, False),
        (0.04, 0.1, False, True),
    ],
)
def test_one_explanation_must_be_twice_as_good(
    behind_s: float, paced_s: float, is_paced: bool, follow_ends: bool
) -> None:
    found = Starts(
        2, 4, behind_ends_s=behind_s, paced_s=paced_s, every_s=1.0, alone=0.0, together=0.0, breaks=0
    )

    assert (found.is_paced, found.follow_ends) == (is_paced, follow_ends)


@pytest.mark.parametrize(
    ("alone", "together", "in_batches"), [(0.9, 0.5, True), (0.89, 1.0, False), (1.0, 0.49, False)]
)
def test_batches_end_as_a_whole_and_begin_as_one(alone: float, together: float, in_batches: bool) -> None:
    found = Starts(2, 4, behind_ends_s=0, paced_s=0, every_s=1.0, alone=alone, together=together, breaks=0)

    assert found.in_batches is in_batches


def a_batched_round(first: int) -> list[Stream]:
    """Batches of 2 with unequal lengths; the first has `first`."""
    streams, at, begun_at = [], 0, 0.0
    while at < 7:
        many = first if at == 0 else 2
        took = [1.0 + 0.5 * (it % 2) for it in range(many)]
        streams += [a_stream(at + it, begun_at=begun_at, took_s=took[it], ttft_s=0.1) for it in range(many)]
        begun_at += max(took) + 0.01
        at += many
    return streams


@pytest.mark.parametrize("first", [1, 2])
def test_in_batches_nobody_is_left_when_the_next_begin(first: int) -> None:
    found = starts(a_batched_round(first), 2)

    assert found.alone == 1.0
    assert found.in_batches


def test_what_a_slow_limiter_lets_in_begins_alone_but_not_together() -> None:
    found = starts(a_paced_round(8, 2.0, 1.0, ttft_s=0.1).streams, 2)

    assert (found.alone, found.together) == (1.0, 0.0)
    assert not found.in_batches


def test_who_begins_before_any_end_did_not_begin_alone() -> None:
    assert starts(a_capped_round(4, 4).streams, 2).alone == 0.0


@pytest.mark.parametrize(("n", "breaks", "in_waves"), [(16, 3, True), (4, 0, False)])
def test_equal_requests_behind_a_cap_come_in_waves(n: int, breaks: int, in_waves: bool) -> None:
    # Prompts are computed in turn, 0.1 s each, and four have a slot.
    streams = [a_stream(at, begun_at=2.0 * (at // 4) + 0.1 * (at % 4), took_s=1.0) for at in range(n)]

    found = starts(streams, 4 if n > 4 else 2)

    assert (found.breaks, found.comes_in_waves) == (breaks, in_waves)


def test_where_nobody_waits_or_no_first_token_was_seen_there_is_nothing_to_say() -> None:
    for streams in (a_capped_round(2, 2).streams, a_capped_round(4, 2, ttft_s=None).streams):
        assert overlap.starts(streams, 2) is None
        assert overlap.followed_an_end(streams, 2) == 0.0
