"""The frozen values that pass between the planes: what came in, what was decided, what it came to.

Times are seconds on the caller's monotonic clock. Token counts are `None` where an engine did not
report them: unknown is not zero.
"""

from enum import StrEnum

from msgspec import Struct

from gateway.core.expected import Expected


class Outcome(StrEnum):
    """How a request ended; the closed set behind `requests_total{outcome}`."""

    OK = "ok"
    CLIENT_DISCONNECT = "client_disconnect"
    CLIENT_TIMEOUT = "client_timeout"
    ENGINE_ERROR = "engine_error"
    ENGINE_TIMEOUT = "engine_timeout"
    ENGINE_TRUNCATED = "engine_truncated"
    REJECTED = "rejected"
    INVALID = "invalid"
    SHUTDOWN = "shutdown"


class Reason(StrEnum):
    """Why the scheduler would not place a request; `wire.errors` maps each to a status, once."""

    QUEUE_FULL = "queue_full"
    QUEUE_TIMEOUT = "queue_timeout"
    NO_READY_ENGINE = "no_ready_engine"
    SHUTTING_DOWN = "shutting_down"
    ENGINE_UNREACHABLE = "engine_unreachable"


class Route(StrEnum):
    """Why this engine: the value of `x-gateway-route`."""

    PREFIX = "prefix"
    LOAD = "load"
    SESSION = "session"
    ONLY = "only"
    RETRY = "retry"
    POLICY = "policy"


HIGH, NORMAL, LOW = 0, 1, 2
PRIORITY_NAMES = ("high", "normal", "low")


class Member(Struct, frozen=True):
    """One model of a pool, with the prompt's chain under it: chains are seeded by model."""

    model: str
    blocks: tuple[int, ...] = ()


class Request(Struct, frozen=True, gc=False):
    """One client request as the scheduler sees it: sizes and hashes, never text.

    `key` is unique in this process and names the request in every scheduler call; `id` is what the
    client calls it. `blocks` are chained hashes of full 256-byte blocks of the canonical prompt;
    `prompt_bytes` its whole length. `width` is how many sequences the engine runs for it: `n` x
    `prompts`, and 0 for calls that need no slot. `token_ids`: the prompt came as ids, four bytes each.
    `workload` is its class (`wire/workload.py`).

    `pool`: every model that may answer, in the order of the configuration; empty where only `model` may.
    `model` and `blocks` are then the first one's.
    """

    key: int
    id: str
    api: str
    model: str
    blocks: tuple[int, ...] = ()
    prompt_bytes: int = 0
    body_bytes: int = 0
    width: int = 1
    priority: int = NORMAL
    session: int = 0
    max_wait_s: float = 120.0
    prompts: int = 1
    stream: bool = False
    token_ids: bool = False
    workload: str = "other"
    pool: tuple[Member, ...] = ()

    @property
    def models(self) -> tuple[str, ...]:
        """Every model that may answer."""
        return tuple(member.model for member in self.pool) if self.pool else (self.model,)

    def blocks_of(self, model: str) -> tuple[int, ...]:
        """The prompt's chain under `model`, which is this request's or one of its pool."""
        if not self.pool or model == self.model:
            return self.blocks
        return next(member.blocks for member in self.pool if member.model == model)


class Grant(Struct, frozen=True, gc=False):
    """A lease on an engine's slots, already counted in flight when it is returned.

    `model` is what the engine is to be asked for. `predicted_tokens` is what the index expects this engine
    to hold of the prompt, `best_tokens` the most that any engine holds. `width` may be below the request's
    own where an engine has fewer slots.

    For the account of what was lost (`core/funnel.py`): `holder_full` says that no engine with the
    `best_tokens` has a slot free, `known_tokens` is the most that any holds or is computing, `pending_tokens`
    what this one will have beyond the predicted ones, `seen_tokens` what a cache without bounds would have.
    """

    key: int
    engine: str
    model: str
    route: Route
    attempt: int
    width: int
    predicted_tokens: int
    best_tokens: int
    queue_s: float
    known_tokens: int = 0
    holder_full: bool = False
    pending_tokens: int = 0
    seen_tokens: int = 0
    expected: Expected | None = None


class Rejection(Struct, frozen=True, kw_only=True, gc=False):
    """The scheduler's refusal; `message` says what happened, the limit, and what to do."""

    key: int
    reason: Reason
    message: str
    retry_after_s: float


Decision = Grant | Rejection


class Usage(Struct, frozen=True, kw_only=True, gc=False):
    """What an engine reported about one request. `prompt_tokens` includes the cached ones.

    `prefill_s` and `decode_s` are the engine's own timings where it gives them (llama.cpp `timings`).
    """

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    prefill_s: float | None = None
    decode_s: float | None = None


class Record(Struct, frozen=True, gc=False):
    """One finished request, for metrics, the access log and `/api/requests`. Holds no prompt text.

    `engine` is empty where no engine was chosen; `code` is the gateway's own error code, if it sent
    one. Milliseconds are measured at the gateway. `ttft_ms` is `queue_ms` (in the gateway), `engine_queue_ms`
    (inside the engine, before it had a slot) and `prefill_ms` (all else); of these the latter two are None
    where it is not known when the request had a slot.

    `session` is a hash in hex, empty where there is none. `seen_tokens` to `pending_tokens` are the grant's.
    `is_miscounted`: what the engine reported less than was predicted, counting alone may explain.
    """

    time: str
    id: str
    api: str
    model: str
    engine: str
    outcome: Outcome
    status: int
    code: str
    stream: bool
    width: int
    route: str
    attempts: int
    key_name: str
    queue_ms: float
    connect_ms: float
    ttft_ms: float | None
    engine_queue_ms: float | None
    prefill_ms: float | None
    duration_ms: float
    overhead_ms: float | None
    prompt_bytes: int
    predicted_cached_tokens: int
    best_cached_tokens: int
    prompt_tokens: int | None
    cached_tokens: int | None
    completion_tokens: int | None
    workload_class: str
    session: str = ""
    seen_tokens: int = 0
    known_tokens: int = 0
    holder_full: bool = False
    pending_tokens: int = 0
    is_miscounted: bool = False
