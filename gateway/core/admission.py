"""The bounded queue: who waits, in what order, and for how long at most."""

import heapq
from collections.abc import Iterator, Set
from itertools import islice

from msgspec import Struct

from gateway.core.concurrency import Concurrency
from gateway.core.request import HIGH, LOW, Request

PROMOTE_AFTER_S = 30.0
"""Waiting this long moves a request up one priority, so that a busy high lane starves nobody."""

_STALE_DEADLINES = 64


class Waiting(Struct, eq=False):
    """One queued request. `resumed` ones were granted before and go first: their engine failed them.

    `prefill_s` is what its best engine would have to compute, as of the last look.
    """

    request: Request
    since: float
    deadline: float
    lane: int
    lane_since: float
    models: tuple[str, ...] = ()
    prefill_s: float = 0.0
    engine: str = ""
    why: str = ""
    is_kept_out: bool = False
    idle_since: float | None = None
    idle_spell: int = 0
    patience_until: float | None = None


class Queue:
    """At most `max_requests` and `max_bytes` of bodies. Iterates in the order in which they are served.
    `concurrency` hears of all that wait for a slot."""

    _RESUMED = -1

    def __init__(self, max_requests: int, max_bytes: int, concurrency: Concurrency | None = None) -> None:
        self.max_requests = max_requests
        self.max_bytes = max_bytes
        self.bytes = 0
        self._concurrency = concurrency or Concurrency()
        self.by_key: dict[int, Waiting] = {}
        self._lanes: dict[int, dict[int, Waiting]] = {lane: {} for lane in range(self._RESUMED, LOW + 1)}
        self.deadlines: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self.by_key)

    def __iter__(self) -> Iterator[Waiting]:
        for lane in self._lanes.values():
            yield from lane.values()

    def __contains__(self, key: int) -> bool:
        return key in self.by_key

    def fits(self, body_bytes: int) -> bool:
        return len(self.by_key) < self.max_requests and self.bytes + body_bytes <= self.max_bytes

    def add(
        self,
        request: Request,
        now: float,
        *,
        models: tuple[str, ...] = (),
        waited_s: float = 0.0,
        resumed: bool = False,
    ) -> Waiting:
        """Queue `request`, which has spent `waited_s` of its longest wait already. `models`: those of its
        pool that may answer it, if not all."""
        lane = self._RESUMED if resumed else request.priority
        since = now - waited_s
        deadline = since + request.max_wait_s
        waiting = Waiting(request, since, deadline, lane, now, models or request.models)
        self._lanes[lane][request.key] = waiting
        self.by_key[request.key] = waiting
        self.bytes += request.body_bytes
        heapq.heappush(self.deadlines, (waiting.deadline, request.key))
        if request.width:
            self._concurrency.waits(1, now)
        return waiting

    def get(self, key: int) -> Waiting | None:
        return self.by_key.get(key)

    def remove(self, key: int, now: float) -> Waiting | None:
        waiting = self.by_key.pop(key, None)
        if waiting is not None:
            del self._lanes[waiting.lane][key]
            self.bytes -= waiting.request.body_bytes
            if waiting.request.width:
                self._concurrency.waits(-1, now)
            if len(self.deadlines) > 2 * len(self.by_key) + _STALE_DEADLINES:
                self.deadlines = [(it.deadline, at) for at, it in self.by_key.items()]
                heapq.heapify(self.deadlines)
        return waiting

    def first(self, models: Set[str], at_most: int, kept_out: int) -> list[Waiting]:
        """The first who wait for one of `models`: a full model's queue must not hide an idle one's. At most
        `kept_out` of them wait for room in a cache."""
        out: list[Waiting] = []
        for it in self:
            if models.isdisjoint(it.models) or (it.is_kept_out and kept_out <= 0):
                continue
            kept_out -= it.is_kept_out
            out.append(it)
            if len(out) == at_most:
                break
        return out

    def firsts(self, models: Set[str]) -> list[Waiting]:
        """The first of each lane who waits for one of `models`."""
        lanes = (
            (it for it in lane.values() if not models.isdisjoint(it.models)) for lane in self._lanes.values()
        )
        return [first for lane in lanes for first in islice(lane, 1)]

    def promote(self, now: float) -> None:
        """Move up whoever has been in one lane for `PROMOTE_AFTER_S`; to be called before serving."""
        for lane in range(HIGH + 1, LOW + 1):
            members = self._lanes[lane]
            while members:
                waiting = next(iter(members.values()))
                if now - waiting.lane_since < PROMOTE_AFTER_S:
                    break
                del members[waiting.request.key]
                waiting.lane, waiting.lane_since = lane - 1, now
                self._lanes[lane - 1][waiting.request.key] = waiting

    def expired(self, now: float) -> list[Waiting]:
        """Take out all whose deadline has passed."""
        out: list[Waiting] = []
        while self.deadlines and self.deadlines[0][0] <= now:
            deadline, key = heapq.heappop(self.deadlines)
            waiting = self.by_key.get(key)
            if waiting is not None and waiting.deadline == deadline:
                self.remove(key, now)
                out.append(waiting)
        return out

    def next_deadline(self) -> float | None:
        while self.deadlines and self.deadlines[0][1] not in self.by_key:
            heapq.heappop(self.deadlines)
        return self.deadlines[0][0] if self.deadlines else None
