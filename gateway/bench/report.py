"""What a replay says: a table a cell, and how our policy stands against the best rival in each.

The rule is that of `benchmarks/plans/README.md`: TTFT p90 counts up to a load of 1.0, goodput always.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from statistics import fmean, median
from typing import NamedTuple

from msgspec import Struct
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gateway.bench.cells import Cell
from gateway.bench.measure import Figures
from gateway.bench.replay import OWN, Result

WITHIN = 0.05
"""Figures that differ from the best by no more than this part count as level with it."""

SHARE_WANTED = 0.9
"""In so large a part of the cells ours must be within `WITHIN` of the best."""

MAX_TTFT_LOAD = 1.0
"""Above it queues grow for as long as a run lasts: TTFT then tells the run's length."""

_NO_VALUE = "-"

Results = Mapping[str, Sequence[Result]]
"""Of one cell, by policy: one result a seed."""

Figure = Callable[[Figures], float]


class _Column(NamedTuple):
    heading: str
    figure: Figure
    form: str
    scale: float = 1.0


_COLUMNS = (
    _Column("hits %", lambda it: it.hit_share, ".1f", 100),
    _Column("TTFT p50 s", lambda it: it.ttft_p50_s, ".2f"),
    _Column("p90 s", lambda it: it.ttft_p90_s, ".2f"),
    _Column("p99 s", lambda it: it.ttft_p99_s, ".2f"),
    _Column("good/s", lambda it: it.goodput_per_s, ".3f"),
    _Column("good %", lambda it: it.good_share, ".1f", 100),
    _Column("imbalance", lambda it: it.imbalance, ".2f"),
    _Column("regret %", lambda it: it.regret_tokens_share, ".1f", 100),
)
_MAIN_COLUMNS = (*_COLUMNS[:3], _COLUMNS[4])


class Comparison(Struct, frozen=True, kw_only=True):
    """Our policy against the best rival of one cell. `ttft_ratio` below 1 and `goodput_ratio` above 1 mean
    ours is better; `ttft_ratio` is None above a load of 1.0, where queues grow without end."""

    cell: str
    ttft_rival: str
    ttft_ratio: float | None
    goodput_rival: str
    goodput_ratio: float


class Score(Struct, frozen=True, kw_only=True):
    """How one figure of ours stands over all cells that have it."""

    cells: int
    level: int
    median: float
    wanted: bool


def by_cell(results: Iterable[Result]) -> dict[str, dict[str, list[Result]]]:
    grouped: dict[str, dict[str, list[Result]]] = {}
    for result in results:
        grouped.setdefault(result.cell, {}).setdefault(result.policy, []).append(result)
    return grouped


def compare(cells: Sequence[Cell], results: Mapping[str, Results]) -> list[Comparison]:
    """One comparison for each cell in which both we and a rival have played."""
    found = []
    for cell in cells:
        played = results.get(cell.name, {})
        rivals = [policy for policy in played if policy != OWN]
        if OWN in played and rivals:
            found.append(_comparison(cell, played, rivals))
    return found


def _comparison(cell: Cell, played: Results, rivals: Sequence[str]) -> Comparison:
    ttfts = {policy: ttft_p90_s(played[policy]) for policy in played}
    goodputs = {policy: goodput_per_s(played[policy]) for policy in played}
    quickest = min(rivals, key=ttfts.__getitem__)
    best = max(rivals, key=goodputs.__getitem__)
    return Comparison(
        cell=cell.name,
        ttft_rival=quickest,
        ttft_ratio=ratio(ttfts[OWN], ttfts[quickest]) if cell.load <= MAX_TTFT_LOAD else None,
        goodput_rival=best,
        goodput_ratio=ratio(goodputs[OWN], goodputs[best]),
    )


def ratio(ours: float, best: float) -> float:
    """`ours / best`; 1 where both are the same, whatever that is."""
    if ours == best:
        return 1.0
    return ours / best if best else inf


def ttft_p90_s(results: Sequence[Result]) -> float:
    """Mean over the seeds; without end if in one of them nobody got an answer."""
    return _mean(results, lambda it: it.ttft_p90_s, nothing=inf)


def goodput_per_s(results: Sequence[Result]) -> float:
    """Mean over the seeds, with 0 for those in which nobody got an answer."""
    return _mean(results, lambda it: it.goodput_per_s, nothing=0.0)


def _mean(results: Sequence[Result], figure: Figure, nothing: float) -> float:
    return fmean(nothing if result.figures is None else figure(result.figures) for result in results)


