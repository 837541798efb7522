"""Any order of calls on the scheduler: what must hold after each, and once all is over."""

import pytest
from core_values import discovered, facts, probed, request, text
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from gateway.core.engine import Engine, LoadReport, Probe, Residency, SlotSource
from gateway.core.events import Reported, Restarted
from gateway.core.holds import MAX_HOLD_S
from gateway.core.prefix import PooledCache
from gateway.core.request import Grant, Outcome, Reason, Rejection, Request, Usage
from gateway.core.router import POLICIES, Policy
from gateway.core.scheduler import Limits, Scheduler, Step
from gateway.core.slotcache import SlotCache
from gateway.core.view import snapshot

NAMES = ("pool", "slots", "both")
BASE = text(320, "s")
MODELS = [("m",), ("m",), ("m",), ("n",), ("m", "n"), ("n", "m")]
PROMPTS = [b"", BASE, BASE + text(200, "x"), BASE + text(400, "x"), BASE + text(300, "y"), text(500, "z")]

MAX_PROMPT_BYTES = 8000

names = st.sampled_from(NAMES)
spans_s = st.sampled_from([0.0, 0.05, 0.4, 3.0, 31.0])
usages = st.builds(
    Usage,
    prompt_tokens=st.none() | st.integers(100, 900),
    cached_tokens=st.none() | st.integers(0, 100),
    completion_tokens=st.none() | st.integers(0, 50),
)


