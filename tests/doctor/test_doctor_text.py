"""The report as a terminal shows it."""

from io import StringIO

import pytest
from doctor_values import a_capped_round, a_failed, a_ramp, a_refused, capped_findings, findings
from rich.console import Console

from gateway.doctor.report import Report
from gateway.doctor.seen import Findings, Role
from gateway.doctor.text import render


class File(StringIO):
    """What rich takes the encoding from."""

    def __init__(self, encoding: str) -> None:
        super().__init__()
        self._encoding = encoding

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding


def shown(
    of: Findings, *, rate: float | None = None, width: int = 80, encoding: str = "utf-8", color: bool = False
) -> list[str]:
    file = File(encoding)
    Console(file=file, width=width, force_terminal=color, color_system="standard" if color else None).print(
        render(Report(of, rate))
    )
    return [line.rstrip() for line in file.getvalue().splitlines()]


def test_the_first_line_is_the_verdict() -> None:
    lines = shown(capped_findings(4), width=120)

    assert lines[0] == (
        "4 of 16 requests run at once: that many slots in the engine (confidence 98%) (engine: llamacpp)."
    )


def test_then_what_it_costs_what_a_stream_gets_and_what_to_do() -> None:
    report = Report(capped_findings(4), 5.0)

    lines = shown(capped_findings(4), rate=5.0, width=400)

    assert lines[1:4] == [report.cost_sentence(), report.rate_sentence(), report.advice]
    assert all(lines[1:4])


def test_what_was_not_asked_or_costs_nothing_is_not_mentioned() -> None:
    lines = shown(findings(a_ramp(64)), width=200)

    assert lines[:3] == [
        "No limit found up to 16 requests at once (confidence 95%).",
        "It still gave more at 16 at once (38.2 tokens/s) than at fewer: a larger --max-concurrency shows "
        "where that ends.",
        "",
    ]


def test_the_curve_is_a_table() -> None:
    lines = shown(capped_findings(4))

    at = lines.index("Streams at once")
    assert lines[at + 1 : at + 7] == [
        "  at once  ran  tok/s  per stream  TTFT p50 ms  max ms",
        "        1    1   7.78        8.33          400     400",
        "        2    2   13.5        7.14          400     400",
        "        4    4   21.4        5.56          400     400",
        "        8    4   21.4        5.56         3480    6560",
        "       16    4   21.4        5.56         9640   18880",
    ]


def test_of_a_number_that_was_sent_again_the_later_round_is_in_the_table() -> None:
    rounds = [a_capped_round(1, 1), a_capped_round(2, 1), a_capped_round(2, 1, 1.0)]

    lines = shown(findings(rounds, max_concurrency=2))

    at = lines.index("Streams at once")
    assert [line.split()[:2] for line in lines[at + 2 : at + 4]] == [["1", "1"], ["2", "1"]]
    assert lines[at + 3].endswith("1400")


def test_where_no_first_token_was_seen_the_table_tells_of_whole_answers() -> None:
    lines = shown(capped_findings(4, streamed=False))

    at = lines.index("Streams at once")
    assert lines[at + 1] == "  at once  ran  tok/s  per stream  answer p50 ms  max ms"
    assert lines[at + 6] == "       16    4   21.4           -          15400   24640"
    assert "    ·· waiting   ██ running, answer in one piece" in lines


def test_the_round_is_drawn_with_an_axis_and_a_legend() -> None:
    lines = shown(findings([a_capped_round(2, 2), a_capped_round(4, 2)], max_concurrency=4), width=54)

    at = next(at for at, line in enumerate(lines) if line.startswith("4 equal requests sent at once"))
    assert lines[at : at + 8] == [
        "4 equal requests sent at once                     TTFT",
        "  1 ▒▒▒▒████████████████                        400 ms",
        "  2 ▒▒▒▒████████████████                        400 ms",
        "  3 ····················▒▒▒▒████████████████    2.40 s",
        "  4 ····················▒▒▒▒████████████████    2.40 s",
        "    ┬─────────┬─────────┬─────────┬────────┬",
        "    0         1         2         3        4 s",
        "    ·· waiting   ▒▒ prefill (about 400 ms)   ██",
    ]


