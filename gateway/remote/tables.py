"""Answers of the admin port for a terminal: the sentence first, then the figures."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gateway.core.compare_words import duration, percent

_Told = Mapping[str, Any]
_Shown = Callable[[float], str]

UNKNOWN = "unknown"


def decision(told: _Told) -> RenderableType:
    """What `/api/explain` told. Raises `KeyError`, `TypeError` or `ValueError` where it is something else."""
    return Group(*_decision(told))


def comparison(told: _Told) -> RenderableType:
    """What `/api/compare` told; raises as `decision` does."""
    return Group(*_comparison(told))


def _decision(told: _Told) -> Iterator[RenderableType]:
    yield _text(told["sentence"], "bold")
    route = f", route {told['route']}" if told["route"] else ""
    waiting = f", {told['queued_before']} wait already" if told["queued_before"] else ""
    yield _text(f"{told['api']}, model {told['model'] or '-'}, policy {told['policy']}{route}{waiting}")
    if told["engines"]:
        yield Text()
        yield _engines(told["engines"])
        yield Text()
        yield from (_text(f"{it['engine']}: {it['why']}") for it in told["engines"])
    if told["not_considered"]:
        yield Text()
        yield Text("Not considered", "bold")
        yield from (_text(f"{name}: {why}") for name, why in told["not_considered"].items())


def _engines(engines: list[_Told]) -> Table:
    headings = ["free", "holds", "pending", "to compute", "wait", "ahead", "prefill", "first token"]
    table = _table(["", "engine"], [*headings, "again", "cost"])
    for it in sorted(engines, key=lambda it: (not it["chosen"], it["score"])):
        table.add_row(
            ">" if it["chosen"] else "",
            *_cells(
                it["engine"],
                f"{it['free_slots']} of {it['slots']}",
                f"{it['predicted_cached_tokens']:,}",
                f"{it['pending_tokens']:,}",
                f"{it['uncached_tokens']:,}",
                *(
                    _seconds(it[name])
                    for name in ("wait_s", "prefill_ahead_s", "own_prefill_s", "predicted_s")
                ),
                f"{it['again_s']:.2f}",
                f"{it['score']:.2f}",
            ),
            style="bold" if it["chosen"] else "",
        )
    return table


def _comparison(told: _Told) -> Iterator[RenderableType]:
    for mark in told["marks"]:
        yield _text(f"{mark['mark']}  {mark['at']}  {mark['text']}", "bold")
    yield _text(told["sentence"])
    if told["across_requests"]:
        yield _text(_across(told["across_requests"], [it["mark"] for it in told["marks"]]))
    yield Text()
    yield _sides(told["before"], told["after"], told["changes"])
    if len(told["classes"]) > 1:
        yield Text()
        yield _classes(told["classes"])


def _across(requests: int, marks: list[str]) -> str:
    """What is between marks of one change ran across none of them."""
    where = "across it" if len(marks) == 1 else f"across it or between {marks[0]} and {marks[-1]}"
    ran, are = ("request ran", "is") if requests == 1 else ("requests ran", "are")
    return f"{requests:,} {ran} {where} and {are} on neither side."


def _sides(before: _Told, after: _Told, changes: _Told) -> Table:
    table = _table([""], ["before", "95 %", "after", "95 %", "change", "at one mix"])
    for name, shown, field in (
        ("hit rate", percent, "hit_rate"),
        ("TTFT p50", duration, "ttft_p50_ms"),
        ("TTFT p90", duration, "ttft_p90_ms"),
        ("computed tokens per request", _tokens, "prefill_tokens_per_request"),
    ):
        estimates = (_estimate(before, field), _estimate(after, field))
        values = [text for it in estimates for text in (_value(it["value"], shown), _ends(it, shown))]
        of = _points if shown is percent else shown
        moved = [_signed(changes[field][which]["value"], of) for which in ("all", "same_mix")]
        table.add_row(*_cells(name, *values, *moved))
    both = (before, after)
    for name, counts in (
        ("requests", [it["requests"] for it in both]),
        ("sessions", [it["sessions"] for it in both]),
        ("prompt tokens", [it["prompt_tokens"] for it in both]),
        ("computed tokens", [it["prefill_tokens"]["total"] for it in both]),
        ("not reported", [it["unknown_requests"] for it in both]),
        ("failed or left", [it["failed_requests"] for it in both]),
        ("seconds", [round(it["seconds"]) for it in both]),
    ):
        table.add_row(*_cells(name, _value(counts[0], _tokens), "", _value(counts[1], _tokens)))
    return table


def _classes(classes: Mapping[str, _Told]) -> Table:
    headings = ["requests", "hit rate", "TTFT p50", "TTFT p90", "computed/request"]
    table = _table(["class"], headings)
    for name, pair in classes.items():
        both = (pair["before"], pair["after"])
        table.add_row(
            *_cells(
                name,
                " -> ".join(f"{it['requests']:,}" for it in both),
                *(
                    " -> ".join(_value(_estimate(it, field)["value"], shown) for it in both)
                    for field, shown in (
                        ("hit_rate", percent),
                        ("ttft_p50_ms", duration),
                        ("ttft_p90_ms", duration),
                        ("prefill_tokens_per_request", _tokens),
                    )
                ),
            )
        )
    return table


def _estimate(figures: _Told, field: str) -> _Told:
    found: _Told = (
        figures["prefill_tokens"]["per_request"] if field == "prefill_tokens_per_request" else figures[field]
    )
    return found


def _table(left: list[str], right: list[str]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for heading in left:
        table.add_column(Text(heading))
    for heading in right:
        table.add_column(Text(heading), justify="right")
    return table


def _cells(*texts: str) -> list[Text]:
    return [_text(it) for it in texts]


def _text(text: str, style: str = "") -> Text:
    """Names may hold anything, also what a terminal would obey."""
    return Text("".join(char if char.isprintable() else "?" for char in text), style)


def _value(value: float | None, shown: _Shown) -> str:
    return UNKNOWN if value is None else shown(value)


def _ends(estimate: _Told, shown: _Shown) -> str:
    """An end that is not known is left open."""
    low, high = estimate["low"], estimate["high"]
    if low is None and high is None:
        return ""
    return " to ".join("?" if it is None else shown(it) for it in (low, high))


def _signed(value: float | None, shown: _Shown) -> str:
    if value is None:
        return ""
    return f"{'-' if value < 0 else '+'}{shown(abs(value))}"


def _points(share: float) -> str:
    return f"{share * 100:.1f} points"


def _tokens(tokens: float) -> str:
    return f"{tokens:,.0f}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s"
