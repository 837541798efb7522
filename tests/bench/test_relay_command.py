"""`prefix-gateway bench relay` as a user types it."""

import json
import os
import resource
import shutil
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.bench.relay import command, environment, programs, scenarios
from gateway.bench.relay.errors import RelayError
from gateway.cli import cli


def ran(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["bench", "relay", *map(str, arguments)])


@pytest.fixture
def two_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "gateway,nginx"], "'nginx' is none of direct, haproxy, sglang-router"),
        (["--scenarios", "jason"], "'jason' is none of json, burst, paced, long"),
        (["--rounds", "0"], "0 is not in the range"),
        (["--seconds", "0"], "0 is not in the range"),
        (["--plots", "x", "--scenarios", "json"], "--plots draws scenario latency: add it to --scenarios"),
        (["--scenarios", "latency", "--only", "gateway"], "above direct's: add direct to --only"),
    ],
)
def test_a_mistake_ends_with_2_and_says_what_would_do(arguments: list[str], message: str) -> None:
    result = ran(*arguments)

    assert result.exit_code == 2
    assert message in result.stderr


def test_other_systems_are_told_that_it_needs_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")

    result = ran()

    assert result.exit_code == 2
    assert "read from /proc: this needs Linux" in result.stderr


def test_one_core_is_not_enough(monkeypatch: pytest.MonkeyPatch, two_cpus: None) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1}, raising=False)

    result = ran()

    assert result.exit_code == 2
    assert "it needs CPU 0 and CPU 1, and this process may only use [1]" in result.stderr


def test_without_wrk_there_is_no_load(monkeypatch: pytest.MonkeyPatch, two_cpus: None) -> None:
    monkeypatch.setattr(programs, "find", lambda name: None)

    result = ran("--scenarios", "json")

    assert result.exit_code == 2
    assert "wrk is not on PATH and could not be installed: sudo apt-get install wrk" in result.stderr


def test_rivals_that_cannot_be_had_are_left_out_and_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def no_environment(*_: object, **__: object) -> None:
        raise RelayError("cannot make a virtual environment")

    monkeypatch.setattr(programs, "find", lambda name: None)
    monkeypatch.setattr(environment, "ensure", no_environment)

    systems, skipped = command._systems(["direct", "haproxy", "sglang-router", "gateway"], tmp_path)

    assert [system.name for system in systems] == ["direct", "gateway"]
    assert skipped == {
        "sglang-router": "cannot make a virtual environment",
        "haproxy": programs.missing("haproxy"),
    }


def test_too_few_open_files_are_a_reason_not_to_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)

    scenarios.allow_files(["json", "latency"])
    with pytest.raises(RelayError, match="scenario memory needs 6000 open files, and the hard limit is 4096"):
        scenarios.allow_files(["json", "memory"])


def test_the_limit_on_open_files_is_raised_once_and_far_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    raised = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: raised.append(limits[0]))

    scenarios.allow_files(["memory", "latency", "json"])

    assert raised == [6000]


@pytest.mark.skipif(shutil.which("wrk") is None, reason="no wrk here")
@pytest.mark.skipif(
    sys.platform != "linux" or not {0, 1} <= os.sched_getaffinity(0), reason="needs Linux with CPU 0 and 1"
)
def test_the_engine_alone_is_measured(tmp_path: Path) -> None:
    out, page = tmp_path / "out.json", tmp_path / "page.md"

    result = ran(
        *("--only", "direct", "--scenarios", "alone", "--rounds", 1, "--seconds", 1),
        *("--out", out, "--markdown", page),
    )

    assert result.exit_code == 0, result.output
    kept = json.loads(out.read_text())
    assert kept["medians"]["direct"]["alone_p50_us"] > 0
    assert kept["medians"]["direct"]["bad_answers"] == 0
    assert kept["samples"][0]["answers"] > 0
    assert "alone p50 µs" in result.stdout
    assert "| direct |" in page.read_text()
