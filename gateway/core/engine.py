"""One engine as the scheduler knows it: its limits, its health, and what runs on it now."""

from enum import StrEnum

from msgspec import Struct


class SlotSource(StrEnum):
    """Where a cap came from. Configured and discovered caps are hard limits, the others are not."""

    CONFIGURED = "configured"
    DISCOVERED = "discovered"
    ASSUMED = "assumed"
    INFERRED = "inferred"


class Health(StrEnum):
    UNKNOWN = "unknown"
    LOADING = "loading"
    READY = "ready"
    BUSY = "busy"
    DOWN = "down"


class Probe(StrEnum):
    """What one health probe saw. SLOW and ERROR say little while the engine is working."""

    OK = "ok"
    LOADING = "loading"
    SLOW = "slow"
    ERROR = "error"
    REFUSED = "refused"


class Residency(StrEnum):
    """How an engine keeps prefixes: a pool of shared KV blocks, or one prefix in each slot."""

    POOL = "pool"
    SLOTS = "slots"


class Facts(Struct, frozen=True, kw_only=True):
    """What is known of an engine before any load: detected from its URL, then overridden by configuration.

    `slots_declared` is the engine's own number where it tells one, kept beside a configured `slots`.
    `kv_tokens` is None where unknown. `block_tokens` is the engine's KV block; predictions are floored
    to it. `cancel_s` is how long it may go on after its client left, where it cannot be asked.
    """

    kind: str = "openai"
    models: tuple[str, ...] = ()
    slots: int = 8
    slots_source: SlotSource = SlotSource.ASSUMED
    slots_declared: int | None = None
    kv_tokens: int | None = None
    block_tokens: int = 1
    max_model_len: int | None = None
    residency: Residency = Residency.POOL
    cancel_s: float = 2.0


class LoadReport(Struct, frozen=True, kw_only=True):
    """One reading of an engine's own counters, asked for at `asked_at`.

    `running` and `waiting` count sequences, not requests. `started_at` is any value that changes when
    the engine process is another one (its start time); None where the engine does not tell.
    """

    asked_at: float
    running: int | None = None
    waiting: int | None = None
    kv_usage: float | None = None
    started_at: float | None = None
    prefix_queries_tokens: float | None = None
    prefix_hits_tokens: float | None = None
