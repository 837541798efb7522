"""A replay's results as plots, with matplotlib, which is an extra: `pip install 'prefix-gateway[bench]'`."""

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from gateway.bench import report
from gateway.bench.cells import Cell
from gateway.bench.replay import OWN, Result
from gateway.bench.report import WITHIN, Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDTH_INCHES = 9.0
_INCHES_PER_CELL = 0.2
_PANEL_INCHES = 2.6
_PANELS_A_ROW = 3
_OWN_COLOUR = "tab:red"
_RIVALS_COLOUR = "0.6"


def is_installed() -> bool:
    return find_spec("matplotlib") is not None


def write(folder: Path, cells: Sequence[Cell], results: Sequence[Result]) -> list[Path]:
    """`ttft_p90.svg` and `goodput.svg`, every policy against the best rival of each cell, and `hits.svg`, hit
    share by load where a plan has several. The same results give the same bytes; no result, no plot. Raises
    ImportError without matplotlib, and OSError."""
    from matplotlib import rc_context

    played = report.by_cell(results)
    cells = [cell for cell in cells if any(policy != OWN for policy in played.get(cell.name, ()))]
    if not cells:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    with rc_context({"svg.hashsalt": "prefix-gateway", "font.size": 8}):
        ttft_cells = [cell for cell in cells if cell.load <= report.MAX_TTFT_LOAD]
        figures = {
            "ttft_p90": _ratios(ttft_cells, played, report.ttft_p90_s, min, "TTFT p90 / best rival's"),
            "goodput": _ratios(cells, played, report.goodput_per_s, max, "goodput / best rival's"),
            "hits": _hits(cells, played),
        }
        for name, figure in figures.items():
            paths.append(folder / f"{name}.svg")
            figure.savefig(paths[-1], metadata={"Date": None}, bbox_inches="tight")
    return paths


def _ratios(
    cells: Sequence[Cell],
    played: Mapping[str, Results],
    figure_of: Callable[[Sequence[Result]], float],
    best: Callable[[list[float]], float],
    label: str,
) -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH_INCHES, 1 + _INCHES_PER_CELL * len(cells)))
    axes = figure.subplots()
    for row, cell in enumerate(cells):
        figures = {policy: figure_of(results) for policy, results in played[cell.name].items()}
        bar = best([value for policy, value in figures.items() if policy != OWN])
        rivals = [report.ratio(value, bar) for policy, value in figures.items() if policy != OWN]
        axes.plot(rivals, [row] * len(rivals), "|", color=_RIVALS_COLOUR)
        if OWN in figures:
            axes.plot([report.ratio(figures[OWN], bar)], [row], "o", color=_OWN_COLOUR, markersize=4)
    axes.axvspan(1 - WITHIN, 1 + WITHIN, color="tab:green", alpha=0.15, linewidth=0)
    axes.set_yticks(range(len(cells)), [cell.name for cell in cells])
    axes.invert_yaxis()
    axes.set_xlabel(f"{label}; {OWN}: dot, rivals: ticks, level: band")
    if best is min:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("{x:g}")
    return figure


def _hits(cells: Sequence[Cell], played: Mapping[str, Results]) -> "Figure":
    from matplotlib.figure import Figure

    panels = [(shape, group) for shape, group in _shapes(cells) if len(group) > 1]
    rows = max(1, -(-len(panels) // _PANELS_A_ROW))
    figure = Figure(figsize=(_WIDTH_INCHES, _PANEL_INCHES * rows), layout="constrained")
    grid = figure.subplots(rows, _PANELS_A_ROW, squeeze=False, sharey=True)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    for axes, (shape, group) in zip(grid.flat, panels, strict=False):
        for policy in dict.fromkeys(policy for cell in group for policy in played[cell.name]):
            points = [
                (cell.load, 100 * fmean(it.hit_share for it in figures))
                for cell in group
                if (figures := [it.figures for it in played[cell.name].get(policy, ()) if it.figures])
            ]
            style = (
                {"color": _OWN_COLOUR, "zorder": 3}
                if policy == OWN
                else {"color": _RIVALS_COLOUR, "linewidth": 0.7}
            )
            axes.plot(*zip(*points, strict=True), marker=".", **style)
        axes.set_title(shape, fontsize=8)
        axes.set_ylim(0, 100)
    figure.supxlabel("load")
    figure.supylabel("prompt tokens from cache, %")
    return figure


def _shapes(cells: Sequence[Cell]) -> list[tuple[str, list[Cell]]]:
    """The cells that differ by their load only, under the name they share in the plan."""
    return [(name, list(group)) for name, group in groupby(cells, key=lambda it: it.name.rpartition("-")[0])]
