import pytest
from rival_values import Driven, FakeSight, chain

from gateway.bench.rivals.cache_aware import SglangNew, SglangOld, VllmRouter

PROMPT = chain(1, 10)
CLASSIC = pytest.mark.parametrize("build", [SglangOld, VllmRouter])


@CLASSIC
def test_a_match_above_the_threshold_goes_to_its_engine_whatever_its_load_below_the_gate(build):
    driven = Driven(build, [FakeSight(), FakeSight()])
    driven.load(1, 64, PROMPT[:4])
    assert driven.ask(PROMPT) == 1


@CLASSIC
def test_a_match_of_the_threshold_goes_to_the_shortest_queue(build):
    driven = Driven(build, [FakeSight(), FakeSight()])
    driven.load(1, 1, PROMPT[:3])
    assert driven.ask(PROMPT) == 0


@CLASSIC
def test_above_the_imbalance_gate_everybody_goes_to_the_shortest_queue_whatever_the_match(build):
    driven = Driven(build, [FakeSight(), FakeSight(), FakeSight()])
    driven.load(0, 5, PROMPT)
    driven.load(1, 66)
    driven.load(2, 1)
    assert driven.ask(PROMPT) == 2


@CLASSIC
def test_the_gate_needs_the_ratio_too(build):
    driven = Driven(build, [FakeSight(), FakeSight()])
    driven.load(0, 130)
    driven.load(1, 195, PROMPT)
    assert driven.ask(PROMPT) == 1
    driven.load(1, 1)
    assert driven.ask(PROMPT) == 0


@CLASSIC
def test_of_equally_short_queues_the_first_is_taken(build):
    assert Driven(build, [FakeSight(), FakeSight()]).spread(10) == {0}


@CLASSIC
def test_among_several_holders_load_plays_no_part(build):
    driven = Driven(build, [FakeSight(), FakeSight()])
    driven.load(0, 30, PROMPT)
    driven.load(1, 1, PROMPT)
    assert driven.spread(20, PROMPT) == {0, 1}


@pytest.mark.parametrize(("build", "engine"), [(SglangOld, 1), (VllmRouter, 0)])
def test_only_the_vllm_router_counts_engines_that_are_down_as_idle(build, engine):
    driven = Driven(build, [FakeSight(), FakeSight(), FakeSight(up=False)])
    driven.load(0, 40)
    driven.load(1, 70, PROMPT)
    assert driven.ask(PROMPT) == engine


def test_the_new_rule_keeps_a_match_that_others_imbalance_would_have_dropped():
    driven = Driven(SglangNew, [FakeSight(), FakeSight(), FakeSight()])
    driven.load(0, 5, PROMPT)
    driven.load(1, 100)
    assert driven.ask(PROMPT) == 0


def test_the_new_rule_spills_above_both_margins_and_replicates_the_prefix():
    driven = Driven(SglangNew, [FakeSight(), FakeSight(), FakeSight(kv_usage=0.5)])
    driven.load(0, 96, PROMPT)
    assert driven.ask(PROMPT) == 0  # 96 is 64 above the mean of 32, not more
    driven.load(0, 2)
    assert driven.ask(PROMPT) == 1
    assert driven.rival.index.match(PROMPT) == [10, 10, 0]
    assert driven.ask(PROMPT) == 1


def test_a_load_above_the_mean_by_64_but_not_by_half_does_not_spill():
    driven = Driven(SglangNew, [FakeSight(), FakeSight()])
    driven.load(0, 400, PROMPT)
    driven.load(1, 250)
    assert driven.ask(PROMPT) == 0


@pytest.mark.parametrize(
    ("queued_tokens", "kv_usage", "engine"),
    [(200, 0.5, 0), (400, 0.5, 1)],  # 0.1 s and 0.2 s against 0.15 s
)
def test_several_holders_are_told_apart_by_expected_wait(queued_tokens, kv_usage, engine):
    driven = Driven(SglangNew, [FakeSight(), FakeSight(kv_usage=kv_usage)])
    driven.load(0, 1, PROMPT)
    driven.load(1, 1, PROMPT)
    driven.load(0, 1, chain(2, queued_tokens // 100), prefilled=False)
    assert driven.ask(PROMPT) == engine


def test_without_a_match_the_new_rule_takes_the_least_expected_wait_not_the_fewest_requests():
    driven = Driven(SglangNew, [FakeSight(), FakeSight()])
    driven.load(0, 3)
    driven.load(1, 1, chain(2, 50), prefilled=False)
    assert driven.ask(PROMPT) == 0