def ttft_score(comparisons: Sequence[Comparison]) -> Score | None:
    """None if no cell counts."""
    ratios = [it.ttft_ratio for it in comparisons if it.ttft_ratio is not None]
    return _score(ratios, [it for it in ratios if it <= 1 + WITHIN], better=lambda middle: middle < 1)


def goodput_score(comparisons: Sequence[Comparison]) -> Score | None:
    """None if no cell counts."""
    ratios = [it.goodput_ratio for it in comparisons]
    return _score(ratios, [it for it in ratios if it >= 1 - WITHIN], better=lambda middle: middle > 1)


def _score(
    ratios: Sequence[float], level: Sequence[float], *, better: Callable[[float], bool]
) -> Score | None:
    if not ratios:
        return None
    middle = median(ratios)
    return Score(
        cells=len(ratios),
        level=len(level),
        median=middle,
        wanted=len(level) >= SHARE_WANTED * len(ratios) and better(middle),
    )


def cell_table(cell: Cell, played: Results) -> Table:
    """All figures of one cell, the policy with the most good answers first."""
    dropped = max(result.dropped_sessions for results in played.values() for result in results)
    table = Table(title=_title(cell, dropped), title_justify="left")
    table.add_column("policy")
    for heading in (*(column.heading for column in _COLUMNS), "µs"):
        table.add_column(heading, justify="right")
    for policy in _ranked(played):
        results = played[policy]
        table.add_row(policy, *_texts(results, _COLUMNS), _microseconds(results), style=_style(policy))
    return table


def side_by_side(cells: Sequence[Cell], results: Mapping[str, Results]) -> Table:
    """The main figures of few cells in one table, the policies in the order of the first cell."""
    table = Table()
    table.add_column("policy")
    for cell in cells:
        for column in _MAIN_COLUMNS:
            table.add_column(f"{cell.name}\n{column.heading}", justify="right")
    for policy in _ranked(results[cells[0].name]):
        row = [text for cell in cells for text in _texts(results[cell.name].get(policy, ()), _MAIN_COLUMNS)]
        table.add_row(policy, *row, style=_style(policy))
    return table


def summary(comparisons: Sequence[Comparison]) -> RenderableType:
    """Both scores, then every cell in which a rival is better by more than `WITHIN`."""
    lines = [
        _score_line(f"TTFT p90, load <= {MAX_TTFT_LOAD:g}", ttft_score(comparisons)),
        _score_line("goodput", goodput_score(comparisons)),
    ]
    losses = [loss for it in comparisons for loss in _losses(it)]
    lines += [f"losses: {len(losses)}", *losses]
    return Group(*(Text(line) for line in lines))


def _losses(it: Comparison) -> list[str]:
    losses = []
    if it.ttft_ratio is not None and it.ttft_ratio > 1 + WITHIN:
        losses.append(f"  {it.cell}: TTFT p90 {it.ttft_ratio:.2f} times that of {it.ttft_rival}")
    if it.goodput_ratio < 1 - WITHIN:
        losses.append(f"  {it.cell}: goodput {it.goodput_ratio:.2f} times that of {it.goodput_rival}")
    return losses


def _score_line(figure: str, score: Score | None) -> str:
    if score is None:
        return f"{figure}: no cell in which {OWN} and a rival have played"
    verdict = "reached" if score.wanted else "missed"
    return (
        f"{figure}: at most {WITHIN:.0%} worse than the best rival in {score.level} of {score.cells} cells"
        f" ({score.level / score.cells:.0%}), median ratio {score.median:.3f}: {verdict}"
    )


def _title(cell: Cell, dropped_sessions: int) -> str:
    engines = len(cell.engines)
    title = f"{cell.name}: {cell.workload}, {cell.arrivals}, load {cell.load:g}, {engines} engines"
    return f"{title}, {dropped_sessions} sessions too long for them" if dropped_sessions else title


def _ranked(played: Results) -> list[str]:
    return sorted(played, key=lambda policy: (-goodput_per_s(played[policy]), ttft_p90_s(played[policy])))


def _texts(results: Sequence[Result], columns: Sequence[_Column]) -> list[str]:
    """Means over the seeds, if in each of them somebody got an answer."""
    figures = [result.figures for result in results if result.figures is not None]
    if not figures or len(figures) < len(results):
        return [_NO_VALUE] * len(columns)
    return [f"{fmean(map(it.figure, figures)) * it.scale:{it.form}}" for it in columns]


def _microseconds(results: Sequence[Result]) -> str:
    means = [result.decision_us for result in results if result.decision_us is not None]
    return f"{fmean(means):.0f}" if means else _NO_VALUE


def _style(policy: str) -> str | None:
    return "bold" if policy == OWN else None
