"""What indexes predict against what engines deliver, on a small workload and by hand."""

from pathlib import Path

import pytest
from bench_values import done, session, turn, workload
from click.testing import CliRunner

from gateway.bench import truth
from gateway.bench.truth import Case, Part, Truth
from gateway.cli import cli

DATA = Path(__file__).parents[2] / "benchmarks" / "data"
SMALL = Case(workload="magagent", kv_tokens=40_000, prefill_tokens_per_s=4000, until_s=300, think_cap_s=20)


def part(prompt: int = 100, predicted: int = 0, delivered: int = 0, off: int = 0) -> Part:
    return Part(requests=1, prompt=prompt, predicted=predicted, delivered=delivered, off=off)


def test_a_part_sums_tokens_and_distances() -> None:
    both = [done(0.0, 1.0, cached=800), done(0.0, 1.0, cached=100)]
    it = truth.part(both, {0: 500})
    assert it == Part(requests=2, prompt=2000, predicted=1000, delivered=900, off=700)
    assert (it.predicted_percent, it.delivered_percent, it.difference_points) == (50.0, 45.0, 5.0)
    assert it.off_percent == 35.0


def test_the_conversations_that_are_alive_need_three_times_the_caches() -> None:
    of_1000_tokens = workload(session(turn(5), turn(15)))
    assert truth.agents(SMALL, of_1000_tokens) == 3 * 2 * 40_000 // 1000


def test_an_engine_declares_twice_what_it_has_unless_it_is_taken_to_hold_all() -> None:
    assert SMALL.spec(None).declared_kv_tokens == 80_000
    assert SMALL.spec(10**12).declared_kv_tokens == 10**12
    assert SMALL.spec(None).kv_tokens == 40_000


def test_an_index_that_learns_is_nearer_to_what_engines_deliver() -> None:
    got = {it.index: it for it in truth.play_all([SMALL], 1, DATA, "dev", jobs=1)}
    assert set(got) == set(truth.INDEXES)
    off = {index: it.rest.off_percent for index, it in got.items()}
    assert off["corrected"] < off["bounded"] / 2 < off["unbounded"] / 2
    assert all(it.first.requests > 0 for it in got.values())


def test_several_processes_come_to_the_same() -> None:
    by_index = {it.index: it for it in truth.play_all([SMALL], 1, DATA, "dev", jobs=1)}
    assert {it.index: it for it in truth.play_all([SMALL], 1, DATA, "dev", jobs=2)} == by_index


def test_seeds_are_summed_and_the_worst_is_told() -> None:
    truths = [
        Truth(workload="miniswe", index="bounded", seed=1, first=part(), rest=part(100, 60, 50, 10)),
        Truth(workload="miniswe", index="bounded", seed=2, first=part(), rest=part(300, 90, 110, 40)),
        Truth(workload="claude_code", index="corrected", seed=1, first=part(100, 7, 6, 1), rest=part()),
    ]
    claude, mini = truth.rows(truths)
    assert claude[2:] == ["0.0", "0.0", "+0.0", "+0.0", "0.0", "+1.0", "1"]
    assert mini == ["miniswe", "bounded", "37.5", "40.0", "-2.5", "+10.0", "12.5", "+0.0", "2"]
    assert truth.markdown(truths).splitlines()[2] == f"| {' | '.join(claude)} |"
    assert truth.table(truths).row_count == 2


def test_the_command_prints_and_writes_the_table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(truth, "CASES", (SMALL,))
    to = tmp_path / "truth.md"
    command = ["bench", "truth", "--seeds", "1", "--half", "dev", "--jobs", "1", "--data", str(DATA)]
    ran = CliRunner().invoke(cli, [*command, "--markdown", str(to)])
    assert ran.exit_code == 0, ran.output
    assert "corrected" in ran.stdout
    assert to.read_text().count("\n") == 2 + len(truth.INDEXES)


def test_traces_that_are_not_there_are_told(tmp_path: Path) -> None:
    ran = CliRunner().invoke(cli, ["bench", "truth", "--seeds", "1", "--jobs", "1", "--data", str(tmp_path)])
    assert ran.exit_code == 2
    assert str(tmp_path) in ran.stderr
