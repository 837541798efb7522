"""How many requests an engine runs at once, found out from when its streams start to produce.

Nothing is sent for it. What is seen are grants, first tokens, ends and the engine's own load reports. An
engine serves in order of arrival, so the *rank* of a stream, what was granted up to it and has not ended, is
what runs when it starts. Behind a cap the rank at a start never exceeds it, and a start follows an end: a
stream that waited for longer than its prefill and all before it can explain, and then started soon after
another ended, was held up. Held up again and again at one number, and next to never seen above it: that is
the cap. Where the engine reports how many run and wait, the same is asked of its reports.
"""

from collections import deque
from statistics import median_low

from gateway.core.lease import Lease, LoadReport
from gateway.core.pace import Pace
from gateway.core.tally import Tally

STREAMS_HELD = 6
REPORTS_HELD = 5
"""So often a stream was held up, or a report showed that requests were, before a cap is inferred."""

FACTOR = 1.5
SLACK_S = 0.3
"""A stream is overdue after so many times the time that its prefill needs at the best pace seen, and this
much more: a step that has begun ends first, and decoding slows a prefill."""

STRAYS = 4
"""Overdue starts that followed no end of ours, for each so many held up ones, say that something else decides
when requests start: other users of the engine, or one that pauses."""

KV_FULL = 0.9
_KV_REPORTS = 15
_NEVER = float("-inf")


