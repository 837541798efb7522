"""The figures of a run, from literal requests."""

import pytest
from bench_values import done

from gateway.bench.measure import Figures, measure
from gateway.bench.workload import Done, EngineSpec

SPECS = (
    EngineSpec(prefill_tokens_per_s=1000.0, decode_s=0.1),
    EngineSpec(prefill_tokens_per_s=500.0, decode_s=0.2),
)


def figures(*dones: Done, warm: float = 0.0, until: float = 100.0) -> Figures:
    return measure(dones, SPECS, warm_s=warm, until_s=until)


def test_shares_are_ratios_of_sums_over_the_prompts_that_were_computed() -> None:
    it = figures(
        done(0, 1, 1, prompt=1000, cached=100, best=500, seen=600),
        done(0, 1, 1, prompt=3000, cached=2900, best=2900, seen=2900),
        done(0, 1, 1, prompt=1000, cached=500, best=300, seen=500),
        done(0, None, None, prompt=9000, best=9000, seen=9000),
    )

    assert it.hit_share == 3500 / 5000
    assert it.best_share == 3700 / 5000
    assert it.ideal_share == 4000 / 5000
    # One got 400 less than an engine held; one got more, since another computed it while it waited.
    assert it.regret_tokens_share == 400 / 5000


def test_what_arrived_in_the_warm_up_does_not_count() -> None:
    it = figures(done(9, 90, 90, cached=1), done(10, 11, 11, cached=500), warm=10)

    assert (it.requests, it.hit_share, it.ttft_p99_s) == (1, 0.5, 1.0)
    assert it.answers_per_s == 1 / 90


def test_percentiles_are_of_requests_that_were_there() -> None:
    it = figures(*(done(0, first, first) for first in range(1, 101)))

    assert (it.ttft_p50_s, it.ttft_p90_s, it.ttft_p99_s, it.ttft_mean_s) == (50, 90, 99, 50.5)
    assert it.longest_wait_s == 100


def test_who_waits_at_the_end_enters_with_what_it_has_waited() -> None:
    it = figures(done(0, 1, 1), done(20))

    assert (it.ttft_p90_s, it.longest_wait_s) == (80, 80)
    assert (it.requests, it.good_share) == (2, 0.5)
    assert it.answers_per_s == it.goodput_per_s == 0.01


@pytest.mark.parametrize(
    ("first", "seen", "good"),
    [(12.9, 0, True), (13.1, 0, False), (12.5, 500, True), (12.6, 500, False)],
    ids=["2 s and its prefill", "later", "what was seen is no prefill", "later than that"],
)
def test_a_good_answer_begins_in_time(first: float, seen: int, good: bool) -> None:
    # 1,000 tokens take 1 s on the fastest engine; the slow one that it ran on has the same bound.
    it = figures(done(10, first, first, prompt=1000, seen=seen, engine=1))

    assert it.good_share == good


@pytest.mark.parametrize(
    ("finished", "output", "good"),
    [(15.9, 11, True), (16.1, 11, False), (11, 1, True)],
    ids=["5 decode steps a token", "slower", "one token"],
)
def test_a_good_answer_goes_on_in_time(finished: float, output: int, good: bool) -> None:
    assert figures(done(10, 11, finished, output=output)).good_share == good


@pytest.mark.parametrize(
    ("late", "undecided", "good_share"),
    [
        (done(98, None), 1, 1.0),
        (done(96, None), 0, 0.5),
        (done(97, 98, None, output=11), 1, 1.0),
        (done(92, 93, None, output=11), 0, 0.5),
        (done(90, 99, None, output=11), 0, 0.5),
    ],
    ids=["waits, in time", "waits too long", "answers, in time", "answers too slowly", "began too late"],
)
def test_what_the_end_cuts_off_counts_if_it_can_only_be_bad(
    late: Done, undecided: int, good_share: float
) -> None:
    it = figures(done(0, 1, 1), late)

    assert (it.requests, it.undecided, it.good_share) == (2 - undecided, undecided, good_share)


def test_a_refused_request_is_not_good_and_has_no_ttft() -> None:
    it = figures(done(0, 1, 1), done(0, None, None, refused=True))

    assert (it.requests, it.refused, it.good_share, it.ttft_p99_s, it.longest_wait_s) == (2, 1, 0.5, 1, 1)


def test_imbalance_is_the_busiest_engine_against_the_mean() -> None:
    it = figures(
        done(0, 1, 1, prompt=1000, cached=400, output=100, engine=0),
        done(0, 1, 1, prompt=200, cached=100, output=200, engine=1),
    )

    assert it.imbalance == 700 / 500


@pytest.mark.parametrize("dones", [[], [done(5)], [done(20)]], ids=["nobody", "in the warm-up", "no answer"])
def test_a_run_without_an_answer_has_no_figures(dones: list[Done]) -> None:
    with pytest.raises(ValueError, match="between warm_s=10 and until_s=100 got an answer: run for longer"):
        figures(*dones, warm=10)
