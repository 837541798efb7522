"""What a comparison of two spans of time needs of each finished request: a few numbers, in columns.

Times are seconds since 1970 on the clock that the records' times are of.
"""

from array import array
from bisect import bisect_left
from collections.abc import Container, Sequence
from datetime import datetime
from enum import IntEnum
from functools import cached_property
from math import isnan, nan
from typing import NamedTuple

from gateway.core.funnel import WITHOUT
from gateway.core.request import Outcome, Record

CAPACITY = 150_000
"""So many requests are kept, the newest; at 50 bytes each, with an eighth more before any are dropped, they
take 8.4 MB."""

MAX_KINDS = 4096
"""So many combinations of engine, model and class are told apart; more are nobody's and of class `other`."""

_TIME_CHARS, _MINUTE_CHARS = len("2026-12-01T14:05:06.789Z"), len("2026-12-01T14:05")
_ZEROS_MS = ord("0") * 11111
_NUMBERS = ("duration_ms", "ttft_ms", "prompt", "cached", "session", "kind")
_END_SLACK_S, _COME_SLACK_S = 0.0005, 0.0015
"""The records' times are cut to milliseconds, and when a request came is reckoned from its end."""


class Untold(IntEnum):
    """Why the cached tokens of a request are not known; in the column of these.

    UNKNOWN: it ended ok and its engine did not report, as the funnel has it. FAILED: it failed, or its client
    left, before there was a report. NEVER: its API has none.
    """

    UNKNOWN = -1
    FAILED = -2
    NEVER = -3


# As plain numbers: a member of an enum is looked up, and put into an array, at several times the cost.
_UNKNOWN, _FAILED, _NEVER = map(int, Untold)
_OK = Outcome.OK


class Kind(NamedTuple):
    engine: str
    model: str
    workload: str


class Sample(NamedTuple):
    """One request. `session` is 0 where the client names none. None is what nobody told; `untold` is None
    where both kinds of tokens were."""

    kind: Kind
    session: int
    prompt_tokens: int | None
    cached_tokens: int | None
    ttft_ms: float | None
    untold: Untold | None = None


class Drawn(NamedTuple):
    """Requests of a span; `from_s` is later than what was asked for where there are more than may be used, or
    than are kept, `until_s` earlier likewise."""

    samples: Sequence[Sample]
    from_s: float
    until_s: float
    is_cut: bool


class _Kinds(dict[tuple[str, str, str], int]):
    """A number for each, given at its first look-up."""

    def __init__(self) -> None:
        self.names = [Kind("", "", "other")]

    def __missing__(self, key: tuple[str, str, str]) -> int:
        if len(self.names) >= MAX_KINDS:
            return 0
        self.names.append(Kind(*key))
        self[key] = number = len(self.names) - 1
        return number


class Columns:
    """The requests that are kept, in the order of their end; its time stays text until somebody asks.
    `dropped` were there before these."""

    __slots__ = ("cached", "dropped", "duration_ms", "kind", "kinds", "prompt", "session", "times", "ttft_ms")

    def __init__(self) -> None:
        self.dropped = 0
        self.kinds: Sequence[Kind] = ()
        self.times = bytearray()
        self.duration_ms, self.ttft_ms = array("f"), array("f")
        self.prompt, self.cached, self.session, self.kind = array("i"), array("i"), array("q"), array("H")

    def since(self, time: str) -> "Columns":
        """A copy of those that ended then or later."""
        first, other = self.first_since(time), Columns()
        other.dropped, other.kinds = self.dropped, list(self.kinds)
        other.times = self.times[first * _TIME_CHARS :]
        for name in _NUMBERS:
            setattr(other, name, getattr(self, name)[first:])
        return other

    def first_since(self, time: str) -> int:
        """The place of the first that ended then or later."""
        return bisect_left(range(len(self)), time.encode(), key=self._time)

    def drop(self, count: int) -> None:
        """The oldest."""
        self.dropped += count
        del self.times[: count * _TIME_CHARS]
        for name in _NUMBERS:
            del getattr(self, name)[:count]

    def _time(self, at: int) -> bytes:
        return bytes(self.times[at * _TIME_CHARS : (at + 1) * _TIME_CHARS])

    def __len__(self) -> int:
        return len(self.kind)


