"""Marks in time, set by people and by the gateway itself, and what was different before and after one."""

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice
from math import isfinite
from typing import Literal

from msgspec import Struct
from msgspec.structs import asdict

from gateway.core.compare import MOST_REQUESTS, Figures, compared
from gateway.core.compare_words import sentence
from gateway.core.samples import Drawn, Past, Samples, seconds_of
from gateway.core.timestamps import iso_of
from gateway.edge.views import Missing, Views

MAX_MARKS = 1000
MAX_TEXT_CHARS = 300
TOGETHER_S = 60.0
"""Marks closer than this are one change if no request ended between them, or if the gateway set both: a
reload and the restarts that belong to it. What is between them counts to neither side."""

_START, _NOW = "start", "now"

_LAST = 20
_TOLD_IN_ERRORS = 10
_MAX_MINUTES = 60 * 24 * 365

By = Literal["user", "reload", "restart"]


class Mark(Struct, frozen=True):
    mark: str
    text: str
    at: str
    by: By


class Change(Struct, frozen=True):
    """What is compared: the span before ends where the change begins, that after begins where it ends."""

    marks: Sequence[Mark]
    from_s: float
    begins_s: float
    ends_s: float
    until_s: float


class Marks:
    """Bounded: the oldest mark goes for a new one. `timestamp` gives the time as records have it, `since` is
    when the gateway started, both ISO. `engines` and `models` give the names of those that there are now."""

    def __init__(
        self,
        samples: Samples,
        timestamp: Callable[[], str],
        since: str,
        *,
        engines: Callable[[], Collection[str]],
        models: Callable[[], Collection[str]],
    ) -> None:
        self._samples = samples
        self._timestamp = timestamp
        self._since_s = seconds_of(since)
        self._engines = engines
        self._models = models
        self._marks: deque[Mark] = deque(maxlen=MAX_MARKS)
        self._count = 0

    def set(self, text: str, by: By) -> Mark:
        """Raises `ValueError` for an empty text; a long one is cut."""
        shown = " ".join("".join(char if char.isprintable() else " " for char in text).split())
        if not shown:
            raise ValueError("A mark needs a text that says what changed.")
        self._count += 1
        mark = Mark(f"m{self._count}", shown[:MAX_TEXT_CHARS], self._timestamp(), by)
        self._marks.append(mark)
        return mark

    def reloaded(self, changed: Sequence[str]) -> None:
        """One that changed nothing is no mark: there is nothing to compare."""
        if changed:
            self.set(f"configuration reloaded: {'; '.join(changed)}", "reload")

    def restarted(self, engine: str) -> None:
        self.set(f"engine {engine} restarted", "restart")

    def views(self) -> Views:
        return Views(
            gets={"/api/marks": lambda _: {"marks": list(self._marks)}, "/api/compare": self.compare},
            posts={"/api/mark": self.post},
            state={"marks": self._latest},
        )

    def post(self, body: bytes) -> Mark:
        """`{"text": "..."}`. Raises `ValueError`."""
        try:
            data = json.loads(body)
        except (ValueError, RecursionError):
            data = None
        text = data.get("text") if isinstance(data, dict) else None
        if not isinstance(text, str):
            raise ValueError('The body must be JSON such as {"text": "slots doubled"}.')
        return self.set(text, "user")

    def compare(self, query: Mapping[str, str]) -> Awaitable[Mapping[str, object]]:
        """Raises `ValueError`, `Missing`. The work is done in a thread: it takes a while."""
        mark = self._find(query.get("mark", ""))
        change = self._change(mark, query)
        engine, model = query.get("engine"), query.get("model")
        kinds = self._samples.kinds()
        _must_exist("engine", engine, {*self._engines(), *(it.engine for it in kinds)})
        _must_exist("model", model, {*self._models(), *(it.model for it in kinds)})
        past = self._samples.past(iso_of(change.from_s)).of(engine, model)
        return asyncio.to_thread(_told, mark, change, past)

    def _latest(self) -> Sequence[Mark]:
        return list(islice(self._marks, max(0, len(self._marks) - _LAST), None))

    def _find(self, wanted: str) -> Mark:
        """By name, else by text, the newest first; nothing wanted: the newest."""
        if not self._marks:
            raise Missing("No mark has been set yet. Set one: prefix-gateway mark TEXT, or POST /api/mark.")
        newest_first = list(reversed(self._marks))
        by_text = [it for it in newest_first if it.text.lower() == wanted.lower()]
        named = [it for it in newest_first if it.mark == wanted]
        part = [it for it in newest_first if wanted.lower() in it.text.lower()]
        found = named or by_text or part
        if not found:
            known = ", ".join(f"{it.mark} ({it.text[:40]})" for it in newest_first[:_TOLD_IN_ERRORS])
            raise Missing(f"No mark {wanted[:100]!r}. Marks, newest first: {known}.")
        return found[0]

    def _change(self, mark: Mark, query: Mapping[str, str]) -> Change:
        groups = grouped(self._marks, self._samples.some_ended)
        at = next(place for place, group in enumerate(groups) if mark in group)
        begins_s, ends_s = seconds_of(groups[at][0].at), seconds_of(groups[at][-1].at)
        from_s = seconds_of(groups[at - 1][-1].at) if at else self._since_s
        until_s = seconds_of(groups[at + 1][0].at if at + 1 < len(groups) else self._timestamp())
        from_s, until_s = self._named(query, "from", from_s), self._named(query, "until", until_s)
        if from_s > begins_s or until_s < ends_s:
            raise ValueError(f"{mark.mark} must lie between from and until.")
        minutes = _minutes(query)
        if minutes is not None:
            from_s, until_s = max(from_s, begins_s - minutes * 60), min(until_s, ends_s + minutes * 60)
        return Change(groups[at], min(from_s, begins_s), begins_s, ends_s, max(until_s, ends_s))

    def _named(self, query: Mapping[str, str], end: str, default_s: float) -> float:
        """Another end of a side than the marks next to it, if the query names one."""
        name = query.get(end)
        if name is None:
            return default_s
        if name == _START:
            return self._since_s
        return seconds_of(self._timestamp() if name == _NOW else self._find(name).at)


