"""What Prometheus sees: counts kept as plain ints while requests run, read by a collector at a scrape.

prometheus_client's own counters and histograms cost 11 to 19 us for one request's worth of updates, a
third of what the whole relay may take, so they appear only when somebody scrapes.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.core.differ import KINDS
from gateway.core.engine import SlotSource
from gateway.core.funnel import WITHOUT, Row, row
from gateway.core.health import UP
from gateway.core.request import PRIORITY_NAMES, Outcome, Reason, Record
from gateway.core.snapshot import Snapshot
from gateway.edge.families import PREFIX as PREFIX
from gateway.edge.families import counter, engine_families, gauge, histogram_family, runs_less_than_told
from gateway.edge.funnel import Funnel, Tokens
from gateway.edge.histogram import Histogram
from gateway.wire.paths import APIS

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

OTHER = "other"
"""Label value for anything that is not from the configuration or an engine's own model list."""

NO_ENGINE = "none"
"""Engine label of requests that were never put on an engine."""

# Of the scheduler's reasons, a failed resend counts as the engine's error and is no refusal.
REJECT_REASONS = tuple(str(reason) for reason in Reason if reason is not Reason.ENGINE_UNREACHABLE)

STALE_REPORT_S = 10.0
"""An older load report of an engine that is up counts as a degradation."""

USAGE_MISSING_FIRST, USAGE_MISSING_LATER = 20, 100
"""So many ok requests in a row without cached tokens, from the start or after it once reported some."""

# OpenTelemetry's GenAI buckets for the time to first token, which end at 10 s, go on to 300 s here:
# a long prefill on a small GPU takes minutes.
TTFT_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
QUEUE_WAIT_BUCKETS_S = (0.001, 0.0025, *TTFT_BUCKETS_S)
REQUEST_BUCKETS_S = (
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    25.0,
    50.0,
    100.0,
    250.0,
    500.0,
    1000.0,
)
OVERHEAD_BUCKETS_S = (0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)

_BATCH = 64
"""So many finished requests are counted in one go, or fewer when somebody looks."""

_OK, _REJECTED = Outcome.OK, Outcome.REJECTED


class _Reports:
    """Whether one engine tells its cached tokens."""

    __slots__ = ("ever", "ok_since", "unknown")

    def __init__(self) -> None:
        self.unknown = self.ok_since = 0
        self.ever = False

    def is_missing(self) -> bool:
        return self.ok_since >= (USAGE_MISSING_LATER if self.ever else USAGE_MISSING_FIRST)


class _Cell:
    """All counts of one (engine, model, api); the last two are shared with its siblings."""

    __slots__ = ("has_tokens", "outcomes", "reports", "tokens")

    def __init__(self, tokens: Tokens, reports: _Reports, has_tokens: bool) -> None:
        self.outcomes: defaultdict[Outcome, int] = defaultdict(int)
        self.has_tokens = has_tokens
        self.tokens = tokens
        self.reports = reports


Key = tuple[str, str, str]
_APIS = frozenset(APIS)