class Past:
    """The requests of `columns`, to be drawn from. Reading their times takes a while the first time."""

    def __init__(self, columns: Columns) -> None:
        self._of = columns
        self._only: Container[int] = range(MAX_KINDS)

    def of(self, engine: str | None, model: str | None) -> "Past":
        """Those alone that this engine served, or with this model; None: any."""
        other = Past(self._of)
        other._only = {
            number
            for number, kind in enumerate(self._of.kinds)
            if engine in (None, kind.engine) and model in (None, kind.model)
        }
        return other

    @cached_property
    def _ended_s(self) -> Sequence[float]:
        return _seconds(bytes(self._of.times))

    def between(self, from_s: float, until_s: float, most: int, *, newest: bool) -> Drawn:
        """Requests that came, and had their first token, from `from_s` to `until_s`; where that is not known,
        their end. `most` of them, the `newest` or the oldest."""
        if self._of.dropped and self._ended_s:
            from_s = max(from_s, min(until_s, self._ended_s[0]))
        samples: list[Sample] = []
        after_s = from_s + _END_SLACK_S
        places = self._since(from_s)
        edge_s = until_s if newest else from_s
        for at in reversed(places) if newest else places:
            came_s, first_s = self._came_s(at), self._first_s(at)
            is_within = came_s >= from_s - _COME_SLACK_S and after_s < first_s <= until_s + _END_SLACK_S
            if is_within and self._of.kind[at] in self._only:
                if len(samples) == most:
                    return Drawn(samples, *((edge_s, until_s) if newest else (from_s, edge_s)), True)
                samples.append(self._sample(at))
                edge_s = min(edge_s, came_s) if newest else max(edge_s, first_s)
        return Drawn(samples, from_s, until_s, False)

    def across(self, from_s: float, until_s: float) -> int:
        """How many were under way, their first token yet to come, at some time from `from_s` to `until_s`."""
        places = (at for at in self._since(from_s) if self._of.kind[at] in self._only)
        times = ((self._came_s(at), self._first_s(at)) for at in places)
        before_s, after_s = until_s - _COME_SLACK_S, from_s + _END_SLACK_S
        return sum(1 for came_s, first_s in times if came_s < before_s and first_s > after_s)

    def _since(self, from_s: float) -> range:
        return range(bisect_left(self._ended_s, from_s - _END_SLACK_S), len(self._of))

    def _came_s(self, at: int) -> float:
        return self._ended_s[at] - self._of.duration_ms[at] / 1000

    def _first_s(self, at: int) -> float:
        ttft_ms = self._of.ttft_ms[at]
        return self._ended_s[at] if isnan(ttft_ms) else self._came_s(at) + ttft_ms / 1000

    def _sample(self, at: int) -> Sample:
        of = self._of
        prompt, cached, ttft_ms = of.prompt[at], of.cached[at], of.ttft_ms[at]
        return Sample(
            of.kinds[of.kind[at]],
            of.session[at],
            None if prompt == _UNKNOWN else prompt,
            None if cached < 0 else cached,
            # To its digits: as a float of 32 bits it has others behind them.
            None if isnan(ttft_ms) else round(ttft_ms, 3),
            Untold(cached) if cached < 0 else None,
        )


class Samples:
    """Bounded. `ended` takes each record, whose request is kept if it took a slot. Records are put away until
    `count`, to be called now and then, since one at a time costs more."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._ended: list[Record] = []
        self.ended = self._ended.append
        self._kinds = _Kinds()
        self._columns = Columns()

    def past(self, since: str) -> Past:
        """All that is kept of what ended then (ISO) or later, copied: for another thread, too."""
        self.count()
        self._columns.kinds = self._kinds.names
        return Past(self._columns.since(since))

    def kinds(self) -> Sequence[Kind]:
        """Of all requests since the start, also of those that are not kept any more."""
        self.count()
        return self._kinds.names[1:]

    def some_ended(self, since: str, until: str) -> bool:
        """Whether a request ended then, `until` not included; ISO times."""
        self.count()
        return self._columns.first_since(since) < self._columns.first_since(until)

    def count(self) -> None:
        """All that has ended since the last time."""
        records = [it for it in self._ended if it.width and it.engine]
        self._ended.clear()
        to, kinds = self._columns, self._kinds
        to.times += "".join([it.time for it in records]).encode()
        # An array made of a list and then added takes a third of the time of `extend`.
        to.duration_ms += array("f", [it.duration_ms for it in records])
        to.ttft_ms += array("f", [nan if it.ttft_ms is None else it.ttft_ms for it in records])
        prompts = [_UNKNOWN if it.prompt_tokens is None else it.prompt_tokens for it in records]
        cached = [
            _untold(it) if it.cached_tokens is None or it.prompt_tokens is None else it.cached_tokens
            for it in records
        ]
        to.prompt += array("i", prompts)
        to.cached += array("i", cached)
        to.session += array("q", [hash(it.session) for it in records])
        to.kind += array("H", [kinds[it.engine, it.model, it.workload_class] for it in records])
        if len(to) > self._capacity * 9 // 8:
            to.drop(len(to) - self._capacity)


def _untold(record: Record) -> int:
    if record.outcome is not _OK:
        return _FAILED
    return _NEVER if record.api in WITHOUT else _UNKNOWN


def seconds_of(time: str) -> float:
    """Of an ISO time with its zone."""
    return datetime.fromisoformat(time).timestamp()


def _seconds(times: bytes) -> Sequence[float]:
    """Of times as records have them, one behind the other: a minute's all at once, by their digits."""
    out = array("d")
    count = len(times) // _TIME_CHARS
    while len(out) < count:
        begin = len(out) * _TIME_CHARS
        minute = times[begin : begin + _MINUTE_CHARS]
        end = begin + _TIME_CHARS
        while times.startswith(minute, end):
            end += _TIME_CHARS
        tens, ones, *thousandths = (times[begin + at : end : _TIME_CHARS] for at in (17, 18, 20, 21, 22))
        begins_s = seconds_of(f"{minute.decode()}Z") - _ZEROS_MS / 1000
        out.extend(
            [
                begins_s + (a * 10000 + b * 1000 + c * 100 + d * 10 + e) / 1000
                for a, b, c, d, e in zip(tens, ones, *thousandths, strict=True)
            ]
        )
    return out
