"""Limiters: the pace of tiny requests, the same pace of large and small ones, refusals."""

from collections.abc import Sequence

import pytest
from doctor_values import a_capped_round, a_paced_round, a_refused, a_stream, findings

from gateway.doctor import pace
from gateway.doctor.pace import Pace
from gateway.doctor.seen import Findings, Role, Round, Shape, Stream

TINY = Shape(prompt_tokens=4, output_tokens=1)


def tiny(ends: Sequence[float], alone_s: float | None = 0.05, *more: Round) -> Findings:
    streams = tuple(a_stream(at, took_s=end, ttft_s=None, shape=TINY) for at, end in enumerate(ends))
    return findings([*more, Round(role=Role.TINY, wanted=len(ends), streams=streams)], tiny_s=alone_s)


def per_s(found: Pace | None) -> float | None:
    assert found is not None
    return found.per_s


def test_tiny_requests_at_even_distances_that_are_not_their_own() -> None:
    found = pace.tiny_pace(tiny([0.05, 0.55, 1.05, 1.55]))

    assert found == Pace(
        pytest.approx(2.0), 0.9, "requests of one token come through every 500 ms, alone one takes 50 ms"
    )


def test_what_a_bucket_had_saved_may_come_at_once() -> None:
    assert per_s(pace.tiny_pace(tiny([0.05, 0.05, 0.05, 0.05, 0.55, 1.05, 1.55, 2.05]))) == pytest.approx(2.0)


@pytest.mark.parametrize(("every_s", "is_pace"), [(0.111, True), (0.109, False)])
def test_as_quick_as_one_after_another_is_a_slot(every_s: float, is_pace: bool) -> None:
    ends = [0.05 + every_s * at for at in range(6)]

    assert (pace.tiny_pace(tiny(ends)) is not None) is is_pace


def test_uneven_is_no_pace() -> None:
    assert pace.tiny_pace(tiny([0.1, 0.2, 0.3, 0.4, 1.4, 1.6, 3.6])) is None


def test_too_few_or_none_alone_tell_nothing() -> None:
    assert pace.tiny_pace(findings([], tiny_s=0.05)) is None
    assert pace.tiny_pace(tiny([0.5, 1.0, 1.5])) is None
    assert pace.tiny_pace(tiny([0.5, 1.0, 1.5, 2.0], None)) is None


def test_a_slow_limiter_holds_up_one_alone_too_and_a_longer_prompt_shows_what_it_takes() -> None:
    alone = a_capped_round(1, 1, ttft_s=0.2)
    ends = [2.0, 4.0, 6.0, 8.0]

    assert pace.tiny_pace(tiny(ends, 2.0)) is None
    assert per_s(pace.tiny_pace(tiny(ends, 2.0, alone))) == pytest.approx(0.5)


# The same pace


def sized(role: Role, begun: Sequence[float], tokens: int, *, ttft_s: float | None = None) -> Round:
    shape = Shape(prompt_tokens=64, output_tokens=tokens)
    streams = [a_stream(at, begun_at=b, took_s=1.0, ttft_s=ttft_s, shape=shape) for at, b in enumerate(begun)]
    return Round(role=role, wanted=len(begun), streams=tuple(streams))


EVERY_SECOND = (0.0, 1.0, 2.0, 3.0)


@pytest.mark.parametrize("ttft_s", [None, 0.1])
@pytest.mark.parametrize("role", [Role.SMALL, Role.TINY])
def test_smaller_requests_no_quicker_than_larger_ones(role: Role, ttft_s: float | None) -> None:
    full = sized(Role.RAMP, EVERY_SECOND, 24, ttft_s=ttft_s)

    found = pace.own_pace(findings([full, sized(role, EVERY_SECOND, 12, ttft_s=ttft_s)]))

    assert found == Pace(1.0, 0.8, "requests come through every 1000 ms, smaller ones no quicker")


@pytest.mark.parametrize(("every_s", "is_same"), [(0.86, True), (0.84, False), (1.14, True), (1.16, False)])
def test_the_same_is_within_15_percent(every_s: float, is_same: bool) -> None:
    small = sized(Role.SMALL, [at * every_s for at in range(4)], 12)

    assert (pace.same_pace(findings([sized(Role.RAMP, EVERY_SECOND, 24), small])) is not None) is is_same


