"""`/api/operating-point`: what production really runs at, overall and by the hour. No prompt text."""

from collections.abc import Mapping

from msgspec.structs import asdict

from gateway.core.concurrency import Concurrency, Seconds
from gateway.core.engine import SlotSource
from gateway.core.health import UP
from gateway.core.operating import at_most, busy, by_number, figures, sentence, share_of
from gateway.core.snapshot import Snapshot
from gateway.core.worked import Classes, Worked, overall

_Told = Mapping[str, object]


def operating_point(concurrency: Concurrency, worked: Worked, snapshot: Snapshot, now: float) -> _Told:
    """`concurrency` until `now`, `worked` as far as it has ended, and the slots of `snapshot`'s engines that
    take requests. Seconds are rounded to microseconds."""
    total = concurrency.total(now)
    up = [view for view in snapshot.engines if view.health in UP and not view.leaving]
    slots = sum(view.slots for view in up)
    assumed = sum(view.slots for view in up if view.slots_source is SlotSource.ASSUMED)
    works = worked.hours()
    return {
        "since": concurrency.since,
        "seconds": round(sum(total.in_flight), 6),
        "sentence": sentence(total, slots, assumed),
        "slots": slots,
        "slots_assumed": assumed,
        "share_busy": share_of(total.in_flight),
        **_distribution(total.in_flight),
        "busy": {"seconds": round(sum(total.in_flight[1:]), 6), **_distribution(busy(total.in_flight))},
        "wanted": _distribution(total.wanted),
        **_work(worked.total()),
        "hours": [
            {
                "hour": name,
                **_distribution(spent.in_flight),
                "wanted": _distribution(spent.wanted),
                **_work(works.get(name, {})),
            }
            for name, spent in concurrency.hours(now)
        ],
    }


def _distribution(seconds: Seconds) -> _Told:
    return {"at_most": figures(at_most(seconds)), "seconds_at": by_number(seconds)}


def _work(classes: Classes) -> _Told:
    work = overall(classes)
    return {**asdict(work), "classes": classes}
