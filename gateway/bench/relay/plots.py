"""Added latency as a plot, with matplotlib, which is an extra: `pip install 'prefix-gateway[bench]'`."""

from pathlib import Path
from typing import TYPE_CHECKING

from gateway.bench.relay.results import Results
from gateway.bench.relay.scenarios import CONCURRENCIES
from gateway.bench.relay.systems import DIRECT, GATEWAY

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE_INCHES = (9.0, 3.6)
_OWN_COLOUR = "tab:red"
_LINEAR_BELOW_US = 10.0
"""Differences around zero, which noise makes negative, have no logarithm."""


def write(folder: Path, results: Results) -> Path:
    """`added_latency.svg`; the same results give the same bytes. Raises ImportError and OSError."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "added_latency.svg"
    with rc_context({"svg.hashsalt": "prefix-gateway", "font.size": 8}):
        figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
        for axes, percentile in zip(figure.subplots(1, 2, sharey=True), (50, 99), strict=True):
            _panel(axes, results, percentile)
        figure.savefig(path, metadata={"Date": None})
    return path


def _panel(axes: "Axes", results: Results, percentile: int) -> None:
    for system in results.systems:
        points = [
            (count, added)
            for count in CONCURRENCIES
            if (added := results.added_us(system, count, percentile)) is not None
        ]
        if system == DIRECT or not points:
            continue
        (line,) = axes.plot(*zip(*points, strict=True), marker=".", label=system)
        if system == GATEWAY:
            line.set(color=_OWN_COLOUR, linewidth=2.0, zorder=3)
    axes.set_xscale("log", base=2)
    axes.set_xticks(CONCURRENCIES, [str(count) for count in CONCURRENCIES])
    axes.set_yscale("symlog", linthresh=_LINEAR_BELOW_US)
    axes.set_xlabel("connections")
    axes.set_ylabel(f"p{percentile} above direct's p50, µs")
    axes.grid(alpha=0.3)
    axes.legend()
