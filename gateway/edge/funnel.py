"""The funnel of prompt tokens: counted for `/metrics` and by time, engine, model, class and key, and the page
`/api/funnel`. What is counted, and the rules, are those of `core/funnel.py`."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec.structs import asdict
from prometheus_client.core import Metric

from gateway.core.diagnosis import FEW_REQUESTS, sentence
from gateway.core.funnel import COLUMNS, NOTHING, REASONS, Figures, Row, Sums, figures, plus, summed
from gateway.core.snapshot import Snapshot
from gateway.core.timestamps import iso
from gateway.core.windows import WINDOWS, Series
from gateway.core.worth import KEPT, Stream, begun, gained_per_hour, saved_s
from gateway.edge.families import counter
from gateway.engines.registry import DIALECTS

NO_KEY = "none"
"""In place of a key's name where requests came without."""

_HOUR_S = 3600.0

_REQUESTS, _DELIVERED, _UNKNOWN = map(COLUMNS.index, ("requests", "delivered", "unknown"))

_FAMILIES = (
    ("prompt_tokens", "prompt", "Prompt tokens of requests whose engine reported its cached tokens."),
    ("cached_tokens_infinite", "infinite", "Of these, what a cache without bounds would have had."),
    ("cached_tokens_best", "best", "Of these, the most that any engine was expected to hold."),
    ("cached_tokens_predicted", "predicted", "Of these, what the chosen engine was expected to hold."),
    ("cached_tokens_delivered", "delivered", "Of these, what the engine reported as served from its cache."),
)


class Tokens:
    """All tokens of one (engine, model), which are labels of metrics."""

    __slots__ = ("engine", "model", "sums")

    def __init__(self, engine: str, model: str) -> None:
        self.engine, self.model = engine, model
        self.sums: Sums = NOTHING


Rows = Mapping[tuple[Tokens, str, str], Sequence[Row]]
"""Requests in `core.funnel.COLUMNS`, by where they count: with their class and the name of their key."""


class Funnel:
    """Bounded: names come from the configuration and the engines' models; what is beyond is `other`. `began`
    takes each stream whose engine reported."""

    def __init__(self, now: float) -> None:
        self._streams: deque[Stream] = deque(maxlen=KEPT)
        self.began = self._streams.append
        self._since = now
        self._series = Series()
        self._tokens: dict[tuple[str, str], Tokens] = {}

    def tokens(self, engine: str, model: str) -> Tokens:
        return self._tokens.setdefault((engine, model), Tokens(engine, model))

    def count(self, rows: Rows, now: float) -> None:
        for (tokens, workload_class, key), its_rows in rows.items():
            sums = summed(its_rows)
            tokens.sums = plus(tokens.sums, sums)
            self._series.add((tokens.engine, tokens.model, workload_class, key or NO_KEY), sums, now)

    def total(self) -> Figures:
        return figures(self._series.overall.total)

    def families(self, live: set[str]) -> Iterator[Metric]:
        """By engine and model of those that are `live`; losses of all."""
        shown = [(label, tokens.sums) for label, tokens in self._tokens.items() if label[0] in live]
        for name, column, text in _FAMILIES:
            at = COLUMNS.index(column)
            yield counter(name, text, ("engine", "model"), [(label, sums[at]) for label, sums in shown])
        lost = self.total().lost
        text = "Prompt tokens that did not come from cache, by why not: prompt - delivered, exactly."
        samples = [((reason,), getattr(lost, reason)) for reason in REASONS]
        yield counter("prefix_loss_tokens", text, ("reason",), samples)

    # For the admin port

    def state(self, snapshot: Snapshot, now: float) -> dict[str, object]:
        return {**asdict(self.total()), "sentence": self.sentence(snapshot, now)}

    def sentence(self, snapshot: Snapshot, now: float) -> str:
        """On the last hour if enough came in it, else on all."""
        recent, when = figures(self._series.overall.hour(now)), "in the last hour"
        if recent.requests < FEW_REQUESTS:
            recent, when = self.total(), "since the start"
        return sentence(recent, when, self.unknown_engines(snapshot, now))

    def unknown_engines(self, snapshot: Snapshot, now: float) -> dict[str, str]:
        """Engines none of whose answers told cached tokens, and what to switch on: of the last hour, or since
        the start where nothing came in it."""
        out = {}
        for view in snapshot.engines:
            windows = self._series.by["engine"].get(view.name)
            if windows is None:
                continue
            hour = windows.hour(now)
            sums = hour if any(hour) else windows.total
            if sums[_UNKNOWN] and not sums[_REQUESTS] and view.kind in DIALECTS:
                out[view.name] = DIALECTS[view.kind].cached_setting
        return out

    def page(self, snapshot: Snapshot, now: float, timestamp: str) -> dict[str, object]:
        """`/api/funnel`. `timestamp` is the time of day at `now`, ISO 8601."""
        return {
            "windows": _shown(self._series.overall.sums(now)),
            "by": {
                label: {name: _shown(windows.sums(now)) for name, windows in by_name.items()}
                for label, by_name in self._series.by.items()
            },
            "worth": self._worth(snapshot, now),
            "sentence": self.sentence(snapshot, now),
            "unknown_engines": self.unknown_engines(snapshot, now),
            "series": self._steps(now, datetime.fromisoformat(timestamp)),
        }

    def _worth(self, snapshot: Snapshot, now: float) -> dict[str, object]:
        rates = {view.name: view.prefill_tokens_per_s for view in snapshot.engines}
        delivered: dict[str, dict[str, int]] = {name: {} for name in WINDOWS}
        for engine, windows in self._series.by["engine"].items():
            for window, sums in windows.sums(now).items():
                if sums[_REQUESTS]:
                    delivered[window][engine] = sums[_DELIVERED]
        saved = {window: saved_s(by_engine, rates) for window, by_engine in delivered.items()}
        hour = self._series.overall.hour(now)
        seconds, slot_s = min(_HOUR_S, now - self._since), hour[COLUMNS.index("slot_ms")] / 1000
        return {
            "ttft_by_cached_share": begun(self._streams),
            "prefill_seconds_saved": {
                window: None if it is None else round(it, 3) for window, it in saved.items()
            },
            "requests_per_hour_gained": gained_per_hour(hour[_REQUESTS], slot_s, saved["1h"], seconds),
        }

    def _steps(self, now: float, wall: datetime) -> list[dict[str, object]]:
        names = COLUMNS[: _DELIVERED + 1]
        out: list[dict[str, object]] = []
        for start, seconds, sums in self._series.overall.steps(self._since, now):
            at = iso(wall + timedelta(seconds=start - now))
            counts = dict(zip(names, sums, strict=False))
            out.append({"at": at, "seconds": round(seconds, 3), **counts})
        return out


def _shown(sums: Mapping[str, Sums]) -> dict[str, Figures]:
    return {window: figures(it) for window, it in sums.items()}
