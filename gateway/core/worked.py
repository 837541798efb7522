"""What was worked, by hour and workload class: requests and tokens, for the operating point."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from msgspec import Struct

from gateway.core.concurrency import HOURS
from gateway.core.request import Record

_HOUR_CHARS = len("2026-12-01T14")


class Work(Struct):
    """Sums over requests that took a slot. Tokens that an engine did not report are in no sum; each of the
    unknown says how many requests its sum lacks. `uncached_tokens` are prompt tokens that were computed."""

    requests: int = 0
    prompt_tokens: int = 0
    prompt_tokens_unknown_requests: int = 0
    uncached_tokens: int = 0
    cached_tokens_unknown_requests: int = 0
    output_tokens: int = 0
    output_tokens_unknown_requests: int = 0

    def count(self, records: Iterable[Record]) -> None:
        """The sums are locals while it counts: this is done for every request."""
        requests = prompts = uncached = outputs = 0
        for record in records:
            requests += 1
            prompt, cached, output = record.prompt_tokens, record.cached_tokens, record.completion_tokens
            if prompt is None:
                self.prompt_tokens_unknown_requests += 1
            else:
                prompts += prompt
            if prompt is None or cached is None:
                self.cached_tokens_unknown_requests += 1
            elif prompt > cached:
                uncached += prompt - cached
            if output is None:
                self.output_tokens_unknown_requests += 1
            else:
                outputs += output
        self.requests += requests
        self.prompt_tokens += prompts
        self.uncached_tokens += uncached
        self.output_tokens += outputs

    def add(self, other: "Work") -> None:
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


Classes = dict[str, Work]


class Worked:
    """Bounded: the last hours one by one, all before them as one.

    `ended` takes each record, whose request counts to the hour in which it ended if it took a slot. They are
    kept until `count`, to be called now and then, since one at a time costs more.
    """

    def __init__(self) -> None:
        self._ended: list[Record] = []
        self.ended = self._ended.append
        self._hours: dict[str, Classes] = {}
        self._before: Classes = {}

    def total(self) -> Classes:
        """By class, since the start."""
        self.count()
        return merged([self._before, *self._hours.values()])

    def hours(self) -> Mapping[str, Classes]:
        """By hour, named as in `core.concurrency`, and class."""
        self.count()
        return {f"{hour}:00Z": classes for hour, classes in self._hours.items()}

    def count(self) -> None:
        """All that has ended since the last time."""
        ended = self._ended.copy()
        self._ended.clear()
        for hour, records in _by_hour(ended):
            by_class: defaultdict[str, list[Record]] = defaultdict(list)
            for record in records:
                if record.width and record.engine:
                    by_class[record.workload_class].append(record)
            for name, its_records in by_class.items():
                self._hour(hour).setdefault(name, Work()).count(its_records)

    def _hour(self, hour: str) -> Classes:
        classes = self._hours.get(hour)
        if classes is None:
            classes = self._hours[hour] = {}
            if len(self._hours) > HOURS:
                oldest = self._hours.pop(min(self._hours))
                self._before = merged([self._before, oldest])
        return classes


def _by_hour(ended: list[Record]) -> Iterable[tuple[str, list[Record]]]:
    """`ended` is in the order of time, so that its ends tell whether it is all of one hour."""
    if not ended:
        return ()
    first = ended[0].time[:_HOUR_CHARS]
    if ended[-1].time.startswith(first):
        return ((first, ended),)
    hours: defaultdict[str, list[Record]] = defaultdict(list)
    for record in ended:
        hours[record.time[:_HOUR_CHARS]].append(record)
    return hours.items()


def merged(many: Iterable[Classes]) -> Classes:
    """Sums by class; nothing in it is shared with what it is made of."""
    out: Classes = {}
    for classes in many:
        for name, work in classes.items():
            out.setdefault(name, Work()).add(work)
    return out


def overall(classes: Classes) -> Work:
    """All classes together."""
    out = Work()
    for work in classes.values():
        out.add(work)
    return out
