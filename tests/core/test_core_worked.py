"""What was worked, by hour and class: sums of what engines reported, and how many did not."""

from edge_values import a_record

from gateway.core.concurrency import HOURS
from gateway.core.worked import Work, Worked, overall

NOON, ONE = "2026-12-01T12:59:59.999Z", "2026-12-01T13:00:00.000Z"


def test_tokens_by_class_and_hour_of_the_end() -> None:
    worked = Worked()
    worked.ended(a_record(time=NOON, prompt_tokens=1000, cached_tokens=900, completion_tokens=50))
    worked.ended(a_record(time=ONE, prompt_tokens=500, cached_tokens=0, completion_tokens=7))
    worked.ended(a_record(time=ONE, prompt_tokens=10, cached_tokens=4, completion_tokens=1))
    json = a_record(time=ONE, workload_class="json", prompt_tokens=3, cached_tokens=3, completion_tokens=2)
    worked.ended(json)
    assert worked.hours() == {
        "2026-12-01T12:00Z": {
            "chat": Work(requests=1, prompt_tokens=1000, uncached_tokens=100, output_tokens=50)
        },
        "2026-12-01T13:00Z": {
            "chat": Work(requests=2, prompt_tokens=510, uncached_tokens=506, output_tokens=8),
            "json": Work(requests=1, prompt_tokens=3, uncached_tokens=0, output_tokens=2),
        },
    }
    total = worked.total()
    assert total["chat"] == Work(requests=3, prompt_tokens=1510, uncached_tokens=606, output_tokens=58)
    assert overall(total) == Work(requests=4, prompt_tokens=1513, uncached_tokens=606, output_tokens=60)


def test_unknown_is_not_zero() -> None:
    worked = Worked()
    worked.ended(a_record(prompt_tokens=100, cached_tokens=None, completion_tokens=5))
    worked.ended(a_record(prompt_tokens=None, cached_tokens=50, completion_tokens=None))
    worked.ended(a_record(prompt_tokens=100, cached_tokens=101, completion_tokens=5))
    assert worked.total() == {
        "chat": Work(
            requests=3,
            prompt_tokens=200,
            prompt_tokens_unknown_requests=1,
            uncached_tokens=0,
            cached_tokens_unknown_requests=2,
            output_tokens=10,
            output_tokens_unknown_requests=1,
        )
    }


def test_what_took_no_slot_is_no_work() -> None:
    worked = Worked()
    worked.ended(a_record(engine=""))
    worked.ended(a_record(width=0))
    assert worked.total() == {}
    assert Worked().total() == Worked().hours() == {}


def test_what_has_been_counted_is_not_kept() -> None:
    worked = Worked()
    for _ in range(3):
        worked.ended(a_record())
        worked.count()
        assert worked._ended == []
    assert worked.total()["chat"].requests == 3


def test_the_last_hours_are_kept_and_nothing_of_the_others_is_lost() -> None:
    worked = Worked()
    for day in range(1, 11):
        for hour in range(24):
            worked.ended(a_record(time=f"2026-12-{day:02d}T{hour:02d}:30:00.000Z"))
    hours = worked.hours()
    assert len(hours) == HOURS
    assert min(hours) == "2026-12-09T00:00Z"
    assert worked.total()["chat"].requests == 240
    assert worked.total()["chat"].prompt_tokens == 240_000
