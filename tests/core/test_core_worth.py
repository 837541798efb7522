"""What a hit is worth."""

import pytest
from edge_values import a_record

from gateway.core.funnel import row
from gateway.core.worth import LEAST_S, Begun, Stream, begun, gained_per_hour, saved_s


def stream(prompt: int, cached: int, ttft_ms: float) -> Stream:
    counted = row(a_record(prompt_tokens=prompt, cached_tokens=cached))
    assert counted is not None
    return counted, ttft_ms


def test_ttft_by_the_share_that_was_cached() -> None:
    streams = [stream(1000, 0, 10.0 * number) for number in range(1, 101)]
    streams += [stream(1000, 249, 9000.0), stream(1000, 250, 400.0), stream(1000, 750, 200.0)]
    streams += [stream(1000, 900, 20.0), stream(1000, 1000, 10.04), stream(0, 0, 5.0)]
    assert begun(streams) == [
        Begun("0-25 %", 102, 500.0, 910.0),
        Begun("25-50 %", 1, 400.0, 400.0),
        Begun("50-75 %", 0, None, None),
        Begun("75-90 %", 1, 200.0, 200.0),
        Begun("90-100 %", 2, 10.0, 20.0),
    ]


def test_seconds_of_prefill_that_were_saved() -> None:
    assert saved_s({"a": 3000, "b": 1000}, {"a": 1500.0, "b": 500.0}) == 4.0
    assert saved_s({"a": 3000, "b": 1000}, {"a": 1500.0, "b": None}) == 2.0
    assert saved_s({"a": 3000}, {}) is None
    assert saved_s({}, {"a": 1500.0}) is None


def test_requests_that_found_room_in_the_slot_time_that_was_saved() -> None:
    # 100 requests in 100 s of slots and 25 s saved: without hits these slots would have done 80.
    assert gained_per_hour(100, 100.0, 25.0, 3600.0) == pytest.approx(20.0)
    assert gained_per_hour(100, 100.0, 25.0, 600.0) == pytest.approx(120.0)
    assert gained_per_hour(100, 100.0, 0.0, 3600.0) == 0.0
    assert gained_per_hour(100, 100.0, None, 3600.0) is None
    assert gained_per_hour(20, 0.0, 1.0, 3600.0) is None


def test_few_requests_or_a_short_time_are_no_rate() -> None:
    assert gained_per_hour(14, 20.0, 10.0, 10.0) is None
    assert gained_per_hour(19, 100.0, 25.0, 3600.0) is None
    assert gained_per_hour(20, 100.0, 25.0, 3600.0) == pytest.approx(4.0)
    assert gained_per_hour(100, 100.0, 25.0, LEAST_S - 1.0) is None
    assert gained_per_hour(100, 100.0, 25.0, LEAST_S) == pytest.approx(240.0)
