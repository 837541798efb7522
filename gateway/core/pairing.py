"""Which waiting request gets a free slot.

Late binding in order of arrival loses a large part of the hits at saturation, and patience that runs
while others are served loses them too (closed-loop simulation on agent traces, `docs/routing.md`). So a
free slot goes to those whose best engine has it, in the order of arrival plus `AGING` times the prefill:
what is resident is served before it is evicted, and nobody is overtaken for ever. In a crowded queue
no order answers all of them soon; the late then let the others go first for a while, so that some are
served in time instead of none.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter

from gateway.core import refusals
from gateway.core.admission import Queue, Waiting
from gateway.core.engine import Engine
from gateway.core.entry import Entry, Look
from gateway.core.idle import IdleClock
from gateway.core.placing import Placing, earlier
from gateway.core.request import Decision, Request
from gateway.core.router import Candidate
from gateway.core.swaps import MOSTLY, RECHECK_S, Swaps

WINDOW = 64
"""How many waiting requests are looked at when a slot frees: larger than the usual queue, bounded in cost."""

KEPT_OUT_WINDOW = 16
"""How many of these may be ones kept out of a full cache: they must not hide those who can go on."""

BEYOND_WINDOW = 8
"""So many are looked at for one that may go beyond an engine's limit."""

AGING = 10.0
"""Seconds in the queue that outweigh one second of prefill: nobody is overtaken for longer than that."""

LATE_S = 2.0
"""Whoever has waited longer cannot be answered promptly any more."""

LATE_UNTIL_S = 30.0
"""So long, while a queue is crowded, the late let those go first who are not."""

CROWDED = 0.65
"""Waiting requests for each slot from which a queue is crowded: no order answers all of them soon. Fewer buy
goodput with TTFT p90 (`benchmarks/plans/README.md`)."""


