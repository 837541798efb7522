"""A replay's results as one Markdown table, a row a cell: ours, and the best rival of that cell."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from gateway.bench import report
from gateway.bench.cells import Cell
from gateway.bench.measure import Figures
from gateway.bench.replay import OWN
from gateway.bench.report import Comparison, Figure, Results, Score

_HEAD = (
    "| cell | hits % | TTFT p50 / p90 / p99 s | good/s | TTFT p90, best rival | good/s, best rival |\n"
    "|---|---|---|---|---|---|\n"
)


def table(cells: Sequence[Cell], results: Mapping[str, Results]) -> str:
    """Ratios are ours / the best rival's; those worse than it by more than `report.WITHIN` are bold."""
    comparisons = report.compare(cells, results)
    rows = [_row(it, results[it.cell]) for it in comparisons]
    return _HEAD + "".join(rows) + "\n" + "".join(f"{line}\n" for line in _scores(comparisons))


def _row(it: Comparison, played: Results) -> str:
    ours = [result.figures for result in played[OWN] if result.figures is not None]
    ttft = "above load 1.0"
    if it.ttft_ratio is not None:
        theirs = report.ttft_p90_s(played[it.ttft_rival])
        ttft = (
            f"{_ratio(it.ttft_ratio, worse=it.ttft_ratio > 1 + report.WITHIN)} {it.ttft_rival} {theirs:.2f}"
        )
    good = report.goodput_per_s(played[it.goodput_rival])
    worse = it.goodput_ratio < 1 - report.WITHIN
    goodput = f"{_ratio(it.goodput_ratio, worse=worse)} {it.goodput_rival} {good:.3f}"
    hits = _mean(ours, lambda f: 100 * f.hit_share)
    times = [_mean(ours, figure) for figure in (_p50, _p90, _p99)]
    spread = " / ".join(f"{seconds:.2f}" for seconds in times)
    own_good = report.goodput_per_s(played[OWN])
    return f"| {it.cell} | {hits:.1f} | {spread} | {own_good:.3f} | {ttft} | {goodput} |\n"


def _scores(comparisons: Sequence[Comparison]) -> Iterator[str]:
    named = {"TTFT p90": report.ttft_score(comparisons), "Goodput": report.goodput_score(comparisons)}
    for figure, score in named.items():
        if score is not None:
            yield _score(figure, score)


def _score(figure: str, score: Score) -> str:
    return (
        f"{figure}: within {report.WITHIN:.0%} of the best rival, or better, in {score.level} of "
        f"{score.cells} cells; median ratio {score.median:.3f}.\n"
    )


def _ratio(ratio: float, *, worse: bool) -> str:
    text = f"{ratio:.2f} x"
    return f"**{text}**" if worse else text


def _mean(figures: Sequence[Figures], of: Figure) -> float:
    return fmean(map(of, figures)) if figures else 0.0


def _p50(it: Figures) -> float:
    return it.ttft_p50_s


def _p90(it: Figures) -> float:
    return it.ttft_p90_s


def _p99(it: Figures) -> float:
    return it.ttft_p99_s
