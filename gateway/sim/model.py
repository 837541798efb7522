"""The simulated engine without its HTTP: slots, a silent queue, chunked prefill, decode, cancellation.

Pure and synchronous: every call brings the time, in seconds from any origin, never going back.
"""

import math
import random
from collections import deque
from collections.abc import Iterator

from msgspec import Struct

from gateway.sim.cache import BlockPool, Cache, Holding, SlotPrefixes
from gateway.sim.work import Counts, Event, Job, Phase, Sequence, SlotView, Work

KINDS = ("vllm", "sglang", "llamacpp")
BATCHINGS = ("continuous", "static")
# The engines' own defaults: vLLM's block is 16 tokens, SGLang's page is 1.
BLOCK_TOKENS = {"vllm": 16, "sglang": 1, "llamacpp": 1}
# Seen on live engines after a client left: vLLM 0.32 counts the request for 0.4 s in a prefill and 0.1 s
# in decode, llama-server b10434 for 0.1 s in decode and to the end of a prefill that has begun.
CANCEL_PREFILL_S = 0.4
CANCEL_DECODE_S = 0.1


class _Step(Struct, frozen=True):
    began_at: float
    ends_at: float
    chunks: list[tuple[Sequence, int]]
    decoders: list[Sequence]


class SimModel:
    """Slots, queue and cache of one simulated engine.

    `prefill_rate` and `decode_rate` are tokens/s, the second for each answer. One engine step takes up to
    `step_prefill_tokens` of waiting prompts in order of arrival, and one token for each answer; its time is
    the sum of both, so a long prompt slows the answers that run beside it (chunked prefill).
    Whatever finds no room waits in order of arrival, silently and without limit, as in all these engines.

    With `batching` "static" it admits only while nothing runs, as many as there are slots, and then nothing
    before the longest of them has ended. `jitter`, from 0 to below 1, makes each step take between 1 - jitter
    and 1 + jitter times as long, drawn evenly from `seed`.
    """

    def __init__(
        self,
        *,
        slots: int,
        kv_tokens: int,
        prefill_rate: float,
        decode_rate: float,
        kind: str,
        step_prefill_tokens: int = 2048,
        batching: str = "continuous",
        jitter: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.slots = slots
        self.kv_tokens = kv_tokens
        self.kind = kind
        self.counts = Counts()
        # Seconds that a slot stays busy after a cancel; None: as the engine kind does.
        self.slow_cancel_s: float | None = None
        self._prefill_rate = prefill_rate
        self._decode_rate = decode_rate
        self._step_prefill_tokens = step_prefill_tokens
        self._is_static = batching == "static"
        self._jitter = jitter
        self._random = random.Random(seed)  # noqa: S311 - nothing secret
        self._cache: Cache = (
            SlotPrefixes(slots, kv_tokens) if kind == "llamacpp" else BlockPool(kv_tokens, BLOCK_TOKENS[kind])
        )
        self._queue: deque[Job] = deque()
        self._running: list[Sequence] = []
        self._step: _Step | None = None
        self._events: list[Event] = []
        self._now = -math.inf
        self._next_id = 0

    @property
    def running(self) -> int:
        """Sequences that hold a slot, those of clients that left included."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Sequences in the queue."""
        return sum(len(job.pending) for job in self._queue)

    @property
    def kv_usage(self) -> float:
        return self._cache.usage

    def slot_views(self) -> list[SlotView]:
        """The busy slots, by slot."""
        views = [
            SlotView(
                holding.slot,
                seq.job.id,
                len(seq.need.prompt),
                seq.prefilled,
                holding.cached_tokens,
                seq.emitted,
            )
            for seq, holding in self._held()
        ]
        return sorted(views, key=lambda view: view.slot)

    def submit(self, work: Work, now: float) -> Job:
        """A request arrives. It starts at once if nothing waits and there is room."""
        self._run_to(now)
        self._next_id += 1
        job = Job(self._next_id, work)
        job.pending.extend(Sequence(job, choice) for choice in range(len(work.outputs)))
        self.counts.requests += 1
        self._queue.append(job)
        self._admit(now)
        if job.pending:
            job.was_deferred = True
            self.counts.deferred_total += 1
        self._start_step(now)
        return job

    def cancel(self, job: Job, now: float) -> None:
        """The client left. Nothing more is produced; the slots are free when this kind of engine notices."""
        self._run_to(now)
        if job.is_cancelled or job.finished_at is not None:
            return
        job.is_cancelled = True
        self.counts.cancelled += 1
        job.open_count -= len(job.pending)
        job.pending.clear()
        if job in self._queue:
            self._queue.remove(job)
        for seq in [seq for seq in self._running if seq.job is job]:
            self._leave(seq, now)
        self._admit(now)
        self._start_step(now)

    def advance(self, now: float) -> list[Event]:
        """Everything that was produced up to `now` and not returned before."""
        self._run_to(now)
        events, self._events = self._events, []
        return events

    def next_deadline(self) -> float | None:
        """When something happens next if nobody calls; None while idle."""
        times = [seq.release_at for seq in self._running if seq.release_at is not None]
        if self._step is not None:
            times.append(self._step.ends_at)
        else:
            times += [seq.stalled_until for seq in self._running if self._now < seq.stalled_until < math.inf]
        return min(times, default=None)

    def _held(self) -> Iterator[tuple[Sequence, Holding]]:
        for seq in self._running:
            if seq.holding is not None:
                yield seq, seq.holding

    def _run_to(self, now: float) -> None:
        while (due := self.next_deadline()) is not None and due <= now:
            self._now = due
            for seq in [s for s in self._running if s.release_at is not None and s.release_at <= due]:
                self._free(seq)
            if self._step is not None and self._step.ends_at <= due:
                self._end_step(due)
            self._admit(due)
            self._start_step(due)
        self._now = max(self._now, now)

    def _admit(self, now: float) -> None:
        if self._is_static and self._running:
            return
        while self._queue:
            job = self._queue[0]
            # A request wider than the engine takes every slot and comes back for the rest.
            width = min(len(job.pending), self.slots)
            if self.slots - len(self._running) < width or not self._start(job, width, now):
                return
            if not job.pending:
                self._queue.popleft()

    def _start(self, job: Job, width: int, now: float) -> bool:
        batch = list(job.pending)[:width]
        leaders: dict[int, Sequence] = {}
        for seq in batch:
            leader = leaders.setdefault(seq.choice // job.work.n, seq)
            seq.need.follows = leader is not seq
            seq.leader = None if leader is seq else leader
        holdings = self._cache.acquire([seq.need for seq in batch])
        if holdings is None:
            return False
        for seq, holding in zip(batch, holdings, strict=True):
            job.pending.popleft()
            self._place(seq, holding)
        job.started_at = now if job.started_at is None else job.started_at
        self.counts.max_running = max(self.counts.max_running, len(self._running))
        return True

    def _place(self, seq: Sequence, holding: Holding) -> None:
        seq.holding = holding
        seq.phase = Phase.FOLLOW if seq.leader else Phase.PREFILL
        seq.prefilled = holding.cached_tokens
        self._running.append(seq)
        # A prompt counts once, however many answers are asked of it: as usage reports it.
        if seq.choice % seq.job.work.n == 0:
            seq.job.cached_tokens += holding.cached_tokens
            self.counts.prompt_tokens += len(seq.need.prompt)
            self.counts.cached_tokens += holding.cached_tokens

    def _start_step(self, now: float) -> None:
        if self._step is not None:
            return
        budget = self._step_prefill_tokens
        chunks: list[tuple[Sequence, int]] = []
        for seq in self._running:
            if seq.phase is Phase.PREFILL and budget:
                chunk = min(budget, len(seq.need.prompt) - seq.prefilled)
                chunks.append((seq, chunk))
                budget -= chunk
        decoders = [seq for seq in self._running if seq.can_decode(now)]
        if not chunks and not decoders:
            return
        pace = self._random.uniform(1 - self._jitter, 1 + self._jitter) if self._jitter else 1.0
        prefill_s = (self._step_prefill_tokens - budget) / self._prefill_rate * pace
        decode_s = 1 / self._decode_rate * pace if decoders else 0.0
        self.counts.prefill_s += prefill_s
        self.counts.decode_s += decode_s
        self._step = _Step(now, now + prefill_s + decode_s, chunks, decoders)

    def _end_step(self, now: float) -> None:
        step, self._step = self._step, None
        if step is None:
            return
        for seq, chunk in step.chunks:
            if seq.holding is None:
                continue
            seq.prefilled += chunk
            if seq.prefilled >= len(seq.need.prompt):
                self._end_prefill(seq, now)
        for seq in step.decoders:
            if seq.holding is not None:
                self._emit(seq, now)

    def _end_prefill(self, leader: Sequence, now: float) -> None:
        leader.job.prompt_done_at = now
        for seq in [s for s in self._running if s is leader or s.leader is leader]:
            if seq.holding is None:
                continue
            self._cache.fill(seq.holding, seq.need.prompt)
            seq.prefilled = len(seq.need.prompt)
            seq.phase = Phase.DECODE
            if seq.job.is_cancelled and self.kind == "llamacpp":
                seq.release_at = max(now, seq.held_until)
            if seq.release_at is not None and seq.release_at <= now:
                self._free(seq)
            else:
                self._emit(seq, now)

    def _emit(self, seq: Sequence, now: float) -> None:
        if seq.output:
            seq.emitted += 1
            self.counts.generated_tokens += 1
        if seq.emitted == 1 and seq.job.work.stall_s is not None:
            seq.stalled_until = now + seq.job.work.stall_s
        is_last = seq.emitted == len(seq.output)
        if seq.job.is_cancelled:
            return
        self._events.append(Event(seq.job, seq.choice, seq.emitted, is_last))
        if is_last:
            self._finish(seq, now)

    def _finish(self, seq: Sequence, now: float) -> None:
        if seq.holding is not None and seq.output:
            # The last token was produced, its own KV was not.
            self._cache.fill(seq.holding, seq.need.prompt + seq.output[:-1])
        self._free(seq)
        seq.job.open_count -= 1
        if not seq.job.open_count:
            seq.job.finished_at = now
            self.counts.finished += 1

    def _leave(self, seq: Sequence, now: float) -> None:
        in_prefill = seq.phase is not Phase.DECODE
        if self.slow_cancel_s is not None:
            seq.held_until = now + self.slow_cancel_s
        if in_prefill and self.kind == "llamacpp":
            return
        default_s = CANCEL_PREFILL_S if in_prefill else CANCEL_DECODE_S
        seq.release_at = now + (default_s if self.slow_cancel_s is None else self.slow_cancel_s)

    def _free(self, seq: Sequence) -> None:
        if seq.holding is None:
            return
        self._cache.release(seq.holding)
        seq.holding = None
        self._running.remove(seq)
