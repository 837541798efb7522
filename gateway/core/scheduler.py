"""The only owner of mutable state. Events in, decisions out; a grant is counted before it is returned.

Every method takes `now` and returns a `Step`: grants and rejections, possibly of other requests than the
one it was called for, and what this process would like to use of each engine (`want`). Whoever shares
engines between processes moves `quota` by that (`set_quota`); alone, quota is the cap.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from gateway.core import refusals, router
from gateway.core.admission import Queue, Waiting
from gateway.core.engine import Engine, Lease, Residency
from gateway.core.events import Discovered, EngineEvent, Probed, Reported
from gateway.core.holds import PATIENCE_S, Hold, Returns
from gateway.core.idle import IdleClock
from gateway.core.index import Index
from gateway.core.placing import Entry, Placing, earlier
from gateway.core.request import Decision, Grant, Outcome, Reason, Rejection, Request, Route, Usage
from gateway.core.router import Candidate, Policy

WINDOW = 64
"""How many waiting requests are looked at when a slot frees: larger than the usual queue, bounded in cost."""

# Outcomes after which the engine may go on computing: we hung up on it.
_HUNG_UP = {Outcome.CLIENT_DISCONNECT, Outcome.CLIENT_TIMEOUT, Outcome.ENGINE_TIMEOUT, Outcome.SHUTDOWN}


class Step(Struct, frozen=True):
    decisions: Sequence[Decision]
    want: Mapping[str, int]


class Limits(Struct, frozen=True, kw_only=True):
    """Bounds of the queue: requests, bytes of their bodies."""

    max_queue: int = 512
    max_queue_bytes: int = 256 * 1024 * 1024


class Scheduler:
    def __init__(
        self,
        engines: Iterable[Engine],
        limits: Limits,
        policy: Policy = "cost",
        random: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.engines = {engine.name: engine for engine in engines}
        self.queue = Queue(limits.max_queue, limits.max_queue_bytes)
        self.policy: Policy = policy
        self.index = Index(self.engines)
        self.entries: dict[int, Entry] = {}
        self._placing = Placing(self.engines, self.index, policy, random)
        self._returns = Returns()
        self._turn = 0
        self._closed = False
        self._want = dict.fromkeys(self.engines, 0)
        self._idle = IdleClock()
        self._patience_due: float | None = None

    # Requests

    def offer(self, request: Request, now: float) -> Step:
        """A new request: granted, queued (no decision yet) or rejected."""
        if self._closed:
            return self._refuse(request.key, Reason.SHUTTING_DOWN, "The gateway is shutting down. Retry.")
        self._turn += 1
        entry = Entry(request, self._turn, now)
        self._returns.arrived(request.blocks, now)
        fits = self.queue.fits(request.body_bytes)
        grant = self._at_once(entry, now, may_wait=fits)
        if grant is not None:
            self.entries[request.key] = entry
            return self._step([grant, *self._pair(now)] if self.queue else [grant])
        if not self._placing.is_served(entry) and not self._placing.may_come(entry):
            message = refusals.nobody(request.model, self.engines.values())
            return self._refuse(request.key, Reason.NO_READY_ENGINE, message)
        self.entries[request.key] = entry
        self.queue.add(request, now)
        decisions = self._pair(now)
        if fits or request.key not in self.queue:
            self._expect(request.key)
            return self._step(decisions)
        # Not even a full queue keeps a request from slots that nobody in it would take.
        self._take(request.key)
        del self.entries[request.key]
        message = refusals.full(self.queue, request.body_bytes)
        return self._refuse(request.key, Reason.QUEUE_FULL, message, also=[*decisions, *self._pair(now)])

    def first_token(self, key: int, now: float) -> None:
        """The engine produces: its prefill is done and its blocks are there."""
        entry = self.entries.get(key)
        if entry is not None and entry.grant is not None:
            self.engines[entry.grant.engine].first_token(key, now)
            self.index.confirm(entry.grant.engine, key)

    def retry(self, key: int, now: float, *, reached: bool) -> Step:
        """The granted engine failed this request before any answer byte went to the client.

        `reached`: it had the whole request. That allows one resend in a request's lifetime, so that one
        which kills engines does not go round the fleet; a connection that failed earlier does not count.
        """
        entry = self.entries.get(key)
        if entry is None or entry.grant is None:
            return self._step([])
        failed = entry.grant.engine
        self._release(entry)
        if reached and entry.resent:
            del self.entries[key]
            message = f"Engine {failed} closed the connection, as another did before: not sent again."
            return self._refuse(key, Reason.ENGINE_UNREACHABLE, message, also=self._pair(now))
        entry.resent = entry.resent or reached
        return self._again(entry, failed, now, same_allowed=reached)

    def decline(self, key: int, now: float) -> Step:
        """The granted engine refused the request for load (429, 503): try another, hold nothing against it.

        A rejection means that no other engine may be tried; the caller passes the engine's own answer on.
        """
        entry = self.entries.get(key)
        if entry is None or entry.grant is None:
            return self._step([])
        failed = entry.grant.engine
        self._release(entry)
        return self._again(entry, failed, now, same_allowed=False)

    def finish(self, key: int, outcome: Outcome, usage: Usage, now: float, *, reached: bool = True) -> Step:
        """The request is over, from any state; later calls for it do nothing.

        `reached`: some of it was written to the engine, so that the slot cools if the client left.
        """
        entry = self.entries.pop(key, None)
        if entry is None:
            return self._step([])
        grant = entry.grant
        if grant is None:
            self._take(key)
            return self._step(self._pair(now))
        engine = self.engines[grant.engine]
        if outcome is Outcome.OK:
            self.index.delivered(engine, entry.request, grant, usage)
        lease = self._release(entry)
        if outcome is Outcome.OK:
            engine.alive(now)
            engine.learn(lease, usage, now)
            self._keep_slot(engine, entry.request, lease, now)
        elif outcome in _HUNG_UP and reached:
            engine.cool(lease.width, now)
        return self._step(self._pair(now))

    # Engines

    def update(self, name: str, event: EngineEvent, now: float) -> Step:
        """What a probe saw. Requests that nobody can serve any more are rejected here."""
        engine = self.engines[name]
        if isinstance(event, Discovered):
            engine.facts = event.facts
            self.index.fit(engine)
        elif isinstance(event, Probed):
            engine.probed(event.probe, now)
        elif isinstance(event, Reported):
            engine.reported(event.report, now)
        else:
            engine.restarted()
            self.index.forget(name)
        return self._step([*self._orphans(), *self._pair(now)])

    def drain(self, name: str, on: bool, now: float) -> Step:
        """Give the engine nothing new; what runs there ends by itself."""
        self.engines[name].draining = on
        return self._step([*self._orphans(), *self._pair(now)])

    def set_quota(self, name: str, quota: int | None, now: float) -> Step:
        self.engines[name].quota = quota
        return self._step(self._pair(now))

    def close(self) -> None:
        """Refuse new requests; those queued and running go on."""
        self._closed = True

    # Time

    def tick(self, now: float) -> Step:
        expired: list[Decision] = []
        for waiting in self.queue.expired(now):
            key = waiting.request.key
            self._count_waiting(waiting, -1)
            del self.entries[key]
            expired.append(self._rejection(key, Reason.QUEUE_TIMEOUT, refusals.timed_out(waiting, now)))
        for engine in self.engines.values():
            engine.expire(now)
        return self._step([*expired, *self._pair(now)])

    def next_deadline(self) -> float | None:
        """When `tick` is due, at the latest."""
        due = earlier(self.queue.next_deadline(), self._patience_due)
        for engine in self.engines.values():
            due = earlier(due, engine.next_deadline())
        return due

    def retry_after_s(self) -> float:
        """Seconds until the queue should have drained; between 1 and 60."""
        return self._placing.drain_s(len(self.queue))

    def idle_while_waiting_s(self, name: str, now: float) -> float:
        """Seconds in which a slot of the engine stood free beside a request that would be put there."""
        return self._idle.total_s(self.engines[name], now)

    def explain(self, request: Request) -> tuple[list[Candidate], Candidate | None]:
        """Every engine's figures for `request` now, and the one it would go to. Changes nothing."""
        entry = Entry(request, self._turn + 1)
        candidates = self._placing.candidates(entry)
        return candidates, self._placing.choose(entry, candidates, len(self.queue)) if candidates else None

    # Inside

    def _step(self, decisions: Sequence[Decision]) -> Step:
        return Step(decisions, self._want)

    def _refuse(self, key: int, reason: Reason, message: str, also: Sequence[Decision] = ()) -> Step:
        return self._step([self._rejection(key, reason, message), *also])

    def _rejection(self, key: int, reason: Reason, message: str) -> Rejection:
        return Rejection(key=key, reason=reason, message=message, retry_after_s=self.retry_after_s())

    def _at_once(self, entry: Entry, now: float, *, may_wait: bool = True) -> Grant | None:
        """A grant for a request that nobody waits before: the queue is empty, a slot was kept for it, or it
        takes none.

        `may_wait`: the queue has room, so that a full engine is worth waiting for if that is quicker.
        """
        width, blocks = entry.request.width, entry.request.blocks
        overtakes = width > 0 and len(self.queue) > 0
        if overtakes and not any(it.keeps_slot_for(blocks) for it in self.engines.values()):
            return None
        candidates = eligible = self._placing.candidates(entry)
        if overtakes:
            eligible = [it for it in candidates if it.engine.keeps_slot_for(blocks)]
        if not may_wait:
            eligible = [it for it in eligible if it.engine.has_room(width, it.reserved)]
        if not eligible:
            return None
        it = self._placing.choose(entry, eligible, 0)
        return self._grant(entry, it, candidates, now) if it.engine.has_room(width, it.reserved) else None

    def _grant(self, entry: Entry, it: Candidate, candidates: Sequence[Candidate], now: float) -> Grant:
        request, engine = entry.request, it.engine
        entry.attempts += 1
        entry.queued_s += now - entry.waits_since
        route = router.reason(self.policy, request, it, candidates)
        grant = Grant(
            key=request.key,
            engine=engine.name,
            route=Route.RETRY if entry.attempts > 1 else route,
            attempt=entry.attempts,
            width=engine.width_here(request.width),
            predicted_tokens=it.resident_tokens,
            best_tokens=max(other.resident_tokens for other in candidates),
            queue_s=entry.queued_s,
        )
        entry.grant = grant
        uncached_tokens = it.prompt_tokens - it.matched_tokens
        for other in self.engines.values():
            other.end_holds(request.blocks)
        engine.lease(request.key, grant.width, uncached_tokens, now, prompt_tokens=it.prompt_tokens)
        self._want[engine.name] += grant.width
        self.index.begin(engine.name, request)
        return grant

    def _release(self, entry: Entry) -> Lease:
        grant = entry.grant
        assert grant is not None
        entry.grant = None
        lease = self.engines[grant.engine].release(grant.key)
        self._want[grant.engine] -= grant.width
        self.index.end(grant.engine, grant.key)
        return lease

    def _again(self, entry: Entry, failed: str, now: float, *, same_allowed: bool) -> Step:
        key = entry.request.key
        before = entry.excluded
        entry.excluded = before | {failed}
        entry.waits_since = now
        if same_allowed and not self._placing.is_served(entry):
            entry.excluded = before
        if not self._placing.is_served(entry):
            del self.entries[key]
            message = f"Engine {failed} failed the request and no other engine can take it. Retry."
            return self._refuse(key, Reason.ENGINE_UNREACHABLE, message, also=self._pair(now))
        grant = self._at_once(entry, now)
        if grant is not None:
            return self._step([grant, *self._pair(now)])
        self.queue.add(entry.request, now, waited_s=entry.queued_s, resumed=True)
        return self._step(self._pair(now))

    def _pair(self, now: float) -> list[Decision]:
        """Give free slots to those who wait, in order, each to its best engine as things are now.

        A request whose best engine is full waits for it, but not beside a free slot elsewhere for longer
        than the prefill that it saves. One too wide for what is free keeps that from the ones behind it.
        """
        self._idle.close(self.engines, now)
        self._patience_due = None
        if not self.queue:
            return []
        ahead: dict[str, int] = {}
        models = self._placing.open_models(ahead)
        self.queue.promote(now)
        granted: list[Decision] = []
        for waiting in self.queue.first(models, WINDOW) if models else ():
            if waiting.request.model not in models:
                continue
            entry = self.entries[waiting.request.key]
            candidates = self._placing.candidates(entry, ahead)
            if not candidates:
                self._wait_for(waiting, "", "an engine that has not failed it")
                continue
            it = self._placing.choose(entry, candidates, len(self.queue) - 1)
            if not it.engine.has_room(waiting.request.width, it.reserved):
                it = self._placing.overdue(waiting, candidates, it, now) or it
            engine = it.engine
            was_open = engine.free > ahead.get(engine.name, 0)
            if engine.has_room(waiting.request.width, it.reserved):
                self._take(waiting.request.key)
                granted.append(self._grant(entry, it, candidates, now))
            else:
                self._let_wait(waiting, engine, ahead)
            if was_open and engine.free <= ahead.get(engine.name, 0):
                models = self._placing.open_models(ahead)
        if not models:
            self._placing.all_are_full()
            self._patience_due = None
        return granted

    def _expect(self, key: int) -> None:
        """Note where a queued request would go: while every engine is full, pairing does not look at it."""
        waiting = self.queue.get(key)
        if waiting is None or waiting.why:
            return
        entry = self.entries[key]
        candidates = self._placing.candidates(entry)
        if candidates:
            it = self._placing.choose(entry, candidates, len(self.queue) - 1)
            self._wait_for(waiting, it.engine.name, refusals.slots_on(it.engine, entry.request.width))

    def _let_wait(self, waiting: Waiting, engine: Engine, ahead: dict[str, int]) -> None:
        width = engine.width_here(waiting.request.width)
        ahead[engine.name] = ahead.get(engine.name, 0) + width
        self._patience_due = earlier(self._patience_due, waiting.patience_until)
        self._wait_for(waiting, engine.name, refusals.slots_on(engine, width))
        if engine.free > 0:
            self._idle.note(engine.name)

    def _wait_for(self, waiting: Waiting, engine: str, why: str) -> None:
        self._count_waiting(waiting, -1)
        waiting.engine, waiting.why = engine, why
        self._count_waiting(waiting, 1)

    def _take(self, key: int) -> None:
        waiting = self.queue.remove(key)
        assert waiting is not None
        self._count_waiting(waiting, -1)

    def _count_waiting(self, waiting: Waiting, sign: int) -> None:
        if waiting.engine:
            self._want[waiting.engine] += sign * waiting.request.width

    def _keep_slot(self, engine: Engine, request: Request, lease: Lease, now: float) -> None:
        """Perhaps hold the slot that has just become free for this session's next turn."""
        blocks, width = request.blocks, lease.width
        if self.policy != "cost" or engine.facts.residency is not Residency.SLOTS or not (blocks and width):
            return
        self._returns.ended(blocks, now)
        firsts = self.queue.firsts(engine.facts.models)
        if not firsts or any(it.lane < request.priority or now - it.since >= PATIENCE_S for it in firsts):
            return
        rate = engine.prefill_tokens_per_s or router.DEFAULT_PREFILL_TOKENS_PER_S
        hold_s = self._returns.worth_s(self.index.unshared_tokens(engine.name, request) / rate)
        if hold_s:
            engine.hold(Hold(blocks[-1], len(blocks), width, now + hold_s))

    def _orphans(self) -> list[Decision]:
        """Queued requests that no engine can serve any more; those that still can look elsewhere."""
        out: list[Decision] = []
        for waiting in list(self.queue):
            key, model, entry = waiting.request.key, waiting.request.model, self.entries[waiting.request.key]
            if not self._placing.is_served(entry) and not self._placing.may_come(entry):
                self._take(key)
                del self.entries[key]
                message = refusals.nobody(model, self.engines.values(), entry.excluded)
                out.append(self._rejection(key, Reason.NO_READY_ENGINE, message))
            elif waiting.engine and not self.engines[waiting.engine].accepting:
                self._wait_for(waiting, "", "")
                self._expect(key)
        return out
