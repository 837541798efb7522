"""What the gateway's figures have to reach beside its rivals', and whether they do."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from gateway.bench.relay.results import Results
from gateway.bench.relay.systems import GATEWAY, HAPROXY, ROUTERS, SGLANG


class Column(NamedTuple):
    """A figure as tables show it."""

    figure: str
    heading: str
    form: str
    more_is_better: bool


COLUMNS = (
    Column("json_rps", "json req/s", ",.0f", True),
    Column("burst_rps", "burst req/s", ",.0f", True),
    Column("paced_cpu_us_per_event", "paced CPU µs/event", ".1f", False),
    Column("long_rps", "long req/s", ",.0f", True),
    Column("long_p50_ms", "long p50 ms", ".2f", False),
    Column("upload_rps", "upload req/s", ",.0f", True),
    Column("alone_p50_us", "alone p50 µs", ",.0f", False),
    Column("alone_p99_us", "alone p99 µs", ",.0f", False),
    Column("memory_kb_per_stream", "idle stream KB", ".1f", False),
)
_BY_FIGURE = {column.figure: column for column in COLUMNS}


class Bar(NamedTuple):
    """A limit for one of our figures: `factor` times the best of `rivals`, plus `plus`; without rivals `plus`
    alone. `is_strict`: equal does not do."""

    figure: str
    rivals: Sequence[str]
    factor: float = 1.0
    plus: float = 0.0
    is_aim: bool = False
    is_strict: bool = False


BARS = (
    Bar("json_rps", ROUTERS, 2.0),
    Bar("json_rps", (HAPROXY,), 0.6, is_aim=True),
    Bar("burst_rps", ROUTERS, 4.0),
    Bar("burst_rps", (HAPROXY,), 0.4, is_aim=True),
    Bar("paced_cpu_us_per_event", (SGLANG,)),
    Bar("paced_cpu_us_per_event", (HAPROXY,), 1.3, is_aim=True),
    Bar("alone_p50_us", (SGLANG,), is_strict=True),
    Bar("alone_p50_us", (HAPROXY,), plus=60.0, is_aim=True),
    Bar("long_rps", (HAPROXY,), 0.85),
    Bar("long_rps", (HAPROXY,), 0.95, is_aim=True),
    Bar("memory_kb_per_stream", (), plus=20.0),
)
"""`is_aim`: to be reached in the end; the others are to be reached now."""


class Verdict(Struct, frozen=True, kw_only=True):
    """`rival` is the best one measured. What was not measured is None, and so is `reached` then."""

    bar: Bar
    ours: float | None
    rival: str | None
    theirs: float | None
    limit: float | None
    reached: bool | None

    @property
    def column(self) -> Column:
        return _BY_FIGURE[self.bar.figure]

    @property
    def ratio(self) -> float | None:
        return self.ours / self.theirs if self.ours is not None and self.theirs else None

    @property
    def wanted(self) -> str:
        """The bar in words, without the rival: `>= 2 x`, `<= + 60`, `<= 20`."""
        bar = self.bar
        sign = (">" if self.column.more_is_better else "<") + ("" if bar.is_strict else "=")
        if not bar.rivals:
            return f"{sign} {bar.plus:g}"
        return f"{sign} + {bar.plus:g}" if bar.plus else f"{sign} {bar.factor:g} x"


def verdicts(results: Results) -> list[Verdict]:
    """One for each bar whose figure belongs to what was measured of anybody."""
    measured = {name for sample in results.samples for name in sample.figures}
    return [_verdict(bar, results) for bar in BARS if bar.figure in measured]


def _verdict(bar: Bar, results: Results) -> Verdict:
    ours = results.median(GATEWAY, bar.figure)
    rival, theirs = _best(bar, results)
    limit = None
    if not bar.rivals:
        limit = bar.plus
    elif theirs is not None:
        limit = theirs * bar.factor + bar.plus
    reached = None if ours is None or limit is None else _is_reached(bar, ours, limit)
    return Verdict(bar=bar, ours=ours, rival=rival, theirs=theirs, limit=limit, reached=reached)


def _best(bar: Bar, results: Results) -> tuple[str | None, float | None]:
    found = [(value, name) for name in bar.rivals if (value := results.median(name, bar.figure)) is not None]
    if not found:
        return None, None
    value, name = max(found) if _BY_FIGURE[bar.figure].more_is_better else min(found)
    return name, value


def _is_reached(bar: Bar, ours: float, limit: float) -> bool:
    if bar.is_strict and ours == limit:
        return False
    return ours >= limit if _BY_FIGURE[bar.figure].more_is_better else ours <= limit
