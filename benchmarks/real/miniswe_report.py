"""What the rounds show: paired figures, their bootstrap interval, and a verdict."""

import json
import math
import random
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from msgspec import Struct, convert, to_builtins
from rich.console import Console
from rich.table import Table

DRAWS = 10_000
SEED = 1
COVERED = 0.95
MIN_ROUNDS = 4
"""With fewer rounds a resampling has too few different outcomes for an interval to mean anything."""

OURS = "gateway"

T = TypeVar("T")


class Figures(Struct, frozen=True, kw_only=True, tag="round", tag_field="kind"):
    """One round through one system, as it stands in the file.

    `hit_tokens` and `query_tokens` are the increase of each engine's own counters. `ttft_s` holds every
    request, a failed one with the request limit. `place` is the system's turn within the round.
    """

    run: str
    round: int
    place: int
    system: str
    blocks: int
    seqs: int
    hit_tokens: tuple[int, ...]
    query_tokens: tuple[int, ...]
    ttft_s: tuple[float, ...]
    errors: int
    wall_s: float

    @property
    def p50_s(self) -> float:
        return statistics.median(self.ttft_s)

    @property
    def p90_s(self) -> float:
        return statistics.quantiles(self.ttft_s, n=10, method="inclusive")[8]


Round = dict[str, Figures]
"""The systems' figures of one round: what is compared within a pair."""


class Comparison(Struct, frozen=True, kw_only=True):
    """`value` compares ours to `rival`, the best of the rivals in this metric; `low` to `high` covers 95 %.

    None where the rounds are too few for an interval.
    """

    metric: str
    rival: str
    value: float
    low: float | None
    high: float | None
    verdict: str


def encode(figures: Figures, details: dict[str, object]) -> str:
    """A line of the file: the figures, and what is kept beside them for people."""
    return json.dumps(to_builtins(figures) | details)


def read(lines: Iterable[str]) -> list[Figures]:
    """The rounds in a file; its other lines (the setting, marked by their `kind`) are passed over."""
    rows = [json.loads(line) for line in lines if line.strip()]
    return [convert(row, Figures) for row in rows if row["kind"] == "round"]


def paired(figures: Iterable[Figures]) -> dict[tuple[int, int], list[Round]]:
    """Complete rounds by configuration (blocks, seqs).

    A round that lacks one of the systems which the configuration has elsewhere is dropped: it is no pair.
    """
    rounds: dict[tuple[int, int], dict[tuple[str, int], Round]] = {}
    for row in figures:
        key = (row.blocks, row.seqs)
        rounds.setdefault(key, {}).setdefault((row.run, row.round), {})[row.system] = row
    return {
        key: [row for row in own.values() if row.keys() == set().union(*own.values())]
        for key, own in rounds.items()
    }


def hit_rate(rows: Iterable[Figures]) -> float:
    """A ratio of sums: by tokens, not by request or round."""
    listed = list(rows)
    queries = sum(sum(row.query_tokens) for row in listed)
    return sum(sum(row.hit_tokens) for row in listed) / queries if queries else 0.0


def geometric_mean(values: Iterable[float]) -> float:
    return math.exp(statistics.fmean(math.log(value) for value in values))


def compare(rounds: Sequence[Round]) -> list[Comparison]:
    """Ours against the best rival, by metric. The best rival is chosen anew in each draw, which costs us
    what choosing it after the fact would give us. Raises ValueError without ours or without a rival."""
    names = rounds[0].keys() if rounds else ()
    if OURS not in names or len(names) < 2:
        raise ValueError(f"comparing needs rounds of {OURS} and of one rival at least")
    return [
        _ratio("TTFT p50", rounds, lambda row: row.p50_s),
        _ratio("TTFT p90", rounds, lambda row: row.p90_s),
        _difference("hit rate", rounds),
    ]


def verdict(comparisons: Sequence[Comparison]) -> str:
    """Neither TTFT figure worse, one better, hit rate equal or better: better. Something worse: worse."""
    each = {it.metric: it.verdict for it in comparisons}
    if "too few rounds" in each.values():
        return "too few rounds"
    if "worse" in each.values():
        return "worse"
    return "better" if "better" in (each["TTFT p50"], each["TTFT p90"]) else "tie"