class Metrics(Collector):
    """Every metric of the gateway in a registry of its own.

    `observe` is the hot path. `known_models` gives the model names that may become labels, `snapshot` the
    state that the gauges show (a removed engine's series end with it), `degraded` the degradations that
    other parts know of. All three are called from `render` and `degradations`, on the event loop.
    """

    def __init__(
        self,
        *,
        snapshot: Callable[[], Snapshot],
        known_models: Callable[[], Collection[str]],
        version: str,
        degraded: Callable[[], Mapping[str, bool | float]] = dict,
        reloaded: Callable[[], bool] = lambda: True,
        normalized: Callable[[], Mapping[str, int]] = dict,
        clock: Callable[[], float] = time.monotonic,
        breaks: Callable[[], Mapping[str, int]] = lambda: dict.fromkeys(KINDS, 0),
    ) -> None:
        self._breaks = breaks
        self._snapshot = snapshot
        self._known_models = known_models
        self._version = version
        self._degraded = degraded
        self._reloaded = reloaded
        self._normalized = normalized
        self._cells: dict[Key, _Cell] = {}
        self._found: dict[Key, _Cell] = {}
        self._clock = clock
        self._funnel = Funnel(clock())
        self._reports: dict[str, _Reports] = {}
        self._rejected = dict.fromkeys((*REJECT_REASONS, OTHER), 0)
        self._queue_wait = Histogram(QUEUE_WAIT_BUCKETS_S)
        self._ttft = Histogram(TTFT_BUCKETS_S)
        self._ttft_queue = Histogram(TTFT_BUCKETS_S)
        self._ttft_engine_queue = Histogram(TTFT_BUCKETS_S)
        self._ttft_prefill = Histogram(TTFT_BUCKETS_S)
        self._request = Histogram(REQUEST_BUCKETS_S)
        self._overhead = Histogram(OVERHEAD_BUCKETS_S)
        self._observed: list[tuple[_Cell, Record]] = []
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._process_registry = CollectorRegistry()
        ProcessCollector(registry=self._process_registry)
        PlatformCollector(registry=self._process_registry)
        GCCollector(registry=self._process_registry)

    def observe(self, record: Record) -> None:
        """Count one finished request, whose labels are those of now."""
        key = (record.engine, record.model, record.api)
        cell = self._found.get(key) or self._find(key)
        self._observed.append((cell, record))
        if len(self._observed) >= _BATCH:
            self._count()

    def _count(self) -> None:
        """All that has been observed: to be called before any count is read. A batch of them costs half as
        much as one at a time, with a request's other work between."""
        observed, self._observed = self._observed, []
        rows: defaultdict[tuple[Tokens, str, str], list[Row]] = defaultdict(list)
        began = self._funnel.began
        # Most often a request counts to where the one before it did, which is quicker to see than to look up.
        last_tokens: Tokens | None = None
        last_workload, last_key, append = "", "", list[Row]().append
        for cell, record in observed:
            outcome, queue_ms, ttft_ms = record.outcome, record.queue_ms, record.ttft_ms
            cell.outcomes[outcome] += 1
            if outcome is _REJECTED:
                self._rejected[record.code if record.code in self._rejected else OTHER] += 1
            # A request that neither waited nor got an engine was refused at the door: its zeros would only
            # make an overloaded gateway look fast.
            if record.engine or queue_ms > 0:
                self._queue_wait.observe(queue_ms / 1e3)
                self._request.observe(record.duration_ms / 1e3)
            if ttft_ms is not None:
                self._ttft.observe(ttft_ms / 1e3)
                self._ttft_queue.observe(queue_ms / 1e3)
                if record.engine_queue_ms is not None and record.prefill_ms is not None:
                    self._ttft_engine_queue.observe(record.engine_queue_ms / 1e3)
                    self._ttft_prefill.observe(record.prefill_ms / 1e3)
            if record.overhead_ms is not None:
                self._overhead.observe(record.overhead_ms / 1e3)
            if not (cell.has_tokens and record.width) or (counted := row(record)) is None:
                continue
            tokens, workload, key = cell.tokens, record.workload_class, record.key_name
            if tokens is not last_tokens or workload != last_workload or key != last_key:
                last_tokens, last_workload, last_key = tokens, workload, key
                append = rows[tokens, workload, key].append
            append(counted)
            reports = cell.reports
            if counted[0]:
                reports.ok_since, reports.ever = 0, True
                if ttft_ms is not None:
                    began((counted, ttft_ms))
            else:
                reports.unknown += 1
                reports.ok_since += 1
        if rows:
            self._funnel.count(rows, self._clock())

    def count(self) -> None:
        """All that has been observed, so that it counts to the time in which it was: to be called often."""
        if self._observed:
            self._count()

    @property
    def funnel(self) -> Funnel:
        """With all that has been observed."""
        self.count()
        return self._funnel

    def degradations(self) -> dict[str, bool | float]:
        """Every kind of degradation, also those that do not hold now."""
        self._count()
        return self._degradations(self._snapshot())

    def render(self) -> bytes:
        """The gateway's own metrics as text exposition; `CONTENT_TYPE` says which."""
        return generate_latest(self._registry)

    def render_process(self) -> bytes:
        """Memory, CPU, file descriptors and GC of this process, to be put after `render`.

        Apart and free of shared state, so that it can run in a thread: with 10 000 connections open,
        listing the process's file descriptors takes milliseconds.
        """
        return generate_latest(self._process_registry)

    def collect(self) -> Iterable[Metric]:
        self._count()
        snapshot = self._snapshot()
        # Models come and go with their engines, so names are looked up anew after each scrape.
        self._found.clear()
        yield gauge("build_info", "The running version; always 1.", ("version",), [((self._version,), 1)])
        yield from self._request_families({view.name for view in snapshot.engines})
        yield from self._funnel_families(snapshot)
        yield from self._histogram_families()
        # One that leaves may share its name with one that has come.
        engines = {view.name: view for view in reversed(snapshot.engines)}
        yield from engine_families(tuple(engines.values()))
        yield self._queue_depth(snapshot)
        breaks = [((kind,), count) for kind, count in self._breaks().items()]
        yield counter("prefix_breaks", "Requests whose prompt broke a prefix, by how.", ("kind",), breaks)
        spent = [((n,), seconds) for n, seconds in snapshot.concurrency_seconds.items()]
        spent_text = "Time spent at n requests in flight, or at fewer above the label before."
        yield counter("concurrency_seconds", spent_text, ("n",), spent)
        reload_text = "1 if the last reload of the configuration worked; 1 before the first."
        yield gauge("config_last_reload_success", reload_text, (), [((), self._reloaded())])
        rules = [((rule,), count) for rule, count in self._normalized().items()]
        yield counter("normalized_requests", "Bodies that a rule of normalize changed.", ("rule",), rules)
        kinds = [((kind,), float(value)) for kind, value in self._degradations(snapshot).items()]
        yield gauge("degraded", "1 while something runs below its promise.", ("kind",), kinds)

    def _find(self, key: Key) -> _Cell:
        engine, model, api = key
        is_known = model in self._known_models()
        label = (engine or NO_ENGINE, model if is_known else OTHER, api if api in _APIS else OTHER)
        cell = self._cells.get(label)
        if cell is None:
            tokens = self._funnel.tokens(*label[:2])
            reports = self._reports.setdefault(label[0], _Reports())
            cell = self._cells[label] = _Cell(tokens, reports, bool(engine) and api not in WITHOUT)
        # Only what cannot be made up by a client may be remembered.
        if is_known and api in _APIS:
            self._found[key] = cell
        return cell

    def _degradations(self, snapshot: Snapshot) -> dict[str, bool | float]:
        up = [view for view in snapshot.engines if view.health in UP]
        reports = (self._reports.get(view.name) for view in snapshot.engines)
        return {
            "metrics_stale": any((view.report_age_s or 0.0) > STALE_REPORT_S for view in up),
            "usage_missing": any(report is not None and report.is_missing() for report in reports),
            "slots_assumed": any(view.slots_source is SlotSource.ASSUMED for view in up),
            "cap_mismatch": any(map(runs_less_than_told, up)),
            **self._degraded(),
        }

    def _request_families(self, live: set[str]) -> Iterator[Metric]:
        samples = [
            ((*label, str(outcome)), count)
            for label, cell in self._cells.items()
            if label[0] in live or label[0] == NO_ENGINE
            for outcome, count in cell.outcomes.items()
        ]
        labels = ("engine", "model", "api", "outcome")
        yield counter("requests", "Finished requests.", labels, samples)
        rejected = [((reason,), count) for reason, count in self._rejected.items()]
        yield counter("rejected", "Requests that the gateway refused, by error code.", ("reason",), rejected)

    def _funnel_families(self, snapshot: Snapshot) -> Iterator[Metric]:
        live = {view.name for view in snapshot.engines}
        yield from self._funnel.families(live)
        unknown = [
            ((name,), self._reports[name].unknown if name in self._reports else 0) for name in sorted(live)
        ]
        text = "Requests that ended ok, cached tokens not reported: in no other funnel counter."
        yield counter("cached_tokens_unknown_requests", text, ("engine",), unknown)

    def _histogram_families(self) -> Iterator[Metric]:
        queue_text = "Time in the gateway's queue of requests that waited or got an engine."
        request_text = "From the request's arrival to its end, of requests that waited or got an engine."
        overhead_text = "Time that the gateway itself added to a request."
        yield histogram_family("queue_wait_seconds", queue_text, self._queue_wait)
        yield histogram_family("request_seconds", request_text, self._request)
        yield histogram_family("overhead_seconds", overhead_text, self._overhead)
        ttft_text = (
            "Time to the first token of streamed answers: in all, in the gateway's queue, in the engine's, "
            "and the rest. Neither of the last two where it is not known when a request had its slot."
        )
        ttft = HistogramMetricFamily(PREFIX + "ttft_seconds", ttft_text, labels=("part",))
        self._ttft.add_to(ttft, ("total",))
        self._ttft_queue.add_to(ttft, ("gateway_queue",))
        self._ttft_engine_queue.add_to(ttft, ("engine_queue",))
        self._ttft_prefill.add_to(ttft, ("prefill",))
        yield ttft

    def _queue_depth(self, snapshot: Snapshot) -> Metric:
        known = dict.fromkeys(self._known_models())
        depth = {(model, priority): 0 for model in known for priority in PRIORITY_NAMES}
        for waiting in snapshot.waiting:
            key = (waiting.model if waiting.model in known else OTHER, waiting.priority)
            depth[key] = depth.get(key, 0) + 1
        return gauge("queue_depth", "Requests waiting in the gateway.", ("model", "priority"), depth.items())
