"""The discrete-event loop: arrivals, engines and a router on virtual time."""

import math
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from random import Random
from typing import Any

from msgspec import Struct

from gateway.bench.arrivals import Arrival, Arrivals, Player, Source
from gateway.bench.engine import NEVER_S, SimulatedEngine, Work, matched_blocks
from gateway.bench.router import REFUSED, Router, Sent, Sight
from gateway.bench.workload import Ask, Done, EngineSpec, Workload

Build = Callable[[Sequence[Sight], int, Random], Router]
"""Makes a router for engines with blocks of so many tokens."""

CONNECT_FAILS_S = 0.1
"""How soon a request that was sent to an engine that is down comes back as failed."""

_SOONEST_WAKE_S = 0.001


def play(
    workload: Workload,
    arrivals: Arrivals,
    specs: Sequence[EngineSpec],
    build: Build,
    *,
    until_s: float,
    warm_s: float = 0.0,
    seed: int = 0,
) -> list[Done]:
    """Run `workload` until `until_s` and return every request that arrived, in the order of arrival.

    All caches are empty at first. What an engine had begun to answer when it died is begun anew elsewhere.
    `seed` decides the arrivals and, apart from them, the router's random choices, so that two routers get the
    same arrivals as far as these do not hang on the answers.
    """
    engines = [SimulatedEngine(spec, workload.block_tokens) for spec in specs]
    router = build(engines, workload.block_tokens, Random(seed + 1))  # noqa: S311
    source = arrivals.source(workload, Random(seed), warm_s, until_s)  # noqa: S311
    return _Run(workload.block_tokens, source, engines, router).until(until_s)


class _Request(Struct, eq=False):
    ask: Ask
    player: Player
    best_tokens: int
    seen_tokens: int
    engine: int = REFUSED
    sent_s: float | None = None
    work: Work | None = None
    finished_s: float | None = None
    refused: bool = False

    def done(self) -> Done:
        work = self.work
        return Done(
            ask=self.ask,
            engine=self.engine,
            sent_s=self.sent_s,
            started_s=work.started_s if work else None,
            first_token_s=work.first_token_s if work else None,
            finished_s=self.finished_s,
            cached_tokens=work.cached_tokens if work else 0,
            best_tokens=self.best_tokens,
            seen_tokens=self.seen_tokens,
            refused=self.refused,
        )


class _Run:
    def __init__(
        self, block_tokens: int, source: Source, engines: list[SimulatedEngine], router: Router
    ) -> None:
        self._block_tokens = block_tokens
        self._source = source
        self._engines = engines
        self._router = router
        self._requests: list[_Request] = []
        self._seen: set[int] = set()
        self._now = 0.0
        self._events: list[tuple[float, int, Callable[[Any], None], Any]] = []
        self._count = 0
        self._watched_s = [NEVER_S] * len(engines)
        self._wake_s: float | None = None
        self._woken_s = -math.inf

    def until(self, until_s: float) -> list[Done]:
        for arrival in self._source.start():
            self._plan_arrival(arrival)
        for number, engine in enumerate(self._engines):
            for at_s in engine.spec.restarts_s:
                self._at(at_s, self._goes_down, number)
        events = self._events
        while events and events[0][0] <= until_s:
            self._now, _, act, what = heappop(events)
            act(what)
            self._plan_wake()
        return [request.done() for request in self._requests]

    def _at(self, at_s: float, act: Callable[[Any], None], what: object) -> None:
        self._count += 1
        heappush(self._events, (at_s, self._count, act, what))

    def _plan_arrival(self, arrival: Arrival | None) -> None:
        if arrival is not None:
            self._at(arrival.at_s, self._arrives, arrival.player)

    def _plan_wake(self) -> None:
        due_s = self._router.due_s()
        if due_s != self._wake_s:
            self._wake_s = due_s
            if due_s is not None:
                self._at(max(due_s, self._now, self._woken_s + _SOONEST_WAKE_S), self._wakes, due_s)

    def _watch(self, number: int) -> None:
        due_s = self._engines[number].due_s
        if due_s != self._watched_s[number]:
            self._watched_s[number] = due_s
            if due_s != NEVER_S:
                self._at(due_s, self._advances, number)

    # Events

    def _arrives(self, player: Player) -> None:
        ask = player.ask(len(self._requests), self._now)
        blocks = ask.blocks
        best = max((it.cached_blocks(blocks) for it in self._engines if it.up), default=0)
        seen = matched_blocks(blocks, self._seen)
        self._seen.update(blocks[seen:])
        self._requests.append(_Request(ask, player, self._tokens(ask, best), self._tokens(ask, seen)))
        self._send(self._router.arrived(ask, self._now))

    def _advances(self, number: int) -> None:
        engine, now = self._engines[number], self._now
        if engine.due_s != now:
            return
        progress = engine.advance(now)
        self._watch(number)
        for work in progress.first:
            self._router.first_token(work.ask.key, now)
        for work in progress.done:
            request = self._requests[work.ask.key]
            request.finished_s = now
            self._plan_arrival(self._source.answered(request.player, now))
            self._send(self._router.finished(work.ask.key, work.cached_tokens, now))

    def _goes_down(self, number: int) -> None:
        engine = self._engines[number]
        if not engine.up:
            return
        lost = engine.stop()
        self._watch(number)
        self._at(self._now + engine.spec.down_s, self._comes_up, number)
        self._send(self._router.went_down(number, self._now))
        for ask in lost:
            self._fails(ask.key)

    def _comes_up(self, number: int) -> None:
        self._engines[number].start()
        self._send(self._router.came_up(number, self._now))

    def _fails(self, key: int) -> None:
        self._requests[key].work = None
        self._send(self._router.failed(key, self._now))

    def _wakes(self, due_s: float) -> None:
        if due_s == self._wake_s:
            self._wake_s, self._woken_s = None, self._now
            self._send(self._router.wake(self._now))

    # Inside

    def _tokens(self, ask: Ask, blocks: int) -> int:
        return min(blocks * self._block_tokens, ask.prompt_tokens - 1)

    def _send(self, sents: Sequence[Sent]) -> None:
        for key, number in sents:
            request = self._requests[key]
            if number == REFUSED:
                request.refused = True
                self._plan_arrival(self._source.refused(request.player, self._now))
                continue
            request.engine, request.sent_s = number, self._now
            if self._engines[number].up:
                request.work = self._engines[number].submit(request.ask, self._now)
                self._watch(number)
            else:
                self._at(self._now + CONNECT_FAILS_S, self._fails, key)
