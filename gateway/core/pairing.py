"""Which waiting request gets a free slot.

Late binding in order of arrival loses most of the hits at saturation, and patience that runs while others
are served loses them too (closed-loop simulation on agent traces, `docs/routing.md`). So a free slot goes
to those whose best engine has it, the shortest prefill first: what is resident is served before it is
evicted. Nobody is overtaken for ever: `AGED_AFTER` times, then it is first of its lane.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter

from gateway.core import refusals
from gateway.core.admission import Queue, Waiting
from gateway.core.engine import Engine
from gateway.core.idle import IdleClock
from gateway.core.placing import Entry, Look, Placing, earlier
from gateway.core.request import Decision
from gateway.core.swaps import RECHECK_S, Swaps

WINDOW = 64
"""How many waiting requests are looked at when a slot frees: larger than the usual queue, bounded in cost."""

AGED_AFTER = 64

STEP_S = 0.25
"""Prefills count as equally short up to here, and then within a factor of two."""


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
        self.idle = IdleClock()
        self._queue = queue
        self._entries = entries
        self._engines = engines
        self._placing = placing
        self._swaps = swaps
        self._want = want
        self._commit = commit

    def pair(self, now: float) -> list[Decision]:
        """Give free slots to those who wait, each to its best engine as things are now.

        A request whose best engine is full waits for it, but not beside a free slot elsewhere for longer
        than the prefill that it saves. One too wide for what is free keeps that from the ones behind it.
        """
        self.idle.close(self._engines, now)
        self.due = None
        if not self._queue:
            return []
        ahead: dict[str, int] = {}
        models = self._placing.open_models(ahead)
        granted: list[Decision] = []
        if models:
            self._queue.promote(now)
            self._placing.begin_looks(len(self._queue) - 1)
            window = self._queue.first(models, WINDOW)
            full = {name for name, engine in self._engines.items() if not _is_open(engine, ahead)}
            for waiting in self._in_order(window):
                if models.isdisjoint(waiting.models):
                    continue
                engine = self._serve(waiting, ahead, now, granted)
                if engine is not None and engine.name not in full and not _is_open(engine, ahead):
                    full.add(engine.name)
                    models = self._placing.open_models(ahead)
            if granted:
                _count_overtaken(window, self._queue)
        if not models:
            self._placing.all_are_full()
            self.due = None
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

    def take(self, key: int) -> Waiting:
        """Out of the queue: granted, refused or gone."""
        waiting = self._queue.remove(key)
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
        if engine:
            self._want[engine] += waiting.request.width

    def _in_order(self, window: Sequence[Waiting]) -> Sequence[Waiting]:
        return _shortest_first(window) if self._placing.policy == "cost" else window

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
        if self._is_kept_out(waiting, entry, engine, now):
            return None
        self.take(waiting.request.key)
        granted.append(self._commit(entry, engine, now))
        self._placing.changed(engine)
        return engine

    def _is_kept_out(self, waiting: Waiting, entry: Entry, engine: Engine, now: float) -> bool:
        """It waits without keeping the slot from others: whoever is resident may take it."""
        weighed = self._placing.policy == "cost" and entry.request.width > 0
        seen = entry.seen.get(engine.name) if weighed else None
        if seen is None or not self._swaps.keeps_out(engine, entry.request, seen.uncached, now):
            return False
        self.wait_for(waiting, engine.name, refusals.room_on(engine))
        self.due = earlier(self.due, now + RECHECK_S)
        self.idle.note(engine.name)
        return True

    def _let_wait(self, waiting: Waiting, look: Look, ahead: dict[str, int]) -> None:
        engine = look.engine
        width = engine.width_here(waiting.request.width)
        ahead[engine.name] = ahead.get(engine.name, 0) + width
        self._placing.reserve(engine, width)
        self.due = earlier(self.due, waiting.patience_until)
        self.wait_for(waiting, engine.name, refusals.slots_on(engine, width))
        if engine.free > 0:
            self.idle.note(engine.name)


def _is_open(engine: Engine, ahead: Mapping[str, int]) -> bool:
    return engine.free > ahead.get(engine.name, 0)


def _shortest_first(window: Sequence[Waiting]) -> Sequence[Waiting]:
    """By lane, then the aged, then by length of prefill. Nobody passes one who waits for several slots: those
    would never come free together."""
    keyed: list[tuple[tuple[int, int, bool, int], Waiting]] = []
    wide = 0
    for waiting in window:
        is_wide = waiting.request.width > 1
        wide += is_wide
        step = math.frexp(waiting.prefill_s / STEP_S)[1] if waiting.prefill_s > STEP_S else 0
        keyed.append(((waiting.lane, wide, waiting.overtaken < AGED_AFTER, step), waiting))
        wide += is_wide
    return [waiting for _, waiting in sorted(keyed, key=itemgetter(0))]


def _count_overtaken(window: Sequence[Waiting], queue: Queue) -> None:
    """`window` in order of arrival: whoever still waits was overtaken by all behind it that do not."""
    served = 0
    for waiting in reversed(window):
        if waiting.request.key in queue:
            waiting.overtaken += served
        else:
            served += 1
