"""Verdicts where what was seen fits more than one explanation, or breaks off."""

from doctor_values import a_capped_round, a_failed, a_ramp, a_refused, a_stream, findings

from gateway.doctor.seen import Role, Round
from gateway.doctor.verdict import Kind, conclude


def test_where_none_of_the_last_was_answered_the_ones_before_them_count() -> None:
    dead = Round(role=Role.RAMP, wanted=8, streams=tuple(a_failed(it) for it in range(8)))
    verdict = conclude(findings([*a_ramp(8, 4), dead]))

    assert (verdict.limit, verdict.kind, verdict.confidence) == (None, Kind.NONE, 0.3)
    assert verdict.why == ("all 4 ran at once, and of 8 none was answered",)


def test_answers_that_are_all_as_long_tell_no_batches_from_slots() -> None:
    unequal = a_capped_round(12, 4, 1.2, role=Role.UNEQUAL)
    verdict = conclude(findings([*a_ramp(4), unequal]))

    assert (verdict.limit, verdict.kind) == (4, Kind.SLOTS)
    assert any(it.startswith("answers were equally long whatever was asked for") for it in verdict.why)


def test_in_one_piece_and_as_long_as_they_like_only_waves_are_left() -> None:
    def probe() -> Round:
        long = [a_stream(it, took_s=1.0, ttft_s=None) for it in range(4)]
        return Round(
            role=Role.PROBE,
            wanted=4,
            streams=(*long, a_stream(4, sent_at=0.9, begun_at=1.0, took_s=1.0, ttft_s=None)),
        )

    verdict = conclude(findings([*a_ramp(4, streamed=False), probe()]))

    assert (verdict.limit, verdict.kind, verdict.confidence) == (4, Kind.SLOTS, 0.5)


def test_of_those_let_in_some_may_wait() -> None:
    waiting = a_capped_round(6, 2, more=[a_refused(6), a_refused(7)])

    verdict = conclude(findings([waiting]))

    assert (verdict.limit, verdict.kind, verdict.confidence) == (2, Kind.SLOTS, 0.7)
    assert verdict.why[1] == "of 8 at once 2 were refused: 4 may wait, more are turned away"
