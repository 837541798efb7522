"""A round drawn in time: when each request waited, had its prompt computed, and was answered.

Nobody outside the engine sees when a prefill begins. Those who did not wait show how long one takes, so that
long before the first token it is taken for prefill, and what is before that for waiting. Pure functions.
"""

from collections.abc import Sequence
from enum import StrEnum
from math import floor, log10

from msgspec import Struct

from gateway.doctor import cost
from gateway.doctor.seen import Round, Stream
from gateway.doctor.verdict import Kind, Verdict

MOST_ROWS = 40
"""About what fits on a screen; the staircase of any limit shows in as many."""


class Phase(StrEnum):
    """RUNNING: prefill and decoding, where the answer came in one piece and they cannot be told apart."""

    ABSENT = "absent"
    WAITING = "waiting"
    PREFILL = "prefill"
    DECODING = "decoding"
    RUNNING = "running"
    FAILED = "failed"


class Span(Struct, frozen=True):
    """Seconds since the first request of the round was sent."""

    phase: Phase
    start_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        return self.end_s - self.start_s


class Lane(Struct, frozen=True):
    """One request: its spans without gaps. `failed` says why it has no answer."""

    spans: tuple[Span, ...]
    failed: str = ""

    @property
    def begun_s(self) -> float:
        """When it stopped waiting."""
        return next((it.start_s for it in self.spans if it.phase is not Phase.WAITING), self.end_s)

    @property
    def end_s(self) -> float:
        return self.spans[-1].end_s

    @property
    def until_first_s(self) -> float:
        """From sent to the first token; to the end where that was not seen."""
        return self.end_s - self.length_s(Phase.DECODING) - self.spans[0].start_s

    def length_s(self, phase: Phase) -> float:
        return sum(it.length_s for it in self.spans if it.phase is phase)


class Row(Struct, frozen=True):
    """A lane in columns of equal time. `note`: its time to the first token, or why it failed."""

    place: int
    cells: tuple[Phase, ...]
    note: str


class Drawing(Struct, frozen=True):
    """`span_s`: how long all columns are together. `left_out`: how many lanes were too many."""

    rows: tuple[Row, ...]
    span_s: float
    left_out: int
    usual_prefill_s: float | None
    phases: tuple[Phase, ...]


def limit_to_draw(verdict: Verdict) -> int | None:
    """By how many requests of a round to tell what a start takes without waiting; None where nobody waited.

    A limiter holds back all but the first.
    """
    return 1 if verdict.kind is Kind.RATE else verdict.limit


def lanes(round_: Round, limit: int | None) -> list[Lane]:
    """In the order in which they began; those without an answer last."""
    zero = min((it.sent_at for it in round_.streams), default=0.0)
    answered = round_.answered
    usual_s = cost.unqueued_s(round_, limit) if answered and limit is not None else None
    drawn = [_lane(it, zero, usual_s, streamed=round_.streamed) for it in answered]
    failed = [_failed(it, zero) for it in round_.streams if not it.is_ok]
    return sorted(drawn, key=lambda it: (it.begun_s, it.end_s)) + failed


def _lane(stream: Stream, zero: float, usual_s: float | None, *, streamed: bool) -> Lane:
    sent, ended = stream.sent_at, stream.ended_at
    first = stream.first_at if streamed and stream.first_at is not None else None
    known = ended if first is None else first
    begun = sent if usual_s is None else max(sent, known - usual_s)
    ends = [(Phase.WAITING, sent, begun)]
    if first is None:
        ends.append((Phase.RUNNING, begun, ended))
    else:
        ends += [(Phase.PREFILL, begun, first), (Phase.DECODING, first, ended)]
    spans = tuple(Span(phase, start - zero, end - zero) for phase, start, end in ends if end > start)
    return Lane(spans or (Span(Phase.RUNNING, sent - zero, ended - zero),))


