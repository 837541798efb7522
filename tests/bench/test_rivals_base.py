from random import Random

import pytest
from rival_values import BLOCK_TOKENS, Driven, FakeSight, an_ask, chain

from gateway.bench.rivals import RIVALS
from gateway.bench.rivals.lmetric import Lmetric
from gateway.bench.rivals.plain import LeastLoaded, RoundRobin, Sticky

PROMPT = chain(1, 10)


def test_round_robin_takes_the_next_engine_that_is_up():
    driven = Driven(RoundRobin, [FakeSight(), FakeSight(up=False), FakeSight()])
    assert [driven.ask() for _ in range(4)] == [0, 2, 0, 2]


def test_the_least_loaded_has_the_fewest_in_flight():
    driven = Driven(LeastLoaded, [FakeSight(), FakeSight(), FakeSight()])
    driven.load(0, 2)
    driven.load(2, 1)
    assert driven.ask() == 1


def test_equally_loaded_engines_share_by_chance():
    assert Driven(LeastLoaded, [FakeSight(), FakeSight()]).spread(20) == {0, 1}


def test_a_session_sticks_whatever_the_load_and_moves_when_its_engine_is_down():
    driven = Driven(Sticky, [FakeSight(), FakeSight()])
    driven.load(0, 1)
    assert driven.ask(session=7) == 1
    driven.load(1, 50)
    assert driven.ask(session=7) == 1
    driven.sights[1].up = False
    assert driven.ask(session=7) == 0
    driven.sights[1].up = True
    assert driven.ask(session=7) == 0


def test_a_request_is_in_flight_from_its_dispatch_to_its_end():
    driven = Driven(LeastLoaded, [FakeSight()])
    rival = driven.rival
    rival.arrived(an_ask(50, PROMPT), 0.0)
    rival.arrived(an_ask(51, PROMPT), 0.0)
    assert (rival.in_flight, rival.prefill_tokens) == ([2], [2000])
    rival.first_token(50, 1.0)
    assert (rival.in_flight, rival.prefill_tokens) == ([2], [1000])
    rival.finished(50, 0, 2.0)
    rival.failed(51, 2.0)
    assert (rival.in_flight, rival.prefill_tokens) == ([1], [1000])


def test_waiting_prefill_counts_only_what_is_not_believed_cached():
    driven = Driven(Lmetric, [FakeSight()])
    driven.load(0, 1, PROMPT)
    driven.ask(PROMPT, prompt_tokens=1030)
    assert driven.rival.prefill_tokens == [30]


@pytest.mark.parametrize("name", sorted(RIVALS))
def test_requests_wait_for_an_engine_to_come_up_and_then_all_go_there(name):
    sights = [FakeSight(up=False), FakeSight(up=False)]
    rival = RIVALS[name](sights, BLOCK_TOKENS, Random(1))
    assert [list(rival.arrived(an_ask(key, PROMPT), 0.0)) for key in (1, 2)] == [[], []]
    sights[1].up = True
    assert list(rival.came_up(1, 5.0)) == [(1, 1), (2, 1)]


@pytest.mark.parametrize("name", sorted(RIVALS))
def test_a_failed_request_goes_to_an_engine_that_is_up(name):
    sights = [FakeSight(), FakeSight()]
    rival = RIVALS[name](sights, BLOCK_TOKENS, Random(1))
    ((_, first),) = rival.arrived(an_ask(1, PROMPT), 0.0)
    sights[first].up = False
    assert list(rival.went_down(first, 1.0)) == []
    assert list(rival.failed(1, 1.0)) == [(1, 1 - first)]
    assert sum(rival.in_flight) == 1


@pytest.mark.parametrize(
    "name", sorted(set(RIVALS) - {"stack_prefix", "stack_load", "llmd_precise", "dynamo_events"})
)
def test_an_index_of_what_was_sent_forgets_an_engine_that_died(name):
    rival = RIVALS[name]([FakeSight()], BLOCK_TOKENS, Random(1))
    rival.arrived(an_ask(1, PROMPT), 0.0)
    rival.finished(1, 0, 1.0)
    rival.went_down(0, 2.0)
    assert list(rival.match(an_ask(2, PROMPT), [0], 2.0)) == [0]


@pytest.mark.parametrize("name", sorted(RIVALS))
def test_each_names_its_source(name):
    assert RIVALS[name].source
