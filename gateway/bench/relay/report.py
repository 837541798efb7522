"""A measurement told on a terminal and as a section of Markdown."""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gateway.bench.relay.grids import Grid, grids
from gateway.bench.relay.results import Results
from gateway.bench.relay.scenarios import SCENARIOS
from gateway.bench.relay.systems import SYSTEMS


def terminal(results: Results) -> RenderableType:
    parts: list[RenderableType] = [Text(line) for line in (*about(results), "")]
    parts += [_table(grid) for grid in grids(results)]
    parts += [Text(f"! {line}", style="red") for line in results.troubles()]
    return Group(*parts)


def markdown(results: Results) -> str:
    """Headings begin at the third level: it is to stand in a page."""
    lines = [f"- {line}" for line in about(results)]
    for grid in grids(results):
        lines += ["", f"### {grid.title}", "", *_markdown_rows(grid)]
    if troubles := results.troubles():
        lines += ["", "### Not as it should be", "", *(f"- {line}" for line in troubles)]
    lines += ["", *(f"- `{name}`: {SCENARIOS[name].says}" for name in results.scenarios)]
    return "\n".join(lines) + "\n"


def about(results: Results) -> list[str]:
    """Where and with what it was measured."""
    versions = sorted(results.versions.items(), key=lambda it: (*SYSTEMS, it[0]).index(it[0]))
    return [
        str(results.machine),
        ", ".join(f"{name} {version}" for name, version in versions),
        f"each system on a core of its own, load and mock engine on another; rounds: {results.rounds},"
        f" load: {results.seconds} s each",
    ]


def _table(grid: Grid) -> Table:
    table = Table(title=grid.title, title_justify="left")
    for number, heading in enumerate(grid.headings):
        is_text = number < grid.words
        table.add_column(heading, justify="left" if is_text else "right", no_wrap=is_text)
    for number, row in enumerate(grid.rows):
        table.add_row(*row, style="bold" if number in grid.bold else None)
    return table


def _markdown_rows(grid: Grid) -> Iterator[str]:
    yield _row(grid.headings)
    yield "|" + "".join("---|" if number < grid.words else "--:|" for number in range(len(grid.headings)))
    for number, row in enumerate(grid.rows):
        yield _row([f"**{cell}**" for cell in row] if number in grid.bold else row)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
