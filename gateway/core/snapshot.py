"""The whole state as values, for `/api/state`, the metrics and the tests. Nothing here is live."""

from msgspec import Struct

from gateway.core.engine import Health, SlotSource


class EngineView(Struct, frozen=True, kw_only=True):
    """One engine. `slots` is the cap, `quota` what this process may use of it, `usable` what is left of
    that after foreign load; `in_flight` and `cooling` are widths, not requests. One that is `leaving` was
    removed from the configuration while requests ran there; another one may have its name. `inferred_cap` is
    what it was found to run at once, None while that is not known; `cap_note` says so where the cap is
    another."""

    name: str
    url: str
    kind: str
    models: tuple[str, ...]
    health: Health
    draining: bool
    leaving: bool = False
    slots: int
    slots_source: SlotSource
    slots_declared: int | None
    quota: int
    usable: int
    in_flight: int
    cooling: int
    foreign: int
    running: int | None
    waiting: int | None
    kv_usage: float | None
    report_age_s: float | None
    kv_tokens: int | None
    block_tokens: int
    prefill_tokens_per_s: float | None
    decode_tokens_per_s: float | None
    blocks: int
    blocks_bound: int
    pending_prefill_tokens: int
    slot_idle_while_waiting_s: float
    restarts: int
    inferred_cap: int | None
    cap_note: str


class WaitingView(Struct, frozen=True, kw_only=True):
    """One queued request; `engine` is the one it would go to, `why` what it waits for."""

    id: str
    api: str
    model: str
    priority: str
    position: int
    width: int
    waited_s: float
    body_bytes: int
    engine: str
    why: str


class RunningView(Struct, frozen=True, kw_only=True):
    """One granted request. `session` is a hash, empty where the client named none."""

    id: str
    api: str
    model: str
    engine: str
    session: str
    width: int
    route: str
    attempt: int
    age_s: float
    producing: bool
    predicted_cached_tokens: int


class Snapshot(Struct, frozen=True, kw_only=True):
    """`concurrency_seconds` are those at each label of the metric, since the start (`core/operating.py`)."""

    engines: tuple[EngineView, ...]
    waiting: tuple[WaitingView, ...]
    running: tuple[RunningView, ...]
    queue_bytes: int
    max_queue: int
    max_queue_bytes: int
    policy: str
    concurrency_seconds: dict[str, float] = {}
