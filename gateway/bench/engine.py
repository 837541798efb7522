"""A simulated engine: slots, steps that mix prefill and decode, and a cache of KV blocks.

Pure and synchronous: time is an argument, and `due_s` says when `advance` is to be called. Steps that can
hold no surprise are one event: whole steps of one long prompt, and decoding until the next answer ends.
"""

import math
from collections import OrderedDict, deque
from collections.abc import Container, Sequence
from heapq import heappop, heappush

from msgspec import Struct

from gateway.bench.workload import Ask, EngineSpec

NEVER_S = math.inf

_ROUNDING_STEPS = 1e-6


def matched_blocks(blocks: Sequence[int], held: Container[int]) -> int:
    """How many leading `blocks` are in `held`, which holds of every block also the ones before it."""
    low, high = 0, len(blocks)
    if high and blocks[-1] in held:
        return high
    while low < high:
        middle = (low + high) >> 1
        if blocks[middle] in held:
            low = middle + 1
        else:
            high = middle
    return low


def common_blocks(a: Sequence[int], b: Sequence[int]) -> int:
    """How many leading blocks two prompts share. Ids are chained: equal at one place is equal up to it."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high) >> 1
        if a[middle] == b[middle]:
            low = middle + 1
        else:
            high = middle
    return low


class BlockCache:
    """Computed blocks, evicted least recently used and leaves first; those of running prompts stay.

    Blocks go back from the end of a prompt, as in vLLM (`v1/core/kv_cache_manager.py`, `free`), so that none
    outlives the one before it. A block that several running prompts share takes room once.
    """

    def __init__(self, capacity_blocks: int) -> None:
        self.capacity_blocks = capacity_blocks
        self.pinned_blocks = 0
        self._held: set[int] = set()
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._running: dict[int, tuple[int, ...]] = {}

    def matched(self, blocks: Sequence[int]) -> int:
        return matched_blocks(blocks, self._held)

    def admit(self, key: int, blocks: tuple[int, ...]) -> bool:
        """Keep room for all of a prompt, if there is. Where nothing runs there always is: a prompt larger
        than the cache must not wait for ever."""
        shared = self._shared_with_running(blocks)
        wanted = len(blocks) - shared
        if self._running and self.pinned_blocks + wanted > self.capacity_blocks:
            return False
        idle = self._idle
        for block in blocks[shared : matched_blocks(blocks, self._held)]:
            del idle[block]
        self._running[key] = blocks
        self.pinned_blocks += wanted
        self._evict()
        return True

    def fill(self, key: int) -> None:
        """The prompt has been computed."""
        self._held.update(self._running[key])

    def release(self, key: int) -> None:
        """The request has ended; its prompt has been filled."""
        blocks = self._running.pop(key)
        shared = self._shared_with_running(blocks)
        self.pinned_blocks -= len(blocks) - shared
        self._idle.update(dict.fromkeys(reversed(blocks[shared:])))
        self._evict()

    def clear(self) -> None:
        self._held.clear()
        self._idle.clear()
        self._running.clear()
        self.pinned_blocks = 0

    def _shared_with_running(self, blocks: tuple[int, ...]) -> int:
        return max((common_blocks(blocks, other) for other in self._running.values()), default=0)

    def _evict(self) -> None:
        idle, held = self._idle, self._held
        for _ in range(min(len(idle), self.pinned_blocks + len(idle) - self.capacity_blocks)):
            held.remove(idle.popitem(last=False)[0])


class Work(Struct, eq=False):
    """One request in an engine. `started_s` is when its prefill began and its cached tokens were known."""

    ask: Ask
    started_s: float | None = None
    first_token_s: float | None = None
    cached_tokens: int = 0
    left_tokens: int = 0


class Progress(Struct, frozen=True):
    """What a stretch of steps came to: requests with their first token, requests that ended."""

    first: list[Work]
    done: list[Work]


class SimulatedEngine:
    """Implements `Sight`. Requests wait in a silent FIFO queue and run from when their prefill starts.

    One step computes up to `step_tokens` of the prompts, first come first served, and one token of each
    sequence that decodes, so prefill slows decode. The next request starts in a step that has tokens left
    if a slot is free and its whole prompt fits beside the running ones'; else it and all behind it wait, as
    in vLLM (`v1/core/sched/scheduler.py`, `schedule`, which takes room chunk by chunk).

    A prompt is matched against the cache when its prefill starts and is there when that is done: two that
    start together both compute what they share, unless `shares_pending`: then it is there when its prefill
    starts, as in vLLM, which hands out blocks as it schedules them (`v1/core/kv_cache_manager.py`,
    `allocate_slots`) and computes prompts in the order of their start. Answers take no room in the cache and
    are not found by the next turn, which real engines would hit a little more; no sequence is ever preempted.
    """

    def __init__(self, spec: EngineSpec, block_tokens: int) -> None:
        self.spec = spec
        self.up = True
        self.due_s = NEVER_S
        self._block_tokens = block_tokens
        self._cache = BlockCache(max(1, spec.kv_tokens // block_tokens))
        self._queue: deque[Work] = deque()
        self._prefilling: list[Work] = []
        self._decoding: list[tuple[int, int, Work]] = []
        self._steps_done = 0
        self._began_s = 0.0
        self._steps = 0
        self._plan: list[tuple[Work, int]] = []

    @property
    def running(self) -> int:
        return len(self._prefilling) + len(self._decoding)

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @property
    def kv_usage(self) -> float:
        return min(1.0, self._cache.pinned_blocks / self._cache.capacity_blocks)

    def cached_blocks(self, blocks: Sequence[int]) -> int:
        return self._cache.matched(blocks)

    def submit(self, ask: Ask, now: float) -> Work:
        """Take a request; the engine must be up. It joins the batch at the next step at the earliest."""
        work = Work(ask)
        self._queue.append(work)
        if self.due_s == NEVER_S:
            self._begin(now)
        elif not self._plan and len(self._queue) == 1 and self.running < self.spec.slots:
            decode_s = self.spec.decode_s
            steps = math.ceil((now - self._began_s) / decode_s - _ROUNDING_STEPS)
            self._steps = min(self._steps, max(1, steps))
            self.due_s = self._began_s + self._steps * decode_s
        return work

    def advance(self, now: float) -> Progress:
        """End the steps that were due at `now` and begin the next ones."""
        self._steps_done += self._steps
        first, done = [], []
        for work, tokens in self._plan:
            work.left_tokens -= tokens
            if work.left_tokens:
                continue
            self._cache.fill(work.ask.key)
            work.first_token_s = now
            first.append(work)
            more = work.ask.output_tokens - 1
            if more > 0:
                heappush(self._decoding, (self._steps_done + more, work.ask.key, work))
            else:
                done.append(work)
        self._prefilling = [work for work in self._prefilling if work.left_tokens]
        while self._decoding and self._decoding[0][0] <= self._steps_done:
            done.append(heappop(self._decoding)[2])
        for work in done:
            self._cache.release(work.ask.key)
        self._begin(now)
        return Progress(first, done)

    def stop(self) -> list[Ask]:
        """The engine dies: its cache is lost, and all that it ran or queued, which is returned."""
        running = [*self._prefilling, *(work for _, _, work in self._decoding)]
        lost = [work.ask for work in (*running, *self._queue)]
        self._queue.clear()
        self._prefilling.clear()
        self._decoding.clear()
        self._cache.clear()
        self._plan = []
        self.due_s = NEVER_S
        self.up = False
        return lost

    def start(self) -> None:
        self.up = True

    def _begin(self, now: float) -> None:
        """Plan the next stretch of equal steps."""
        spec, decoding = self.spec, self._decoding
        self._began_s, self._plan = now, []
        head = self._prefilling[0] if self._prefilling else self._start_next(now)
        if head is None and not decoding:
            self.due_s = NEVER_S
            return
        steps = decoding[0][0] - self._steps_done if decoding else math.inf
        step_s = spec.decode_s if decoding else 0.0
        if head is not None:
            steps = min(steps, max(1, head.left_tokens // spec.step_tokens))
            tokens = self._pack(head, int(steps) * spec.step_tokens, now)
            step_s += tokens / steps / spec.prefill_tokens_per_s
        self._steps = int(steps)
        self.due_s = now + steps * step_s

    def _pack(self, head: Work, budget_tokens: int, now: float) -> int:
        """Plan who gets how much of the next steps; returns the tokens in all. More than one step is for the
        first prompt alone, which fills them."""
        room = budget_tokens
        work: Work | None = head
        while work is not None:
            tokens = min(room, work.left_tokens)
            self._plan.append((work, tokens))
            room -= tokens
            work = self._start_next(now) if room else None
        return budget_tokens - room

    def _start_next(self, now: float) -> Work | None:
        if not self._queue or self.running >= self.spec.slots:
            return None
        work = self._queue[0]
        ask = work.ask
        if not self._cache.admit(ask.key, ask.blocks):
            return None
        self._prefilling.append(self._queue.popleft())
        work.started_s = now
        cached_tokens = self._cache.matched(ask.blocks) * self._block_tokens
        work.cached_tokens = min(cached_tokens, ask.prompt_tokens - 1)
        work.left_tokens = ask.prompt_tokens - work.cached_tokens
        if self.spec.shares_pending:
            self._cache.fill(ask.key)
        return work
