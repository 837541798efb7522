"""Finished requests in columns: which are kept, which belong to a span, and that they are bounded."""

from typing import Any

import pytest
from edge_values import a_record
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.funnel import COLUMNS, WITHOUT, row
from gateway.core.request import Outcome
from gateway.core.samples import MAX_KINDS, Drawn, Kind, Past, Sample, Samples, Untold, seconds_of

NOON = "2026-12-01T12:00:00.000Z"
NOON_S = seconds_of(NOON)
CHAT = Kind("a", "m", "chat")


def time(at_s: float) -> str:
    """So many seconds after noon."""
    minutes, seconds = divmod(round(at_s * 1000), 60_000)
    return f"2026-12-01T{12 + minutes // 60:02d}:{minutes % 60:02d}:{seconds / 1000:06.3f}Z"


def samples_of(*spans: tuple[float, float, float | None], capacity: int = 1000) -> Samples:
    """A request for each (came, ended, first token), in seconds after noon; its prompt is its number."""
    made = Samples(capacity)
    for number, (came_s, ended_s, first_s) in enumerate(spans):
        made.ended(
            a_record(
                time=time(ended_s),
                duration_ms=(ended_s - came_s) * 1000,
                ttft_ms=None if first_s is None else (first_s - came_s) * 1000,
                prompt_tokens=number,
            )
        )
    return made


def drawn(
    past: Past, from_s: float, until_s: float, most: int = 1000, newest: bool = True
) -> list[int | None]:
    its = past.between(NOON_S + from_s, NOON_S + until_s, most, newest=newest)
    return [it.prompt_tokens for it in its.samples]


def test_a_request_is_what_its_record_says() -> None:
    samples = Samples()
    samples.ended(a_record(time=time(1), prompt_tokens=1000, cached_tokens=900, ttft_ms=250.1))
    samples.ended(a_record(time=time(1), engine="b", model="n", workload_class="json", ttft_ms=None,
                           prompt_tokens=None, cached_tokens=None, outcome=Outcome.ENGINE_ERROR))  # fmt: skip
    told = samples.past(NOON).between(NOON_S - 60, NOON_S + 60, 10, newest=False)
    assert told == Drawn(
        [
            Sample(CHAT, 0, 1000, 900, 250.1),
            Sample(Kind("b", "n", "json"), 0, None, None, None, Untold.FAILED),
        ],
        NOON_S - 60,
        NOON_S + 60,
        False,
    )


@pytest.mark.parametrize(
    ("fields", "untold"),
    [
        ({"cached_tokens": 0}, None),
        ({"cached_tokens": 0, "outcome": Outcome.CLIENT_DISCONNECT}, None),
        ({"cached_tokens": None}, Untold.UNKNOWN),
        ({"prompt_tokens": None}, Untold.UNKNOWN),
        ({"cached_tokens": None, "outcome": Outcome.CLIENT_DISCONNECT}, Untold.FAILED),
        ({"cached_tokens": None, "status": 404, "outcome": Outcome.ENGINE_ERROR}, Untold.FAILED),
        ({"cached_tokens": None, "api": "embeddings"}, Untold.NEVER),
        ({"cached_tokens": None, "api": "embeddings", "outcome": Outcome.ENGINE_ERROR}, Untold.FAILED),
    ],
)
def test_unknown_is_what_ended_ok_without_a_report(fields: dict[str, Any], untold: Untold | None) -> None:
    samples = Samples()
    record = a_record(time=time(1), **fields)
    samples.ended(record)
    told = samples.past(NOON).between(NOON_S - 60, NOON_S + 60, 10, newest=False).samples[0]
    assert told.untold is untold
    # The funnel's definition is the same.
    if record.api not in WITHOUT:
        counted = row(record)
        assert (counted is not None and counted[COLUMNS.index("unknown")]) == (untold is Untold.UNKNOWN)


def test_what_took_no_slot_is_not_kept() -> None:
    samples = Samples()
    samples.ended(a_record(engine="", time=time(1)))
    samples.ended(a_record(width=0, time=time(1)))
    assert drawn(samples.past(NOON), 0, 60) == []


def test_times_are_exact_across_minutes_and_hours() -> None:
    samples = samples_of((1, 59.999, None), (60, 60, None), (60, 60.001, None), (3599, 3600.5, None))
    assert drawn(samples.past(NOON), 0, 59.999, newest=False) == [0]
    assert drawn(samples.past(NOON), 60, 60.001, newest=False) == [2]
    assert drawn(samples.past(NOON), 3599, 3600.499) == []
    assert drawn(samples.past(NOON), 3599, 3600.5) == [3]


def test_a_request_belongs_to_a_span_in_which_it_came_and_had_its_first_token() -> None:
    samples = samples_of(
        (1.0, 5.0, 2.0),  # all before the mark at 10
        (8.0, 30.0, 9.9),  # goes on long after it, but its prompt was done
        (8.0, 30.0, 11.0),  # across
        (8.0, 30.0, None),  # an answer in one piece, across
        (10.0, 31.0, 12.0),  # after
        (12.0, 32.0, None),
    )
    past = samples.past(NOON)
    assert drawn(past, 0, 10, newest=False) == [0, 1]
    assert drawn(past, 10, 60, newest=False) == [4, 5]
    assert past.across(NOON_S + 10, NOON_S + 10) == 2
    assert past.across(NOON_S + 9, NOON_S + 12) == 4


