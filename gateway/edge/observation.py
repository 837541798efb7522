"""Everything that is told of finished requests, and what the admin port shows of that."""

from collections.abc import Callable, Collection, Mapping
from typing import TextIO

from gateway.core.request import Record
from gateway.core.samples import Samples
from gateway.core.snapshot import Snapshot
from gateway.core.worked import Worked
from gateway.edge.accesslog import AccessLog
from gateway.edge.breakers import PrefixWatch
from gateway.edge.kvfeeds import KvFeeds
from gateway.edge.marks import Marks
from gateway.edge.metrics import Metrics
from gateway.edge.records import RecentRecords
from gateway.edge.views import Views, together


class Observation:
    """`ended` is the hot path: it puts the record away, `flush` does the work, several times a second."""

    def __init__(
        self,
        *,
        snapshot: Callable[[], Snapshot],
        known_models: Callable[[], Collection[str]],
        version: str,
        degraded: Callable[[], Mapping[str, bool | float]],
        reloaded: Callable[[], bool],
        timestamp: Callable[[], str],
        since: str,
        normalized: Callable[[], Mapping[str, int]],
        access_log: TextIO,
        access_log_format: str,
        kv_feeds: KvFeeds,
        clock: Callable[[], float],
        prefixes: PrefixWatch,
    ) -> None:
        self._kv_feeds = kv_feeds
        self.prefixes = prefixes
        self._degraded = degraded
        self._snapshot = snapshot
        self._clock = clock
        self._timestamp = timestamp
        self.records = RecentRecords()
        self.worked = Worked()
        self.samples = Samples()
        self.marks = Marks(
            self.samples,
            timestamp,
            since,
            engines=lambda: [it.name for it in snapshot().engines],
            models=known_models,
        )
        self.access = AccessLog(access_log, "json" if access_log_format == "json" else "text")
        self.metrics = Metrics(
            snapshot=snapshot,
            known_models=known_models,
            version=version,
            degraded=self._all_degraded,
            reloaded=reloaded,
            normalized=normalized,
            clock=clock,
            breaks=prefixes.kinds,
        )

    def ended(self, record: Record) -> None:
        self.metrics.observe(record)
        self.records.add(record)
        self.worked.ended(record)
        self.samples.ended(record)
        self.access.write(record)
        self.prefixes.sessions.ended(record)

    def flush(self) -> None:
        self.access.flush()
        self.worked.count()
        self.samples.count()
        self.metrics.count()
        self.prefixes.flush()

    def views(self) -> Views:
        """What the admin port shows beside its own."""
        pages = {"/api/kv-events": self._kv_feeds.shown, "/api/funnel": self._funnel_page}
        return together(self.marks.views(), self.prefixes.views(), Views(gets=pages))

    def funnel(self) -> Mapping[str, object]:
        """Since the start, for `/api/state`."""
        return self.metrics.funnel.state(self._snapshot(), self._clock())

    def _funnel_page(self, _query: Mapping[str, str]) -> object:
        return self.metrics.funnel.page(self._snapshot(), self._clock(), self._timestamp())

    def _all_degraded(self) -> Mapping[str, bool | float]:
        return {
            "access_log_lost": self.access.lost_lines > 0,
            "kv_events_lost": self._kv_feeds.are_degraded,
            **self._degraded(),
        }