class Caps:
    """One engine's. `believed` is its cap as it is known from elsewhere, `inferred` what was found here, None
    if nothing was, `limit` the lower of both.

    Widths: `producing` of streams with a first token, `untold` of requests that tell none, `most` that ever
    ran at once for certain, `ended` of all that have ended, without what still cools. `waiters` are streams
    without a first token, `queued` those that have no slot in the engine; both in order of their grants.
    `wide`: requests of several slots. When which of these run is not seen.
    """

    __slots__ = (
        "_kv",
        "_reports",
        "_served",
        "_served_at_report",
        "_started_at",
        "_started_before_end",
        "_strays",
        "_streams",
        "_untold_done",
        "_untold_tokens",
        "believed",
        "ended",
        "ended_at",
        "inferred",
        "is_told",
        "limit",
        "most",
        "pace",
        "producing",
        "queued",
        "untold",
        "waiters",
        "waiting_tokens",
        "wide",
    )  # fmt: skip

    def __init__(self, limit: int) -> None:
        self.believed = self.limit = limit
        self.producing = self.untold = self.wide = self.ended = self._served = 0
        self.waiters: dict[int, Lease] = {}
        self.queued: dict[int, Lease] = {}
        self.waiting_tokens = self._untold_tokens = self._untold_done = 0
        self.ended_at = self._started_at = self._started_before_end = _NEVER
        self.forget()

    def forget(self) -> None:
        """The engine is another one, whatever still runs."""
        self.pace = Pace()
        self.most = 0
        self.inferred: int | None = None
        self.limit = self.believed
        self.is_told = False
        self._streams = Tally(STREAMS_HELD)
        self._reports = Tally(REPORTS_HELD)
        self._strays = 0
        self._kv: deque[int] = deque(maxlen=_KV_REPORTS)
        self._served_at_report = -1

    @property
    def kv_typical(self) -> int | None:
        """How many it usually runs while KV memory holds up more; None where that does not happen."""
        if len(self._kv) < REPORTS_HELD:
            return None
        typical = median_low(self._kv)
        return None if self.inferred is not None and self.inferred <= typical else typical

    def granted(
        self, key: int, width: int, now: float, prefill_tokens: int, prompt_tokens: int, ahead_tokens: int,
        is_stream: bool, busy: int,
    ) -> Lease:  # fmt: skip
        """The lease of a grant. `busy`: the width that was in flight or cooling before."""
        slot_at = now if busy + width <= self.limit else None
        place, untold = busy + width + self.ended, self._untold_tokens
        if width > 1:
            self.wide += 1
        if not is_stream:
            self.untold += width
            self._untold_tokens = untold + prefill_tokens
            return Lease(
                width, now, prefill_tokens, prompt_tokens, ahead_tokens, None, False, place, 0, 0, 0, 0,
                slot_at,
            )  # fmt: skip
        untold_ahead = untold - self._untold_done
        ahead_told = self.waiting_tokens + untold_ahead
        lease = Lease(
            width, now, prefill_tokens, prompt_tokens, ahead_tokens, None, True, place, 0, ahead_told, untold,
            untold_ahead, slot_at,
        )  # fmt: skip
        self.waiting_tokens += prefill_tokens
        self.waiters[key] = lease
        if slot_at is None:
            self.queued[key] = lease
        return lease

    def started(self, key: int, lease: Lease, now: float, busy: int) -> bool:
        """The first token. Returns whether it was held up, and started because another ended.

        `busy`: the width in flight. 0 where nothing can be concluded: slots cool, or others use the engine.
        """
        waiters, producing = self.waiters, self.producing + lease.width
        self.producing = producing
        if self.wide:
            busy = 0
        elif producing > self.most:
            self.most = producing
        if key not in waiters:
            # It answers in events though nobody asked for that.
            lease.is_stream = True
            self.untold -= lease.width
            return False
        is_next = len(waiters) == 1 or next(iter(waiters)) == key
        del waiters[key]
        if self.queued:
            self.queued.pop(key, None)
        self.waiting_tokens -= lease.prefill_tokens
        # One that overtook may stand anywhere in the engine's order.
        held = is_next and self._started_in_turn(lease, now, busy)
        self._started_at = now
        if self.inferred is not None and self.inferred < self.most:
            self._infer()
        return held

    def _started_in_turn(self, lease: Lease, now: float, busy: int) -> bool:
        hidden_tokens = lease.untold_before - self._untold_done
        if hidden_tokens > 0:
            self._untold_done = lease.untold_before
        else:
            hidden_tokens = 0
        rank = lease.place + lease.overtaken - self.ended
        if busy:
            self._streams.saw(rank)
            if self.inferred is not None and rank > self.inferred:
                self._infer()
        if now - lease.granted_at <= SLACK_S or self.ended_at <= lease.granted_at:
            return False
        held = self._was_held(lease, hidden_tokens, now)
        if held and busy > rank:
            self._streams.hold(rank, self.ended)
            self._infer()
        return held

    def ended_one(self, key: int, lease: Lease, now: float) -> None:
        width = lease.width
        if width > 1:
            self.wide -= 1
        if lease.first_token_at is not None:
            self.producing -= width
            self._served += width
        elif lease.is_stream:
            del self.waiters[key]
            self.queued.pop(key, None)
            self.waiting_tokens -= lease.prefill_tokens
        else:
            self.untold -= width
            self._served += width
        if self.waiters:
            for waiter in self.waiters.values():
                # It came later and ended sooner: that brings nobody before it forward.
                if waiter.place >= lease.place:
                    break
                waiter.overtaken += width
        if width:
            self.freed(width, now)

    def freed(self, width: int, now: float) -> None:
        """So many slots have come free in the engine."""
        self.ended += width
        self.ended_at, self._started_before_end = now, self._started_at
        while self.queued:
            key, lease = next(iter(self.queued.items()))
            if lease.place + lease.overtaken - self.ended > self.limit:
                break
            lease.slot_at = now
            del self.queued[key]

    def cools(self, width: int) -> None:
        """What has just ended still has its slots."""
        self.ended -= width

    def learn(self, lease: Lease, computed_tokens: int | None) -> None:
        """From an answer that was a stream. `computed_tokens`: None where the engine does not tell."""
        first_token_at = lease.first_token_at
        if first_token_at is None or not lease.is_stream:
            return
        seconds = first_token_at - lease.granted_at
        if computed_tokens is None:
            # Of those that tell no first token most are computed long since.
            told_tokens = lease.prefill_tokens + lease.ahead_tokens_told - lease.untold_ahead
            self.pace.guess(told_tokens, seconds)
        else:
            self.pace.learn(computed_tokens, seconds)

    def reported(self, report: LoadReport, busy: int, kv_tokens: int | None) -> None:
        """`busy`: the width in flight or cooling, 0 where others use the engine."""
        running, waiting = report.running, report.waiting
        if running is None or waiting is None:
            return
        self.is_told = True
        if running + waiting > busy:
            return
        self._reports.saw(running)
        self.most = max(self.most, running)
        self._doubt_slots_of(waiting)
        # Where one has ended and as many run, one has started: no long prefill keeps the others out.
        # None runs in an engine that sleeps, or between two batches.
        if running and waiting and self._served != self._served_at_report and self._all_produce(running):
            self._served_at_report = self._served
            if self._is_kv_full(report, kv_tokens):
                self._kv.append(running)
            else:
                self._reports.hold(running, self._served)
                if self._kv:
                    self._kv.popleft()
            self._infer()
        elif self.inferred is not None and self.inferred < self.most:
            self._infer()

    def _doubt_slots_of(self, waiting: int) -> None:
        """So many wait inside the engine, the youngest: since when they have a slot will not be known, unless
        they are held up in a way that shows."""
        for lease in reversed(self.waiters.values()) if waiting else ():
            if lease.slot_at == lease.granted_at:
                lease.slot_at = None
            waiting -= lease.width
            if waiting <= 0:
                return

    def proved(self, limit: int) -> None:
        """One more than `limit` were sent and did not run at once, all others produced."""
        self._conclude(limit)

    def exceeded(self, running: int) -> None:
        """So many run at once, and perhaps more would."""
        self.most = max(self.most, running)
        if self.inferred is not None and self.inferred <= running:
            self._conclude(None)

    def doubt(self) -> None:
        """It is said to have another cap: what was found has to be found again."""
        self._conclude(None)

    def believe(self, limit: int) -> None:
        """Another figure for what it runs at once, from elsewhere."""
        self.believed = limit
        self._conclude(self.inferred)

    def _all_produce(self, running: int) -> bool:
        """Whether no prompt is computed, but for a few: one holds up others without being a cap."""
        return running - self.producing - self.untold <= running // 8

    def _is_kv_full(self, report: LoadReport, kv_tokens: int | None) -> bool:
        """Whether the next request waits for memory rather than for a slot."""
        usage = report.kv_usage
        if usage is None:
            return False
        if usage >= KV_FULL or not (kv_tokens and self.waiters):
            return usage >= KV_FULL
        following = next(iter(self.waiters.values()))
        return (1 - usage) * kv_tokens < following.prompt_tokens

    def _was_held(self, lease: Lease, hidden_tokens: int, now: float) -> bool:
        tokens_per_s = self.pace.tokens_per_s(lease.prefill_tokens)
        if tokens_per_s is None:
            if lease.slot_at == lease.granted_at and lease.place + lease.overtaken - self.ended > self.most:
                lease.slot_at = None
            return False
        own_s = FACTOR * (lease.prefill_tokens + hidden_tokens) / tokens_per_s + SLACK_S
        all_s = FACTOR * (lease.prefill_tokens + lease.ahead_tokens_told) / tokens_per_s + SLACK_S
        granted, before, ended = lease.granted_at, self._started_before_end, self.ended_at
        # Prompts are computed in order: whatever was before the last start is done with.
        if ended - granted <= all_s and ended - max(granted, before) <= own_s:
            return False
        if now - max(ended, self._started_at) > own_s:
            self._strays += 1
            lease.slot_at = None
            return False
        lease.slot_at = ended
        return True

    def _infer(self) -> None:
        tally = self._streams
        cap = None if self._strays * STRAYS > tally.held or self._kv else tally.cap()
        if self.is_told and (told := self._reports.cap()) is not None:
            tally, cap = self._reports, told
            # A client that reads slowly is not done when its engine is: the engine's own count knows that.
            self.most = min(self.most, told)
        if cap is not None and cap >= self.most:
            self._conclude(cap)
        elif self.inferred is not None:
            self._conclude(None if tally.is_exceeded(self.inferred) else max(self.inferred, self.most))

    def _conclude(self, cap: int | None) -> None:
        self.inferred = cap
        self.limit = self.believed if cap is None else min(self.believed, cap)
