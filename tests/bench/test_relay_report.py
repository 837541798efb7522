"""The tables on a terminal, in Markdown and as a plot."""

from pathlib import Path

import pytest
from relay_values import results
from rich.console import Console

from gateway.bench.relay import plots, report
from gateway.bench.relay.results import Results

FIGURES = {
    "direct": {"json_rps": 30_000.0, "latency_1_p50_us": 30.0, "latency_1_p99_us": 60.0},
    "haproxy": {"json_rps": 20_000.0, "latency_1_p50_us": 90.0, "latency_1_p99_us": 300.0},
    "sglang-router": {"json_rps": 5_000.0},
    "gateway": {"json_rps": 11_000.0, "latency_1_p50_us": 130.0, "latency_1_p99_us": 400.0},
}


def on_a_terminal(told: Results) -> list[str]:
    console = Console(width=120, highlight=False)
    with console.capture() as captured:
        console.print(report.terminal(told))
    return [" ".join(line.replace("│", " ").split()) for line in captured.get().splitlines()]


def test_a_terminal_shows_figures_targets_and_added_latency() -> None:
    lines = on_a_terminal(results(FIGURES, scenario="latency"))

    assert "haproxy 20,000 0" in lines
    assert "target json req/s sglang-router >= 2 x 2.20 x 11,000 5,000 10,000 yes" in lines
    assert "aim json req/s haproxy >= 0.6 x 0.55 x 11,000 20,000 12,000 no" in lines
    assert "1 60 / 270 - / - 100 / 370" in lines
    assert "2 x Some CPU, Linux 6.1, Python 3.11.7, uvloop 0.23.0" in lines
    assert "gateway 0.1.0, wrk 4.1" in lines


def test_bad_answers_are_in_the_table_and_said_below_it() -> None:
    lines = on_a_terminal(results(FIGURES, bad={"haproxy": 7}))

    assert "haproxy 20,000 7" in lines
    assert "! haproxy gave bad answers in json: 7 beside 100 answers" in lines


def test_without_the_gateway_there_is_nothing_to_judge() -> None:
    lines = on_a_terminal(results({"haproxy": {"json_rps": 1.0}}))

    assert not [line for line in lines if "target" in line or "latency" in line]


def test_markdown_is_a_section_with_the_same_tables() -> None:
    text = report.markdown(results(FIGURES, bad={"haproxy": 7}, scenario="latency"))

    assert "| haproxy | 20,000 | 7 |" in text
    assert "| **gateway** | **11,000** | **0** |" in text
    assert "| target | json req/s | sglang-router | >= 2 x | 2.20 x | 11,000 | 5,000 | 10,000 | yes |" in text
    assert "| 1 | 60 / 270 | - / - | 100 / 370 |" in text
    assert "- haproxy gave bad answers in json: 7 beside 100 answers" in text
    assert "- `latency`: as json with 1, 2, 4 ... 512 connections" in text
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in tables if "req/s" in line} == {4, 10}


def test_the_same_results_give_the_same_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    told = results(FIGURES, scenario="latency")

    one, two = (plots.write(tmp_path / name, told) for name in ("one", "two"))

    assert one.name == "added_latency.svg"
    assert one.read_bytes() == two.read_bytes()