def test_a_request_is_of_one_side_only_though_times_are_cut_to_milliseconds() -> None:
    samples = samples_of((10.0, 10.0, None), (9.9995, 10.001, None))
    past = samples.past(NOON)
    assert drawn(past, 0, 10) == [0]
    assert drawn(past, 10, 20) == [1]
    assert past.across(NOON_S + 10, NOON_S + 10) == 0


def test_of_many_those_next_to_the_mark_are_drawn_and_the_span_is_what_they_took() -> None:
    past = samples_of(*[(at, at + 0.5, None) for at in range(10)]).past(NOON)
    assert drawn(past, 0, 60, most=3) == [9, 8, 7]
    newest = past.between(NOON_S, NOON_S + 60, 3, newest=True)
    assert (newest.from_s, newest.until_s, newest.is_cut) == (NOON_S + 7, NOON_S + 60, True)
    oldest = past.between(NOON_S, NOON_S + 60, 3, newest=False)
    assert [it.prompt_tokens for it in oldest.samples] == [0, 1, 2]
    assert (oldest.from_s, oldest.until_s, oldest.is_cut) == (NOON_S, NOON_S + 2.5, True)
    assert not past.between(NOON_S, NOON_S + 60, 10, newest=True).is_cut


def test_the_newest_are_kept_and_a_span_begins_where_they_do() -> None:
    samples = samples_of(*[(at, at + 0.5, None) for at in range(8)], capacity=8)
    samples.count()
    for at in (8, 9):
        samples.ended(a_record(time=time(at + 0.5), duration_ms=500, ttft_ms=None, prompt_tokens=at))
    past = samples.past(NOON)
    assert drawn(past, 0, 60, newest=False) == [3, 4, 5, 6, 7, 8, 9]
    assert past.between(NOON_S, NOON_S + 60, 100, newest=True).from_s == NOON_S + 2.5
    assert past.between(NOON_S, NOON_S + 1, 100, newest=True).from_s == NOON_S + 1
    assert len(samples._columns) == 8


def test_what_is_copied_does_not_change() -> None:
    samples = samples_of((1, 2, None))
    past = samples.past(NOON)
    samples.ended(a_record(time=time(3), duration_ms=1))
    samples.count()
    assert drawn(past, 0, 60) == [0]


def test_only_what_ended_since_is_copied() -> None:
    samples = samples_of((1, 2, None), (1, 2.001, None), (1, 3, None))
    past = samples.past(time(2.001))
    assert drawn(past, 0, 60, newest=False) == [1, 2]
    assert drawn(samples.past(time(9)), 0, 60) == []


def test_whether_any_ended_between_two_times() -> None:
    samples = samples_of((1, 10, None), (1, 20, None))
    spans = [(0, 10), (0, 10.001), (10, 11), (10.001, 20), (20, 30), (21, 30)]
    assert [samples.some_ended(time(a), time(b)) for a, b in spans] == [False, True, True, False, True, False]


def test_one_engine_or_one_model() -> None:
    samples = Samples()
    for number, (engine, model) in enumerate([("a", "m"), ("b", "m"), ("a", "n")]):
        samples.ended(a_record(time=time(1), duration_ms=1, engine=engine, model=model, prompt_tokens=number))
    past = samples.past(NOON)
    assert drawn(past.of(None, None), 0, 60, newest=False) == [0, 1, 2]
    assert drawn(past.of("a", None), 0, 60, newest=False) == [0, 2]
    assert drawn(past.of(None, "m"), 0, 60, newest=False) == [0, 1]
    assert drawn(past.of("a", "n"), 0, 60, newest=False) == [2]
    assert drawn(past.of("c", None), 0, 60, newest=False) == []
    assert past.of("b", None).across(NOON_S + 0.9995, NOON_S + 1.5) == 1


def test_kinds_are_those_of_all_requests_since_the_start() -> None:
    samples = Samples()
    assert samples.kinds() == []
    samples.ended(a_record(time=time(1), engine="b", model="n"))
    assert samples.kinds() == [Kind("b", "n", "chat")]


def test_kinds_are_bounded() -> None:
    samples = Samples()
    for number in range(MAX_KINDS):
        samples.ended(a_record(time=time(1), model=f"m{number}"))
    told = samples.past(NOON).between(NOON_S - 60, NOON_S + 60, MAX_KINDS, newest=False).samples
    assert told[0].kind == Kind("a", "m0", "chat")
    assert told[-1].kind == Kind("", "", "other")
    assert len({it.kind for it in told}) == MAX_KINDS


def test_a_time_is_read_whole() -> None:
    assert seconds_of("2026-12-01T12:00:00.250Z") == pytest.approx(1796126400.25)


_TIMES = st.floats(0, 20, allow_nan=False, width=32)


@given(st.lists(st.tuples(_TIMES, _TIMES, st.none() | st.floats(0, 1)), max_size=20), st.integers(0, 20_000))
def test_every_request_is_before_after_or_across(
    requests: list[tuple[float, float, float | None]], mark_ms: int
):
    """Whatever the fractions of milliseconds are."""
    spans = [
        (came_s, came_s + took_s, None if share is None else came_s + took_s * share)
        for came_s, took_s, share in requests
    ]
    past = samples_of(*sorted(spans, key=lambda it: it[1])).past(NOON)
    at = mark_ms / 1000
    before, after = drawn(past, -1, at), drawn(past, at, 60)
    assert set(before).isdisjoint(after)
    assert len(before) + len(after) + past.across(NOON_S + at, NOON_S + at) == len(requests)
