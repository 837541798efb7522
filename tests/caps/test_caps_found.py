"""Caps of simulated engines, found under mixed traffic on virtual time within two minutes of more."""

import pytest
from caps.caps_run import Run, Traffic

from gateway.core.engine import SlotSource

TWO_MINUTES_S = 120.0


@pytest.mark.parametrize("reports", [True, False], ids=["reports", "quiet"])
@pytest.mark.parametrize(
    ("slots", "workers", "prefill_rate", "jitter", "seed"),
    [
        (1, 4, 8e3, 0.0, 1),
        (2, 5, 8e3, 0.05, 2),
        (3, 8, 8e3, 0.05, 3),
        (4, 16, 8e3, 0.0, 4),
        (7, 10, 8e3, 0.05, 5),
        (16, 24, 4e4, 0.05, 6),
        (40, 60, 4e4, 0.05, 7),
    ],
)
def test_slots_are_found(
    slots: int, workers: int, prefill_rate: float, jitter: float, seed: int, reports: bool
) -> None:
    run = Run(
        slots=slots, believed=64, reports=reports, traffic=Traffic(workers=workers),
        prefill_rate=prefill_rate, jitter=jitter, seed=seed, seconds=TWO_MINUTES_S,
    )  # fmt: skip
    assert run.found().inferred == slots


@pytest.mark.parametrize("reports", [True, False], ids=["reports", "quiet"])
@pytest.mark.parametrize(("slots", "per_s", "seed"), [(2, 0.6, 1), (4, 1.2, 2), (16, 5.0, 3)])
def test_slots_are_found_in_what_comes_at_random(slots: int, per_s: float, seed: int, reports: bool) -> None:
    run = Run(
        slots=slots, believed=512, reports=reports, traffic=Traffic(per_s=per_s), prefill_rate=4e4,
        seed=seed, seconds=TWO_MINUTES_S,
    )  # fmt: skip
    assert run.found().inferred == slots


@pytest.mark.parametrize("reports", [True, False], ids=["reports", "quiet"])
@pytest.mark.parametrize("seed", [1, 2])
def test_so_is_the_size_of_static_batches(seed: int, reports: bool) -> None:
    run = Run(
        slots=4, believed=64, reports=reports, traffic=Traffic(workers=12), batching="static", jitter=0.05,
        seed=seed, seconds=TWO_MINUTES_S,
    )  # fmt: skip
    assert run.found().inferred == 4


def test_sixteen_slots_whose_memory_holds_five_requests_run_five() -> None:
    alike = Traffic(workers=16, prompt_tokens=(650, 680), output_tokens=(100, 110))
    found = Run(slots=16, traffic=alike, kv_tokens=4000, seconds=TWO_MINUTES_S).found()
    assert (found.inferred, found.kv_typical) == (None, 5)
    # Without reports nobody can tell memory from slots.
    found = Run(slots=16, traffic=alike, kv_tokens=4000, seconds=TWO_MINUTES_S, reports=False).found()
    assert found.inferred == 5


def test_of_prompts_of_all_sizes_what_memory_holds_is_told_by_reports_alone() -> None:
    traffic = Traffic(workers=16)
    found = Run(slots=16, traffic=traffic, kv_tokens=8000, seconds=TWO_MINUTES_S, seed=3).found()
    assert (found.inferred, found.kv_typical) == (None, 5)
    found = Run(slots=16, traffic=traffic, kv_tokens=8000, seconds=300.0, seed=3, reports=False).found()
    assert found.inferred is None


def test_priorities_do_not_change_what_is_found() -> None:
    run = Run(slots=4, believed=8, traffic=Traffic(workers=16), priorities=True, reports=False, seed=1)
    assert run.found().inferred == 4


def test_an_engine_that_tells_no_cached_tokens_is_found_out_too() -> None:
    run = Run(slots=4, believed=64, traffic=Traffic(workers=8), cached=False, reports=False, seed=1)
    assert run.found().inferred == 4


@pytest.mark.parametrize("reports", [True, False], ids=["reports", "quiet"])
@pytest.mark.parametrize(("assumed", "slots"), [(4, 12), (1, 4), (8, 8), (8, 4), (256, 4)])
def test_a_working_limit_becomes_what_the_engine_runs(assumed: int, slots: int, reports: bool) -> None:
    run = Run(
        slots=slots, believed=assumed, source=SlotSource.ASSUMED, reports=reports,
        traffic=Traffic(workers=30), seconds=TWO_MINUTES_S,
    )  # fmt: skip
    found = run.found()
    assert (found.inferred, found.slots, found.source) == (slots, slots, SlotSource.INFERRED)
    if assumed <= slots:
        # Nobody waits inside, but for the one that may tell of another slot.
        assert found.most_waiting <= 1
        waits_s = sorted(it for it in run.waited_s.values() if it is not None)
        assert waits_s[len(waits_s) * 9 // 10] == 0.0


@pytest.mark.parametrize("reports", [True, False], ids=["reports", "quiet"])
@pytest.mark.parametrize(("slots", "believed"), [(4, 12), (4, 4), (16, 24)])
def test_the_wait_inside_is_told_as_the_engine_would_tell_it(
    slots: int, believed: int, reports: bool
) -> None:
    run = Run(slots=slots, believed=believed, reports=reports, traffic=Traffic(workers=30), prefill_rate=2e4)
    run.found()
    told, true = 0.0, 0.0
    late = [key for key in run.begun if run.asks_at[key] > TWO_MINUTES_S]
    for key in late:
        waited_s = run.waited_s[key]
        if waited_s is not None:
            told += waited_s
            true += run.inside_s[key]
    assert len(late) > 50
    assert told == pytest.approx(true, rel=0.03, abs=0.02 * len(late))
    assert sum(run.waited_s[key] is None for key in late) < 0.05 * len(late)