def _failed(stream: Stream, zero: float) -> Lane:
    why = f"{stream.status}" if stream.status not in (0, 200) else "failed"
    return Lane((Span(Phase.FAILED, stream.sent_at - zero, stream.ended_at - zero),), why)


def rows(round_: Round, limit: int | None, width: int) -> Drawing:
    """`width` columns of time for at most `MOST_ROWS` lanes."""
    all_lanes = lanes(round_, limit)
    shown = all_lanes[:MOST_ROWS]
    span_s = max((it.end_s for it in shown), default=0.0)
    seen = {it.phase for lane in shown for it in lane.spans}
    usual_s = cost.unqueued_s(round_, limit) if Phase.PREFILL in seen and limit is not None else None
    return Drawing(
        rows=tuple(
            Row(place, _cells(it, span_s, width), it.failed or seconds(it.until_first_s))
            for place, it in enumerate(shown, 1)
        ),
        span_s=span_s,
        left_out=len(all_lanes) - len(shown),
        usual_prefill_s=usual_s,
        phases=tuple(it for it in Phase if it in seen),
    )


def _cells(lane: Lane, span_s: float, width: int) -> tuple[Phase, ...]:
    column_s = span_s / width
    if column_s <= 0:
        return (lane.spans[-1].phase,) * width
    cells = [_most_of(lane, at * column_s, (at + 1) * column_s) for at in range(width)]
    last = lane.spans[-1]
    if last.phase not in cells:
        # Shorter than half a column, but a row without its answer would look as if it had none.
        cells[min(width - 1, int(last.start_s / column_s))] = last.phase
    return tuple(cells)


def _most_of(lane: Lane, start_s: float, end_s: float) -> Phase:
    """The phase that fills most of a column; absent counts too."""
    inside = {Phase.ABSENT: end_s - start_s}
    for it in lane.spans:
        part = max(0.0, min(end_s, it.end_s) - max(start_s, it.start_s))
        inside[it.phase] = inside.get(it.phase, 0.0) + part
        inside[Phase.ABSENT] -= part
    return max(inside, key=inside.__getitem__)


def ticks(span: float, most: int) -> list[float]:
    """From 0 at steps of 1, 2 or 5 times a power of ten, at most `most` + 1 of them, none above `span`."""
    if span <= 0:
        return [0.0]
    least = span / most
    power = 10.0 ** floor(log10(least))
    step = next(it * power for it in (1, 2, 5, 10) if it * power >= least * (1 - 1e-9))
    return [step * at for at in range(int(span / step + 1e-9) + 1)]


def axis(span_s: float, width: int, *, ascii_only: bool = False) -> tuple[str, str]:
    """Two lines to stand under the cells: the marks, and what they say."""
    line, mark = ("-", "+") if ascii_only else ("─", "┬")
    marks, labels = [line] * width, [" "] * (width + 4)
    for at_s in ticks(span_s, max(1, min(8, width // 8))):
        column = min(width - 1, int(at_s / span_s * width)) if span_s > 0 else 0
        marks[column] = mark
        text = f"{at_s:g}"
        left = max(0, min(column - (len(text) - 1) // 2, len(labels) - len(text)))
        labels[left : left + len(text)] = text
    return "".join(marks), "".join(labels).rstrip() + " s"


def seconds(value_s: float) -> str:
    """With a unit, to two or three digits."""
    if value_s < 0.00995:
        return f"{value_s * 1000:.1f} ms"
    if value_s < 0.9995:
        return f"{value_s * 1000:.0f} ms"
    if value_s < 9.995:
        return f"{value_s:.2f} s"
    return f"{value_s:.1f} s" if value_s < 99.95 else f"{value_s:.0f} s"


def left_out(drawing: Drawing, lanes_: Sequence[Lane]) -> str:
    """What is said of the lanes that are not drawn; empty where all are."""
    if not drawing.left_out:
        return ""
    ended_s = max(it.end_s for it in lanes_)
    return f"{drawing.left_out} more began after these and had all ended at {seconds(ended_s)}"
