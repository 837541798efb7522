"""One row a cell, with what is worse than the best rival in bold."""

from bench_results import CELL, a_result
from msgspec.structs import replace

from gateway.bench import report
from gateway.bench.markdown import table

OVERLOADED = replace(CELL, name="over-1.3", load=1.3)


def rows(*results) -> list[str]:
    text = table([CELL, OVERLOADED], report.by_cell(results))
    return [line for line in text.splitlines() if line.startswith("| ") and "cell |" not in line]


def test_a_row_has_our_figures_and_the_best_rivals() -> None:
    (row,) = rows(
        a_result("gateway", hit_share=0.75, ttft_p90_s=1.0, goodput_per_s=3.0),
        a_result("quick", ttft_p90_s=2.0, goodput_per_s=1.0),
        a_result("strong", ttft_p90_s=4.0, goodput_per_s=2.0),
    )
    assert (
        row
        == f"| {CELL.name} | 75.0 | 0.50 / 1.00 / 2.00 | 3.000 | 0.50 x quick 2.00 | 1.50 x strong 2.000 |"
    )


def test_what_is_worse_by_more_than_the_margin_is_bold() -> None:
    (row,) = rows(
        a_result("gateway", ttft_p90_s=1.06, goodput_per_s=0.94),
        a_result("rival", ttft_p90_s=1.0, goodput_per_s=1.0),
    )
    assert row.endswith("| **1.06 x** rival 1.00 | **0.94 x** rival 1.000 |")


def test_above_load_one_ttft_does_not_count() -> None:
    (row,) = rows(a_result("gateway", cell=OVERLOADED), a_result("rival", cell=OVERLOADED))
    assert "| above load 1.0 | 1.00 x rival 1.000 |" in row


def test_below_the_table_stand_the_scores() -> None:
    text = table([CELL], report.by_cell([a_result("gateway"), a_result("rival", ttft_p90_s=2.0)]))
    assert "TTFT p90: within 5% of the best rival, or better, in 1 of 1 cells; median ratio 0.500." in text
    assert "Goodput: within 5% of the best rival, or better, in 1 of 1 cells; median ratio 1.000." in text


def test_where_nobody_got_an_answer_it_says_zero() -> None:
    (row,) = rows(a_result("gateway", answered=False), a_result("rival"))
    assert row.startswith(f"| {CELL.name} | 0.0 | 0.00 / 0.00 / 0.00 | 0.000 |")
