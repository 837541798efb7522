"""One engine as the scheduler knows it: its limits, its health, and what runs on it now."""

from collections.abc import Sequence
from math import expm1

from gateway.core.caps import Caps
from gateway.core.facts import Facts as Facts
from gateway.core.facts import Residency as Residency
from gateway.core.facts import SlotSource as SlotSource
from gateway.core.growth import Growth
from gateway.core.health import Health as Health
from gateway.core.health import Probe as Probe
from gateway.core.holds import Hold
from gateway.core.lease import Cooling as Cooling
from gateway.core.lease import Lease as Lease
from gateway.core.lease import LoadReport as LoadReport
from gateway.core.request import Usage
from gateway.core.smoothing import Rate, smoothed
from gateway.core.watch import Watch as Watch

MIN_RATE_TOKENS = 64
"""Fewer uncached tokens than this tell more about overhead than about the prefill rate."""


DEFAULT_SLOT_S = 10.0
"""Slot time assumed before any request has finished; long, so that an idle engine beats a guess."""

_FAILURES_TO_DOWN = 3
_LIVE_TRAFFIC_S = 30.0
_CANCEL_SEEN_S = 0.1
"""A report asked for sooner than this after a disconnect may be older than the request it should show."""


AVERAGED_S = 60.0
"""What has run on an engine for so long tells how much its sessions will want of it."""


# Looked up through its class a member costs 0.2 us on Python 3.11.
_UNKNOWN, _LOADING, _READY, _BUSY, _DOWN = (
    Health.UNKNOWN, Health.LOADING, Health.READY, Health.BUSY, Health.DOWN
)  # fmt: skip


