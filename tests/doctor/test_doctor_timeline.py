"""A round as rows in time."""

import pytest
from doctor_values import a_capped_round, a_failed, a_ramp, a_refused, a_stream, capped_findings, findings

from gateway.doctor import timeline
from gateway.doctor.report import Report
from gateway.doctor.seen import Role, Round
from gateway.doctor.timeline import Drawing, Phase, Span
from gateway.doctor.verdict import Kind, Verdict

LETTERS = {
    Phase.ABSENT: " ",
    Phase.WAITING: ".",
    Phase.PREFILL: "p",
    Phase.DECODING: "d",
    Phase.RUNNING: "r",
    Phase.FAILED: "x",
}


def drawn(drawing: Drawing) -> list[str]:
    return ["".join(LETTERS[it] for it in row.cells).rstrip() for row in drawing.rows]


def notes(drawing: Drawing) -> list[str]:
    return [row.note for row in drawing.rows]


def test_behind_two_slots_four_streams_make_a_staircase() -> None:
    round_ = a_capped_round(4, 2, 2.0, ttft_s=0.4)

    drawing = timeline.rows(round_, 2, 20)

    assert drawn(drawing) == [
        "ppdddddddd",
        "ppdddddddd",
        "..........ppdddddddd",
        "..........ppdddddddd",
    ]
    assert notes(drawing) == ["400 ms", "400 ms", "2.40 s", "2.40 s"]
    assert (drawing.span_s, drawing.left_out) == (4.0, 0)
    assert drawing.phases == (Phase.WAITING, Phase.PREFILL, Phase.DECODING)


def test_prefill_is_as_long_as_that_of_those_who_did_not_wait() -> None:
    round_ = Round(
        role=Role.RAMP,
        wanted=2,
        streams=(a_stream(took_s=2.0, ttft_s=0.5), a_stream(1, begun_at=2.0, took_s=2.0, ttft_s=0.75)),
    )

    first, second = timeline.lanes(round_, 1)

    assert first.spans == (Span(Phase.PREFILL, 0.0, 0.5), Span(Phase.DECODING, 0.5, 2.0))
    assert second.spans == (
        Span(Phase.WAITING, 0.0, 2.25),
        Span(Phase.PREFILL, 2.25, 2.75),
        Span(Phase.DECODING, 2.75, 4.0),
    )
    assert second.begun_s == 2.25
    assert timeline.rows(round_, 1, 20).usual_prefill_s == 0.5


def test_rows_are_in_the_order_in_which_they_began_and_not_in_that_of_sending() -> None:
    streams = (a_stream(0, begun_at=2.0), a_stream(1, begun_at=0.0), a_stream(2, begun_at=4.0))

    lanes = timeline.lanes(Round(role=Role.RAMP, wanted=3, streams=streams), 1)

    assert [it.begun_s for it in lanes] == [0.0, 2.0, 4.0]


def test_time_counts_from_the_first_that_was_sent() -> None:
    streams = (a_stream(0, sent_at=7.0, begun_at=7.0), a_stream(1, sent_at=7.5, begun_at=7.5))

    first, second = timeline.lanes(Round(role=Role.RAMP, wanted=2, streams=streams), 2)

    assert (first.begun_s, second.begun_s, second.end_s) == (0.0, 0.5, 2.5)


def test_of_answers_in_one_piece_only_waiting_and_running_can_be_told() -> None:
    drawing = timeline.rows(a_capped_round(2, 1, 2.0, ttft_s=None), 1, 8)

    assert drawn(drawing) == ["rrrr", "....rrrr"]
    assert notes(drawing) == ["2.00 s", "4.00 s"]
    assert drawing.usual_prefill_s is None


def test_without_a_limit_nobody_is_said_to_have_waited() -> None:
    streams = (a_stream(ttft_s=0.5), a_stream(1, took_s=2.0, ttft_s=1.0))

    drawing = timeline.rows(Round(role=Role.RAMP, wanted=2, streams=streams), None, 8)

    assert drawn(drawing) == ["ppdddddd", "ppppdddd"]
    assert drawing.usual_prefill_s is None


