"""What a hit is worth: how soon answers begin by the share of the prompt that was cached, the prefill that
was saved, and how many requests found room in the slot time that it would have taken."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping

from msgspec import Struct

from gateway.core.diagnosis import FEW_REQUESTS
from gateway.core.funnel import COLUMNS, Row

SHARES = ("0-25 %", "25-50 %", "50-75 %", "75-90 %", "90-100 %")
_BOUNDS = (0.25, 0.5, 0.75, 0.9)
_PROMPT, _DELIVERED = COLUMNS.index("prompt"), COLUMNS.index("delivered")

KEPT = 2000
"""Streams that are looked at, the latest, so that an old load is soon forgotten."""

LEAST_S = 300.0
"""A shorter time says nothing about an hour."""

Stream = tuple[Row, float]
"""A request and its TTFT in milliseconds, the wait in the gateway's queue included."""


class Begun(Struct, frozen=True):
    """How soon the latest streams of one share began. None where there was none."""

    share: str
    requests: int
    ttft_p50_ms: float | None
    ttft_p90_ms: float | None


def begun(streams: Iterable[Stream]) -> list[Begun]:
    """By the share of the prompt that was cached."""
    by_share: list[list[float]] = [[] for _ in SHARES]
    for row, ttft_ms in streams:
        prompt, delivered = row[_PROMPT], row[_DELIVERED]
        by_share[bisect_right(_BOUNDS, delivered / prompt if prompt else 0.0)].append(ttft_ms)
    return [
        Begun(share, len(ttfts_ms), _quantile(ttfts_ms, 0.5), _quantile(ttfts_ms, 0.9))
        for share, ttfts_ms in zip(SHARES, map(sorted, by_share), strict=True)
    ]


def _quantile(ordered: list[float], share: float) -> float | None:
    """The least that `share` of them do not exceed."""
    if not ordered:
        return None
    return round(ordered[max(0, -int(-share * len(ordered) // 1) - 1)], 1)


def saved_s(delivered: Mapping[str, int], rates: Mapping[str, float | None]) -> float | None:
    """Seconds of prefill that `delivered` tokens of each engine would have taken at its learned rate, in
    tokens/s. Engines without one are left out; None if none has one."""
    known = [tokens / rate for name, tokens in delivered.items() if (rate := rates.get(name))]
    return sum(known) if known else None


def gained_per_hour(requests: int, slot_s: float, saved: float | None, seconds: float) -> float | None:
    """Of `requests` in `seconds`, which held slots for `slot_s`, how many an hour there was room for only
    because `saved` seconds of prefill were not computed: in the same slot time there would have been
    requests x slot_s / (slot_s + saved). True where slots are the limit; what a prefill delays beside itself
    is not in it. None for fewer than 20 requests or 5 minutes: a rate of little is none."""
    if saved is None or slot_s <= 0 or requests < FEW_REQUESTS or seconds < LEAST_S:
        return None
    return requests * saved / (slot_s + saved) * 3600 / seconds
