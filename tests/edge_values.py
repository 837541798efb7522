"""One plain value of each kind for the tests of what people see; a test names only what matters to it."""

from msgspec.structs import replace

from gateway.core.engine import Health, SlotSource
from gateway.core.request import Outcome, Record
from gateway.core.snapshot import EngineView, RunningView, Snapshot, WaitingView

_RECORD = Record(
    time="2026-01-02T03:04:05.678Z",
    id="r-1",
    api="chat",
    model="m",
    engine="a",
    outcome=Outcome.OK,
    status=200,
    code="",
    stream=True,
    width=1,
    route="prefix",
    attempts=1,
    key_name="",
    queue_ms=20.0,
    connect_ms=1.0,
    ttft_ms=300.0,
    engine_queue_ms=80.0,
    prefill_ms=200.0,
    duration_ms=2000.0,
    overhead_ms=0.08,
    prompt_bytes=4000,
    predicted_cached_tokens=600,
    best_cached_tokens=800,
    prompt_tokens=1000,
    cached_tokens=512,
    completion_tokens=50,
    workload_class="chat",
)

_ENGINE = EngineView(
    name="a",
    url="http://127.0.0.1:8000",
    kind="vllm",
    models=("m",),
    health=Health.READY,
    draining=False,
    slots=4,
    slots_source=SlotSource.DISCOVERED,
    slots_declared=4,
    quota=4,
    usable=4,
    in_flight=3,
    cooling=1,
    foreign=2,
    running=5,
    waiting=0,
    kv_usage=0.25,
    report_age_s=1.0,
    kv_tokens=100_000,
    block_tokens=16,
    prefill_tokens_per_s=2500.0,
    decode_tokens_per_s=80.0,
    blocks=10,
    blocks_bound=100,
    pending_prefill_tokens=0,
    slot_idle_while_waiting_s=1.5,
    restarts=0,
    inferred_cap=None,
    cap_note="",
)

_WAITING = WaitingView(
    id="w-1",
    api="chat",
    model="m",
    priority="normal",
    position=0,
    width=1,
    waited_s=0.5,
    body_bytes=5000,
    engine="a",
    why="slots",
)

RUNNING = RunningView(
    id="r-2",
    api="chat",
    model="m",
    engine="a",
    session="",
    width=1,
    route="load",
    attempt=1,
    age_s=1.0,
    producing=True,
    predicted_cached_tokens=0,
)


def a_record(**changes: object) -> Record:
    return replace(_RECORD, **changes)


def an_engine(**changes: object) -> EngineView:
    return replace(_ENGINE, **changes)


def a_waiting(**changes: object) -> WaitingView:
    return replace(_WAITING, **changes)


def a_snapshot(*engines: EngineView, waiting: tuple[WaitingView, ...] = ()) -> Snapshot:
    return Snapshot(
        engines=engines,
        waiting=waiting,
        running=(RUNNING,),
        queue_bytes=0,
        max_queue=512,
        max_queue_bytes=1 << 28,
        policy="cost",
    )
