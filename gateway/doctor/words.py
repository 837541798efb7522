"""What the text and the page both say of a report, beside its sentences."""

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from gateway.doctor.cost import Point
from gateway.doctor.overlap import running_at_once
from gateway.doctor.report import Report
from gateway.doctor.seen import Role, Round, Stream
from gateway.doctor.timeline import Phase
from gateway.doctor.verdict import Kind

OWN_LAG_S = 0.1
"""From here on the doctor's own loop may have moved what it measured."""

NO_VALUE = "-"

PHASES = {
    Phase.WAITING: "waiting",
    Phase.PREFILL: "prefill",
    Phase.DECODING: "decoding",
    Phase.RUNNING: "running, answer in one piece",
    Phase.FAILED: "no answer",
}


class Table(Struct, frozen=True):
    """`first_held`: the first row in which not all ran at once, None where all always did."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    first_held: int | None


def plain(text: str) -> str:
    """What came from the endpoint, without what a terminal takes for commands or a page for another order."""
    return "".join(it if it.isprintable() else "\N{REPLACEMENT CHARACTER}" for it in text)


def curve(report: Report) -> Table:
    """The rounds of equal requests: times to the first token, to the whole answer where it was not seen."""
    points, limit = report.points, report.verdict.limit
    with_first = any(it.ttft_p50_s is not None for it in points)
    with_whole = any(it.ttft_p50_s is None for it in points)
    headings = ["at once", "ran", "tok/s", "per stream"]
    if with_first:
        headings += ["TTFT p50 ms", "max ms"]
    if with_whole:
        headings += ["answer p50 ms", "max ms"]
    ramp = {it.wanted: it for it in report.findings.of(Role.RAMP) if it.answered}
    rows = tuple(
        _row(point, ramp[point.concurrency], with_first=with_first, with_whole=with_whole) for point in points
    )
    held = (at for at, it in enumerate(points) if limit is not None and it.concurrency > limit)
    return Table(tuple(headings), rows, next(held, None))


def _row(point: Point, round_: Round, *, with_first: bool, with_whole: bool) -> tuple[str, ...]:
    ran = running_at_once(round_)
    cells = [str(point.concurrency), NO_VALUE if ran is None else str(ran)]
    cells += [figure(point.aggregate_tokens_per_s), figure(point.stream_tokens_per_s)]
    if with_first:
        cells += [_ms(point.ttft_p50_s), _ms(point.ttft_max_s)]
    if with_whole:
        cells += [_ms(point.answer_p50_s), _ms(point.answer_max_s)]
    return tuple(cells)


def figure(value: float | None) -> str:
    """To three digits: 8.46, 12.8, 150."""
    if value is None:
        return NO_VALUE
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def _ms(value_s: float | None) -> str:
    return NO_VALUE if value_s is None else f"{value_s * 1000:.0f}"


def request(report: Report) -> str:
    """What one request of the curve was."""
    asked = report.as_json()["request"]
    said = f"{asked['prompt_tokens']} prompt tokens, {asked['output_tokens']} output tokens"
    if report.last is None:
        return said
    return f"{said}, {'streamed' if asked['streams'] else 'answered in one piece'}"


def subject(report: Report) -> str:
    """The model and where it is."""
    return plain(f"{report.findings.model} at {report.findings.url}")


def drawn(round_: Round) -> str:
    return f"{round_.wanted} equal requests sent at once"


def of_times(round_: Round) -> str:
    """What the times beside a drawn round are."""
    return "TTFT" if round_.streamed else "answer"


def before_first(report: Report) -> str:
    """What the time before a first token is, where it is no waiting for a slot."""
    verdict = report.verdict
    return "prefill" if verdict.limit is not None or verdict.kind is Kind.RATE else "before its first token"


def notes(report: Report) -> list[str]:
    """What makes the figures doubtful, or incomplete."""
    findings = report.findings
    said = []
    if findings.interrupted:
        said.append(f"Not complete: {plain(findings.interrupted).rstrip('.')}.")
    lag_s = max((it.lag_s for it in findings.rounds), default=0.0)
    if lag_s > OWN_LAG_S:
        said.append(
            f"The doctor's own process stood still for up to {lag_s * 1000:.0f} ms: times are that uncertain."
        )
    streams = [it for round_ in findings.rounds for it in round_.streams]
    refused = sum(it.is_refused for it in streams)
    if refused:
        said.append(f"{refused} of {len(streams)} requests were refused (429, 503 or 529).")
    failed = [it for it in streams if not it.is_ok and not it.is_refused]
    if failed:
        said.append(f"{len(failed)} of {len(streams)} requests failed: {_reasons(failed)}.")
    return said


def _reasons(failed: Sequence[Stream]) -> str:
    """The most frequent ones."""
    counted = Counter(_reason(it) for it in failed)
    most = counted.most_common(3)
    return "; ".join(f"{why} ({count})" for why, count in most) + ("; others" if len(counted) > 3 else "")


def _reason(stream: Stream) -> str:
    status = f"status {stream.status}" if stream.status not in (0, 200) else ""
    error = plain(stream.error).rstrip(".")
    return ", ".join(it for it in (status, error) if it) or "no answer"
