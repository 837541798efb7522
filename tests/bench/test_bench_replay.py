"""Cells made ready and played, results kept and found again."""

from pathlib import Path

import pytest
from bench_results import CELL
from msgspec.structs import replace

from gateway.bench.arrivals import Bursts, ClosedLoop, OpenLoop, OpenSessions
from gateway.bench.cells import BurstSpec, Cell
from gateway.bench.replay import (
    OWN,
    ReplayError,
    Result,
    Run,
    execute,
    fingerprint,
    kept,
    prepare,
    replay,
    runs,
)

DATA = Path(__file__).parent.parent.parent / "benchmarks" / "data"


def a_run(policy: str, *, cell: Cell = CELL, seed: int = 1) -> Run:
    return Run(cell=cell, policy=policy, seed=seed)


def small_engines(kv_tokens: int) -> Cell:
    return replace(CELL, engines=tuple(replace(engine, kv_tokens=kv_tokens) for engine in CELL.engines))


def test_a_closed_cell_has_agents_for_its_load() -> None:
    half, full = (prepare(replace(CELL, load=load), DATA).arrivals for load in (0.5, 1.0))

    assert isinstance(half, ClosedLoop)
    assert isinstance(full, ClosedLoop)
    assert half.think_cap_s == 30.0
    assert abs(full.agents - 2 * half.agents) <= 1


def test_the_other_ways_to_arrive() -> None:
    sessions = prepare(replace(CELL, arrivals="sessions", gaps="code"), DATA).arrivals
    recorded = prepare(replace(CELL, arrivals="open"), DATA).arrivals
    bursts = prepare(replace(CELL, bursts=BurstSpec(every_s=3.0, width=4)), DATA).arrivals

    assert isinstance(sessions, OpenSessions)
    assert sessions.per_s > 0
    assert sessions.gaps_s is not None
    assert len(sessions.gaps_s) == 8818
    assert isinstance(recorded, OpenLoop)
    assert recorded.speed > 0
    assert isinstance(bursts, Bursts)
    assert (bursts.every_s, bursts.width, bursts.prefix_tokens) == (3.0, 4, 4096)
    assert isinstance(bursts.base, ClosedLoop)


def test_sessions_too_long_for_an_engine_are_left_out_and_counted() -> None:
    setting = prepare(small_engines(16_000), DATA)

    longest = max(turn.prompt_tokens for session in setting.workload.sessions for turn in session.turns)
    assert longest <= 8000
    assert len(setting.workload.sessions) + setting.dropped_sessions == 12
    assert setting.dropped_sessions > 0


def test_a_cell_that_no_session_fits_is_an_error() -> None:
    with pytest.raises(
        ReplayError, match=r"cell small-0\.5: every session of miniswe has a prompt longer than 50"
    ):
        prepare(small_engines(100), DATA)


@pytest.mark.parametrize("policy", [OWN, "round_robin"])
def test_a_run_has_figures_and_the_same_ones_again(policy: str) -> None:
    one, two = (execute(a_run(policy), DATA) for _ in range(2))

    assert one.figures == two.figures
    assert one.figures is not None
    assert one.figures.requests > 20
    assert (one.cell, one.policy, one.seed, one.dropped_sessions) == ("small-0.5", policy, 1, 0)
    assert (one.decision_us is not None) is (policy == OWN)


def test_another_seed_is_another_run() -> None:
    one, two = (execute(a_run("sticky", seed=seed), DATA) for seed in (1, 2))

    assert one.figures != two.figures


def test_a_run_in_which_nobody_got_an_answer_has_no_figures() -> None:
    over_at_once = replace(CELL, warm_s=4.9, until_s=5.0, load=0.01)

    assert execute(a_run("sticky", cell=over_at_once), DATA).figures is None


def test_every_policy_plays_every_seed_of_every_cell() -> None:
    other = replace(CELL, name="other", seeds=(1, 2))

    found = runs([CELL, other], ["a", "b"])

    assert [(run.cell.name, run.policy, run.seed) for run in found] == [
        ("small-0.5", "a", 1),
        ("small-0.5", "b", 1),
        ("other", "a", 1),
        ("other", "b", 1),
        ("other", "a", 2),
        ("other", "b", 2),
    ]


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_are_kept_as_they_come(tmp_path: Path, jobs: int) -> None:
    out = tmp_path / "new" / "results.jsonl"
    wanted = runs([CELL], ["sticky", "round_robin"])

    played = list(replay(wanted, DATA, jobs=jobs, out=out))

    assert sorted(it.policy for it in played if isinstance(it, Result)) == ["round_robin", "sticky"]
    assert sorted(kept(out, wanted).values(), key=repr) == sorted(played, key=repr)


def test_a_run_that_fails_does_not_stop_the_others() -> None:
    wanted = [a_run("sticky", cell=small_engines(100)), a_run("sticky")]

    failure, result = replay(wanted, DATA, jobs=1, out=None)

    assert isinstance(failure, ReplayError)
    assert isinstance(result, Result)


def test_only_results_of_the_wanted_runs_are_found_again(tmp_path: Path) -> None:
    out = tmp_path / "results.jsonl"
    changed = replace(CELL, until_s=30.0)
    wanted = [a_run("sticky"), a_run("sticky", seed=2), a_run("aibrix", cell=changed)]

    assert kept(out, wanted) == {}
    list(replay([a_run("sticky"), a_run("aibrix")], DATA, jobs=1, out=out))

    assert list(kept(out, wanted)) == [a_run("sticky")]
    assert fingerprint(changed) != fingerprint(CELL)


def test_a_line_that_was_broken_off_costs_no_other_result(tmp_path: Path) -> None:
    out = tmp_path / "results.jsonl"
    out.write_bytes(b'{"cell":"small-0.5","pol')

    list(replay([a_run("sticky")], DATA, jobs=1, out=out))

    assert list(kept(out, [a_run("sticky")])) == [a_run("sticky")]
