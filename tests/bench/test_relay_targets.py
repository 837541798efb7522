"""Which targets are reached beside whom."""

import pytest
from relay_values import results

from gateway.bench.relay.targets import Verdict, verdicts

SGLANG, VLLM = "sglang-router", "vllm-router"


def verdict(figure: str, *, is_aim: bool = False, **figures: float) -> Verdict:
    named = {name.replace("_", "-"): {figure: value} for name, value in figures.items()}
    (found,) = [it for it in verdicts(results(named)) if it.bar.is_aim is is_aim]
    return found


@pytest.mark.parametrize(
    ("figure", "is_aim", "ours", "reached"),
    [
        ("json_rps", False, 2000, True),
        ("json_rps", False, 1999, False),
        ("json_rps", True, 6000, True),
        ("json_rps", True, 5999, False),
        ("burst_rps", False, 4000, True),
        ("burst_rps", False, 3999, False),
        ("burst_rps", True, 4000, True),
        ("burst_rps", True, 3999, False),
        ("long_rps", False, 8500, True),
        ("long_rps", False, 8499, False),
        ("long_rps", True, 9500, True),
        ("long_rps", True, 9499, False),
    ],
)
def test_a_rate_must_be_so_many_times_the_rivals(
    figure: str, is_aim: bool, ours: float, reached: bool
) -> None:
    found = verdict(figure, is_aim=is_aim, gateway=ours, haproxy=10_000, sglang_router=1000, vllm_router=600)

    assert found.reached is reached


@pytest.mark.parametrize(
    ("figure", "is_aim", "ours", "reached"),
    [
        ("paced_cpu_us_per_event", False, 30, True),
        ("paced_cpu_us_per_event", False, 30.1, False),
        ("paced_cpu_us_per_event", True, 26, True),
        ("paced_cpu_us_per_event", True, 26.1, False),
        ("alone_p50_us", False, 29.9, True),
        ("alone_p50_us", False, 30, False),
        ("alone_p50_us", True, 80, True),
        ("alone_p50_us", True, 81, False),
    ],
)
def test_a_time_must_be_no_longer(figure: str, is_aim: bool, ours: float, reached: bool) -> None:
    found = verdict(figure, is_aim=is_aim, gateway=ours, haproxy=20, sglang_router=30, vllm_router=10)

    assert found.reached is reached


@pytest.mark.parametrize(("ours", "reached"), [(20.0, True), (20.1, False)])
def test_an_idle_stream_has_a_limit_of_its_own(ours: float, reached: bool) -> None:
    found = verdict("memory_kb_per_stream", gateway=ours, haproxy=1.0)

    assert found.reached is reached
    assert found.ratio is None
    assert found.wanted == "<= 20"


def test_the_better_router_is_the_one_that_counts() -> None:
    found = verdict("json_rps", gateway=3000, sglang_router=900, vllm_router=1000)

    assert (found.rival, found.theirs, found.limit, found.ratio) == (VLLM, 1000, 2000, 3.0)


def test_with_one_router_it_is_compared_with_that_one() -> None:
    assert verdict("json_rps", gateway=3000, sglang_router=900).rival == SGLANG


def test_a_rival_that_was_not_measured_leaves_a_target_open() -> None:
    found = verdict("json_rps", gateway=3000, haproxy=9000)

    assert (found.rival, found.limit, found.reached) == (None, None, None)


def test_a_figure_of_ours_that_is_missing_leaves_a_target_open() -> None:
    assert verdict("json_rps", sglang_router=900).reached is None


def test_only_what_was_measured_is_judged() -> None:
    assert {it.bar.figure for it in verdicts(results({"gateway": {"long_rps": 1.0}}))} == {"long_rps"}


@pytest.mark.parametrize(
    ("figure", "is_aim", "words"),
    [
        ("json_rps", False, ">= 2 x"),
        ("alone_p50_us", False, "< 1 x"),
        ("alone_p50_us", True, "<= + 60"),
        ("paced_cpu_us_per_event", True, "<= 1.3 x"),
    ],
)
def test_a_bar_is_told_in_few_words(figure: str, is_aim: bool, words: str) -> None:
    assert verdict(figure, is_aim=is_aim, gateway=1.0).wanted == words