def interval(statistic: Callable[[Sequence[T]], float], rounds: Sequence[T]) -> tuple[float, float]:
    """Percentile bootstrap over whole rounds, seeded: the same file gives the same interval."""
    chance = random.Random(SEED)  # noqa: S311 - resampling, no secret
    drawn = sorted(statistic(chance.choices(rounds, k=len(rounds))) for _ in range(DRAWS))
    tail = (1 - COVERED) / 2
    return drawn[int(tail * DRAWS)], drawn[int((1 - tail) * DRAWS) - 1]


def _ratio(metric: str, rounds: Sequence[Round], figure: Callable[[Figures], float]) -> Comparison:
    logs = [{name: math.log(figure(row)) for name, row in own.items()} for own in rounds]

    def best(drawn: Sequence[dict[str, float]]) -> tuple[float, str]:
        return min((sum(own[name] for own in drawn), name) for name in drawn[0] if name != OURS)

    def ratio(drawn: Sequence[dict[str, float]]) -> float:
        return math.exp((sum(own[OURS] for own in drawn) - best(drawn)[0]) / len(drawn))

    return _comparison(metric, best(logs)[1], ratio, logs, neutral=1.0, less_is_better=True)


def _difference(metric: str, rounds: Sequence[Round]) -> Comparison:
    def best(drawn: Sequence[Round]) -> tuple[float, str]:
        return max((hit_rate(own[name] for own in drawn), name) for name in drawn[0] if name != OURS)

    def difference(drawn: Sequence[Round]) -> float:
        return hit_rate(own[OURS] for own in drawn) - best(drawn)[0]

    return _comparison(metric, best(rounds)[1], difference, rounds, neutral=0.0, less_is_better=False)


def _comparison(
    metric: str,
    rival: str,
    statistic: Callable[[Sequence[T]], float],
    rounds: Sequence[T],
    *,
    neutral: float,
    less_is_better: bool,
) -> Comparison:
    value = statistic(rounds)
    if len(rounds) < MIN_ROUNDS:
        return Comparison(
            metric=metric, rival=rival, value=value, low=None, high=None, verdict="too few rounds"
        )
    low, high = interval(statistic, rounds)
    below, above = ("better", "worse") if less_is_better else ("worse", "better")
    said = below if high < neutral else above if low > neutral else "tie"
    return Comparison(metric=metric, rival=rival, value=value, low=low, high=high, verdict=said)


def show(figures: Sequence[Figures], console: Console) -> None:
    """Prints one table per configuration, the comparisons under it."""
    for (blocks, seqs), rounds in paired(figures).items():
        title = f"{blocks} KV blocks, {seqs} sequences an engine, rounds: {len(rounds)}"
        console.print(_table(title, rounds))
        comparisons = compare(rounds)
        for it in comparisons:
            console.print(line(it), highlight=False)
        console.print(f"{OURS} against the best rival: {verdict(comparisons)}\n", highlight=False)


def line(it: Comparison) -> str:
    if it.metric == "hit rate":
        value, style, scale, against = f"{it.value * 100:+.1f} points", "+.1f", 100.0, "against"
    else:
        value, style, scale, against = f"{it.value:.2f} x", ".2f", 1.0, "of"
    ends = ""
    if it.low is not None and it.high is not None:
        ends = f" ({it.low * scale:{style}} to {it.high * scale:{style}})"
    return f"{it.metric}: {value}{ends} {against} {it.rival}: {it.verdict}"


def _table(title: str, rounds: Sequence[Round]) -> Table:
    table = Table(title=title, title_justify="left")
    for column in ("system", "hits %", "TTFT p50 s", "TTFT p90 s", "wall s", "tokens by engine %", "errors"):
        table.add_column(column, justify="left" if column == "system" else "right")
    for name in rounds[0] if rounds else ():
        rows = [own[name] for own in rounds]
        by_engine = [sum(queries) for queries in zip(*(row.query_tokens for row in rows), strict=True)]
        table.add_row(
            name,
            f"{hit_rate(rows) * 100:.1f}",
            f"{geometric_mean(row.p50_s for row in rows):.2f}",
            f"{geometric_mean(row.p90_s for row in rows):.2f}",
            f"{statistics.fmean(row.wall_s for row in rows):.1f}",
            " / ".join(f"{tokens / sum(by_engine) * 100:.0f}" for tokens in by_engine),
            str(sum(row.errors for row in rows)),
        )
    return table