def grouped(marks: Iterable[Mark], some_ended: Callable[[str, str], bool]) -> list[list[Mark]]:
    """Marks of one change together, in their order. `some_ended`: whether requests did between two times."""
    groups: list[list[Mark]] = []
    for mark in marks:
        if groups and _is_one_change(groups[-1][-1], mark, some_ended):
            groups[-1].append(mark)
        else:
            groups.append([mark])
    return groups


def _is_one_change(one: Mark, other: Mark, some_ended: Callable[[str, str], bool]) -> bool:
    if seconds_of(other.at) - seconds_of(one.at) >= TOGETHER_S:
        return False
    return "user" not in (one.by, other.by) or not some_ended(one.at, other.at)


def _must_exist(what: str, name: str | None, known: Collection[str]) -> None:
    if name is None or name in known:
        return
    shown = sorted(known)[:_TOLD_IN_ERRORS]
    more = f" and {len(known) - len(shown):,} more" if len(known) > len(shown) else ""
    raise Missing(f"No {what} {name[:100]!r}. {what.capitalize()}s: {', '.join(shown) or 'none'}{more}.")


def _minutes(query: Mapping[str, str]) -> float | None:
    text = query.get("minutes")
    if text is None:
        return None
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not (isfinite(minutes) and 0 < minutes <= _MAX_MINUTES):
        raise ValueError(f"minutes must be a number above 0, at most {_MAX_MINUTES}.")
    return minutes


def _told(mark: Mark, change: Change, past: Past) -> Mapping[str, object]:
    before = past.between(change.from_s, change.begins_s, MOST_REQUESTS, newest=True)
    after = past.between(change.ends_s, change.until_s, MOST_REQUESTS, newest=False)
    of = compared(before.samples, after.samples)
    return {
        "mark": mark,
        "marks": change.marks,
        "before": _span(before, of.before),
        "after": _span(after, of.after),
        "across_requests": past.across(change.begins_s, change.ends_s),
        "classes": of.classes,
        "changes": of.changes,
        "sentence": sentence(of, before.until_s - before.from_s, after.until_s - after.from_s),
    }


def _span(drawn: Drawn, figures: Figures) -> Mapping[str, object]:
    return {
        "from": iso_of(drawn.from_s),
        "until": iso_of(drawn.until_s),
        "seconds": round(drawn.until_s - drawn.from_s, 3),
        "is_cut": drawn.is_cut,
        **asdict(figures),
    }