def test_those_without_an_answer_come_last_and_say_why() -> None:
    round_ = a_capped_round(1, 1, 2.0, more=[a_refused(1), a_failed(2, took_s=1.0)])

    drawing = timeline.rows(round_, 1, 8)

    assert drawn(drawing) == ["ppdddddd", "x", "xxxx"]
    assert notes(drawing) == ["400 ms", "429", "failed"]


def test_where_nobody_was_answered_there_is_no_prefill_to_learn_from() -> None:
    round_ = a_capped_round(0, 1, 2.0, more=[a_refused(took_s=1.0)])

    assert drawn(timeline.rows(round_, 1, 3)) == ["xxx"]


def test_an_answer_shorter_than_a_column_is_still_seen() -> None:
    streams = (a_stream(took_s=0.001, ttft_s=None), a_stream(1, took_s=10.0, ttft_s=None))

    assert drawn(timeline.rows(Round(role=Role.RAMP, wanted=2, streams=streams), None, 5)) == ["r", "rrrrr"]


def test_a_round_that_took_no_time_fills_its_row() -> None:
    streams = (a_stream(took_s=0.0, ttft_s=None),)

    assert drawn(timeline.rows(Round(role=Role.RAMP, wanted=1, streams=streams), 1, 3)) == ["rrr"]


def test_more_rows_than_a_screen_are_left_out_and_counted() -> None:
    round_ = a_capped_round(64, 4, 1.0)

    drawing = timeline.rows(round_, 4, 40)

    assert len(drawing.rows) == 40
    assert drawing.span_s == 10.0
    assert timeline.left_out(drawing, timeline.lanes(round_, 4)) == (
        "24 more began after these and had all ended at 16.0 s"
    )


def test_a_round_that_fits_leaves_nothing_out() -> None:
    round_ = a_capped_round(4, 4)

    assert timeline.left_out(timeline.rows(round_, 4, 40), timeline.lanes(round_, 4)) == ""


@pytest.mark.parametrize(
    ("span", "most", "expected"),
    [
        (4.0, 4, [0, 1, 2, 3, 4]),
        (4.1, 4, [0, 2, 4]),
        (24.6, 5, [0, 5, 10, 15, 20]),
        (0.35, 4, [0, 0.1, 0.2, 0.3]),
        (9000.0, 2, [0, 5000]),
        (0.0, 4, [0]),
    ],
)
def test_ticks_are_round_numbers(span: float, most: int, expected: list[float]) -> None:
    assert timeline.ticks(span, most) == pytest.approx(expected)


def test_the_axis_names_its_marks() -> None:
    assert timeline.axis(4.0, 20) == ("┬─────────┬────────┬", "0         2        4 s")
    assert timeline.axis(5.0, 20, ascii_only=True) == ("+------------------+", "0                  5 s")


def test_the_axis_of_no_time_is_its_beginning() -> None:
    assert timeline.axis(0.0, 10) == ("┬─────────", "0 s")


@pytest.mark.parametrize(
    ("value_s", "expected"),
    [
        (0.0004, "0.4 ms"),
        (0.0846, "85 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.00 s"),
        (12.81, "12.8 s"),
        (151.7, "152 s"),
        (1517.0, "1517 s"),
    ],
)
def test_seconds_have_three_digits_and_a_unit(value_s: float, expected: str) -> None:
    assert timeline.seconds(value_s) == expected


def test_behind_a_limiter_the_first_alone_did_not_wait() -> None:
    rate = Verdict(limit=None, kind=Kind.RATE, confidence=0.8, tried=16)
    none = Verdict(limit=None, kind=Kind.NONE, confidence=0.8, tried=16)

    assert timeline.limit_to_draw(rate) == 1
    assert timeline.limit_to_draw(none) is None
    assert timeline.limit_to_draw(Report(capped_findings(4)).verdict) == 4


def test_the_values_of_these_tests_are_told_as_what_they_are() -> None:
    assert Report(capped_findings(4)).verdict.limit == 4
    assert Report(capped_findings(4, streamed=False)).verdict.limit == 4
    assert Report(findings(a_ramp(64))).verdict.limit is None
