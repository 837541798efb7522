"""The tables, as text cells that a terminal and Markdown both take."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from gateway.bench.relay.results import Results
from gateway.bench.relay.scenarios import CONCURRENCIES
from gateway.bench.relay.systems import DIRECT, GATEWAY
from gateway.bench.relay.targets import COLUMNS, Column, Verdict, verdicts

_NO_VALUE = "-"


class Grid(Struct, frozen=True, kw_only=True):
    """`bold`: numbers of the rows that are ours. `words`: how many columns from the left are text."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    bold: frozenset[int] = frozenset()
    words: int = 1


def grids(results: Results) -> Iterator[Grid]:
    """The figures, then our targets, then what each proxy adds to an answer's time."""
    yield _figures(results)
    if GATEWAY in results.systems and (judged := verdicts(results)):
        yield _targets(judged)
    if "latency" in results.scenarios:
        yield _latency(results)


def _figures(results: Results) -> Grid:
    columns = [it for it in COLUMNS if any(it.figure in sample.figures for sample in results.samples)]
    systems = results.systems
    return Grid(
        title="Relaying on one core",
        headings=["", *(column.heading for column in columns), "bad answers"],
        rows=[
            [
                system,
                *(_text(results.median(system, column.figure), column) for column in columns),
                f"{results.bad(system):,}",
            ]
            for system in systems
        ],
        bold=frozenset(row for row, system in enumerate(systems) if system == GATEWAY),
    )


def _targets(judged: Sequence[Verdict]) -> Grid:
    return Grid(
        title="The gateway's targets and aims",
        headings=["", "figure", "beside", "wanted", "is", "ours", "theirs", "limit", "reached"],
        rows=[_target(it) for it in judged],
        words=4,
    )


def _target(it: Verdict) -> list[str]:
    column = it.column
    beside = it.rival or " or ".join(it.bar.rivals)
    return [
        "aim" if it.bar.is_aim else "target",
        column.heading,
        beside or _NO_VALUE,
        it.wanted,
        _is(it),
        _text(it.ours, column),
        _text(it.theirs, column),
        _text(it.limit, column),
        "not measured" if it.reached is None else "yes" if it.reached else "no",
    ]


def _is(it: Verdict) -> str:
    if it.bar.plus and it.ours is not None and it.theirs is not None:
        return f"{it.ours - it.theirs:+.0f}"
    return _NO_VALUE if it.ratio is None else f"{it.ratio:.2f} x"


def _latency(results: Results) -> Grid:
    proxies = [system for system in results.systems if system != DIRECT]
    return Grid(
        title="Added to direct's p50, µs: p50 / p99",
        headings=["connections", *proxies],
        rows=[[str(count), *(_added(results, it, count) for it in proxies)] for count in CONCURRENCIES],
    )


def _added(results: Results, system: str, concurrency: int) -> str:
    values = [results.added_us(system, concurrency, percentile) for percentile in (50, 99)]
    return " / ".join(_NO_VALUE if value is None else f"{value:,.0f}" for value in values)


def _text(value: float | None, column: Column) -> str:
    return _NO_VALUE if value is None else f"{value:{column.form}}"
