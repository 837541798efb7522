"""The order of a measurement, and what each system is started with."""

import os
import sys
from pathlib import Path

import pytest

from gateway.bench.relay import run
from gateway.bench.relay.results import Failure
from gateway.bench.relay.scenarios import SCENARIOS
from gateway.bench.relay.systems import SYSTEMS, Place, System


def a_place(folder: Path) -> Place:
    return Place(port=1000, admin_port=1001, engine_port=2000, slots=64, folder=folder)


def test_scenarios_that_ask_the_same_engine_share_a_start() -> None:
    groups = run._groups(["json", "paced", "alone", "memory", "latency"])

    assert [names for _, names in groups] == [["json", "alone", "latency"], ["paced"], ["memory"]]


def test_every_scenario_is_in_one_group() -> None:
    assert sorted(name for _, names in run._groups(list(SCENARIOS)) for name in names) == sorted(SCENARIOS)


@pytest.mark.skipif(
    sys.platform != "linux" or not {0, 1} <= os.sched_getaffinity(0), reason="needs Linux with CPU 0 and 1"
)
def test_a_system_that_does_not_start_is_told_in_each_round_and_the_others_go_on(tmp_path: Path) -> None:
    systems = [System(name=name, version="1", program="/bin/false") for name in ("haproxy", "sglang-router")]
    systems.append(System(name="vllm-router", version="1", program="/nowhere/python"))
    bench = run.Bench(run.Plan(systems, ["json"], rounds=2, seconds=1), tmp_path, wrk="/bin/false")

    failures = [it for it in bench.play() if isinstance(it, Failure)]

    assert [(it.system, it.round) for it in failures] == [
        (name, number) for number in (1, 2) for name in ("haproxy", "sglang-router", "vllm-router")
    ]
    assert failures[0].message == "ended with 1: it wrote nothing"
    assert "No such file or directory: '/nowhere/vllm-router'" in failures[2].message


@pytest.mark.parametrize("name", SYSTEMS[2:])
def test_every_router_is_told_its_engine_and_ports(name: str, tmp_path: Path) -> None:
    command = " ".join(System(name=name, version="1", program="/env/bin/python").command(a_place(tmp_path)))

    assert "http://127.0.0.1:2000" in command
    assert "1000" in command
    assert "1001" in command


def test_the_gateway_runs_with_its_defaults_and_enough_slots(tmp_path: Path) -> None:
    command = System(name="gateway", version="1").command(a_place(tmp_path))

    assert command[:4] == [sys.executable, "-m", "gateway", "serve"]
    assert command[4:6] == ["--engine", "http://127.0.0.1:2000,slots=64"]


def test_haproxy_gets_a_file(tmp_path: Path) -> None:
    program, _, path = System(name="haproxy", version="1", program="/sbin/haproxy").command(a_place(tmp_path))

    assert program == "/sbin/haproxy"
    assert "bind 127.0.0.1:1000" in Path(path).read_text()
    assert "server s1 127.0.0.1:2000" in Path(path).read_text()


def test_vllm_router_comes_from_the_same_environment(tmp_path: Path) -> None:
    command = System(name="vllm-router", version="1", program="/env/bin/python").command(a_place(tmp_path))

    assert command[0] == "/env/bin/vllm-router"


def test_direct_starts_nothing(tmp_path: Path) -> None:
    assert System(name="direct", version="").command(a_place(tmp_path)) == []
