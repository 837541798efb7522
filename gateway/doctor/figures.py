"""The page's figures as SVG: a round in time, and what more streams give.

Across, all is in per cent of a width that the page decides, so that text keeps its size on a phone; down, in
pixels. Labels stand outside the box, in the margin that `page.css` leaves. No text of the endpoint gets here.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import log2

from msgspec import Struct

from gateway.doctor import words
from gateway.doctor.timeline import Lane, Phase, seconds, ticks

_ROW_PX = 16
_LOW_ROW_PX = 9
_MANY_ROWS = 32
_LABEL_EVERY = 5
"""Of low rows so many share a number."""

_THIN = 0.3
"""A waiting bar's height as a share of a running one's: so they differ without colour too."""

_LEAST_WIDE = 0.15
"""Per cent: what is shorter would not be seen at all."""

_PLOT_PX = 170
_EDGE = 8.0
"""Per cent left and right of the first and last point."""

_APART = 11.0
_TICKS_APART = 7.0
"""Per cent between two labels, so that they do not touch on a phone."""


class Mark(Struct, frozen=True):
    """A value at a number of requests at once."""

    at: int
    value: float


def staircase(lanes: Sequence[Lane], *, before_first: str) -> str:
    """A bar for each lane, from the first request on. At least one lane."""
    row_px = _ROW_PX if len(lanes) <= _MANY_ROWS else _LOW_ROW_PX
    span_s = max(it.end_s for it in lanes) or 1e-9
    height = row_px * len(lanes)
    parts = [_across(at_s / span_s * 100, height, f"{at_s:g} s") for at_s in ticks(span_s, 5)]
    for row, lane in enumerate(lanes):
        parts.append(_lane(row, lane, span_s, row_px, before_first))
    waited = sum(it.length_s(Phase.WAITING) > 0 for it in lanes)
    about = f"{len(lanes)} requests over {seconds(span_s)}; {waited} of them waited before they began"
    return _svg("staircase", height, about, parts)


def _lane(row: int, lane: Lane, span_s: float, row_px: int, before_first: str) -> str:
    top, high = row * row_px + 1, row_px - 2
    middle = top + high / 2
    bars = []
    for it in lane.spans:
        tall = high * _THIN if it.phase is Phase.WAITING else high
        left, wide = it.start_s / span_s * 100, max(_LEAST_WIDE, it.length_s / span_s * 100)
        bars.append(
            f'<rect class="{it.phase.value}" x="{left:.3f}%" y="{middle - tall / 2:.1f}" '
            f'width="{wide:.3f}%" height="{tall:.1f}"/>'
        )
    every = 1 if row_px == _ROW_PX else _LABEL_EVERY
    label = note = ""
    if row == 0 or (row + 1) % every == 0:
        label = f'<text class="place" x="-8" y="{middle + 4:.1f}">{row + 1}</text>'
        said = lane.failed or seconds(lane.until_first_s)
        note = f'<text class="note" x="100%" dx="8" y="{middle + 4:.1f}">{said}</text>'
    title = f"<title>{row + 1}: {lane_words(lane, before_first)}</title>"
    hover = f'<rect class="hover" x="0" y="{top - 1}" width="100%" height="{row_px}"/>'
    return f"<g>{title}{hover}{''.join(bars)}{label}{note}</g>"


def lane_words(lane: Lane, before_first: str) -> str:
    if lane.failed:
        return f"no answer ({lane.failed}) after {seconds(lane.end_s)}"
    names = words.PHASES | {Phase.PREFILL: before_first}
    return ", ".join(f"{names[it.phase]} {seconds(it.length_s)}" for it in lane.spans)


def curve(marks: Sequence[Mark], *, limit: int | None, about: str, wanted: float | None = None) -> str:
    """Values against requests at once, on a log scale. At least one mark. `wanted`: a value to hold them
    against."""
    top = max([it.value for it in marks] + ([wanted] if wanted else [])) * 1.15 or 1.0
    lines = [_level(value, top, f"{value:g}") for value in ticks(top, 5)]
    if wanted:
        lines.append(_wanted(wanted, top, below=marks[-1].value >= wanted))
    if limit is not None and marks[0].at <= limit <= marks[-1].at and len(marks) > 1:
        lines.append(_limit(_place(limit, marks), limit))
    lines += _ticks_below(marks)
    lines += _line(marks, top)
    lines += _dots(marks, top)
    return _svg("curve", _PLOT_PX, about, lines)


def _place(at: float, marks: Sequence[Mark]) -> float:
    """Per cent from the left."""
    low, high = log2(marks[0].at), log2(marks[-1].at)
    if high <= low:
        return 50.0
    return _EDGE + (100 - 2 * _EDGE) * (log2(at) - low) / (high - low)


def _down(value: float, top: float) -> float:
    return _PLOT_PX * (1 - value / top)


def _level(value: float, top: float, text: str) -> str:
    y = _down(value, top)
    return (
        f'<line class="grid" x1="0" x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text class="place" x="-8" y="{y + 4:.1f}">{text}</text>'
    )


def _wanted(value: float, top: float, *, below: bool) -> str:
    """`below`: on which side of the line its name does not meet the last value."""
    y = _down(value, top)
    return (
        f'<line class="wanted" x1="0" x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text class="end" x="100%" y="{y + 14 if below else y - 6:.1f}">{value:g} wanted</text>'
    )


def _limit(x: float, limit: int) -> str:
    return (
        f'<line class="limit" x1="{x:.2f}%" x2="{x:.2f}%" y1="-4" y2="{_PLOT_PX}"/>'
        f'<text class="middle strong" x="{x:.2f}%" y="-12">limit {limit}</text>'
    )


def _line(marks: Sequence[Mark], top: float) -> Iterator[str]:
    for before, after in pairwise(marks):
        yield (
            f'<line class="value" x1="{_place(before.at, marks):.2f}%" y1="{_down(before.value, top):.1f}" '
            f'x2="{_place(after.at, marks):.2f}%" y2="{_down(after.value, top):.1f}"/>'
        )


def _dots(marks: Sequence[Mark], top: float) -> Iterator[str]:
    told = _apart(marks, _APART)
    for it, after in zip(marks, (*marks[1:], marks[-1]), strict=True):
        x, y = _place(it.at, marks), _down(it.value, top)
        said = words.figure(it.value)
        yield f'<circle class="dot" cx="{x:.2f}%" cy="{y:.1f}" r="4"><title>{it.at}: {said}</title></circle>'
        if it in told:
            aside = _aside(it.value, after.value, top)
            yield f'<text class="middle halo" x="{x:.2f}%" dx="{aside}" y="{y - 9:.1f}">{said}</text>'


def _aside(value: float, after: float, top: float) -> int:
    """Pixels by which a label goes out of the way of a line that rises or falls from its point."""
    if abs(after - value) < 0.05 * top:
        return 0
    return -8 if after > value else 8


def _ticks_below(marks: Sequence[Mark]) -> Iterator[str]:
    for it in _apart(marks, _TICKS_APART):
        yield f'<text class="middle dim" x="{_place(it.at, marks):.2f}%" y="{_PLOT_PX + 18}">{it.at}</text>'
    yield f'<text class="middle dim" x="50%" y="{_PLOT_PX + 36}">requests at once (log scale)</text>'


def _apart(marks: Sequence[Mark], least: float) -> list[Mark]:
    """Those that can be labelled without touching; the last always."""
    kept = [marks[-1]]
    for it in reversed(marks[:-1]):
        if _place(kept[-1].at, marks) - _place(it.at, marks) >= least:
            kept.append(it)
    return kept[::-1]


def _across(x: float, height: int, text: str) -> str:
    return (
        f'<line class="grid" x1="{x:.3f}%" x2="{x:.3f}%" y1="0" y2="{height + 4}"/>'
        f'<text class="middle dim" x="{x:.3f}%" y="{height + 20}">{text}</text>'
    )


def _svg(kind: str, height: int, about: str, parts: Sequence[str]) -> str:
    return f'<svg class="{kind}" role="img" aria-label="{about}" height="{height}">{"".join(parts)}</svg>'
