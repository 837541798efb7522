"""The real scheduler in front of a simulated engine on virtual time: what it finds out about its cap."""

import heapq
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random

from gateway.core.blocks import chain
from gateway.core.engine import Engine, Facts, LoadReport, Probe, SlotSource
from gateway.core.events import Discovered, Probed, Reported
from gateway.core.request import Grant, Outcome, Request, Usage
from gateway.core.scheduler import Limits, Scheduler, Step
from gateway.sim.model import SimModel
from gateway.sim.work import Work

REPORT_S = 2.0


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Who sends what: `workers` that each send again when answered, else `per_s` requests a second.

    `until`: nothing is sent after that; `pauses`: (from, to) in which nothing is sent.
    """

    workers: int = 0
    per_s: float = 0.0
    prompt_tokens: tuple[int, int] = (50, 4000)
    output_tokens: tuple[int, int] = (5, 300)
    streams: float = 0.7
    pauses: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Found:
    """`at_s` after the start `inferred` was what it is at the end; `history` of all (time, cap, slots)."""

    at_s: float | None
    inferred: int | None
    kv_typical: int | None
    slots: int
    source: SlotSource
    history: list[tuple[float, int | None, int]]
    served: int
    most_waiting: int


@dataclass(kw_only=True)
class Run:
    """`foreign` workers use the engine without the gateway. `cached`: the engine tells its cached tokens."""

    slots: int = 4
    believed: int = 16
    source: SlotSource = SlotSource.CONFIGURED
    reports: bool = True
    traffic: Traffic = Traffic(workers=24)
    foreign: int = 0
    foreign_from: float = 0.0
    cached: bool = True
    kv_tokens: int = 1_000_000
    tells_kv: bool = True
    prefill_rate: float = 8000.0
    decode_rate: float = 40.0
    batching: str = "continuous"
    jitter: float = 0.0
    seed: int = 1
    seconds: float = 240.0
    priorities: bool = False
    keys: Iterator[int] = field(default_factory=lambda: iter(range(1, 1 << 30)))

    def __post_init__(self) -> None:
        """`waited_s` is what the scheduler told of each stream's wait in the engine, `inside_s` the truth."""
        self.random = Random(self.seed)
        self.model = SimModel(
            slots=self.slots,
            kv_tokens=self.kv_tokens,
            prefill_rate=self.prefill_rate,
            decode_rate=self.decode_rate,
            kind="vllm",
            batching=self.batching,
            jitter=self.jitter,
            seed=self.seed,
        )
        self.engine = Engine("a", "http://a:8000")
        self.scheduler = Scheduler([self.engine], Limits(max_queue=10_000), random=self.random.random)
        self.heap: list[tuple[float, int, Callable[[float], None]]] = []
        self.at = 0
        self.keys_of: dict[int, int] = {}
        self.asks: dict[int, tuple[Request, Work]] = {}
        self.begun: set[int] = set()
        self.foreign_jobs: set[int] = set()
        self.waited_s: dict[int, float | None] = {}
        self.inside_s: dict[int, float] = {}
        self.asks_at: dict[int, float] = {}
        self.sent_at: dict[int, float] = {}
        self.history: list[tuple[float, int | None, int]] = []
        self.served = self.most_waiting = 0
        self.shared = [self._tokens(600) for _ in range(4)]
        self.now = 0.0

    def found(self) -> Found:
        facts = Facts(
            kind="vllm",
            models=("m",),
            slots=self.believed,
            slots_source=self.source,
            kv_tokens=self.kv_tokens if self.tells_kv else None,
            block_tokens=16,
        )
        self._carry_out(self.scheduler.update("a", Discovered(facts=facts), 0.0), 0.0)
        self._carry_out(self.scheduler.update("a", Probed(probe=Probe.OK), 0.0), 0.0)
        traffic = self.traffic
        for _ in range(traffic.workers):
            self._at(self.random.uniform(0.0, 1.0), self._arrive)
        if traffic.per_s:
            self._at(self.random.expovariate(traffic.per_s), self._arrive_again)
        for _ in range(self.foreign):
            self._at(self.foreign_from + self.random.uniform(0.0, 1.0), self._foreign)
        self._at(REPORT_S, self._probe)
        while True:
            due = min(self.model.next_deadline() or math.inf, self.scheduler.next_deadline() or math.inf)
            if self.heap and self.heap[0][0] <= due:
                self.now, _, call = heapq.heappop(self.heap)
                if self.now > self.seconds:
                    break
                self._advance(self.now)
                call(self.now)
            else:
                self.now = due
                if self.now > self.seconds:
                    break
                self._advance(self.now)
                self._carry_out(self.scheduler.tick(self.now), self.now)
            self._note()
        return self._found()

    def _found(self) -> Found:
        caps = self.engine.caps
        last = self.history[-1] if self.history else None
        return Found(
            at_s=last[0] if last and last[1] is not None else None,
            inferred=caps.inferred,
            kv_typical=caps.kv_typical,
            slots=self.engine.slots,
            source=self.engine.slots_source,
            history=self.history,
            served=self.served,
            most_waiting=self.most_waiting,
        )

    def _note(self) -> None:
        now = (self.engine.caps.inferred, self.engine.slots)
        before = self.history[-1][1:] if self.history else (None, self.believed)
        if now != before:
            self.history.append((self.now, *now))

    def _at(self, due: float, call: Callable[[float], None]) -> None:
        self.at += 1
        heapq.heappush(self.heap, (due, self.at, call))

    def _tokens(self, count: int) -> tuple[int, ...]:
        return tuple(self.random.randrange(1 << 24) for _ in range(count))

    def _work(self) -> Work:
        low, high = self.traffic.prompt_tokens
        count = int(math.exp(self.random.uniform(math.log(low), math.log(high))))
        prompt = self._tokens(count)
        if count > 700 and self.random.random() < 0.4:
            prompt = self.random.choice(self.shared) + prompt[600:]
        answer = tuple(range(self.random.randint(*self.traffic.output_tokens)))
        return Work(prompts=(prompt,), outputs=(answer,))

    def _arrive(self, now: float) -> None:
        for start, end in self.traffic.pauses:
            if start <= now < end:
                self._at(end + self.random.uniform(0.0, 1.0), self._arrive)
                return
        key, work = next(self.keys), self._work()
        text = b"".join(token.to_bytes(4, "little") for token in work.prompts[0])
        request = Request(
            key=key,
            id=str(key),
            api="chat",
            model="m",
            blocks=chain(text, "m"),
            prompt_bytes=len(text),
            stream=self.random.random() < self.traffic.streams,
            priority=self.random.randrange(3) if self.priorities else 1,
            max_wait_s=1e6,
        )
        self.asks[key] = (request, work)
        self.asks_at[key] = now
        self._carry_out(self.scheduler.offer(request, now), now)

    def _arrive_again(self, now: float) -> None:
        self._at(now + self.random.expovariate(self.traffic.per_s), self._arrive_again)
        self._arrive(now)

    def _foreign(self, now: float) -> None:
        job = self.model.submit(self._work(), now)
        self.foreign_jobs.add(job.id)

    def _probe(self, now: float) -> None:
        self._at(now + REPORT_S, self._probe)
        self._carry_out(self.scheduler.update("a", Probed(probe=Probe.OK), now), now)
        self.most_waiting = max(self.most_waiting, self.model.waiting)
        if self.reports:
            report = LoadReport(
                asked_at=now,
                running=self.model.running,
                waiting=self.model.waiting,
                kv_usage=self.model.kv_usage,
            )
            self._carry_out(self.scheduler.update("a", Reported(report=report), now), now)

    def _advance(self, now: float) -> None:
        for event in self.model.advance(now):
            if event.job.id in self.foreign_jobs:
                if event.is_last:
                    self._at(now, self._foreign)
                continue
            key = self.keys_of[event.job.id]
            request, work = self.asks[key]
            if request.stream and key not in self.begun:
                self.begun.add(key)
                assert event.job.started_at is not None
                self.inside_s[key] = event.job.started_at - self.sent_at[key]
                self.waited_s[key] = self.scheduler.first_token(key, now)
                self._carry_out(self.scheduler.go_on(now), now)
            if event.is_last:
                self.served += 1
                usage = Usage(
                    prompt_tokens=len(work.prompts[0]),
                    completion_tokens=len(work.outputs[0]),
                    cached_tokens=event.job.cached_tokens if self.cached else None,
                )
                self._carry_out(self.scheduler.finish(key, Outcome.OK, usage, now), now)
                if self.traffic.workers:
                    self._at(now + self.random.uniform(0.0, 0.2), self._arrive)

    def _carry_out(self, step: Step, now: float) -> None:
        for decision in step.decisions:
            assert isinstance(decision, Grant), decision
            self.sent_at[decision.key] = now
            job = self.model.submit(self.asks[decision.key][1], now)
            self.keys_of[job.id] = decision.key
