"""Families of metrics: how one is made, and what is shown of each engine."""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from gateway.core.health import UP
from gateway.core.snapshot import EngineView
from gateway.edge.histogram import Histogram

PREFIX = "prefix_gateway_"


def runs_less_than_told(view: EngineView) -> bool:
    """Whether what is sent to it waits inside, as its cap says more than it runs at once."""
    runs = view.inferred_cap
    return not view.slots_source.is_soft and runs is not None and runs < view.slots


_ENGINE_GAUGES: tuple[tuple[str, str, Callable[[EngineView], float | None]], ...] = (
    ("in_flight", "Width of the leases held.", lambda view: view.in_flight),
    ("slots_cooling", "Slots whose client left and whose engine is still busy.", lambda view: view.cooling),
    ("engine_up", "1 while the engine takes requests (ready or busy).", lambda view: view.health in UP),
    ("engine_running", "Sequences running, by the engine's own count.", lambda view: view.running),
    ("engine_waiting", "Sequences waiting inside the engine, by its own count.", lambda view: view.waiting),
    ("engine_inferred_cap", "What it was found to run at once.", lambda view: view.inferred_cap),
    ("engine_kv_usage", "Share of the KV memory in use, 0 to 1.", lambda view: view.kv_usage),
    ("engine_prefill_tokens_per_second", "Learned prefill rate.", lambda view: view.prefill_tokens_per_s),
    ("engine_decode_tokens_per_second", "Learned decode rate.", lambda view: view.decode_tokens_per_s),
    (
        "engine_foreign_running",
        "Sequences that the engine runs for someone else.",
        lambda view: None if view.running is None else view.foreign,
    ),
)


def engine_families(engines: tuple[EngineView, ...]) -> Iterator[Metric]:
    for name, text, read in _ENGINE_GAUGES:
        values = [((view.name,), value) for view in engines if (value := read(view)) is not None]
        yield gauge(name, text, ("engine",), values)
    slots = [((view.name, str(view.slots_source)), view.slots) for view in engines]
    yield gauge("slots", "The engine's cap and where it came from.", ("engine", "source"), slots)
    idle = [((view.name,), view.slot_idle_while_waiting_s) for view in engines]
    idle_text = "Time that a slot stood free while a request that would be put there waited."
    yield counter("slot_idle_while_waiting_seconds", idle_text, ("engine",), idle)


Samples = Iterable[tuple[tuple[str, ...], float]]


def gauge(name: str, text: str, labels: tuple[str, ...], samples: Samples) -> Metric:
    family = GaugeMetricFamily(PREFIX + name, text, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def counter(name: str, text: str, labels: tuple[str, ...], samples: Samples) -> Metric:
    family = CounterMetricFamily(PREFIX + name, text, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def histogram_family(name: str, text: str, histogram: Histogram) -> Metric:
    family = HistogramMetricFamily(PREFIX + name, text, labels=())
    histogram.add_to(family)
    return family