class Engine:
    """Mutable state of one engine. Only the scheduler touches it.

    `trouble`: why it is down, in words, where that will not pass by itself: a certificate, say. `accepting`
    and `usable` (slots that this process may use and nobody else does) follow from what is set and are asked
    for much more often.
    """

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self.url = url
        self.watch = Watch()
        self.trouble = ""
        self.accepting = False
        self._facts = Facts()
        self._health = _UNKNOWN
        self._draining = False
        self._quota: int | None = None
        self._foreign = 0
        self.slots = self.usable = self._facts.slots
        self.slots_source = self._facts.slots_source
        self.is_soft = True
        self.caps = Caps(self.slots)
        self.growth = Growth(self)
        self._beyond = 0
        self.block_tokens, self.residency = self._facts.block_tokens, self._facts.residency
        self.leases: dict[int, Lease] = {}
        self.in_flight = 0
        self.cooling: list[Cooling] = []
        self.cooling_width = 0
        self.in_flight_average = 0.0
        self._averaged_at = 0.0
        self.pending_prefill_tokens = 0
        self.prefill_tokens_per_s: float | None = None
        self.decode_tokens_per_s: float | None = None
        self.slot_s: float | None = None
        self.holds: list[Hold] = []
        self.report: LoadReport | None = None
        self.report_at: float | None = None
        self.restarts = 0
        self.slot_idle_while_waiting_s = 0.0
        self._prefill_rate = Rate()
        self._decode_rate = Rate()
        self._failures = 0
        self._last_traffic: float | None = None
        self._peak = 0
        self._foreign_before = 0
        self._asked_before = float("-inf")

    @property
    def facts(self) -> Facts:
        return self._facts

    @facts.setter
    def facts(self, facts: Facts) -> None:
        before, self._facts = self._facts, facts
        self.block_tokens, self.residency = facts.block_tokens, facts.residency
        self.watch.is_stale = True
        if (facts.slots, facts.slots_source) != (before.slots, before.slots_source):
            self.growth.reset()
            self.caps.doubt()
            self.limit(facts.slots, facts.slots_source)

    @property
    def health(self) -> Health:
        return self._health

    @health.setter
    def health(self, health: Health) -> None:
        if health is not self._health:
            self._health = health
            self._accept()

    @property
    def draining(self) -> bool:
        return self._draining

    @draining.setter
    def draining(self, on: bool) -> None:
        self._draining = on
        self._accept()

    @property
    def quota(self) -> int | None:
        return self._quota

    @quota.setter
    def quota(self, quota: int | None) -> None:
        self._quota = quota
        self._resize()

    @property
    def foreign(self) -> int:
        """Slots that others use."""
        return self._foreign

    @foreign.setter
    def foreign(self, width: int) -> None:
        self._foreign = width
        self._resize()

    def _accept(self) -> None:
        self.watch.is_stale = True
        self.accepting = not self._draining and (self._health is _READY or self._health is _BUSY)

    def _resize(self) -> None:
        slots, quota = self.slots, self._quota
        limit = slots if quota is None else min(slots, quota)
        self.usable = max(0, limit - self._foreign) + self._beyond

    @property
    def beyond(self) -> int:
        """Slots beyond the cap that one request may take (`growth`)."""
        return self._beyond

    @beyond.setter
    def beyond(self, width: int) -> None:
        self._beyond = width
        self._resize()

    def limit(self, slots: int, source: SlotSource) -> None:
        """Another cap than before."""
        self.slots, self.slots_source, self._beyond = slots, source, 0
        self.is_soft = source.is_soft
        self.caps.believe(slots)
        self.watch.resized.add(self)
        self._resize()

    def serves(self, model: str) -> bool:
        return self.accepting and model in self.facts.models

    def may_serve(self, model: str) -> bool:
        """Not ready yet, but there, and for all that is known the model is: worth waiting for."""
        known = self.facts.models
        coming = self.health is _LOADING or self.health is _UNKNOWN
        return not self.draining and coming and (not known or model in known)

    @property
    def free(self) -> int:
        return self.usable - self.in_flight - self.cooling_width

    def width_here(self, width: int) -> int:
        """A lease is at most as wide as the engine: what is wider the engine runs in turns."""
        return min(width, self.slots)

    def has_room(self, width: int, reserved: int = 0) -> bool:
        """Whether a request of `width` could start now beside `reserved` slots kept for others."""
        here = self.width_here(width)
        return here == 0 or self.free - reserved >= here

    def reserved_from(self, blocks: Sequence[int], ahead: int) -> int:
        """Slots that a prompt of `blocks` must leave alone: those kept for other sessions, and `ahead` for
        who waits before it. The session that a slot is kept for goes before all who wait, but only there."""
        if not self.holds:
            return ahead
        kept = sum(hold.width for hold in self.holds)
        own = sum(hold.width for hold in self.holds if hold.is_for(blocks))
        return min(kept - own + ahead, max(0, self.free - own)) if own else kept + ahead

    def keeps_slot_for(self, blocks: Sequence[int]) -> bool:
        return any(hold.is_for(blocks) for hold in self.holds)

    def hold(self, hold: Hold) -> None:
        self.holds.append(hold)
        self.watch.timed.add(self)

    def end_holds(self, blocks: Sequence[int]) -> None:
        """The session of `blocks` has its next turn placed, here or elsewhere."""
        self.holds = [hold for hold in self.holds if not hold.is_for(blocks)]

    def lease(
        self, key: int, width: int, prefill_tokens: int, now: float, *, prompt_tokens: int = 0,
        stream: bool = False,
    ) -> None:  # fmt: skip
        """Count a granted request in flight. `prefill_tokens` of its prompt are to be computed. `stream`: its
        first token will be told."""
        ahead_tokens = self.pending_prefill_tokens
        cooling = self.cooling_width
        self.leases[key] = self.caps.granted(
            key, width, now, prefill_tokens, prompt_tokens, ahead_tokens, stream and width > 0,
            self.in_flight + cooling,
        )  # fmt: skip
        self.pending_prefill_tokens = ahead_tokens + prefill_tokens
        if width:
            self.watch.concurrency.runs(1, now)
        busy = self._runs(width, now) + cooling
        if busy > self._peak:
            self._peak = busy

    def first_token(self, key: int, now: float) -> float | None:
        """Returns how long the request waited for its slots in there, None where that is not known."""
        lease = self.leases.get(key)
        if lease is None:
            return None
        if lease.first_token_at is None:
            lease.first_token_at = now
            self.pending_prefill_tokens -= lease.prefill_tokens
            busy = 0 if self.cooling_width or self._foreign else self.in_flight
            held = self.caps.started(key, lease, now, busy)
            if self.is_soft:
                self.growth.has_started(key, now, was_held=held)
            self.alive(now)
        slot_at = lease.slot_at
        return None if slot_at is None else slot_at - lease.granted_at

    def _runs(self, more: int, now: float) -> int:
        """So much `more` runs from now on; returns all that does."""
        before, average = self.in_flight, self.in_flight_average
        self.in_flight_average = average - (before - average) * expm1((self._averaged_at - now) / AVERAGED_S)
        self.in_flight, self._averaged_at = before + more, now
        return before + more

    def release(self, key: int, now: float) -> Lease:
        lease = self.leases.pop(key)
        if lease.width:
            self.watch.concurrency.runs(-1, now)
        self._runs(-lease.width, now)
        if lease.first_token_at is None:
            self.pending_prefill_tokens -= lease.prefill_tokens
        self.caps.ended_one(key, lease, now)
        if self.is_soft:
            self.growth.ended(key)
        return lease

    def cool(self, width: int, now: float) -> None:
        if width and self.health is not _DOWN:
            self.cooling.append(Cooling(width, now, now + self.facts.cancel_s))
            self.watch.timed.add(self)
            self.cooling_width += width
            self.caps.cools(width)

    def alive(self, now: float) -> None:
        """Bytes from the engine: it is healthy, whatever a probe says (k3s#10240, olla@960a815)."""
        self._last_traffic = now
        self._failures = 0
        if self._health is _DOWN:
            self.health, self.trouble = _READY, ""

    def probed(self, probe: Probe, now: float, why: str = "") -> None:
        self.trouble = why
        if probe is Probe.OK:
            self.health, self._failures = _READY, 0
        elif probe is Probe.LOADING:
            self.health = _LOADING
        elif probe is Probe.REFUSED:
            self.health = _DOWN
            self.report = self.report_at = None
            self._warm(0, now)
        else:
            self._failures += 1
            recent = self._last_traffic is not None and now - self._last_traffic < _LIVE_TRAFFIC_S
            if self.accepting and (self.leases or self.cooling or recent):
                self.health = _BUSY
            elif self._failures >= _FAILURES_TO_DOWN:
                self.health = _DOWN

    def reported(self, report: LoadReport, now: float) -> None:
        self.report, self.report_at = report, now
        if report.running is None:
            return
        running = report.running + (report.waiting or 0)
        before, self._asked_before = self._asked_before, report.asked_at
        started = sum(lease.width for lease in self.leases.values() if lease.is_in(report, before))
        if self.cooling and report.asked_at - self.cooling[-1].since >= _CANCEL_SEEN_S:
            self._warm(max(0, running - started), now)
        if running > self.in_flight:
            # The engine still counts one that left: `cancel_s` ends the waiting only where none can be asked.
            until = now + self.facts.cancel_s
            self.cooling = [Cooling(item.width, item.since, until) for item in self.cooling]
        foreign = max(0, running - self._peak)
        self.foreign = min(foreign, self._foreign_before)
        self._foreign_before = foreign
        self._peak = busy = self.in_flight + self.cooling_width
        self.caps.reported(report, 0 if self._foreign else busy, self._facts.kv_tokens)
        if self.is_soft:
            self.growth.reported(report, now)

    def restarted(self) -> None:
        self.restarts += 1
        self._forget()

    def leave(self) -> None:
        """It was removed: what runs goes on, and nobody asks it any more."""
        self.draining = True
        self._forget()

    def _forget(self) -> None:
        """What it reported, and whoever used it beside what runs."""
        self.report = self.report_at = None
        self.foreign = self._foreign_before = 0
        self.holds = []
        self._warm(0, self._averaged_at)
        self.caps.forget()
        self.growth.reset()
        self.limit(self._facts.slots, self._facts.slots_source)

    def come_back(self, name: str) -> None:
        """It is configured again while some of its requests still run."""
        self.name = name
        self.draining = False
        self.health, self.trouble, self._failures = _UNKNOWN, "", 0
        self.facts = Facts()

    def expire(self, now: float) -> None:
        """End what is over by the clock: kept slots, and the cooling of engines that could not be asked."""
        if self.holds:
            self.holds = [hold for hold in self.holds if hold.until > now]
        if self.cooling and min(item.until for item in self.cooling) <= now:
            self.cooling = [item for item in self.cooling if item.until > now]
            before, self.cooling_width = self.cooling_width, sum(item.width for item in self.cooling)
            self.caps.freed(before - self.cooling_width, now)

    def next_deadline(self) -> float | None:
        if not self.cooling and not self.holds:
            return None
        times = [item.until for item in self.cooling] + [hold.until for hold in self.holds]
        return min(times)

    def learn(self, lease: Lease, usage: Usage, now: float) -> None:
        """Rates from one good answer, so that it is alive: the engine's own timings, else what a stream
        showed."""
        self._last_traffic = now
        prompt, cached = usage.prompt_tokens, usage.cached_tokens
        self.caps.learn(lease, None if prompt is None or cached is None else prompt - cached)
        if self._failures or self._health is _DOWN:
            self.alive(now)
        if lease.width:
            self.slot_s = smoothed(self.slot_s, now - lease.granted_at)
        if lease.first_token_at is None and not usage.prefill_s and not usage.decode_s:
            return
        prefill_s, decode_s = usage.prefill_s, usage.decode_s
        if lease.first_token_at is not None:
            prefill_s = prefill_s or lease.first_token_at - lease.granted_at
            decode_s = decode_s or now - lease.first_token_at
        if prefill_s and prompt is not None and cached is not None and prompt - cached >= MIN_RATE_TOKENS:
            # Until its first token the engine has computed what was ahead of it, too.
            computed = prompt - cached + (0 if usage.prefill_s else lease.ahead_tokens)
            self.prefill_tokens_per_s = self._prefill_rate.add(computed, prefill_s)
        if decode_s and usage.completion_tokens is not None and usage.completion_tokens > 1:
            self.decode_tokens_per_s = self._decode_rate.add(usage.completion_tokens - 1, decode_s)

    def _warm(self, width: int, now: float) -> None:
        """At most `width` of the cooling slots are still busy; the youngest are kept."""
        excess = self.cooling_width - width
        if excess > 0:
            self.caps.freed(excess, now)
        while excess > 0:
            oldest = self.cooling.pop(0)
            if oldest.width > excess:
                self.cooling.insert(0, Cooling(oldest.width - excess, oldest.since, oldest.until))
            excess -= oldest.width
        self.cooling_width = min(self.cooling_width, width)
