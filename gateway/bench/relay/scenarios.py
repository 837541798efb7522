"""What is measured, and how. Each scenario gives figures under fixed names, with their unit at the end."""

import asyncio
import resource
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from gateway.bench.relay import proc, prompts, streams
from gateway.bench.relay.engine import EVENTS_BESIDE_CONTENT, Manner
from gateway.bench.relay.errors import RelayError
from gateway.bench.relay.processes import LOAD_CPU, pinned
from gateway.bench.relay.wrk import Load, Wrk

BURST = Manner(events=32)
PACED = Manner(events=50, gap_s=0.01)
HELD = Manner(hold=True)
KEEPING = Manner(keep=True)

CONNECTIONS = 16
LONG_CONNECTIONS = 4
"""A 400 KB prompt is some milliseconds of work: four are enough to keep one core busy."""

PACED_STREAMS = 200
PACED_EXTRA_S = 2
"""A paced stream lasts half a second: those cut off at the end must not weigh."""

CONCURRENCIES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
IDLE_STREAMS = 2000
WARM_UP_S = 1

SLOTS = 1024
IDLE_SLOTS = 4096
"""Nothing may wait for a slot: a proxy is measured, no queue."""

_SETTLE_S = 1.0

Figures = dict[str, float]


class Loads:
    """wrk with each of the three bodies."""

    def __init__(self, program: str, folder: Path) -> None:
        self.json = Wrk(program, folder / "json.lua", prompts.short(stream=False))
        self.burst = Wrk(program, folder / "burst.lua", prompts.short(stream=True))
        self.long = Wrk(program, folder / "long.lua", prompts.long())


class Target(NamedTuple):
    """What listens on `port`: a proxy with this `pid`, or, without one, the engine itself."""

    port: int
    pid: int | None
    loads: Loads
    seconds: int


class Measured(NamedTuple):
    figures: Figures
    answers: int
    bad: int


class Scenario(NamedTuple):
    """`is_of_proxies`: there is nothing to measure without one. `files`: how many a proxy may have to open,
    two sockets for each stream among them."""

    manner: Manner
    measure: Callable[[Target], Measured]
    says: str
    is_of_proxies: bool = False
    slots: int = SLOTS
    files: int = 1024


def _measured(figures: Figures, *loads: Load) -> Measured:
    return Measured(
        figures if loads[-1].requests else {},
        sum(load.requests for load in loads),
        sum(load.bad for load in loads),
    )


def _warm(load: Wrk, target: Target, connections: int) -> tuple[Load, Load]:
    before = load.run(target.port, connections=connections, seconds=WARM_UP_S)
    return before, load.run(target.port, connections=connections, seconds=target.seconds)


def _json(target: Target) -> Measured:
    loads = _warm(target.loads.json, target, CONNECTIONS)
    return _measured({"json_rps": loads[-1].per_s}, *loads)


def _burst(target: Target) -> Measured:
    loads = _warm(target.loads.burst, target, CONNECTIONS)
    return _measured({"burst_rps": loads[-1].per_s}, *loads)


def _long(target: Target) -> Measured:
    loads = _warm(target.loads.long, target, LONG_CONNECTIONS)
    return _measured({"long_rps": loads[-1].per_s, "long_p50_ms": loads[-1].p50_us / 1e3}, *loads)


def _upload(target: Target) -> Measured:
    loads = _warm(target.loads.long, target, LONG_CONNECTIONS)
    return _measured({"upload_rps": loads[-1].per_s}, *loads)


def _paced(target: Target) -> Measured:
    before_s = proc.cpu_s(target.pid) if target.pid else 0.0
    load = target.loads.burst.run(
        target.port, connections=PACED_STREAMS, seconds=target.seconds + PACED_EXTRA_S
    )
    events = load.requests * (PACED.events + EVENTS_BESIDE_CONTENT)
    if not target.pid or not events:
        return _measured({}, load)
    used_s = proc.cpu_s(target.pid) - before_s
    return _measured({"paced_cpu_us_per_event": used_s * 1e6 / events}, load)


def _alone(target: Target) -> Measured:
    load = target.loads.json.run(target.port, connections=1, seconds=target.seconds)
    return _measured({"alone_p50_us": load.p50_us, "alone_p99_us": load.p99_us}, load)


def latency_figure(concurrency: int, percentile: int) -> str:
    return f"latency_{concurrency}_p{percentile}_us"


def _latency(target: Target) -> Measured:
    figures: Figures = {}
    loads = []
    for count in CONCURRENCIES:
        load = target.loads.json.run(target.port, connections=count, seconds=max(1, target.seconds // 2))
        loads.append(load)
        if load.requests:
            figures[latency_figure(count, 50)] = load.p50_us
            figures[latency_figure(count, 99)] = load.p99_us
    return _measured(figures, *loads)


def _memory(target: Target, count: int = IDLE_STREAMS) -> Measured:
    assert target.pid is not None
    time.sleep(_SETTLE_S)
    idle_bytes = proc.rss_bytes(target.pid)
    with pinned(LOAD_CPU):
        opened, full_bytes = asyncio.run(
            streams.hold(target.port, count, partial(proc.rss_bytes, target.pid))
        )
    figures = {"memory_kb_per_stream": (full_bytes - idle_bytes) / 1024 / opened} if opened else {}
    return Measured(figures, opened, count - opened)


def allow_files(scenarios: Iterable[str]) -> None:
    """Raises the limit on open files, which children inherit, to what is needed. Raises RelayError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for name in scenarios:
        files = SCENARIOS[name].files
        if hard != resource.RLIM_INFINITY and hard < files:
            raise RelayError(
                f"scenario {name} needs {files} open files, and the hard limit is {hard}:"
                f" raise it (ulimit -Hn {files}), or leave {name} out of --scenarios"
            )
        if soft != resource.RLIM_INFINITY and soft < files:
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
            soft = files


SCENARIOS: Mapping[str, Scenario] = {
    "json": Scenario(
        BURST, _json, f"2 KB prompt, JSON answers, {CONNECTIONS} connections: requests per second"
    ),
    "burst": Scenario(
        BURST, _burst, f"2 KB prompt, {BURST.events} events at once, {CONNECTIONS} connections: requests/s"
    ),
    "paced": Scenario(
        PACED, _paced, f"{PACED_STREAMS} open streams, an event each 10 ms: CPU time per relayed event"
    ),
    "long": Scenario(
        KEEPING,
        _long,
        f"400 KB prompt, JSON answers, {LONG_CONNECTIONS} connections, an engine that searches the whole"
        " prompt: requests/s and p50",
    ),
    "upload": Scenario(
        BURST, _upload, "as long, with an engine that only counts the prompt's bytes: requests/s"
    ),
    "alone": Scenario(BURST, _alone, "2 KB prompt, JSON answers, 1 connection: p50 and p99"),
    "latency": Scenario(
        BURST,
        _latency,
        f"as json with 1, 2, 4 ... {CONCURRENCIES[-1]} connections: p50 and p99 above direct's p50",
        # The slots of clients that left are held for a moment, and each number of connections ends with some.
        slots=IDLE_SLOTS,
        files=3 * CONCURRENCIES[-1],
    ),
    "memory": Scenario(
        HELD,
        _memory,
        f"{IDLE_STREAMS:,} open streams that say nothing: growth of resident memory for each",
        is_of_proxies=True,
        slots=IDLE_SLOTS,
        files=3 * IDLE_STREAMS,
    ),
}
