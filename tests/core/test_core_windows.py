"""Sums of the last minute, ten minutes and hour: what comes in, and when it is gone."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.funnel import COLUMNS, NOTHING
from gateway.core.windows import MAX_SERIES, Series, Windows


def requests(count: int) -> list[int]:
    return [count, *NOTHING[1:]]


def counts(windows: Windows, now: float) -> dict[str, int]:
    return {name: sums[0] for name, sums in windows.sums(now).items()}


def test_nothing_yet() -> None:
    windows = Windows()
    assert windows.sums(100.0) == dict.fromkeys(("1m", "10m", "1h", "all"), [0] * len(COLUMNS))


def test_what_came_leaves_the_windows_one_after_another() -> None:
    windows = Windows()
    windows.add(requests(2), 1000.0)
    windows.add(requests(1), 1004.9)
    windows.add(requests(5), 1005.0)
    assert counts(windows, 1005.0) == {"1m": 8, "10m": 8, "1h": 8, "all": 8}
    assert counts(windows, 1059.9) == {"1m": 8, "10m": 8, "1h": 8, "all": 8}
    assert counts(windows, 1060.0) == {"1m": 5, "10m": 8, "1h": 8, "all": 8}
    assert counts(windows, 1065.0) == {"1m": 0, "10m": 8, "1h": 8, "all": 8}
    assert counts(windows, 1604.9) == {"1m": 0, "10m": 5, "1h": 8, "all": 8}
    assert counts(windows, 4589.0) == {"1m": 0, "10m": 0, "1h": 8, "all": 8}
    assert counts(windows, 4590.0) == {"1m": 0, "10m": 0, "1h": 0, "all": 8}


def test_what_is_too_old_is_not_kept() -> None:
    windows = Windows()
    for at in range(0, 20_000, 7):
        windows.add(requests(1), float(at))
    assert sum(sums[0] for _, _, sums in windows.steps(0.0, 19_999.0)) == counts(windows, 19_999.0)["1h"]
    assert len(windows.steps(0.0, 19_999.0)) == 120
    assert counts(windows, 19_999.0) == {"1m": 9, "10m": 86, "1h": 513, "all": 2858}


def test_steps_are_of_all_the_time_since_it_began() -> None:
    windows = Windows()
    windows.add(requests(3), 70.0)
    assert [(start, seconds, sums[0]) for start, seconds, sums in windows.steps(45.0, 101.5)] == [
        (45.0, 15.0, 0),
        (60.0, 30.0, 3),
        (90.0, 11.5, 0),
    ]


@given(st.lists(st.tuples(st.floats(0.0, 700.0), st.integers(0, 5)), max_size=40), st.floats(0.0, 4000.0))
def test_a_window_is_what_came_in_its_steps(came: list[tuple[float, int]], later_s: float) -> None:
    windows, now, all_of_it = Windows(), 0.0, []
    for after_s, count in came:
        now += after_s
        windows.add(requests(count), now)
        all_of_it.append((now, count))
    now += later_s

    def naive(step_s: int, seconds: int) -> int:
        oldest = now // step_s - seconds // step_s
        # What came in the hour counts with the five seconds that it came in.
        return sum(count for at, count in all_of_it if (at // 5 * 5) // step_s > oldest)

    expected = {"1m": naive(5, 60), "10m": naive(5, 600), "1h": naive(30, 3600)}
    assert counts(windows, now) == {**expected, "all": sum(count for _, count in came)}
    assert sum(sums[0] for _, _, sums in windows.steps(0.0, now)) == expected["1h"]


def test_everything_and_by_label() -> None:
    series = Series()
    series.add(("a", "m", "chat", "none"), requests(1), 0.0)
    series.add(("b", "m", "json", "none"), requests(2), 1.0)
    assert series.overall.total[0] == 3
    assert {
        label: {name: it.total[0] for name, it in by.items()} for label, by in series.by.items()
    } == {
        "engine": {"a": 1, "b": 2},
        "model": {"m": 3},
        "class": {"chat": 1, "json": 2},
        "key": {"none": 3},
    }  # fmt: skip


def test_too_many_names_are_one() -> None:
    series = Series()
    for number in range(MAX_SERIES + 10):
        series.add((f"e{number}", "m", "chat", "none"), requests(1), 0.0)
    series.add(("e0", "m", "chat", "none"), requests(1), 0.0)
    engines = series.by["engine"]
    assert len(engines) == MAX_SERIES + 1
    assert (engines["other"].total[0], engines["e0"].total[0]) == (10, 2)