class Pairing:
    """The queue's side of the scheduler. `commit` grants a waiting entry a slot on an engine."""

    def __init__(
        self,
        queue: Queue,
        entries: Mapping[int, Entry],
        engines: Mapping[str, Engine],
        placing: Placing,
        swaps: Swaps,
        want: dict[str, int],
        commit: Callable[[Entry, Engine, float], Decision],
    ) -> None:
        self.due: float | None = None
        self.is_at_rest = True
        """Nobody waits, and nothing is left of those who did: there is nothing to do."""
        self.idle = IdleClock()
        self._queue = queue
        self._entries = entries
        self._engines = engines
        self._placing = placing
        self._swaps = swaps
        self._want = want
        self._commit = commit
        self._kept_out: dict[str, float] = {}
        self._shut_out: list[Engine] = []

    def pair(self, now: float) -> list[Decision]:
        """Give free slots to those who wait, each to its best engine as things are now.

        A request whose best engine is full waits for it, but not beside a free slot elsewhere for longer
        than the prefill that it saves. One too wide for what is free keeps that from the ones behind it.
        """
        self.idle.close(self._engines, now)
        self.due = None
        self.is_at_rest = not self._queue.by_key
        if self.is_at_rest:
            return []
        ahead: dict[str, int] = {}
        models = self._placing.open_models(ahead)
        granted: list[Decision] = []
        if models:
            self._queue.promote(now)
            self._placing.begin_looks(len(self._queue) - 1)
            self._kept_out.clear()
            self._shut_out.clear()
            window = self._queue.first(models, WINDOW, KEPT_OUT_WINDOW)
            with_room = {name: it for name, it in self._engines.items() if it.accepting and it.free > 0}
            for waiting in self._in_order(window, now):
                if models.isdisjoint(waiting.models):
                    continue
                engine = self._serve(waiting, ahead, now, granted)
                if engine is not None and engine.name in with_room and not _is_open(engine, ahead):
                    del with_room[engine.name]
                    models = _served(with_room.values())
            for engine in self._shut_out:
                if engine.free > 0:
                    self.idle.note(engine.name)
        if not self._placing.open_models({}):
            self._placing.all_are_full()
            self.due = None
        if self._queue.by_key:
            self._go_beyond(now, granted)
        return granted

    def may_go_beyond(self, now: float) -> bool:
        """Whether an engine may be sent one request more than its limit."""
        return any(it.is_soft and it.growth.may(now) for it in self._engines.values())

    def _go_beyond(self, now: float, granted: list[Decision]) -> None:
        """One request more than the limit to engines whose limit is a working one (`growth`)."""
        it_may = {it.name: it for it in self._engines.values() if it.is_soft and it.growth.may(now)}
        if not it_may:
            return
        self._placing.begin_looks(len(self._queue) - 1)
        at_most = min(WINDOW, BEYOND_WINDOW * len(it_may))
        for waiting in self._queue.first(_served(it_may.values()), at_most, at_most):
            engine = self._beyond_where(waiting, it_may, now)
            if engine is not None:
                del it_may[engine.name]
                engine.beyond = 1
                self.take(waiting.request.key, now)
                granted.append(self._commit(self._entries[waiting.request.key], engine, now))
                self._placing.changed(engine)
                engine.growth.begin(waiting.request.key)
                if not it_may:
                    return
        for engine in it_may.values():
            engine.growth.passed(now)

    def _beyond_where(self, waiting: Waiting, it_may: Mapping[str, Engine], now: float) -> Engine | None:
        """The one of these engines that a request would go to, if it finds a slot nowhere else and it will be
        seen whether it runs."""
        request, entry = waiting.request, self._entries[waiting.request.key]
        look = self._placing.look(entry, {}) if request.width == 1 else None
        if look is None or look.other is not None or look.engine.name not in it_may:
            return None
        engine = look.engine
        is_seen = request.stream or engine.caps.is_told
        return engine if is_seen and self._admits(entry, engine, now - waiting.since, now) else None

    def serve_widthless(self, now: float) -> list[Decision]:
        """Grant those who wait for an engine but need no slot, once there is one."""
        granted: list[Decision] = []
        widthless = [it for it in self._queue if it.request.width == 0]
        if widthless:
            self._placing.begin_looks(len(self._queue) - 1)
        for waiting in widthless:
            self._serve(waiting, {}, now, granted)
        return granted

    def expect(self, key: int) -> None:
        """Note where a queued request would go: while every engine is full, pairing does not look at it."""
        waiting = self._queue.get(key)
        if waiting is None or waiting.why:
            return
        self._placing.begin_looks(len(self._queue) - 1)
        look = self._placing.look(self._entries[key], {})
        if look is not None:
            waiting.prefill_s = look.prefill_s
            self.wait_for(waiting, look.engine.name, refusals.slots_on(look.engine, waiting.request.width))

    def leave(self, engine: str, now: float) -> list[int]:
        """The engine goes. Returns the keys of those who waited for it: for none in particular now."""
        self.idle.close(self._engines, now)
        self._swaps.restarted(engine)
        waiting = [it for it in self._queue if it.engine == engine]
        for it in waiting:
            self.wait_for(it, "", "")
        return [it.request.key for it in waiting]

    def waits_for(self, request: Request, chosen: Candidate, now: float) -> str:
        """What `request` would wait for at `chosen`, were it the only one; empty: nothing."""
        engine, width = chosen.engine, request.width
        if not engine.has_room(width, chosen.reserved):
            return refusals.slots_on(engine, width)
        keeps_out = self._placing.may_keep_out(request) and self._swaps.keeps_out(
            engine, request, chosen.uncached, (), now
        )
        return refusals.room_on(engine) if keeps_out else ""

    def look_anew(self) -> None:
        """Another policy decides from now on where those go who wait."""
        for waiting in self._queue:
            self.wait_for(waiting, "", "")
        for waiting in self._queue:
            self.expect(waiting.request.key)

    def take(self, key: int, now: float) -> Waiting:
        """Out of the queue: granted, refused or gone."""
        waiting = self._queue.remove(key, now)
        assert waiting is not None
        self.forget(waiting)
        return waiting

    def forget(self, waiting: Waiting) -> None:
        """It is not in the queue any more."""
        if waiting.engine:
            self._want[waiting.engine] -= waiting.request.width

    def wait_for(self, waiting: Waiting, engine: str, why: str) -> None:
        self.forget(waiting)
        waiting.engine, waiting.why = engine, why
        waiting.is_kept_out = False
        if engine:
            self._want[engine] += waiting.request.width

    def _in_order(self, window: Sequence[Waiting], now: float) -> Sequence[Waiting]:
        if self._placing.policy != "cost":
            return window
        slots = sum(engine.usable for engine in self._engines.values() if engine.accepting)
        return _soonest_first(window, now, is_crowded=len(self._queue) >= CROWDED * slots)

    def _serve(
        self, waiting: Waiting, ahead: dict[str, int], now: float, granted: list[Decision]
    ) -> Engine | None:
        """Grant it, or let it wait and keep its place; the engine that this concerns."""
        entry = self._entries[waiting.request.key]
        look = self._placing.look(entry, ahead)
        if look is None:
            self.wait_for(waiting, "", "an engine that has not failed it")
            return None
        waiting.prefill_s = look.prefill_s
        engine = look.engine if look.has_room else self._placing.overdue(waiting, look, now)
        if engine is None:
            self._let_wait(waiting, look, ahead)
            return look.engine
        admitting = self._admitting(waiting, entry, engine, ahead, now)
        if admitting is None:
            self._keep_out(waiting, engine, now)
            return None
        self.take(waiting.request.key, now)
        granted.append(self._commit(entry, admitting, now))
        self._placing.changed(admitting)
        return admitting

    def _admitting(
        self, waiting: Waiting, entry: Entry, best: Engine, ahead: Mapping[str, int], now: float
    ) -> Engine | None:
        """`best`, or where its cache is full of what is in use the next that has a slot and room."""
        waited_s = now - waiting.since
        if self._admits(entry, best, waited_s, now):
            return best
        if not any(
            engine is not best and _is_open(engine, ahead) and not self._is_shut_to(entry, engine)
            for engine in self._engines.values()
        ):
            return None
        others = [it.engine for it in self._placing.with_room(entry, ahead) if it.engine is not best]
        return next((engine for engine in others if self._admits(entry, engine, waited_s, now)), None)

    def _is_shut_to(self, entry: Entry, engine: Engine) -> bool:
        """What is too large for one look at the queue is so for the next one in it, too."""
        seen = entry.seen.get(engine.name)
        missing_bytes = seen.uncached * entry.request.prompt_bytes if seen else 0.0
        return missing_bytes >= self._kept_out.get(engine.name, math.inf)

    def _admits(self, entry: Entry, engine: Engine, waited_s: float, now: float) -> bool:
        seen = entry.seen.get(engine.name) if self._placing.may_keep_out(entry.request) else None
        if seen is None or seen.uncached < MOSTLY:
            return True
        if self._is_shut_to(entry, engine):
            return False
        wanted = _Wanted(self._leaves, engine.name)
        if self._swaps.lets_in(engine, entry.request, seen.uncached, wanted, now, waited_s=waited_s):
            return True
        self._kept_out[engine.name] = seen.uncached * entry.request.prompt_bytes
        return False

    def _keep_out(self, waiting: Waiting, engine: Engine, now: float) -> None:
        """It waits without keeping the slot from others: whoever is resident may take it."""
        self.wait_for(waiting, engine.name, refusals.room_on(engine))
        waiting.is_kept_out = True
        self.due = earlier(self.due, now + RECHECK_S)
        self._shut_out.append(engine)

    def _leaves(self, engine: str) -> set[object]:
        """What those who wait go on from, of an engine's cache."""
        seen = (self._entries[it.request.key].seen.get(engine) for it in self._queue)
        return {it.leaf for it in seen if it is not None and it.uncached < MOSTLY}

    def _let_wait(self, waiting: Waiting, look: Look, ahead: dict[str, int]) -> None:
        engine = look.engine
        width = engine.width_here(waiting.request.width)
        ahead[engine.name] = ahead.get(engine.name, 0) + width
        self._placing.reserve(engine, width)
        self.due = earlier(self.due, waiting.patience_until)
        self.wait_for(waiting, engine.name, refusals.slots_on(engine, width))
        if engine.free > 0:
            self.idle.note(engine.name)


