"""`prefix-gateway bench`: our routing against other routers' published rules, our relay against others'."""

import os
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import gateway
from gateway.bench import markdown, plots, report, truth
from gateway.bench.cells import Cell, PlanError, load_plan
from gateway.bench.relay.command import relay_command
from gateway.bench.replay import POLICIES, ReplayError, Result, Run, kept, replay, runs
from gateway.bench.traces import Half, TraceError

WIDTH = 110
"""Fixed, so that the output is the same on a terminal, in a pipe and in a log."""

_BENCHMARKS = Path(gateway.__file__).parent.parent / "benchmarks"
_QUICK = "quick.yaml"
_FULL = "held_out.yaml"


@click.group()
def bench() -> None:
    """Measure the gateway's routing and its relay."""


bench.add_command(relay_command)


def _policies(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, ...]:
    if value is None:
        return tuple(POLICIES)
    names = tuple(name.strip() for name in value.split(","))
    if unknown := [name for name in names if name not in POLICIES]:
        raise click.BadParameter(f"{unknown[0]!r} is none of {', '.join(POLICIES)}")
    return tuple(dict.fromkeys(names))


@bench.command("replay")
@click.option("--quick", is_flag=True, help="Two small cells and one table, in under a minute.")
@click.option(
    "--plan", type=click.Path(path_type=Path), help=f"Cells to play; the checkout's {_FULL} by default."
)
@click.option("--policies", callback=_policies, metavar="A,B", help="Only these; all by default.")
@click.option("--cells", "pattern", default="*", metavar="GLOB", help="Only cells with such a name.")
@click.option("--jobs", type=click.IntRange(1), help="Processes; as many as there are cores by default.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.jsonl",
    help="Keep results here as they come; those that are there already are not played again.",
)
@click.option("--data", type=click.Path(path_type=Path), help="The traces; the checkout's by default.")
@click.option("--plots", "plots_to", type=click.Path(path_type=Path), help="Write plots (SVG) into here.")
@click.option(
    "--markdown",
    "markdown_to",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write one table over all cells here.",
)
def replay_command(
    quick: bool,
    plan: Path | None,
    policies: tuple[str, ...],
    pattern: str,
    jobs: int | None,
    out: Path | None,
    data: Path | None,
    plots_to: Path | None,
    markdown_to: Path | None,
) -> None:
    """Play public traces against simulated engines, with our scheduler and with other routers' rules.

    Prints a table for each cell of the plan, then in how many of them ours is level with the best rival.
    """
    if quick and plan:
        raise click.UsageError("--quick is a plan of its own: give either it or --plan")
    if plots_to is not None and not plots.is_installed():
        raise click.UsageError("--plots needs matplotlib: pip install 'prefix-gateway[bench]'")
    cells = _chosen(plan or _BENCHMARKS / "plans" / (_QUICK if quick else _FULL), pattern)
    traces = _data(data)
    wanted = runs(cells, policies)
    before = kept(out, wanted) if out else {}
    try:
        played = _play([run for run in wanted if run not in before], traces, jobs or os.cpu_count() or 1, out)
    except (TraceError, OSError) as error:
        raise _unusable(str(error)) from None
    results = [*before.values(), *(it for it in played if isinstance(it, Result))]
    _print(cells, results, in_one_table=quick)
    if plots_to is not None:
        plots.write(plots_to, cells, results)
    if markdown_to is not None:
        markdown_to.write_text(markdown.table(cells, report.by_cell(results)))
    if failures := [it for it in played if isinstance(it, ReplayError)]:
        click.echo("\n".join(str(failure) for failure in failures), err=True)
        raise SystemExit(1)


@bench.command("truth")
@click.option("--seeds", type=click.IntRange(1), default=3, show_default=True, help="Runs of each.")
@click.option(
    "--half",
    type=click.Choice(["dev", "held"]),
    default="held",
    show_default=True,
    help="Whose sessions: the half that rules were developed on, or the other.",
)
@click.option("--jobs", type=click.IntRange(1), help="Processes; as many as there are cores by default.")
@click.option("--data", type=click.Path(path_type=Path), help="The traces; the checkout's by default.")
@click.option(
    "--markdown", "markdown_to", type=click.Path(path_type=Path, dir_okay=False), help="Write it here."
)
def truth_command(
    seeds: int, half: Half, jobs: int | None, data: Path | None, markdown_to: Path | None
) -> None:
    """Compare predicted with delivered cache hits where engines hold half of what they declare.

    Three indexes: unbounded, bounded by what engines declare, and corrected by what they deliver.
    """
    wanted = len(truth.CASES) * len(truth.INDEXES) * seeds
    runs_of = truth.play_all(truth.CASES, seeds, _data(data), half, jobs=jobs or os.cpu_count() or 1)
    try:
        with _progress() as progress:
            truths = list(progress.track(runs_of, total=wanted))
    except (TraceError, OSError) as error:
        raise _unusable(str(error)) from None
    Console(width=WIDTH, highlight=False).print(truth.table(truths))
    if markdown_to is not None:
        markdown_to.write_text(truth.markdown(truths))


def _progress() -> Progress:
    columns = (TextColumn("replaying"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)


def _chosen(plan: Path, pattern: str) -> Sequence[Cell]:
    try:
        cells = load_plan(plan)
    except PlanError as error:
        raise _unusable(str(error)) from None
    chosen = [cell for cell in cells if fnmatchcase(cell.name, pattern)]
    if not chosen:
        raise _unusable(
            f"no cell of {plan} has a name like {pattern!r}: {', '.join(cell.name for cell in cells)}"
        )
    return chosen


def _data(given: Path | None) -> Path:
    data = given or _BENCHMARKS / "data"
    if not data.is_dir():
        raise _unusable(
            f"no traces in {data}: they are in the repository's benchmarks/data, not in the package;"
            " check it out, or name the directory with --data"
        )
    return data


def _play(wanted: Sequence[Run], data: Path, jobs: int, out: Path | None) -> list[Result | ReplayError]:
    with _progress() as progress:
        return list(progress.track(replay(wanted, data, jobs=jobs, out=out), total=len(wanted)))


def _print(cells: Sequence[Cell], results: Sequence[Result], *, in_one_table: bool) -> None:
    console = Console(width=WIDTH, highlight=False)
    by_cell = report.by_cell(results)
    shown = [cell for cell in cells if cell.name in by_cell]
    if in_one_table and shown:
        console.print(report.side_by_side(shown, by_cell))
        return
    for cell in shown:
        console.print(report.cell_table(cell, by_cell[cell.name]))
    console.print(report.summary(report.compare(cells, by_cell)))


def _unusable(message: str) -> SystemExit:
    click.echo(message, err=True)
    return SystemExit(2)