@pytest.mark.parametrize(("tokens", "is_smaller"), [(19, True), (20, False)])
def test_what_is_not_smaller_tells_nothing(tokens: int, is_smaller: bool) -> None:
    both = [sized(Role.RAMP, EVERY_SECOND, 24), sized(Role.SMALL, EVERY_SECOND, tokens)]

    assert (pace.same_pace(findings(both)) is not None) is is_smaller


def test_without_smaller_ones_that_were_answered_nothing_is_known() -> None:
    full = sized(Role.RAMP, EVERY_SECOND, 24)
    refused = Round(role=Role.SMALL, wanted=1, streams=(a_refused(),))

    assert pace.same_pace(findings([full])) is None
    assert pace.same_pace(findings([full, refused])) is None
    assert pace.same_pace(findings([])) is None


@pytest.mark.parametrize(("every_s", "is_pace"), [(0.06, True), (0.04, False)])
def test_times_as_short_as_the_doctor_sends_are_none(every_s: float, is_pace: bool) -> None:
    begun = [at * every_s for at in range(8)]

    both = [sized(Role.RAMP, begun, 24), sized(Role.SMALL, begun, 12)]

    assert (pace.same_pace(findings(both)) is not None) is is_pace


def test_waves_are_uneven() -> None:
    begun = [0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0]

    assert pace.same_pace(findings([sized(Role.RAMP, begun, 24), sized(Role.SMALL, begun, 12)])) is None


# Refusals


def again(*streams: Stream) -> Round:
    return Round(role=Role.AGAIN, wanted=4, streams=streams)


def test_whether_those_that_come_again_are_refused() -> None:
    assert pace.again_refused(findings([])) is None
    assert pace.again_refused(findings([again(a_stream())])) is False
    assert pace.again_refused(findings([again(a_stream()), again(a_refused())])) is True


def test_refused_when_they_come_again_is_a_rate() -> None:
    ramp = a_capped_round(4, 4, more=[a_refused(4)])
    let_in = [a_stream(at, sent_at=0.25 * at, begun_at=0.25 * at, took_s=0.1) for at in range(1, 6)]

    found = pace.refused_pace(findings([ramp, again(a_refused(), *let_in)]))

    assert found is not None
    assert found.per_s == pytest.approx(4.0)
    assert found.why == (
        "4 were let in at once, and when those had ended fewer: it counts requests in time (too many)"
    )


def test_what_was_let_in_before_the_first_refusal_a_bucket_had_saved() -> None:
    saved = [a_stream(at, sent_at=0.0) for at in range(9)]
    later = [a_stream(9, sent_at=1.0), a_stream(10, sent_at=1.5)]

    found = pace.refused_pace(findings([again(*saved, a_refused(sent_at=0.5), *later)]))

    assert per_s(found) == pytest.approx(2.0)


@pytest.mark.parametrize("sent", [[], [1.0], [1.0, 1.0]])
def test_of_one_that_was_let_in_no_rate_can_be_told(sent: list[float]) -> None:
    found = pace.refused_pace(findings([again(a_refused(), *(a_stream(sent_at=at) for at in sent))]))

    assert found is not None
    assert found.per_s is None


def test_without_refusals_the_second_time_there_is_no_pace() -> None:
    assert pace.refused_pace(findings([again(a_stream())])) is None


def test_a_refusal_without_words_is_quoted_without() -> None:
    silent = a_stream(status=429)

    found = pace.refused_pace(findings([again(silent)]))

    assert found is not None
    assert found.why.endswith("it counts requests in time")


def test_the_last_of_several_rounds_shows_the_rate() -> None:
    first = again(a_refused(), a_refused(1))
    drizzle = again(a_refused(), a_stream(sent_at=0.5), a_stream(1, sent_at=1.0))

    assert per_s(pace.refused_pace(findings([first, drizzle]))) == pytest.approx(2.0)


def test_a_paced_round_of_these_tests_is_one() -> None:
    assert [it.ended_at for it in a_paced_round(3, 0.5).streams] == [1.0, 1.5, 2.0]
