"""Sums over the last minute, ten minutes, hour and since the start, and the hour in steps."""

from collections import deque
from collections.abc import Sequence
from operator import sub

from gateway.core.funnel import NOTHING, Sums, plus

FINE_S, COARSE_S = 5, 30
"""Widths of what is kept apart: of the last ten minutes, and of the hour."""

WINDOWS = ("1m", "10m", "1h", "all")

_LABELS = ("engine", "model", "class", "key")
OTHER = "other"

MAX_SERIES = 512
"""Of each kind of label; what comes beyond is one series. Labels come from the configuration and the engines'
models, so that only many reloads would get there."""


class _Past:
    """Steps of `step_s` seconds that are over, as far as they are in a window of `count` steps with the
    present one, and their sum."""

    def __init__(self, step_s: int, count: int) -> None:
        self._step_s = step_s
        self._count = count
        self._sum = NOTHING
        self.steps: deque[tuple[int, Sums]] = deque()

    def add(self, sums: Sums, at: float) -> None:
        number, steps = int(at // self._step_s), self.steps
        if steps and steps[-1][0] == number:
            steps[-1] = (number, plus(steps[-1][1], sums))
        else:
            steps.append((number, sums))
        self._sum = plus(self._sum, sums)

    def until(self, now: float) -> Sums:
        oldest, steps = int(now // self._step_s) - self._count, self.steps
        while steps and steps[0][0] <= oldest:
            self._sum = list(map(sub, self._sum, steps.popleft()[1]))
        return self._sum


class Windows:
    """One series. A window of a minute is between 55 and 60 s long, of ten as much less, an hour between 59.5
    and 60 minutes: they end now and begin with a step. Bounded: 252 steps at most.

    What comes is added to the present step alone, and reading it is as quick however much came."""

    def __init__(self) -> None:
        self._number = 0
        self._present = self._total = NOTHING
        self._minute, self._ten = _Past(FINE_S, 60 // FINE_S), _Past(FINE_S, 600 // FINE_S)
        self._hour = _Past(COARSE_S, 3600 // COARSE_S)

    @property
    def total(self) -> Sums:
        return plus(self._total, self._present)

    def add(self, sums: Sequence[int], now: float) -> None:
        self._go_to(now)
        self._present = plus(self._present, sums)

    def hour(self, now: float) -> Sums:
        self._go_to(now)
        return plus(self._hour.until(now), self._present)

    def sums(self, now: float) -> dict[str, Sums]:
        """By the names of `WINDOWS`."""
        self._go_to(now)
        present = self._present
        minute, ten = self._minute.until(now), self._ten.until(now)
        return {
            "1m": plus(minute, present), "10m": plus(ten, present), "1h": self.hour(now), "all": self.total
        }  # fmt: skip

    def steps(self, since: float, now: float) -> list[tuple[float, float, Sums]]:
        """(start, seconds, sums) of each step, also of those with nothing in them, oldest first. The first
        begins with `since`."""
        self._go_to(now)
        self._hour.until(now)
        known, end = dict(self._hour.steps), int(now // COARSE_S)
        known[end] = plus(known.get(end, NOTHING), self._present)
        out = []
        for number in range(max(int(since // COARSE_S), end - 3600 // COARSE_S + 1), end + 1):
            start, ends = max(since, number * COARSE_S), (number + 1) * COARSE_S
            out.append((start, min(ends, now) - start, known.get(number, NOTHING)))
        return out

    def _go_to(self, now: float) -> None:
        """Put away what came in an earlier step."""
        number, before, sums = int(now // FINE_S), self._number, self._present
        if number == before:
            return
        self._number = number
        if sums is not NOTHING:
            self._present = NOTHING
            self._total = plus(self._total, sums)
            for past in (self._minute, self._ten, self._hour):
                past.add(sums, before * FINE_S)
                past.until(now)


class Series:
    """Windows of everything, and by each label of it."""

    def __init__(self) -> None:
        self.overall = Windows()
        self.by: dict[str, dict[str, Windows]] = {label: {} for label in _LABELS}

    def add(self, names: tuple[str, str, str, str], sums: Sequence[int], now: float) -> None:
        """`names`: engine, model, class and key of the requests behind `sums`."""
        self.overall.add(sums, now)
        for of_label, name in zip(self.by.values(), names, strict=True):
            is_known = name in of_label or len(of_label) < MAX_SERIES
            of_label.setdefault(name if is_known else OTHER, Windows()).add(sums, now)
