"""One request inside the simulated model: what it asks, how far it is, what came out of it."""

import math
from collections import deque
from enum import Enum

from msgspec import Struct

from gateway.sim.cache import Holding, Need


class Work(Struct, frozen=True, kw_only=True):
    """What one request asks of the model.

    `outputs` are the answers' tokens: `n` for each prompt, prompt by prompt; empty ones for embeddings.
    With `stall_s` each answer stops for that long after its first token.
    """

    prompts: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]
    n: int = 1
    salt: str = ""
    stall_s: float | None = None


class Job:
    """One request in the model. Times are None until it gets there."""

    __slots__ = (
        "cached_tokens",
        "finished_at",
        "id",
        "is_cancelled",
        "open_count",
        "pending",
        "prompt_done_at",
        "started_at",
        "was_deferred",
        "work",
    )

    def __init__(self, job_id: int, work: Work) -> None:
        self.id = job_id
        self.work = work
        self.cached_tokens = 0
        self.started_at: float | None = None
        self.prompt_done_at: float | None = None
        self.finished_at: float | None = None
        self.is_cancelled = False
        self.was_deferred = False
        self.pending: deque[Sequence] = deque()
        self.open_count = len(work.outputs)

    @property
    def prompt_tokens(self) -> int:
        return sum(len(prompt) for prompt in self.work.prompts)

    @property
    def completion_tokens(self) -> int:
        return sum(len(output) for output in self.work.outputs)


class Event(Struct, frozen=True):
    """Answer `choice` of a job has `emitted` tokens now. An embedding has one event, with 0."""

    job: Job
    choice: int
    emitted: int
    is_last: bool


class Counts(Struct):
    """The model's own counts, in requests, sequences and tokens. `max_running` counts sequences."""

    max_running: int = 0
    deferred_total: int = 0
    requests: int = 0
    cancelled: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    finished: int = 0
    prefill_s: float = 0.0
    decode_s: float = 0.0


class SlotView(Struct, frozen=True):
    """One busy slot, as llama.cpp's /slots shows it. `slot` is -1 where KV is a pool."""

    slot: int
    job_id: int
    prompt_tokens: int
    processed_tokens: int
    cached_tokens: int
    decoded_tokens: int


class Phase(Enum):
    """FOLLOW: a further choice, waiting for the prefill of the first one of its prompt."""

    PREFILL = "prefill"
    FOLLOW = "follow"
    DECODE = "decode"


class Sequence:
    """One answer and the slot it needs. Without `holding` it has none."""

    __slots__ = (
        "choice",
        "emitted",
        "held_until",
        "holding",
        "job",
        "leader",
        "need",
        "output",
        "phase",
        "prefilled",
        "release_at",
        "stalled_until",
    )

    def __init__(self, job: Job, choice: int) -> None:
        work = job.work
        self.job = job
        self.choice = choice
        self.output = work.outputs[choice]
        self.need = Need(work.prompts[choice // work.n], len(self.output), salt=work.salt)
        self.leader: Sequence | None = None
        self.holding: Holding | None = None
        self.phase = Phase.PREFILL
        self.prefilled = 0
        self.emitted = 0
        self.stalled_until = -math.inf
        self.release_at: float | None = None
        self.held_until = -math.inf

    def can_decode(self, now: float) -> bool:
        return self.phase is Phase.DECODE and self.emitted < len(self.output) and self.stalled_until <= now