def test_where_only_ascii_can_be_printed_it_is_drawn_in_ascii() -> None:
    of = findings([a_capped_round(2, 2), a_capped_round(4, 2)], model="modèle", max_concurrency=4)

    lines = shown(of, width=54, encoding="ascii")

    assert "  3 ....................++++################    2.40 s" in lines
    assert " - mod?le at http://127.0.0.1:8000" in lines
    assert "\n".join(lines).isascii()


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("streamed", [True, False])
def test_no_line_is_wider_than_the_terminal(width: int, streamed: bool) -> None:
    lines = shown(capped_findings(4, 64, streamed=streamed, max_concurrency=64), rate=5.0, width=width)

    assert max(map(len, lines)) <= width


def test_rows_that_are_too_many_are_counted() -> None:
    lines = shown(findings([a_capped_round(16, 16), a_capped_round(48, 16)], max_concurrency=48))

    assert "    8 more began after these and had all ended at 6.00 s" in lines


def test_the_evidence_and_what_was_asked_come_last() -> None:
    lines = shown(capped_findings(4))

    assert lines[lines.index("Why") :] == [
        "Why",
        " - never more than 4 of 16 ran at once",
        " - each that waited began when another ended",
        " - the engine (llamacpp) itself says it has 4 slots",
        "",
        "What was asked",
        " - m at http://127.0.0.1:8000",
        " - each request: 512 prompt tokens, 33 output tokens, streamed",
    ]


def test_what_makes_the_figures_doubtful_is_said() -> None:
    of = findings(
        [
            a_capped_round(2, 2, lag_s=0.05),
            a_capped_round(2, 2, lag_s=0.15, more=[a_refused(2), a_failed(3, error="reset\x1b[2J.")]),
        ],
        interrupted="Ctrl-C",
    )

    lines = shown(of, width=200)

    assert "Not complete: Ctrl-C." in lines
    assert "The doctor's own process stood still for up to 150 ms: times are that uncertain." in lines
    assert "1 of 6 requests were refused (429, 503 or 529)." in lines
    assert "1 of 6 requests failed: reset\N{REPLACEMENT CHARACTER}[2J (1)." in lines


def test_of_many_reasons_the_most_frequent_are_told() -> None:
    errors = ["a", "a", "b", "b", "c", "c", "d"]
    more = [a_failed(at, error=error) for at, error in enumerate(errors)]
    lost = a_capped_round(1, 1, role=Role.TINY, more=[a_refused(status=500)])

    lines = shown(findings([a_capped_round(1, 1, more=more)]), width=200)
    others = shown(
        findings([lost, a_capped_round(1, 1, role=Role.TINY, more=[a_failed(error="")])]), width=200
    )

    assert "7 of 8 requests failed: a (2); b (2); c (2); others." in lines
    assert "2 of 4 requests failed: status 500, too many (1); no answer (1)." in others


def test_a_lag_too_small_to_matter_is_not_mentioned() -> None:
    assert not any("stood still" in line for line in shown(findings([a_capped_round(2, 2, lag_s=0.1)])))


def test_the_endpoint_cannot_give_the_terminal_commands() -> None:
    lines = shown(capped_findings(4, model="\x1b]0;owned\x07[bold]m"))

    assert (
        " - \N{REPLACEMENT CHARACTER}]0;owned\N{REPLACEMENT CHARACTER}[bold]m at http://127.0.0.1:8000"
        in lines
    )


def test_a_terminal_gets_colors() -> None:
    assert any("\x1b[33m" in line for line in shown(capped_findings(4), color=True))


def test_nothing_measured_is_a_report_too() -> None:
    lines = shown(findings([], interrupted="Ctrl-C"))

    assert "Nothing was measured." in lines
    assert "Streams at once" not in lines
    assert lines[-1] == " - each request: 512 prompt tokens, 33 output tokens"
