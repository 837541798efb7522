"""The only owner of mutable state. Events in, decisions out; a grant is counted before it is returned.

Every method takes `now` and returns a `Step`: grants and rejections, possibly of other requests than the
one it was called for, and what this process would like to use of each engine (`want`). Whoever shares
engines between processes moves `quota` by that (`set_quota`); alone, quota is the cap.
"""

from collections.abc import Callable, Iterable, Sequence

from gateway.core import refusals
from gateway.core.admission import Queue
from gateway.core.blocks import BLOCK_BYTES
from gateway.core.concurrency import Concurrency
from gateway.core.engine import Engine, Lease, Residency
from gateway.core.entry import Choice, Entry
from gateway.core.events import Discovered, EngineEvent, Probed, Reported
from gateway.core.fleet import Fleet
from gateway.core.holds import Returns
from gateway.core.index import Index
from gateway.core.keeping import Keeper
from gateway.core.pairing import Pairing
from gateway.core.placing import Placing, earlier
from gateway.core.request import Decision, Grant, Outcome, Reason, Rejection, Request, Route, Usage
from gateway.core.router import Candidate, Policy
from gateway.core.step import Limits as Limits
from gateway.core.step import Step as Step
from gateway.core.swaps import MOSTLY, Swaps

_OK, _RETRY, _SLOTS = Outcome.OK, Route.RETRY, Residency.SLOTS
# Outcomes after which the engine may go on computing: we hung up on it.
_HUNG_UP = {Outcome.CLIENT_DISCONNECT, Outcome.CLIENT_TIMEOUT, Outcome.ENGINE_TIMEOUT, Outcome.SHUTDOWN}


