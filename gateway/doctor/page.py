"""The report as one HTML file that needs nothing else: it can be mailed, kept and opened years later.

Whatever came from the endpoint is escaped, and a policy in the page forbids all but its own style sheet.
"""

import base64
import hashlib
import json
from collections.abc import Iterator, Sequence
from html import escape
from importlib import resources

from gateway.doctor import figures, timeline, words
from gateway.doctor.report import Report
from gateway.doctor.seen import Round
from gateway.doctor.timeline import Lane, Phase
from gateway.doctor.verdict import Kind

MOST_LANES = 100
"""Bars of the figure; more only make the page long."""


def page(report: Report, made_at: str = "") -> str:
    """`made_at`: when it was measured, as it is to be read; nothing is said of it if empty."""
    style = resources.files("gateway.doctor").joinpath("page.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(style)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{_text(report.headline())}</title>\n<style>{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(_parts(report, made_at))
        + "\n</main>\n</body>\n</html>\n"
    )


def _policy(style: str) -> str:
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def _text(text: str) -> str:
    return escape(words.plain(text))


def _parts(report: Report, made_at: str) -> Iterator[str]:
    yield f"<h1>{_text(report.headline())}</h1>"
    subject = [words.subject(report), *([made_at] if made_at else [])]
    yield f'<p class="subject">{"<br>".join(map(_text, subject))}</p>'
    yield from _notes(report)
    yield from _facts(report)
    for sentence in (report.cost_sentence(), report.rate_sentence(), report.advice):
        if sentence:
            yield f"<p>{_text(sentence)}</p>"
    if report.round_shown is not None:
        yield from _staircase(report, report.round_shown)
    if report.points:
        yield from _curves(report)
    if report.verdict.why:
        yield "<h2>Why</h2>"
        yield "<ul>" + "".join(f"<li>{_text(it)}</li>" for it in report.verdict.why) + "</ul>"
    yield "<h2>What was asked</h2>"
    yield f"<p>Each request: {_text(words.request(report))}.</p>"
    yield "<details><summary>All figures as JSON</summary>"
    yield f"<pre>{escape(json.dumps(report.as_json(), indent=2))}</pre></details>"


def _notes(report: Report) -> Iterator[str]:
    notes = words.notes(report)
    if notes:
        yield '<div class="notes">' + "".join(f"<p>{_text(it)}</p>" for it in notes) + "</div>"


def _facts(report: Report) -> Iterator[str]:
    verdict = report.verdict
    told: list[tuple[str, str]] = []
    if verdict.kind is Kind.RATE:
        pace = f"{verdict.rate_per_s:.2g} requests/s" if verdict.rate_per_s else "a rate"
        told.append(("limit", pace))
    elif verdict.limit is not None:
        told.append(("run at once", str(verdict.limit)))
    elif verdict.tried and not verdict.client_bound:
        told.append(("limit", "none found"))
    if verdict.tried:
        told += [("most sent at once", str(verdict.tried)), ("confidence", f"{verdict.confidence:.0%}")]
    if verdict.limit is not None and report.waiting_share is not None and report.last is not None:
        of = "TTFT" if report.last.streamed else "time to the answer"
        told.append((f"of {of} is waiting, {report.last.wanted} at once", f"{report.waiting_share:.0%}"))
    if report.points:
        best = max(it.aggregate_tokens_per_s for it in report.points)
        told.append(("tokens/s at best, all streams", words.figure(best)))
    if told:
        cells = "".join(f"<div><dt>{_text(name)}</dt><dd>{_text(value)}</dd></div>" for name, value in told)
        yield f'<dl class="facts">{cells}</dl>'


def _staircase(report: Report, round_: Round) -> Iterator[str]:
    lanes = timeline.lanes(round_, timeline.limit_to_draw(report.verdict))
    shown, before_first = lanes[:MOST_LANES], words.before_first(report)
    yield f"<h2>{_text(words.drawn(round_))}</h2>"
    yield f"<figure>{_legend(shown, before_first)}{figures.staircase(shown, before_first=before_first)}"
    beside = "time to the first token" if round_.streamed else "time to the answer"
    said = f"A row for each request, in the order in which they began. Right: {beside}."
    if len(lanes) > len(shown):
        said += f" {len(lanes) - len(shown)} more are not drawn."
    yield f'<figcaption class="dim">{said}</figcaption></figure>'
    yield "<details><summary>The same as a table</summary>"
    yield _table(*_lane_table(shown, before_first)) + "</details>"


def _legend(lanes: Sequence[Lane], before_first: str) -> str:
    seen = {it.phase for lane in lanes for it in lane.spans}
    names = words.PHASES | {Phase.PREFILL: before_first}
    keys = "".join(f'<li class="{it.value}">{names[it]}</li>' for it in Phase if it in seen)
    return f'<ul class="legend">{keys}</ul>'


def _lane_table(lanes: Sequence[Lane], before_first: str) -> tuple[list[str], list[list[str]]]:
    seen = {it.phase for lane in lanes for it in lane.spans}
    names = words.PHASES | {Phase.PREFILL: before_first}
    phases = [it for it in Phase if it in seen]
    headings = ["request", *(f"{names[it]} s" for it in phases), "ended at s"]
    rows = [
        [str(place), *(f"{lane.length_s(it):.3f}" for it in phases), f"{lane.end_s:.3f}"]
        for place, lane in enumerate(lanes, 1)
    ]
    return headings, rows


def _curves(report: Report) -> Iterator[str]:
    limit, told = report.verdict.limit, words.curve(report)
    marks = [figures.Mark(it.concurrency, it.aggregate_tokens_per_s) for it in report.points]
    each = [
        figures.Mark(it.concurrency, it.stream_tokens_per_s)
        for it in report.points
        if it.stream_tokens_per_s is not None
    ]
    yield '<h2>What more streams give</h2><div class="pair">'
    yield "<figure><h3>All streams together <span>tokens/s</span></h3>" + figures.curve(
        marks, limit=limit, about="Tokens per second of all streams by requests at once"
    )
    yield "</figure>"
    if each:
        yield "<figure><h3>Each stream <span>tokens/s</span></h3>" + figures.curve(
            each,
            limit=limit,
            about="Tokens per second of one stream by requests at once",
            wanted=report.min_stream_rate,
        )
        yield "</figure>"
    yield "</div>" + _table(told.headings, told.rows, told.first_held)


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]], first_held: int | None = None) -> str:
    head = "".join(f'<th scope="col">{_text(it)}</th>' for it in headings)
    body = "".join(
        ('<tr class="held">' if first_held is not None and at >= first_held else "<tr>")
        + "".join(f"<td>{_text(it)}</td>" for it in row)
        + "</tr>"
        for at, row in enumerate(rows)
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="scroll" role="region" aria-label="table" tabindex="0">{table}</div>'
