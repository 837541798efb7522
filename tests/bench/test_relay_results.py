"""Medians, added latency, what is wrong with a run, and the file that keeps it all."""

import json
from pathlib import Path

from relay_values import a_sample, results

from gateway.bench.relay.results import Failure, write


def test_a_figure_is_the_median_of_the_rounds_that_have_it() -> None:
    told = results({})
    told.samples += [a_sample("gateway", {"json_rps": rate}) for rate in (1.0, 9.0, 2.0)]
    told.samples.append(a_sample("gateway", {}))

    assert told.median("gateway", "json_rps") == 2.0
    assert told.median("gateway", "burst_rps") is None
    assert told.median("haproxy", "json_rps") is None


def test_latency_is_what_is_added_to_the_median_answer_straight_from_the_engine() -> None:
    told = results(
        {
            "direct": {"latency_8_p50_us": 200.0, "latency_8_p99_us": 900.0},
            "gateway": {"latency_8_p50_us": 350.0, "latency_8_p99_us": 1200.0, "latency_16_p50_us": 1.0},
        }
    )

    assert told.added_us("gateway", 8, 50) == 150.0
    assert told.added_us("gateway", 8, 99) == 1000.0
    assert told.added_us("gateway", 16, 50) is None
    assert told.added_us("haproxy", 8, 50) is None


def test_bad_answers_are_told_by_system_and_scenario() -> None:
    told = results({"gateway": {}}, bad={"gateway": 2})
    told.samples += [
        a_sample("gateway", {}, bad=3, number=2),
        a_sample("gateway", {}, scenario="long"),
        a_sample("haproxy", {}),
    ]

    assert told.bad("gateway") == 5
    assert told.bad("haproxy") == 0
    assert told.troubles() == ["gateway gave bad answers in json: 5 beside 200 answers"]


def test_systems_that_are_missing_or_failed_are_told() -> None:
    told = results({"gateway": {}})
    told.skipped["haproxy"] = "haproxy is not on PATH"
    told.failures.append(Failure(system="vllm-router", round=2, message="ended with 1: no such option"))

    assert told.troubles() == [
        "haproxy was left out: haproxy is not on PATH",
        "vllm-router failed in round 2: ended with 1: no such option",
    ]


def test_a_machine_that_was_busy_before_is_told() -> None:
    told = results({"gateway": {}})
    told.busy_cpus = 0.09
    quiet = told.troubles()
    told.busy_cpus = 1.27

    assert quiet == []
    assert told.troubles() == ["the machine was not idle before it began: 1.3 CPUs were at work"]


def test_a_proxy_as_fast_as_the_engine_alone_is_told_to_be_bounded_by_it() -> None:
    told = results(
        {"direct": {"json_rps": 1000.0}, "haproxy": {"json_rps": 950.0}, "gateway": {"json_rps": 800.0}}
    )

    (line,) = told.troubles()

    assert line.startswith("json_rps: haproxy is as fast as load and engine alone")


def test_without_direct_nobody_is_told_to_be_bounded() -> None:
    assert results({"haproxy": {"json_rps": 950.0}}).troubles() == []


def test_the_file_has_medians_and_what_they_were_made_from(tmp_path: Path) -> None:
    told = results({"gateway": {"json_rps": 5.0}}, bad={"gateway": 1})

    write(tmp_path / "out.json", told)

    kept = json.loads((tmp_path / "out.json").read_text())
    assert kept["medians"] == {"gateway": {"json_rps": 5.0, "bad_answers": 1}}
    assert kept["samples"][0]["figures"] == {"json_rps": 5.0}
    assert kept["machine"]["cpu"] == "Some CPU"
    assert kept["versions"] == {"wrk": "4.1", "gateway": "0.1.0"}
