"""How ours stands against the best rival, on made-up figures."""

from io import StringIO
from math import inf
from typing import Any

import pytest
from bench_results import CELL, a_result
from msgspec.structs import replace
from rich.console import Console, RenderableType

from gateway.bench import report
from gateway.bench.replay import Result

OVERLOADED = replace(CELL, name="over-1.3", load=1.3)


def shown(what: RenderableType) -> str:
    text = StringIO()
    Console(file=text, width=110).print(what)
    return text.getvalue()


def compared(*results: Result) -> list[report.Comparison]:
    return report.compare([CELL, OVERLOADED], report.by_cell(results))


def test_each_figure_is_held_against_the_rival_that_is_best_in_it() -> None:
    (it,) = compared(
        a_result("gateway", ttft_p90_s=1.0, goodput_per_s=3.0),
        a_result("quick", ttft_p90_s=2.0, goodput_per_s=1.0),
        a_result("strong", ttft_p90_s=4.0, goodput_per_s=2.0),
    )

    assert (it.ttft_rival, it.ttft_ratio) == ("quick", 0.5)
    assert (it.goodput_rival, it.goodput_ratio) == ("strong", 1.5)


def test_seeds_are_averaged() -> None:
    (it,) = compared(
        a_result("gateway", ttft_p90_s=1.0),
        a_result("gateway", seed=2, ttft_p90_s=2.0),
        a_result("rival", ttft_p90_s=3.0),
    )

    assert it.ttft_ratio == 0.5


def test_above_load_1_only_goodput_counts() -> None:
    (it,) = compared(a_result("gateway", cell=OVERLOADED, ttft_p90_s=9.0), a_result("rival", cell=OVERLOADED))

    assert (it.ttft_ratio, it.goodput_ratio) == (None, 1.0)


def test_where_nobody_got_an_answer_nothing_is_good() -> None:
    (it,) = compared(a_result("gateway"), a_result("sticky"), a_result("stuck", answered=False))
    (lost,) = compared(a_result("gateway", answered=False), a_result("sticky"))

    assert (it.ttft_rival, it.goodput_rival) == ("sticky", "sticky")
    assert (lost.ttft_ratio, lost.goodput_ratio) == (inf, 0.0)


def test_cells_that_only_one_side_has_played_are_not_compared() -> None:
    assert compared(a_result("gateway"), a_result("rival", cell=OVERLOADED)) == []


@pytest.mark.parametrize(
    ("ours", "best", "ratio"),
    [(3.0, 2.0, 1.5), (0.0, 0.0, 1.0), (1.0, 0.0, inf), (inf, inf, 1.0), (inf, 2.0, inf), (2.0, inf, 0.0)],
)
def test_ratios_to_nothing_and_without_end(ours: float, best: float, ratio: float) -> None:
    assert report.ratio(ours, best) == ratio


def a_comparison(ttft: float | None, goodput: float) -> report.Comparison:
    return report.Comparison(
        cell="c", ttft_rival="quick", ttft_ratio=ttft, goodput_rival="strong", goodput_ratio=goodput
    )


@pytest.mark.parametrize(
    ("ratios", "level", "wanted"),
    [
        ([0.9] * 9 + [1.06], 9, True),
        ([0.9] * 8 + [1.06] * 2, 8, False),
        ([1.0] * 10, 10, False),
        ([0.99] * 6 + [1.05] * 4, 10, True),
    ],
)
def test_ttft_wants_nine_cells_of_ten_level_and_the_median_better(
    ratios: list[float], level: int, wanted: bool
) -> None:
    score = report.ttft_score([*(a_comparison(it, 1.0) for it in ratios), a_comparison(None, 1.0)])

    assert score is not None
    assert (score.cells, score.level, score.wanted) == (10, level, wanted)


@pytest.mark.parametrize(
    ("ratios", "level", "wanted"),
    [([1.1] * 9 + [0.94], 9, True), ([1.1] * 8 + [0.94] * 2, 8, False), ([1.0] * 9 + [2.0], 10, False)],
)
def test_goodput_wants_the_same_the_other_way_round(ratios: list[float], level: int, wanted: bool) -> None:
    score = report.goodput_score([a_comparison(1.0, it) for it in ratios])

    assert score is not None
    assert (score.cells, score.level, score.wanted) == (10, level, wanted)


def test_the_summary_lists_every_loss() -> None:
    text = shown(report.summary([a_comparison(1.2, 0.5), a_comparison(1.04, 0.96)]))

    assert "TTFT p90, load <= 1: at most 5% worse than the best rival in 1 of 2 cells (50%)" in text
    assert "median ratio 1.120: missed" in text
    assert "losses: 2\n  c: TTFT p90 1.20 times that of quick\n  c: goodput 0.50 times that of strong" in text


def test_a_summary_of_nothing_says_so() -> None:
    assert "no cell in which gateway and a rival have played" in shown(report.summary([]))


def test_a_cells_table_has_the_most_good_answers_first_and_its_left_out_sessions() -> None:
    results: dict[str, Any] = {
        "stuck": [a_result("stuck"), a_result("stuck", seed=2, answered=False)],
        "weak": [a_result("weak", goodput_per_s=1.0, hit_share=0.5)],
        "gateway": [
            a_result("gateway", goodput_per_s=2.0, hit_share=0.75, decision_us=40.0, dropped_sessions=3)
        ],
    }

    lines = shown(report.cell_table(CELL, results)).splitlines()

    assert lines[0].startswith(
        "small-0.5: miniswe, closed, load 0.5, 2 engines, 3 sessions too long for them"
    )
    rows = [line.split() for line in lines if line.startswith("│")]
    assert [(row[1], row[3], row[-2]) for row in rows] == [
        ("gateway", "75.0", "40"),
        ("weak", "50.0", "-"),
        ("stuck", "-", "-"),
    ]


def test_one_table_for_few_cells_leaves_open_what_was_not_played() -> None:
    results = report.by_cell(
        [a_result("a"), a_result("b", goodput_per_s=2.0), a_result("a", cell=OVERLOADED, hit_share=0.25)]
    )

    lines = shown(report.side_by_side([CELL, OVERLOADED], results)).splitlines()

    rows = {line.split()[1]: line.replace("│", " ").split()[1:] for line in lines if line.startswith("│")}
    assert list(rows) == ["b", "a"]
    assert rows["b"][4:] == ["-"] * 4
    assert rows["a"][4] == "25.0"
