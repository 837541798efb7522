"""The clock of the operating point: for how long how many requests were in flight, and by the hour.

In flight are requests that an engine was granted for and that have not ended, on all engines together: a
request counts once, however many slots it takes, and not at all if it takes none. Wanted are these and those
that wait in the gateway's queue. The engines' leases and the queue drive it, since no request can get in or
out of flight without them.
"""

from collections import deque
from datetime import UTC, datetime

from msgspec import Struct

from gateway.core.timestamps import iso_of

HIGHEST = 64
"""The most requests in flight that are told apart; the contract's metric has the same last label."""

HOURS = 48
"""Hours that are kept one by one, the one under way included: yesterday at the same time is among them."""

_HOUR_S = 3600
_MORE = HIGHEST + 1
_NEVER = float("-inf")

Seconds = list[float]
"""Seconds at each number of requests, 0 to `HIGHEST`; the last is for all above."""


class Spent(Struct, frozen=True):
    """Seconds at each number in flight, and at each number wanted. Both come to the same in all."""

    in_flight: Seconds
    wanted: Seconds


class _Hour:
    """`alone` has the time in which nobody waited: most of it, and what is in flight is what is wanted."""

    __slots__ = ("alone", "in_flight", "number", "wanted")

    def __init__(self, number: int) -> None:
        self.number = number
        self.alone, self.in_flight, self.wanted = _none(), _none(), _none()

    def add(self, other: "_Hour") -> None:
        self.alone = _sum(self.alone, other.alone)
        self.in_flight = _sum(self.in_flight, other.in_flight)
        self.wanted = _sum(self.wanted, other.wanted)

    def spent(self) -> Spent:
        return Spent(_sum(self.alone, self.in_flight), _sum(self.alone, self.wanted))


class Concurrency:
    """`started_at` and every `now` are on the caller's clock; `wall_offset_s` added to it gives seconds since
    1970, by which the hours (of UTC) begin."""

    __slots__ = (
        "_alone", "_alone_until", "_before", "_ends_at", "_hour", "_hours", "_offset_s", "_since",
        "in_flight", "started_at", "waiting",
    )  # fmt: skip

    def __init__(self, started_at: float = 0.0, wall_offset_s: float = 0.0) -> None:
        self.in_flight = self.waiting = 0
        self.started_at = self._since = started_at
        self._offset_s = wall_offset_s
        self._before = _Hour(0)
        self._hours: deque[_Hour] = deque(maxlen=HOURS)
        self._begin(int((started_at + wall_offset_s) // _HOUR_S))

    @property
    def since(self) -> str:
        """The time of day of the start: ISO 8601 in UTC."""
        return iso_of(self.started_at + self._offset_s)

    def runs(self, more: int, now: float) -> None:
        """So many `more` are in flight from now on."""
        count, since = self.in_flight, self._since
        self.in_flight = count + more
        # Most often, and nothing else may be done then: it is on every request's way, twice.
        if since < now < self._alone_until and count < _MORE:
            self._alone[count] += now - since
            self._since = now
        else:
            self._settle(count, now)

    def waits(self, more: int, now: float) -> None:
        """So many `more` wait in the queue from now on."""
        self._settle(self.in_flight, now)
        self.waiting += more
        self._alone_until = _NEVER if self.waiting else self._ends_at

    def total(self, now: float) -> Spent:
        """All since the start, until now."""
        self._settle(self.in_flight, now)
        total = _Hour(0)
        total.add(self._before)
        total.add(self._hour)
        return total.spent()

    def hours(self, now: float) -> list[tuple[str, Spent]]:
        """The last hours with their names, as in `2026-12-01T14:00Z`, oldest first."""
        self._settle(self.in_flight, now)
        return [(_name(hour.number), hour.spent()) for hour in self._hours]

    def _settle(self, count: int, now: float) -> None:
        while now >= self._ends_at:
            self._spend(count, self._ends_at)
            self._before.add(self._hour)
            self._begin(self._hour.number + 1)
        self._spend(count, now)

    def _spend(self, count: int, now: float) -> None:
        spent_s = now - self._since
        # Times may go back by the tick that a timer fires early: what was counted stays counted.
        if spent_s <= 0:
            return
        self._since = now
        if not self.waiting:
            self._alone[min(count, _MORE)] += spent_s
            return
        self._hour.in_flight[min(count, _MORE)] += spent_s
        self._hour.wanted[min(count + self.waiting, _MORE)] += spent_s

    def _begin(self, number: int) -> None:
        self._hour = hour = _Hour(number)
        self._alone = hour.alone
        self._hours.append(hour)
        self._ends_at = (number + 1) * _HOUR_S - self._offset_s
        self._alone_until = _NEVER if self.waiting else self._ends_at


def _none() -> Seconds:
    return [0.0] * (_MORE + 1)


def _sum(one: Seconds, other: Seconds) -> Seconds:
    return [a + b for a, b in zip(one, other, strict=True)]


def _name(hour: int) -> str:
    return datetime.fromtimestamp(hour * _HOUR_S, UTC).strftime("%Y-%m-%dT%H:00Z")
