"""`prefix-gateway bench relay`: finds or installs what is compared, measures, and tells."""

import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from gateway import __version__
from gateway.bench import plots as replay_plots
from gateway.bench.relay import environment, plots, proc, programs, report, results
from gateway.bench.relay.errors import RelayError
from gateway.bench.relay.processes import LOAD_CPU, PROXY_CPU
from gateway.bench.relay.results import Failure, Results
from gateway.bench.relay.run import Bench, Plan
from gateway.bench.relay.scenarios import SCENARIOS, allow_files
from gateway.bench.relay.systems import DIRECT, GATEWAY, HAPROXY, ROUTERS, SYSTEMS, System

WIDTH = 120
"""Fixed, so that the output is the same on a terminal, in a pipe and in a log."""

_LOOK_AROUND_S = 0.5


def _some_of(known: Sequence[str]) -> Callable[[click.Context, click.Parameter, str | None], tuple[str, ...]]:
    def chosen(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, ...]:
        names = tuple(known) if value is None else tuple(name.strip() for name in value.split(","))
        if unknown := [name for name in names if name not in known]:
            raise click.BadParameter(f"{unknown[0]!r} is none of {', '.join(known)}")
        return tuple(name for name in known if name in names)

    return chosen


@click.command("relay")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="Medians are of these.")
@click.option("--seconds", type=click.IntRange(1), default=4, show_default=True, help="Of load, each time.")
@click.option("--only", callback=_some_of(SYSTEMS), metavar="A,B", help="Only these systems; all by default.")
@click.option(
    "--scenarios", callback=_some_of(tuple(SCENARIOS)), metavar="A,B", help="Only these; all by default."
)
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="Write all figures as JSON here."
)
@click.option("--plots", "plots_to", type=click.Path(path_type=Path), help="Write a plot of added latency.")
@click.option(
    "--markdown",
    "markdown_to",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the tables here, as a section of a page.",
)
@click.option(
    "--env",
    "folder",
    type=click.Path(path_type=Path),
    help="Where the rivals from PyPI are installed, once; ~/.cache/prefix-gateway/rivals by default.",
)
def relay_command(
    rounds: int,
    seconds: int,
    only: tuple[str, ...],
    scenarios: tuple[str, ...],
    out: Path | None,
    plots_to: Path | None,
    markdown_to: Path | None,
    folder: Path | None,
) -> None:
    """Measure what relaying costs on one core: the gateway, HAProxy, sglang-router and vllm-router.

    The proxy runs on CPU 0, the load (wrk) and a mock engine on CPU 1. Prints the figures, then what the
    gateway has to reach and whether it does.
    """
    if plots_to is not None and "latency" not in scenarios:
        raise click.UsageError("--plots draws scenario latency: add it to --scenarios")
    if plots_to is not None and not replay_plots.is_installed():
        raise click.UsageError("--plots needs matplotlib: pip install 'prefix-gateway[bench]'")
    if "latency" in scenarios and DIRECT not in only:
        raise click.UsageError("scenario latency is told above direct's: add direct to --only")
    try:
        _must_fit()
        allow_files(scenarios)
        told = _measure(
            Plan((), scenarios, rounds, seconds), only, folder or environment.default_folder(), out
        )
    except (RelayError, OSError) as error:
        click.echo(f"cannot measure: {error}", err=True)
        raise SystemExit(2) from None
    Console(width=WIDTH, highlight=False).print(report.terminal(told))
    if plots_to is not None:
        plots.write(plots_to, told)
    if markdown_to is not None:
        markdown_to.write_text(report.markdown(told))
    if told.failures or told.bad(GATEWAY):
        raise SystemExit(1)


def _must_fit() -> None:
    """Raises RelayError where the measurement cannot be made."""
    if sys.platform != "linux":
        raise RelayError("CPU time and memory are read from /proc: this needs Linux")
    if not {PROXY_CPU, LOAD_CPU} <= (allowed := os.sched_getaffinity(0)):
        raise RelayError(
            f"it needs CPU {PROXY_CPU} and CPU {LOAD_CPU}, and this process may only use {sorted(allowed)}"
        )


def _measure(plan: Plan, only: Sequence[str], folder: Path, out: Path | None) -> Results:
    wrk = programs.find("wrk")
    if wrk is None:
        raise RelayError(programs.missing("wrk"))
    systems, skipped = _systems(only, folder)
    if not systems:
        raise RelayError("; ".join(skipped.values()))
    versions = {system.name: system.version for system in systems if system.version}
    told = Results(
        machine=results.this_machine(),
        versions=versions | {"wrk": programs.version(wrk)},
        rounds=plan.rounds,
        seconds=plan.seconds,
        scenarios=plan.scenarios,
        busy_cpus=proc.busy_cpus(_LOOK_AROUND_S),
        skipped=skipped,
    )
    for line in report.about(told):
        _tell(line)
    with tempfile.TemporaryDirectory(prefix="prefix-gateway-") as scratch, _ended_by_sigterm():
        _play(Bench(plan._replace(systems=systems), Path(scratch), wrk), told, len(systems), out)
    return told


def _play(bench: Bench, told: Results, systems: int, out: Path | None) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("measuring", total=told.rounds * systems * len(told.scenarios))
        for it in bench.play():
            if isinstance(it, Failure):
                told.failures.append(it)
                continue
            told.samples.append(it)
            progress.update(task, advance=1, description=f"{it.system} {it.scenario}")
            if out is not None:
                results.write(out, told)


def _systems(only: Sequence[str], folder: Path) -> tuple[list[System], dict[str, str]]:
    """What is there or could be installed, and why the others are not."""
    found: dict[str, System] = {}
    skipped: dict[str, str] = {}
    routers = [name for name in only if name in ROUTERS]
    if routers:
        _add_routers(routers, folder, found, skipped)
    for name in only:
        if name == HAPROXY:
            program = programs.find(name)
            if program is None:
                skipped[name] = programs.missing(name)
            else:
                found[name] = System(name=name, version=programs.version(program), program=program)
        elif name not in ROUTERS:
            found[name] = System(name=name, version=__version__ if name == GATEWAY else "")
    for why in skipped.values():
        _tell(f"left out: {why}")
    return [found[name] for name in only if name in found], skipped


def _add_routers(
    routers: Sequence[str], folder: Path, found: dict[str, System], skipped: dict[str, str]
) -> None:
    try:
        there = environment.ensure(folder, routers, tell=_tell)
    except RelayError as error:
        skipped.update(dict.fromkeys(routers, str(error)))
        return
    skipped.update(there.problems)
    for name, version in there.versions.items():
        found[name] = System(name=name, version=version, program=there.program("python"))


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Meanwhile SIGTERM unwinds, so that what was started is ended too."""

    def leave(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _tell(line: str) -> None:
    click.echo(line, err=True)
