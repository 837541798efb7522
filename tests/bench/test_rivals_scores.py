"""production-stack, llm-d, Dynamo, LMetric: one score for each engine."""

import pytest
from rival_values import Driven, FakeSight, an_ask, chain

from gateway.bench.rivals.dynamo import DynamoApprox, DynamoEvents
from gateway.bench.rivals.llmd import LlmdApprox, LlmdPrecise
from gateway.bench.rivals.lmetric import Lmetric
from gateway.bench.rivals.stack import StackLoad, StackPrefix

PROMPT = chain(1, 10)


# production-stack


def test_prefixaware_takes_one_of_the_deepest_by_chance_and_ignores_load():
    driven = Driven(StackPrefix, [FakeSight(), FakeSight(), FakeSight()])
    driven.load(0, 90, PROMPT)
    driven.load(1, 1, PROMPT)
    assert driven.spread(20, PROMPT) == {0, 1}


def test_prefixaware_without_a_match_takes_any():
    driven = Driven(StackPrefix, [FakeSight(), FakeSight()])
    assert {driven.ask(chain(name, 5)) for name in range(2, 22)} == {0, 1}


def test_prefixaware_forgets_nothing_even_when_an_engine_dies():
    driven = Driven(StackPrefix, [FakeSight(), FakeSight()])
    driven.load(1, 1, PROMPT)
    driven.rival.went_down(1, 1.0)
    driven.rival.came_up(1, 20.0)
    assert driven.spread(20, PROMPT) == {1}


@pytest.mark.parametrize(
    ("busy", "engine"),
    [
        (4, 1),  # 0.8 - (4 - 3) / 3 > 0 - (2 - 3) / 3
        (6, 0),  # 0.8 - (6 - 4) / 4 < 0 + (4 - 2) / 4
    ],
)
def test_loadaware_weighs_the_matched_part_against_load_beside_the_mean(busy, engine):
    driven = Driven(StackLoad, [FakeSight(), FakeSight(held=PROMPT[:8])])
    driven.load(0, 2)
    driven.load(1, busy)
    assert driven.ask(PROMPT) == engine


def test_loadaware_in_an_idle_fleet_counts_requests_not_ratios():
    driven = Driven(StackLoad, [FakeSight(held=PROMPT), FakeSight(), FakeSight(), FakeSight()])
    driven.load(0, 1)  # mean 0.25, so 1 - 0.75 against 0 + 0.25: equal, and the first of equals wins
    assert driven.ask(PROMPT) == 0
    driven.load(0, 1)
    assert driven.ask(PROMPT) == 1


def test_loadaware_without_any_holder_takes_the_first_with_the_fewest_in_flight():
    driven = Driven(StackLoad, [FakeSight(), FakeSight(), FakeSight()])
    driven.load(0, 1)
    assert driven.ask(PROMPT) == 1


# llm-d


@pytest.mark.parametrize(
    ("waiting", "kv_usage", "matched", "engine"),
    [
        (0, 0.0, 1, 1),
        (1, 0.0, 6, 0),  # any difference in waiting is worth all of its 2, against 1.8
        (1, 0.0, 7, 1),  # 2.1
        (0, 0.9, 5, 0),  # 1.8 of kv against 1.5
        (0, 0.7, 5, 1),  # 1.4
    ],
)
def test_llmd_approx_weighs_queue_2_kv_2_prefix_3(waiting, kv_usage, matched, engine):
    driven = Driven(LlmdApprox, [FakeSight(), FakeSight(waiting=waiting, kv_usage=kv_usage)])
    driven.load(1, 1, PROMPT[:matched])
    assert driven.ask(PROMPT) == engine


@pytest.mark.parametrize(("matched", "kv_usage", "engine"), [(4, 0.7, 1), (4, 0.9, 0)])
def test_llmd_precise_weighs_prefix_2_kv_1_of_what_the_engine_holds(matched, kv_usage, engine):
    driven = Driven(LlmdPrecise, [FakeSight(), FakeSight(kv_usage=kv_usage, held=PROMPT[:matched])])
    assert driven.ask(PROMPT) == engine


def test_llmd_queues_are_scaled_between_the_shortest_and_the_longest():
    sights = [FakeSight(waiting=0), FakeSight(waiting=1, held=PROMPT[:6]), FakeSight(waiting=9)]
    assert Driven(LlmdPrecise, sights).ask(PROMPT) == 1  # 1.2 of prefix against 1/9 of queue
    sights[2].waiting = 1
    assert Driven(LlmdPrecise, sights).ask(PROMPT) == 1  # against 1
    sights[1].held = set(PROMPT[:4])
    assert Driven(LlmdPrecise, sights).ask(PROMPT) == 0  # 0.8