class Scheduler:
    def __init__(
        self,
        engines: Iterable[Engine],
        limits: Limits,
        policy: Policy = "cost",
        random: Callable[[], float] = lambda: 0.0,
        block_bytes: int = BLOCK_BYTES,
        concurrency: Concurrency | None = None,
    ) -> None:
        self.engines = {engine.name: engine for engine in engines}
        self.concurrency = concurrency or Concurrency()
        self.queue = Queue(limits.max_queue, limits.max_queue_bytes, self.concurrency)
        self.policy: Policy = policy
        self.index = Index(self.engines, block_bytes)
        self.entries: dict[int, Entry] = {}
        self._placing = Placing(self.engines, self.index, policy, random)
        self._watch = self._placing.watch
        self._watch.concurrency = self.concurrency
        self._returns = Returns()
        self._keeper = Keeper(self.queue, self.index, self._returns)
        self._turn = 0
        self._closed = False
        self._want = dict.fromkeys(self.engines, 0)
        self._nothing = Step([], self._want)
        self._swaps = Swaps(self.index)
        self._pairing = Pairing(
            self.queue, self.entries, self.engines, self._placing, self._swaps, self._want, self._commit
        )  # fmt: skip
        self.fleet = Fleet(
            self.engines, self.queue, self.entries, self.index, self._placing, self._pairing, self._want
        )

    # Requests

    def offer(self, request: Request, now: float) -> Step:
        """A new request: granted, queued (no decision yet) or rejected."""
        if self._closed:
            return self._refuse(request.key, Reason.SHUTTING_DOWN, "The gateway is shutting down. Retry.")
        self._turn += 1
        entry = self._placing.entry(request, self._turn, now)
        if self._returns.watched:
            self._returns.arrived(request.blocks, now)
        self._swaps.turns.arrived(request.blocks, now)
        fits = self.queue.fits(request.body_bytes)
        grant = self._at_once(entry, now, may_wait=fits)
        if grant is not None:
            self.entries[request.key] = entry
            return Step([grant, *self._pair(now)] if self.queue.by_key else [grant], self._want)
        if not self._placing.widen(entry):
            return self._refuse(request.key, *refusals.nobody(request.models, self.engines.values()))
        self.entries[request.key] = entry
        self.queue.add(request, now, models=entry.models)
        decisions = self._pair(now)
        if fits or request.key not in self.queue:
            self._pairing.expect(request.key)
            return self._step(decisions)
        # Not even a full queue keeps a request from slots that nobody in it would take.
        self._pairing.take(request.key, now)
        del self.entries[request.key]
        message = refusals.full(self.queue, request.body_bytes)
        return self._refuse(request.key, Reason.QUEUE_FULL, message, also=[*decisions, *self._pair(now)])

    def first_token(self, key: int, now: float) -> float | None:
        """The engine produces: its prefill is done and its blocks are there. Returns how long the request
        waited for a slot in there, None where that is not known. `go_on` may have grants thereafter."""
        entry = self.entries.get(key)
        if entry is None or entry.engine is None:
            return None
        engine = entry.engine
        waited_s = engine.first_token(key, now)
        if self.fleet.has(engine):
            self.index.confirm(engine.name, key, now)
        return waited_s

    def go_on(self, now: float) -> Step:
        """After a first token, if anybody waits: an engine may be found to run more than was thought."""
        return self._step(self._pair(now)) if self._pairing.may_go_beyond(now) else self._nothing

    def retry(self, key: int, now: float, *, reached: bool) -> Step:
        """The granted engine failed this request before any answer byte went to the client.

        `reached`: it had the whole request. That allows one resend in a request's lifetime, so that one
        which kills engines does not go round the fleet; a connection that failed earlier does not count.
        """
        entry = self.entries.get(key)
        if entry is None or entry.engine is None:
            return self._step([])
        failed = entry.engine
        self._release(entry, now)
        if reached and entry.resent:
            del self.entries[key]
            message = refusals.failed_twice(failed)
            return self._refuse(key, Reason.ENGINE_UNREACHABLE, message, also=self._pair(now))
        entry.resent = entry.resent or reached
        return self._again(entry, failed, now, same_allowed=reached)

    def decline(self, key: int, now: float) -> Step:
        """The granted engine refused the request for load (429, 503): try another, hold nothing against it.

        A rejection means that no other engine may be tried; the caller passes the engine's own answer on.
        """
        entry = self.entries.get(key)
        if entry is None or entry.engine is None:
            return self._step([])
        failed = entry.engine
        was_beyond = failed.growth.refused(key, now)
        self._release(entry, now)
        return self._again(entry, failed, now, same_allowed=was_beyond)

    def finish(self, key: int, outcome: Outcome, usage: Usage, now: float, *, reached: bool = True) -> Step:
        """The request is over, from any state; later calls for it do nothing.

        `reached`: some of it was written to the engine, so that the slot cools if the client left.
        """
        entry = self.entries.pop(key, None)
        if entry is None:
            return self._nothing
        grant, engine = entry.grant, entry.engine
        if grant is None or engine is None:
            self._pairing.take(key, now)
            return self._step(self._pair(now))
        if not self.fleet.has(engine):
            self._release(entry, now)
            return self._step(self._pair(now))
        # First, since what an engine said must not be able to keep its slot.
        lease = engine.release(key, now)
        self._want[engine.name] -= lease.width
        if outcome is _OK:
            request = entry.request
            try:
                self.index.delivered(engine, request, grant, usage, now)
            except BaseException:
                self.index.end(engine.name, key, now)
                raise
            engine.learn(lease, usage, now)
            self._swaps.turns.ended(request.blocks, now)
            if self.policy == "cost" and engine.residency is _SLOTS:
                self._keeper.keep_slot(engine, request, grant.model, lease, now)
        else:
            self.index.end(engine.name, key, now)
            if outcome in _HUNG_UP and reached:
                engine.cool(lease.width, now)
        if self._pairing.is_at_rest and not self.queue.by_key:
            return self._nothing
        return self._step(self._pair(now))

    # Engines

    def update(self, name: str, event: EngineEvent, now: float) -> Step:
        """What a probe saw. Requests that nobody can serve any more are rejected here."""
        engine = self.engines[name]
        if isinstance(event, Discovered):
            engine.facts = event.facts
            self.index.fit(engine)
        elif isinstance(event, Probed):
            engine.probed(event.probe, now, event.why)
        elif isinstance(event, Reported):
            engine.reported(event.report, now)
        else:
            engine.restarted()
            self.index.forget(name)
            self._swaps.restarted(name)
        orphans = self._orphans(now)
        return self._step([*orphans, *self._pairing.serve_widthless(now), *self._pair(now)])

    def drain(self, name: str, on: bool, now: float) -> Step:
        """Give the engine nothing new; what runs there ends by itself."""
        self.engines[name].draining = on
        return self._step([*self._orphans(now), *self._pair(now)])

    def change_engines(self, remove: Iterable[str], add: Iterable[Engine], now: float) -> Step:
        """Engines of these names go, these come, at once: nobody is refused for what comes. An engine that
        comes may have the name of one that goes. What runs on one that goes ends by itself (`fleet.leaving`);
        if one of its URL comes before that, it is that one again."""
        moved = self.fleet.change(remove, add, now)
        orphans = self._orphans(now)
        for key in moved:
            self._pairing.expect(key)
        return self._step([*orphans, *self._pairing.serve_widthless(now), *self._pair(now)])

    def configure(self, limits: Limits, policy: Policy, now: float) -> Step:
        """Who waits already goes on waiting, also beyond the new limits."""
        self.queue.max_requests, self.queue.max_bytes = limits.max_queue, limits.max_queue_bytes
        if policy != self.policy:
            self.policy = self._placing.policy = policy
            for engine in self.engines.values():
                engine.holds = []
            self._pairing.look_anew()
        return self._step(self._pair(now))

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
            self._pairing.forget(waiting)
            del self.entries[key]
            expired.append(self._rejection(key, Reason.QUEUE_TIMEOUT, refusals.timed_out(waiting, now)))
        for engine in self.engines.values():
            engine.expire(now)
        return self._step([*expired, *self._pair(now)])

    def next_deadline(self) -> float | None:
        """When `tick` is due, at the latest."""
        if not self.queue.deadlines and not self._watch.timed:
            return self._pairing.due
        due = earlier(self.queue.next_deadline(), self._pairing.due)
        for engine in list(self._watch.timed):
            its_due = engine.next_deadline()
            if its_due is None:
                self._watch.timed.discard(engine)
            due = earlier(due, its_due)
        return due

    def retry_after_s(self) -> float:
        """Seconds until the queue should have drained; between 1 and 60."""
        return self._placing.drain_s(len(self.queue))

    def idle_while_waiting_s(self, name: str, now: float) -> float:
        """Seconds in which a slot of the engine stood free beside a request that would be put there."""
        return self._pairing.idle.total_s(self.engines[name], now)

    def explain(self, request: Request) -> tuple[list[Candidate], Candidate | None]:
        """Every engine's figures for `request` now, and the one it would go to. Changes nothing."""
        entry = self._placing.entry(request, self._turn + 1)
        candidates = self._placing.candidates(entry)
        return candidates, self._placing.choose(entry, candidates, len(self.queue)) if candidates else None

    def waits_for(self, request: Request, chosen: Candidate, now: float) -> str:
        """What `request` would wait for, were it offered now and the only one to wait; empty: nothing."""
        return self._pairing.waits_for(request, chosen, now)

    # Inside

    def _step(self, decisions: Sequence[Decision]) -> Step:
        return Step(decisions, self._want) if decisions else self._nothing

    def _refuse(self, key: int, reason: Reason, message: str, also: Sequence[Decision] = ()) -> Step:
        return self._step([self._rejection(key, reason, message), *also])

    def _rejection(self, key: int, reason: Reason, message: str) -> Rejection:
        return Rejection(key=key, reason=reason, message=message, retry_after_s=self.retry_after_s())

    def _at_once(self, entry: Entry, now: float, *, may_wait: bool = True) -> Grant | None:
        """A grant for a request that nobody waits before: the queue is empty, a slot was kept for it, or it
        takes none.

        `may_wait`: the queue has room, so that a full engine is worth waiting for if that is quicker.
        """
        request = entry.request
        if may_wait and not (self.queue.by_key and request.width):
            it = self._placing.first(entry)
        else:
            it = self._among(entry, may_wait)
        if it is not None and may_wait and it.engine.leases and it.seen.uncached >= MOSTLY:
            it = self._admitting(entry, it, now)
        return None if it is None else self._grant(entry, it, now)

    def _admitting(self, entry: Entry, best: Choice, now: float) -> Choice | None:
        """`best`, or where its cache is full of what is in use the next that has a slot and room."""
        if not self._placing.may_keep_out(entry.request) or self._lets_in(entry, best, now):
            return best
        others = (it for it in self._placing.with_room(entry, {}) if it.engine is not best.engine)
        return next((it for it in others if self._lets_in(entry, it, now)), None)

    def _lets_in(self, entry: Entry, it: Choice, now: float) -> bool:
        return self._swaps.lets_in(it.engine, entry.request, it.seen.uncached, (), now)

    def _among(self, entry: Entry, may_wait: bool) -> Choice | None:
        """The best of the engines that keep a slot for the request, if it overtakes, or have room for it, if
        it may not wait."""
        width = entry.request.width
        overtakes = bool(self.queue.by_key) and width > 0
        if overtakes and not any(it.keeps_slot_for(entry.request.blocks) for it in self._watch.timed):
            return None
        candidates = eligible = self._placing.candidates(entry)
        if overtakes:
            eligible = [it for it in candidates if it.engine.keeps_slot_for(entry.request.blocks)]
        if not may_wait:
            eligible = [it for it in eligible if it.engine.has_room(width, it.reserved)]
        if not eligible:
            return None
        it = self._placing.choose(entry, eligible, 0)
        has_room = it.engine.has_room(width, it.reserved)
        return self._placing.chosen(entry, it, candidates) if has_room else None

    def _grant(self, entry: Entry, it: Choice, now: float) -> Grant:
        request, engine, model, seen = entry.request, it.engine, it.model, it.seen
        key, name, tokens, resident = request.key, engine.name, seen.prompt_tokens, seen.resident_tokens
        entry.attempts = attempt = entry.attempts + 1
        entry.queued_s = queue_s = entry.queued_s + (now - entry.waits_since)
        route = it.route if attempt == 1 else _RETRY
        width = request.width if request.width <= engine.slots else engine.slots
        grant = Grant(
            key, name, model, route, attempt, width, resident, it.best_tokens, queue_s, it.known_tokens,
            it.holder_full, seen.known_tokens - resident, seen.ever_tokens, seen,
        )  # fmt: skip
        entry.grant, entry.engine, entry.row = grant, engine, None
        entry.seen.clear()
        for other in self._watch.timed:
            other.end_holds(request.blocks)
        ahead = tokens - resident - seen.pending_tokens
        engine.lease(key, width, ahead, now, prompt_tokens=tokens, stream=request.stream)
        self._want[name] += width
        self.index.begin(name, request, model, now, seen.sight)
        if request.pool:
            self._placing.placed(entry, model)
        return grant

    def _release(self, entry: Entry, now: float) -> Lease:
        engine, key = entry.engine, entry.request.key
        assert engine is not None
        entry.grant = entry.engine = None
        lease = engine.release(key, now)
        if self.fleet.has(engine):
            self._want[engine.name] -= lease.width
            self.index.end(engine.name, key, now)
        else:
            self.fleet.released(engine)
        return lease

    def _again(self, entry: Entry, failed: Engine, now: float, *, same_allowed: bool) -> Step:
        key = entry.request.key
        before = entry.excluded
        is_here = self.fleet.has(failed)
        if is_here:
            entry.excluded = before | {failed.name}
        entry.waits_since = now
        self._placing.widen(entry)
        if same_allowed and not self._placing.is_served(entry):
            entry.excluded = before
        # One that was removed may be gone before what replaces it is ready.
        if not (self._placing.is_served(entry) or (not is_here and self._placing.may_come(entry))):
            del self.entries[key]
            message = refusals.failed(failed)
            return self._refuse(key, Reason.ENGINE_UNREACHABLE, message, also=self._pair(now))
        grant = self._at_once(entry, now)
        if grant is not None:
            return self._step([grant, *self._pair(now)])
        self.queue.add(entry.request, now, models=entry.models, waited_s=entry.queued_s, resumed=True)
        return self._step(self._pair(now))

    def _pair(self, now: float) -> list[Decision]:
        if self._watch.resized:
            self.fleet.resized(self._watch.resized)
        return self._pairing.pair(now)

    def _commit(self, entry: Entry, engine: Engine, now: float) -> Grant:
        return self._grant(entry, self._placing.looked_at(entry, engine), now)

    def _orphans(self, now: float) -> list[Decision]:
        out: list[Decision] = []
        for key, refusal in self.fleet.orphans(now):
            del self.entries[key]
            out.append(self._rejection(key, *refusal))
        return out
