"""What the demo shows: a line for each request, the two runs side by side, and whether it went well."""

import math
from collections.abc import Sequence

from msgspec import Struct
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gateway.demo.agents import Played

WIDTH = 80
"""Fixed, so that the output is the same on a terminal, in a pipe and in a log."""

LEVEL = 0.05
"""Figures of two runs that differ by less than this part are called level: they vary by that much."""

HEADER = "agent turn  engine        queue ms   TTFT s  predicted  delivered  prompt tokens"
NO_VALUE = "-"


class Summary(Struct, frozen=True, kw_only=True):
    """One run in figures. Token sums and the hit rate cover the requests whose engine reported them.

    `hit_rate` is token-weighted: cached tokens / prompt tokens, a ratio of sums. TTFT in seconds.
    """

    requests: int
    ok: int
    unreported: int
    prompt_tokens: int
    cached_tokens: int
    predicted_tokens: int | None
    hit_rate: float | None
    first_ttft_s: tuple[float, ...]
    later_ttft_s: tuple[float, ...]
    wall_s: float

    @property
    def computed_tokens(self) -> int:
        return self.prompt_tokens - self.cached_tokens


def line(played: Played) -> str:
    """One request under `HEADER`."""
    head = f"{played.agent:5d} {played.turn:4d}  {played.engine or NO_VALUE:12s}"
    if played.error:
        return f"{head}  failed: {played.error}"
    return (
        f"{head} {_number(played.queue_ms):>9s} {_seconds(played.ttft_s):>8s}"
        f" {_number(played.predicted_tokens):>10s} {_number(played.cached_tokens):>10s}"
        f" {_number(played.prompt_tokens):>14s}"
    )


def summarise(turns: Sequence[Played], wall_s: float) -> Summary:
    ok = [it for it in turns if not it.error]
    told = [
        (it.prompt_tokens, it.cached_tokens)
        for it in ok
        if it.prompt_tokens is not None and it.cached_tokens is not None
    ]
    prompt = sum(prompt for prompt, _ in told)
    cached = sum(cached for _, cached in told)
    predicted = [it.predicted_tokens for it in ok if it.predicted_tokens is not None]
    return Summary(
        requests=len(turns),
        ok=len(ok),
        unreported=len(ok) - len(told),
        prompt_tokens=prompt,
        cached_tokens=cached,
        predicted_tokens=sum(predicted) if predicted else None,
        hit_rate=cached / prompt if prompt else None,
        first_ttft_s=tuple(it.ttft_s for it in ok if it.turn == 1 and it.ttft_s is not None),
        later_ttft_s=tuple(it.ttft_s for it in ok if it.turn > 1 and it.ttft_s is not None),
        wall_s=wall_s,
    )


def problems(gateway: Sequence[Played], round_robin: Sequence[Played]) -> list[str]:
    """Why the demo did not succeed; empty if every request did and all later turns hit the cache.

    Only the gateway's run has to hit: the other one is there to compare with.
    """
    found = [
        f"agent {it.agent} turn {it.turn} ({how}): {it.error}"
        for how, turns in (("gateway", gateway), ("round robin", round_robin))
        for it in turns
        if it.error
    ]
    for it in gateway:
        if it.error or it.turn == 1:
            continue
        if it.cached_tokens is None:
            found.append(f"agent {it.agent} turn {it.turn}: the engine did not report cached tokens")
        elif it.cached_tokens == 0:
            found.append(f"agent {it.agent} turn {it.turn}: nothing came from the cache")
    if not gateway:
        found.append("no request was sent")
    return found


def percentile(values: Sequence[float], percent: float) -> float | None:
    """Nearest rank: always one of the values."""
    if not values:
        return None
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]


def rows(gateway: Summary, round_robin: Summary) -> list[tuple[str, str, str]]:
    both = (gateway, round_robin)
    table = [
        ("requests that succeeded", *(f"{it.ok} of {it.requests}" for it in both)),
        ("prompt tokens from cache (hit rate)", *(_percent(it.hit_rate) for it in both)),
        ("prompt tokens computed", *(f"{it.computed_tokens:,}" for it in both)),
        ("cached tokens predicted", *(_number(it.predicted_tokens) for it in both)),
        ("cached tokens delivered", *(f"{it.cached_tokens:,}" for it in both)),
        ("TTFT of first turns, p50 / p90", *(_percentiles(it.first_ttft_s) for it in both)),
        ("TTFT of later turns, p50 / p90", *(_percentiles(it.later_ttft_s) for it in both)),
        ("whole conversation", *(f"{it.wall_s:.1f} s" for it in both)),
    ]
    if any(it.unreported for it in both):
        table.append(("requests without reported tokens", *(str(it.unreported) for it in both)))
    return [(name, left, right) for name, left, right in table]


def verdict(gateway: Summary, round_robin: Summary) -> str:
    """Who did better at what; either side may."""
    if gateway.ok < gateway.requests or round_robin.ok < round_robin.requests:
        return "Not every request succeeded, so the two runs cannot be compared."
    measures = (
        ("prompt tokens computed", gateway.computed_tokens, round_robin.computed_tokens, ""),
        *(
            (f"{word} TTFT of {name} turns", percentile(mine, share), percentile(other, share), " s")
            for name, mine, other in (
                ("first", gateway.first_ttft_s, round_robin.first_ttft_s),
                ("later", gateway.later_ttft_s, round_robin.later_ttft_s),
            )
            for word, share in (("median", 50), ("p90", 90))
        ),
        ("time for the whole conversation", gateway.wall_s, round_robin.wall_s, " s"),
    )
    won, lost, level = [], [], []
    for name, mine, other, unit in measures:
        if mine is None or other is None:
            continue
        text = f"{name} ({_plain(mine, unit)} against {_plain(other, unit)})"
        if abs(mine - other) <= LEVEL * max(mine, other):
            level.append(name)
        elif mine < other:
            won.append(text)
        else:
            lost.append(f"{name} ({_plain(other, unit)} against {_plain(mine, unit)})")
    said = [
        f"{who}: {', '.join(what)}."
        for who, what in (
            ("The gateway did better at", won),
            ("Round robin did better at", lost),
            ("Level, within 5 %", level),
        )
        if what
    ]
    return " ".join(said) or "There is nothing to compare."


def render(gateway: Summary, round_robin: Summary, console: Console) -> None:
    table = Table(width=WIDTH, title="The same conversation twice", title_justify="left")
    table.add_column("")
    table.add_column("gateway", justify="right", no_wrap=True)
    table.add_column("round robin", justify="right", no_wrap=True)
    for row in rows(gateway, round_robin):
        table.add_row(*row)
    console.print(table)
    console.print(Text(verdict(gateway, round_robin)))


def console() -> Console:
    """Plain text of fixed width, whatever stdout is."""
    return Console(width=WIDTH, highlight=False, no_color=True, force_terminal=False, legacy_windows=False)


def _number(value: float | None) -> str:
    return NO_VALUE if value is None else f"{value:,.0f}"


def _seconds(value: float | None) -> str:
    return NO_VALUE if value is None else f"{value:.2f}"


def _percent(value: float | None) -> str:
    return NO_VALUE if value is None else f"{100 * value:.1f} %"


def _percentiles(values: Sequence[float]) -> str:
    middle, high = percentile(values, 50), percentile(values, 90)
    return NO_VALUE if middle is None or high is None else f"{middle:.2f} / {high:.2f} s"


def _plain(value: float, unit: str) -> str:
    return f"{value:,.2f}{unit}" if unit else f"{value:,.0f}"