def test_llmd_believes_in_as_much_as_the_engine_declares():
    driven = Driven(LlmdApprox, [FakeSight(kv_tokens=500, declared_kv_tokens=1200)])
    driven.ask(chain(1, 10))
    driven.ask(chain(2, 5))
    assert driven.rival.index.match(chain(1, 10)) == [7]


def test_llmd_looks_at_the_first_131072_tokens():
    driven = Driven(LlmdApprox, [FakeSight(kv_tokens=1_000_000)])
    driven.ask(range(2000))
    assert driven.rival.index.match(range(2000)) == [1310]
    assert driven.rival.match(an_ask(9, range(2000)), [0], 0.0) == [1310]


# Dynamo


def test_dynamo_adds_prefill_to_do_and_blocks_of_decoding():
    driven = Driven(DynamoEvents, [FakeSight(), FakeSight(held=PROMPT[:6])])
    driven.load(1, 1, chain(2, 5))  # 5 active blocks, no prefill: 4 + 15 against 10 + 10
    assert driven.ask(PROMPT) == 1
    driven = Driven(DynamoEvents, [FakeSight(), FakeSight(held=PROMPT[:6])])
    driven.load(1, 1, chain(2, 7))  # 4 + 17
    assert driven.ask(PROMPT) == 0


def test_dynamo_counts_prefill_that_waits():
    driven = Driven(DynamoEvents, [FakeSight(), FakeSight(held=PROMPT[:6])])
    driven.load(1, 1, chain(2, 4), prefilled=False)  # 4 + 4 + 14 against 10 + 10
    assert driven.ask(PROMPT) == 0


def test_dynamo_counts_active_blocks_that_are_shared_once():
    driven = Driven(DynamoEvents, [FakeSight(), FakeSight()])
    driven.load(0, 3, PROMPT)  # 10 + 10
    driven.load(1, 1, chain(2, 1))  # 10 + 11
    assert driven.ask(PROMPT) == 0


@pytest.mark.parametrize(("other_blocks", "engine"), [(1, 1), (3, 0)])
def test_dynamo_lets_go_of_blocks_that_no_other_request_uses(other_blocks, engine):
    driven = Driven(DynamoEvents, [FakeSight(), FakeSight()])
    driven.rival.send(an_ask(70, chain(3, 8, start=PROMPT[:2])), 0, 0, 0.0)
    driven.load(0, 1, PROMPT[:2])
    driven.rival.finished(70, 0, 1.0)  # 2 active blocks are left
    driven.load(1, 1, chain(2, other_blocks))
    assert driven.ask(chain(4, 10)) == engine


@pytest.mark.parametrize(("active_blocks", "engine"), [(4, 1), (6, 0)])
def test_dynamo_prefill_never_counts_below_zero(active_blocks, engine):
    driven = Driven(DynamoEvents, [FakeSight(), FakeSight(held=PROMPT)])
    driven.load(1, 1, chain(2, active_blocks))
    assert driven.ask(PROMPT, prompt_tokens=500) == engine  # 0 + 14 or 16 against 5 + 10


def test_dynamo_without_events_believes_what_it_sent_for_120_s():
    driven = Driven(DynamoApprox, [FakeSight(), FakeSight()])
    first = driven.ask(PROMPT, now=0.0)
    driven.rival.finished(0, 0, 1.0)
    assert driven.rival.match(an_ask(9, PROMPT), [0, 1], 120.0)[first] == 10
    assert driven.rival.match(an_ask(9, PROMPT), [0, 1], 120.5)[first] == 0


# LMetric


def test_lmetric_multiplies_uncached_tokens_by_the_batch():
    driven = Driven(Lmetric, [FakeSight(), FakeSight()])
    driven.load(1, 2, PROMPT[:8])  # 200 x 3 against 1000 x 1
    assert driven.ask(PROMPT) == 1
    driven = Driven(Lmetric, [FakeSight(), FakeSight()])
    driven.load(1, 5, PROMPT[:8])  # 200 x 6
    assert driven.ask(PROMPT) == 0


def test_lmetric_counts_prefill_that_waits():
    driven = Driven(Lmetric, [FakeSight(), FakeSight()])
    driven.load(1, 1, PROMPT[:8], prefilled=False)  # (800 + 200) x 2 against 1000
    assert driven.ask(PROMPT) == 0


def test_lmetric_with_nothing_to_compute_takes_the_smaller_batch():
    driven = Driven(Lmetric, [FakeSight(), FakeSight()])
    driven.load(0, 2, PROMPT)
    driven.load(1, 1, PROMPT)
    assert driven.ask(PROMPT) == 1
