"""`prefix-gateway bench replay` as a user types it."""

from pathlib import Path

import pytest
from bench_results import CELL, PLAN, a_result
from click.testing import CliRunner, Result

from gateway.bench import plots
from gateway.cli import cli


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.yaml"
    path.write_text(PLAN)
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["bench", "replay", *map(str, arguments)])


def test_a_plan_is_played_and_told(plan: Path) -> None:
    ran = run("--plan", plan, "--policies", "gateway,sticky", "--jobs", 1)

    assert ran.exit_code == 0, ran.output
    assert "small-0.5: miniswe, closed, load 0.5, 2 engines" in ran.stdout
    assert {line.split()[1] for line in ran.stdout.splitlines() if line.startswith("│")} == {
        "gateway",
        "sticky",
    }
    assert "TTFT p90, load <= 1: at most 5% worse than the best rival in " in ran.stdout
    assert "losses: " in ran.stdout


def test_results_that_are_there_are_not_played_again(plan: Path, tmp_path: Path) -> None:
    out = tmp_path / "results.jsonl"
    command = ("--plan", plan, "--jobs", 1, "--out", out)

    first = run(*command, "--policies", "sticky")
    kept = out.read_bytes()
    second = run(*command, "--policies", "sticky, sticky")
    third = run(*command, "--policies", "sticky,round_robin")

    assert first.stdout == second.stdout
    assert out.read_bytes().startswith(kept)
    assert out.read_bytes().count(b"\n") == 2
    assert "round_robin" in third.stdout


def test_the_traces_may_be_elsewhere(plan: Path, tmp_path: Path) -> None:
    without = run("--plan", plan, "--data", tmp_path / "none")
    empty = run("--plan", plan, "--data", tmp_path, "--jobs", 1, "--policies", "sticky")

    assert without.exit_code == empty.exit_code == 2
    assert "they are in the repository's benchmarks/data" in without.stderr
    assert "cannot read trace" in empty.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--quick", "--plan", "x.yaml"], "--quick is a plan of its own: give either it or --plan"),
        (["--plan", "x.yaml"], "cannot read plan x.yaml"),
        (["--policies", "gateway,fastest"], "'fastest' is none of gateway, round_robin, "),
        (["--cells", "zz*"], "has a name like 'zz*': "),
        (["--jobs", "0"], "0 is not in the range"),
    ],
)
def test_a_mistake_ends_with_2_and_says_what_would_do(arguments: list[str], message: str) -> None:
    ran = run(*arguments)

    assert ran.exit_code == 2
    assert message in ran.stderr


def test_a_run_that_failed_is_told_and_ends_with_1(plan: Path) -> None:
    plan.write_text(PLAN.replace("100_000", "100"))

    ran = run("--plan", plan, "--policies", "sticky", "--jobs", 1)

    assert ran.exit_code == 1
    assert "every session of miniswe has a prompt longer than 50 tokens" in ran.stderr


def test_plots_say_what_they_need(plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plots, "is_installed", lambda: False)

    ran = run("--plan", plan, "--plots", tmp_path)

    assert ran.exit_code == 2
    assert "--plots needs matplotlib: pip install 'prefix-gateway[bench]'" in ran.stderr


def test_the_same_results_give_the_same_plots(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    results = [a_result("gateway"), a_result("sticky", ttft_p90_s=2.0)]

    one, two = (plots.write(tmp_path / name, [CELL], results) for name in ("one", "two"))

    assert [path.name for path in one] == ["ttft_p90.svg", "goodput.svg", "hits.svg"]
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in two]


def test_no_result_no_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")

    assert plots.write(tmp_path / "plots", [CELL], [a_result("gateway")]) == []
    assert not (tmp_path / "plots").exists()