class SchedulerMachine(RuleBasedStateMachine):
    """`waiting` and `running` say what each request that has not ended is in; no key is used twice."""

    keys = Bundle("keys")

    @initialize(
        policy=st.sampled_from([*POLICIES, "cost", "cost", "cost", "cost"]),
        residency=st.sampled_from([Residency.POOL, Residency.SLOTS]),
        max_queue=st.sampled_from([0, 2, 100]),
        max_queue_bytes=st.sampled_from([150, 10_000]),
        draw=st.sampled_from([0.0, 0.45, 0.99]),
        kv_tokens=st.sampled_from([400, 1000, 2000]),
        source=st.sampled_from([SlotSource.DISCOVERED, SlotSource.ASSUMED]),
    )
    def start(
        self,
        policy: Policy,
        residency: Residency,
        max_queue: int,
        max_queue_bytes: int,
        draw: float,
        kv_tokens: int,
        source: SlotSource,
    ) -> None:
        self.now = 100.0
        self.next_key = 0
        self.waiting: dict[int, Request] = {}
        self.running: dict[int, Grant] = {}
        self.requests: dict[int, Request] = {}
        self.prompts: dict[int, bytes] = {}
        self.closed = False
        self.scheduler = Scheduler(
            [Engine(name, f"http://{name}") for name in NAMES],
            Limits(max_queue=max_queue, max_queue_bytes=max_queue_bytes),
            policy,
            lambda: draw,
        )
        discovered(self.scheduler, "pool", facts(4, kv_tokens=kv_tokens, source=source), self.now)
        few = residency is Residency.SLOTS
        discovered(self.scheduler, "slots", facts(1 if few else 4, residency=Residency.SLOTS), self.now)
        both = facts(2, models=("m", "n"), block_tokens=16, residency=residency, kv_tokens=2 * kv_tokens)
        discovered(self.scheduler, "both", both, self.now)
        for name in NAMES:
            probed(self.scheduler, name, Probe.OK, self.now)

    # Requests

    @rule(
        target=keys,
        prompt=st.sampled_from(PROMPTS) | keys,
        width=st.sampled_from([0, 1, 1, 1, 2, 4]),
        models=st.sampled_from(MODELS),
        priority=st.integers(0, 2),
        session=st.integers(0, 3),
        body_bytes=st.sampled_from([10, 100, 200]),
        max_wait_s=st.sampled_from([1.0, 120.0]),
        stream=st.booleans(),
    )
    def offer(
        self, prompt: bytes | int, width: int, models: tuple[str, ...], priority: int, **more: float
    ) -> int:
        self.next_key += 1
        if isinstance(prompt, int):
            # The next turn of an agent: the prompt of an earlier request, and more.
            prompt = (self.prompts[prompt] + text(100, f"t{self.next_key}"))[:MAX_PROMPT_BYTES]
        self.prompts[self.next_key] = prompt
        it = request(
            self.next_key,
            prompt,
            model=models[0],
            pool=models if len(models) > 1 else (),
            width=width,
            priority=priority,
            session=int(more["session"]),
            body_bytes=int(more["body_bytes"]),
            max_wait_s=more["max_wait_s"],
            stream=bool(more["stream"]),
        )
        nobody_waits = not self.scheduler.queue
        engines = self.scheduler.engines.values()
        # A session of a pool may be on any of its models.
        free = all(
            any(e.serves(model) and e.has_room(width, e.reserved_from(it.blocks, 0)) for e in engines)
            for model in models
        )
        self.waiting[it.key] = self.requests[it.key] = it
        step = self.scheduler.offer(it, self.now)
        if nobody_waits and free:
            assert not any(getattr(d, "reason", None) is Reason.QUEUE_FULL for d in step.decisions)
        served = all(any(e.serves(model) for e in engines) for model in models)
        if width == 0 and not self.closed and served:
            assert any(isinstance(d, Grant) and d.key == it.key for d in step.decisions)
        self.carry_out(step)
        return it.key

    @rule(target=keys, agents=st.integers(2, 9))
    def agents_come(self, agents: int) -> object:
        """More of them than there are slots, each with a long prompt of its own."""
        sizes = {
            "width": 1,
            "models": ("m",),
            "priority": 1,
            "session": 0,
            "body_bytes": 10,
            "max_wait_s": 120.0,
            "stream": True,
        }
        return multiple(*[self.offer(text(600, f"agent {at}"), **sizes) for at in range(agents)])

    @precondition(lambda self: self.running)
    @rule(target=keys, data=st.data(), gaps_s=st.lists(st.sampled_from([0.0, 0.1, 0.3, 5.0]), max_size=6))
    def agents_go_on(self, data: st.DataObject, gaps_s: list[float]) -> object:
        """Some turn ends well and its agent's next one follows, again and again."""
        offered: list[int] = []
        for gap_s in gaps_s:
            if not self.running:
                break
            key = data.draw(st.sampled_from(sorted(self.running)))
            it = self.requests[key]
            self.finish_as(key, Outcome.OK, Usage(), True)
            self.tick(gap_s)
            sizes = {"session": 0, "body_bytes": it.body_bytes, "max_wait_s": 120.0, "stream": it.stream}
            offered.append(self.offer(key, it.width, it.models, it.priority, **sizes))
            self.the_first_in_line_does_not_wait_beside_room_everywhere()
        return multiple(*offered)

    @rule(key=keys)
    def first_token(self, key: int) -> None:
        self.scheduler.first_token(key, self.now)
        self.carry_out(self.scheduler.go_on(self.now))
        # It may have brought an engine back; whoever waits for that is placed at the next event.
        self.carry_out(self.scheduler.tick(self.now))

    @rule(key=keys, reached=st.booleans())
    def retry(self, key: int, reached: bool) -> None:
        self.left_its_engine(key)
        self.carry_out(self.scheduler.retry(key, self.now, reached=reached))

    @rule(key=keys)
    def decline(self, key: int) -> None:
        self.left_its_engine(key)
        self.carry_out(self.scheduler.decline(key, self.now))

    @rule(
        key=keys, outcome=st.sampled_from([*Outcome, *[Outcome.OK] * 4]), usage=usages, reached=st.booleans()
    )
    def finish(self, key: int, outcome: Outcome, usage: Usage, reached: bool) -> None:
        self.finish_as(key, outcome, usage, reached)

    def finish_as(self, key: int, outcome: Outcome, usage: Usage, reached: bool) -> None:
        self.waiting.pop(key, None)
        self.running.pop(key, None)
        self.carry_out(self.scheduler.finish(key, outcome, usage, self.now, reached=reached))

    @precondition(lambda self: self.running)
    @rule()
    def all_that_run_come_to_an_end(self) -> None:
        """And what is let in by that, and so on: nobody is kept out for ever while engines are idle."""
        while self.running:
            for key in sorted(self.running):
                self.finish_as(key, Outcome.OK, Usage(), True)
            self.tick(3.0)
        # Patience with a full engine is over by then. Other policies than cost have no end of it.
        self.tick(31.0)
        if self.scheduler.policy == "cost" and not self.a_wide_one_waits_for_quota():
            for waiting in self.scheduler.queue:
                assert not self.who_could_take(waiting.request.key)

    def a_wide_one_waits_for_quota(self) -> bool:
        """Nobody passes one that waits for several slots, and no end of a request brings more quota."""
        return any(
            engine.quota is not None and engine.quota < engine.width_here(waiting.request.width)
            for engine in self.scheduler.engines.values()
            for waiting in self.scheduler.queue
            if waiting.request.width > 1
        )

    def who_could_take(self, key: int) -> list[Engine]:
        entry = self.scheduler.entries[key]
        return [
            engine
            for engine in self.scheduler.engines.values()
            if any(map(engine.serves, entry.models))
            and engine.name not in entry.excluded
            and engine.has_room(max(1, entry.request.width))
        ]

    @rule(key=keys)
    def leave(self, key: int) -> None:
        self.finish_as(key, Outcome.CLIENT_DISCONNECT, Usage(), True)

    # Engines

    @rule(
        name=names,
        slots=st.integers(1, 4),
        kv_tokens=st.sampled_from([150, 600]),
        residency=st.sampled_from([Residency.POOL, Residency.POOL, Residency.SLOTS]),
        models=st.sampled_from([("m",), ("m", "n"), ("n",)]),
        source=st.sampled_from([SlotSource.DISCOVERED, SlotSource.ASSUMED]),
    )
    def discover(
        self,
        name: str,
        slots: int,
        kv_tokens: int,
        residency: Residency,
        models: tuple[str, ...],
        source: SlotSource,
    ) -> None:
        if name not in self.scheduler.engines:
            return
        what = facts(slots, models=models, kv_tokens=kv_tokens * slots, residency=residency, source=source)
        self.carry_out(discovered(self.scheduler, name, what, self.now))

    @rule(name=names, probe=st.sampled_from([*Probe, Probe.OK, Probe.OK, Probe.OK]))
    def probe(self, name: str, probe: Probe) -> None:
        if name not in self.scheduler.engines:
            return
        self.carry_out(probed(self.scheduler, name, probe, self.now))

    @rule(name=names, running=st.none() | st.integers(0, 5), waiting=st.none() | st.integers(0, 2))
    def report(self, name: str, running: int | None, waiting: int | None) -> None:
        if name not in self.scheduler.engines:
            return
        self.now += 0.2
        report = LoadReport(asked_at=self.now, running=running, waiting=waiting)
        self.carry_out(self.scheduler.update(name, Reported(report=report), self.now))

    @rule(name=names)
    def restart(self, name: str) -> None:
        if name not in self.scheduler.engines:
            return
        self.carry_out(self.scheduler.update(name, Restarted(), self.now))

    @rule(name=names, on=st.sampled_from([True, False, False]))
    def drain(self, name: str, on: bool) -> None:
        if name not in self.scheduler.engines:
            return
        self.carry_out(self.scheduler.drain(name, on, self.now))

    @rule(name=names, quota=st.none() | st.integers(0, 5))
    def set_quota(self, name: str, quota: int | None) -> None:
        if name not in self.scheduler.engines:
            return
        self.carry_out(self.scheduler.set_quota(name, quota, self.now))

    @rule(
        go=st.sets(names, max_size=2),
        come=st.sets(names, max_size=2),
        place=st.integers(0, 1),
        ready=st.sampled_from([True, True, False]),
        slots=st.integers(1, 4),
    )
    def change_engines(self, go: set[str], come: set[str], place: int, ready: bool, slots: int) -> None:
        """One that comes may have the name of one that goes, or of one that still runs what it began."""
        there = set(self.scheduler.engines)
        gone, coming = sorted(go & there), sorted(come - (there - go))
        engines = [Engine(name, f"http://{name}/{place}") for name in coming]
        self.carry_out(self.scheduler.change_engines(gone, engines, self.now))
        assert set(self.scheduler.engines) == there - set(gone) | set(coming)
        for name in coming if ready else ():
            self.carry_out(discovered(self.scheduler, name, facts(slots), self.now))
            self.carry_out(probed(self.scheduler, name, Probe.OK, self.now))

    @rule(policy=st.sampled_from([*POLICIES, "cost", "cost"]), max_queue=st.sampled_from([0, 2, 100]))
    def configure(self, policy: Policy, max_queue: int) -> None:
        limits = Limits(max_queue=max_queue, max_queue_bytes=self.scheduler.queue.max_bytes)
        self.carry_out(self.scheduler.configure(limits, policy, self.now))

    # Time

    @rule(seconds=spans_s)
    def tick(self, seconds: float) -> None:
        self.now += seconds
        self.carry_out(self.scheduler.tick(self.now))
        due = self.scheduler.next_deadline()
        assert due is None or due > self.now

    @precondition(lambda self: self.next_key > 10)
    @rule()
    def close(self) -> None:
        self.closed = True
        self.scheduler.close()

    # What must hold

    def left_its_engine(self, key: int) -> None:
        if self.running.pop(key, None) is not None:
            self.waiting[key] = self.requests[key]

    def carry_out(self, step: Step) -> None:
        """Each decision is for a request that waits for one: granted once, or rejected for good."""
        for decision in step.decisions:
            it = self.waiting.pop(decision.key)
            engines = self.scheduler.engines
            if isinstance(decision, Rejection):
                assert decision.message
                assert 1.0 <= decision.retry_after_s <= 60.0
                continue
            engine = engines[decision.engine]
            assert decision.model in it.models
            assert engine.serves(decision.model)
            assert decision.width == engine.width_here(it.width) <= engine.slots
            assert 0 <= decision.predicted_tokens <= decision.best_tokens <= decision.known_tokens
            assert 0 <= decision.pending_tokens <= decision.known_tokens - decision.predicted_tokens
            assert decision.seen_tokens >= 0
            assert decision.queue_s >= 0.0
            limit = engine.slots if engine.quota is None else min(engine.slots, engine.quota)
            limit += engine.beyond
            assert decision.width == 0 or engine.in_flight + engine.cooling_width <= limit - engine.foreign
            self.running[decision.key] = decision
        wanted = {it.name: it.in_flight for it in self.scheduler.engines.values()}
        for waiting in self.scheduler.queue:
            if waiting.engine:
                wanted[waiting.engine] += waiting.request.width
        assert step.want == wanted

    @invariant()
    def what_runs_is_counted(self) -> None:
        entries = self.scheduler.entries
        for engine in [*self.scheduler.engines.values(), *self.scheduler.fleet.leaving]:
            mine = [it for it in self.running.values() if entries[it.key].engine is engine]
            assert engine.in_flight == sum(it.width for it in mine)
            assert set(engine.leases) == {it.key for it in mine}
            assert engine.cooling_width == sum(it.width for it in engine.cooling) >= 0
            assert all(it.width > 0 for it in engine.cooling)
            assert engine.usable >= 0
            assert engine.pending_prefill_tokens == sum(
                it.prefill_tokens for it in engine.leases.values() if it.first_token_at is None
            )
            assert engine.slot_idle_while_waiting_s >= 0.0

    @invariant()
    def only_working_limits_move_and_one_request_goes_beyond(self) -> None:
        for engine in [*self.scheduler.engines.values(), *self.scheduler.fleet.leaving]:
            assert engine.beyond in (0, 1)
            if engine.beyond:
                assert engine.is_soft
                assert engine.growth.key in engine.leases
            if not engine.is_soft:
                assert engine.slots == engine.facts.slots
                assert engine.slots_source is SlotSource.DISCOVERED

    @invariant()
    def what_produces_is_counted(self) -> None:
        for engine in [*self.scheduler.engines.values(), *self.scheduler.fleet.leaving]:
            caps, leases = engine.caps, engine.leases
            assert caps.producing == sum(it.width for it in leases.values() if it.first_token_at is not None)
            silent = {key: it for key, it in leases.items() if it.first_token_at is None}
            assert set(caps.waiters) == {key for key, it in silent.items() if it.is_stream}
            assert caps.untold == sum(it.width for it in silent.values() if not it.is_stream)
            assert set(caps.queued) <= set(caps.waiters)
            assert caps.waiting_tokens == sum(it.prefill_tokens for it in caps.waiters.values())
            places = [it.place for it in leases.values()]
            assert places == sorted(places)

    @invariant()
    def an_engine_that_was_removed_is_there_for_what_runs_on_it_only(self) -> None:
        leaving = self.scheduler.fleet.leaving
        assert all(it.leases and not it.accepting for it in leaving)
        assert not any(it is engine for it in leaving for engine in self.scheduler.engines.values())
        urls = [it.url for it in [*leaving, *self.scheduler.engines.values()]]
        assert len(urls) == len(set(urls))
        assert set(self.scheduler.index._caches) == set(self.scheduler.engines)
        assert set(self.scheduler._swaps._next_at) <= set(self.scheduler.engines)
        assert all(it.engine in ("", *self.scheduler.engines) for it in self.scheduler.queue)

    @invariant()
    def what_waits_is_queued(self) -> None:
        queue = self.scheduler.queue
        assert {it.request.key for it in queue} == set(self.waiting)
        assert len(queue) == len(self.waiting)
        assert queue.bytes == sum(it.body_bytes for it in self.waiting.values())
        assert set(self.scheduler.entries) == set(self.waiting) | set(self.running)

    @invariant()
    def all_time_is_spent_at_what_runs_and_waits(self) -> None:
        concurrency = self.scheduler.concurrency
        assert concurrency.in_flight == sum(it.width > 0 for it in self.running.values())
        assert concurrency.waiting == sum(it.width > 0 for it in self.waiting.values())
        spent = concurrency.total(self.now)
        assert sum(spent.in_flight) == pytest.approx(self.now)
        assert sum(spent.wanted) == pytest.approx(self.now)

    @invariant()
    def the_first_in_line_does_not_wait_beside_room_everywhere(self) -> None:
        for waiting in self.scheduler.queue:
            if "room in the KV cache" in waiting.why:
                continue
            entry = self.scheduler.entries[waiting.request.key]
            engines = [
                engine
                for engine in self.scheduler.engines.values()
                if any(map(engine.serves, entry.models)) and engine.name not in entry.excluded
            ]
            width, blocks = max(1, waiting.request.width), waiting.request.blocks
            has_room = [engine.has_room(width, engine.reserved_from(blocks, 0)) for engine in engines]
            assert not engines or not all(has_room)
            return

    @invariant()
    def only_what_runs_keeps_anybody_out(self) -> None:
        for waiting in self.scheduler.queue:
            if "room in the KV cache" in waiting.why:
                engine = self.scheduler.engines[waiting.engine]
                assert self.scheduler.policy == "cost"
                assert waiting.request.width > 0
                entry = self.scheduler.entries[waiting.request.key]
                serves = any(map(engine.serves, entry.models))
                is_free = not engine.leases and engine.free > 0 and serves
                assert not is_free or self.a_wide_one_waits_for_quota()

    @invariant()
    def kept_slots_are_few_and_kept_for_a_moment(self) -> None:
        assert len(self.scheduler._returns.watched) <= 64
        for engine in self.scheduler.engines.values():
            for hold in engine.holds:
                assert self.scheduler.policy == "cost"
                assert hold.width > 0
                assert hold.until <= self.now + MAX_HOLD_S

    @invariant()
    def caches_keep_their_bounds_and_know_only_what_runs(self) -> None:
        for name, cache in self.scheduler.index._caches.items():
            running = set(self.scheduler.engines[name].leases)
            if isinstance(cache, PooledCache):
                assert set(cache._running) <= running
                owners = [it.owners for it in cache._recency if it.owners is not None]
                assert all(it and it <= running for it in owners)
            else:
                assert isinstance(cache, SlotCache)
                assert {it.key for it in cache._slots if it.key is not None} <= running

    @invariant()
    def it_can_always_be_shown(self) -> None:
        view = snapshot(self.scheduler, self.now)
        assert len(view.running) == len(self.running)
        assert len(view.waiting) == len(self.waiting)

    def teardown(self) -> None:
        for key in range(1, getattr(self, "next_key", 0) + 1):
            self.finish_as(key, Outcome.CLIENT_DISCONNECT, Usage(), True)
        if not hasattr(self, "scheduler"):
            return
        self.tick(1000.0)
        assert (self.waiting, self.running) == ({}, {})
        assert self.scheduler.next_deadline() is None
        for engine in self.scheduler.engines.values():
            assert (engine.in_flight, engine.cooling_width, engine.pending_prefill_tokens) == (0, 0, 0)
        assert self.scheduler.fleet.leaving == []
        self.caches_keep_their_bounds_and_know_only_what_runs()


TestScheduler = SchedulerMachine.TestCase
TestScheduler.settings = settings(max_examples=200, stateful_step_count=40)
