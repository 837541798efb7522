"""Traffic and engines of which no cap may be inferred."""

import pytest
from caps.caps_run import Run, Traffic

QUIET = pytest.mark.parametrize("reports", [True, False], ids=["reports", "quiet"])
SEEDS = pytest.mark.parametrize("seed", [1, 2])


@QUIET
@SEEDS
@pytest.mark.parametrize(
    "traffic",
    [Traffic(workers=40), Traffic(per_s=3.0), Traffic(per_s=6.0), Traffic(workers=8)],
    ids=["40 workers", "3 a second", "6 a second", "8 workers"],
)
def test_a_cap_far_above_the_traffic_stays_unknown(traffic: Traffic, seed: int, reports: bool) -> None:
    """Six a second are more than the prompts that it computes: they pile up, but not before a cap."""
    run = Run(
        slots=512, believed=512, reports=reports, traffic=traffic, prefill_rate=6000.0, jitter=0.05,
        seed=seed, seconds=120.0,
    )  # fmt: skip
    found = run.found()
    assert (found.inferred, found.kv_typical) == (None, None)


@QUIET
@SEEDS
def test_a_cap_that_is_kept_to_stays_unknown(seed: int, reports: bool) -> None:
    run = Run(
        slots=16, believed=16, reports=reports, traffic=Traffic(workers=40), prefill_rate=4000.0, jitter=0.05,
        seed=seed,
    )  # fmt: skip
    assert run.found().inferred is None


@QUIET
@SEEDS
@pytest.mark.parametrize("shortest", [60_000, 100])
def test_prefills_of_half_a_minute_are_no_cap(seed: int, reports: bool, shortest: int) -> None:
    run = Run(
        slots=64, believed=64, reports=reports, traffic=Traffic(workers=6, prompt_tokens=(shortest, 60_000)),
        prefill_rate=2000.0, kv_tokens=10_000_000, jitter=0.05, seed=seed, seconds=900.0,
    )  # fmt: skip
    assert run.found().inferred is None


@QUIET
def test_nor_are_hours_of_nothing(reports: bool) -> None:
    traffic = Traffic(workers=16, pauses=((30.0, 3600.0), (3640.0, 7200.0)))
    run = Run(slots=16, believed=16, reports=reports, traffic=traffic, seconds=7300.0)
    assert run.found().inferred is None


@QUIET
@SEEDS
@pytest.mark.parametrize(("foreign", "ours"), [(12, 8), (20, 16), (8, 12)])
def test_what_others_leave_of_an_engine_is_not_its_cap(
    foreign: int, ours: int, seed: int, reports: bool
) -> None:
    run = Run(
        slots=16, believed=16, reports=reports, traffic=Traffic(workers=ours), foreign=foreign,
        foreign_from=30.0, prefill_rate=4e4, seed=seed,
    )  # fmt: skip
    assert run.found().inferred is None


@SEEDS
def test_of_a_small_engine_that_others_use_too_nothing_but_its_cap_is_inferred(seed: int) -> None:
    run = Run(slots=4, believed=16, reports=False, traffic=Traffic(workers=8), foreign=2, seed=seed)
    assert run.found().inferred in (None, 4)