class _Wanted:
    """What those who wait go on from: the whole queue is looked through only if that matters."""

    def __init__(self, leaves: Callable[[str], set[object]], engine: str) -> None:
        self._leaves = leaves
        self._engine = engine
        self._known: set[object] | None = None

    def __contains__(self, leaf: object) -> bool:
        if self._known is None:
            self._known = self._leaves(self._engine)
        return leaf in self._known


def _served(engines: Iterable[Engine]) -> set[str]:
    """The models that they can be asked for."""
    return {model for engine in engines for model in engine.facts.models}


def _is_open(engine: Engine, ahead: Mapping[str, int]) -> bool:
    return engine.free > ahead.get(engine.name, 0)


def _soonest_first(window: Sequence[Waiting], now: float, *, is_crowded: bool) -> Sequence[Waiting]:
    """By lane, then by arrival and prefill. Nobody passes one who waits for several slots: those would never
    come free together."""
    keyed: list[tuple[tuple[int, int, bool, float], Waiting]] = []
    wide = 0
    for waiting in window:
        is_wide = waiting.request.width > 1
        wide += is_wide
        is_late = is_crowded and LATE_S < now - waiting.since < LATE_UNTIL_S
        due = waiting.since + AGING * waiting.prefill_s
        keyed.append(((waiting.lane, wide, is_late, due), waiting))
        wide += is_wide
    return [waiting for _, waiting in sorted(keyed, key=itemgetter(0))]
