"""The report for a terminal: one line that says it all, then why, then figures and the drawn round."""

from collections.abc import Iterable, Iterator
from itertools import groupby

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gateway.doctor import timeline, words
from gateway.doctor.report import Report
from gateway.doctor.seen import Round
from gateway.doctor.timeline import Drawing, Phase, Row

_GLYPHS = {
    Phase.ABSENT: " ",
    Phase.WAITING: "·",
    Phase.PREFILL: "▒",
    Phase.DECODING: "█",
    Phase.RUNNING: "█",
    Phase.FAILED: "x",
}
_ASCII = {
    Phase.ABSENT: " ",
    Phase.WAITING: ".",
    Phase.PREFILL: "+",
    Phase.DECODING: "#",
    Phase.RUNNING: "#",
    Phase.FAILED: "x",
}
_STYLES = {
    Phase.ABSENT: "",
    Phase.WAITING: "yellow",
    Phase.PREFILL: "cyan",
    Phase.DECODING: "blue",
    Phase.RUNNING: "blue",
    Phase.FAILED: "red",
}

_LABEL = 4
_NOTE = 9
_LEAST_COLUMNS = 10
_MOST_COLUMNS = 100
"""A wider drawing shows nothing more and is harder to follow from left to right."""


def render(report: Report) -> RenderableType:
    """For `Console.print`; fits whatever width and encoding that has."""
    return _Ascii(Group(*_parts(report)))


def _parts(report: Report) -> Iterator[RenderableType]:
    yield _text(report.headline(), "bold")
    for sentence in (report.cost_sentence(), report.rate_sentence(), report.advice):
        if sentence:
            yield _text(sentence)
    for note in words.notes(report):
        yield _text(note, "yellow")
    if report.points:
        yield from _heading("Streams at once")
        yield _curve(report)
    round_ = report.round_shown
    if round_ is not None:
        yield Text()
        yield _Timeline(round_, timeline.limit_to_draw(report.verdict), words.before_first(report))
    if report.verdict.why:
        yield from _heading("Why")
        yield from (_item(it) for it in report.verdict.why)
    yield from _heading("What was asked")
    yield _item(words.subject(report))
    yield _item(f"each request: {words.request(report)}")


def _text(text: str, style: str = "") -> Text:
    return Text(words.plain(text), style)


def _heading(text: str) -> Iterator[Text]:
    yield Text()
    yield Text(text, "bold")


def _item(text: str) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    table.add_row(Text(" -"), _text(text))
    return table


def _curve(report: Report) -> RenderableType:
    told = words.curve(report)
    table = Table(box=None, padding=(0, 0, 0, 2), header_style="dim")
    for heading in told.headings:
        table.add_column(Text(heading), justify="right")
    for at, row in enumerate(told.rows):
        beyond = told.first_held is not None and at >= told.first_held
        table.add_row(*(Text(it) for it in row), style="yellow" if beyond else "")
    return Padding(table, (0, 0, 0, 0), expand=False)


class _Timeline:
    """Drawn when the width is known."""

    def __init__(self, round_: Round, limit: int | None, before_first: str) -> None:
        self._round = round_
        self._limit = limit
        self._before_first = before_first

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        ascii_only = options.ascii_only
        glyphs = _ASCII if ascii_only else _GLYPHS
        room = options.max_width - _LABEL - _NOTE - 1
        width = max(_LEAST_COLUMNS, min(_MOST_COLUMNS, room))
        drawing = timeline.rows(self._round, self._limit, width)
        title = words.drawn(self._round)
        right = f"{words.of_times(self._round):>{_LABEL + width + 1 + _NOTE - len(title)}}"
        yield _line(Text.assemble((title, "bold"), (right, "dim")))
        for row in drawing.rows:
            yield _row(row, glyphs)
        for line in timeline.axis(drawing.span_s, width, ascii_only=ascii_only):
            yield _line(Text(" " * _LABEL + line, "dim"))
        left_out = timeline.left_out(drawing, timeline.lanes(self._round, self._limit))
        if left_out:
            yield Text(" " * _LABEL + left_out)
        yield self._legend(drawing, glyphs)

    def _legend(self, drawing: Drawing, glyphs: dict[Phase, str]) -> Text:
        parts = [
            Text.assemble((glyphs[it] * 2, _STYLES[it]), f" {self._name(it, drawing)}")
            for it in drawing.phases
            if it is not Phase.ABSENT
        ]
        return Text(" " * _LABEL).append(Text("   ").join(parts))

    def _name(self, phase: Phase, drawing: Drawing) -> str:
        if phase is not Phase.PREFILL:
            return words.PHASES[phase]
        usual_s = drawing.usual_prefill_s
        about = f" (about {timeline.seconds(usual_s)})" if usual_s is not None else ""
        return self._before_first + about


def _row(row: Row, glyphs: dict[Phase, str]) -> Text:
    line = Text(f"{row.place:>{_LABEL - 1}} ")
    for phase, length in _runs(row.cells):
        line.append(glyphs[phase] * length, _STYLES[phase])
    return _line(line.append(f" {row.note:>{_NOTE}}"))


def _line(text: Text) -> Text:
    """Cut off rather than folded: half a row in the next line would be read as a row."""
    text.no_wrap = True
    text.overflow = "crop"
    return text


def _runs(cells: Iterable[Phase]) -> Iterator[tuple[Phase, int]]:
    return ((phase, len(list(same))) for phase, same in groupby(cells))


class _Ascii:
    """Where the output cannot show every character, those it cannot are replaced instead of breaking it."""

    def __init__(self, inside: RenderableType) -> None:
        self._inside = inside

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if not options.ascii_only:
            yield self._inside
            return
        for segment in console.render(self._inside, options):
            yield segment._replace(text=segment.text.encode("ascii", "replace").decode())
