"""AIBrix, KubeAI, Preble, SkyWalker."""

from collections import Counter

import pytest
from rival_values import Driven, FakeSight, an_ask, chain

from gateway.bench.rivals.aibrix import Aibrix
from gateway.bench.rivals.kubeai import Kubeai
from gateway.bench.rivals.preble import Preble
from gateway.bench.rivals.skywalker import Skywalker

PROMPT = chain(1, 10)


def loaded(build, *loads):
    """A rival with so many requests in flight at each engine."""
    driven = Driven(build, [FakeSight() for _ in loads])
    for engine, count in enumerate(loads):
        driven.load(engine, count)
    return driven


# AIBrix


@pytest.mark.parametrize(
    ("loads", "engine"),
    [
        ((5, 6, 6), 2),  # mean 5.67, sigma 0.47
        ((4, 5, 6), 1),  # mean 5, sigma 0.82
    ],
)
def test_aibrix_takes_the_best_match_among_those_within_one_sigma(loads, engine):
    driven = loaded(Aibrix, *loads)
    driven.rival.index.insert(1, PROMPT[:2], 0.0)
    driven.rival.index.insert(2, PROMPT, 0.0)
    assert driven.ask(PROMPT) == engine


def test_aibrix_of_equal_percentages_takes_the_fewest_running():
    driven = loaded(Aibrix, 3, 1, 2)
    driven.load(0, 1, PROMPT)
    driven.load(1, 1, PROMPT)
    assert driven.ask(PROMPT) == 1


def test_aibrix_without_a_match_takes_the_fewest_running():
    assert loaded(Aibrix, 3, 1, 2).ask(PROMPT) == 1


@pytest.mark.parametrize(
    ("loads", "engine"),
    [
        ((0, 3, 8), 1),
        ((0, 3, 9), 0),
        ((1, 9), 1),
        ((0, 9), 0),
    ],
)
def test_aibrix_looks_only_at_the_least_busy_when_load_is_imbalanced(loads, engine):
    driven = loaded(Aibrix, *loads)
    driven.rival.index.insert(1, PROMPT, 0.0)
    assert driven.ask(PROMPT) == engine


def test_aibrix_forgets_after_20_minutes():
    driven = loaded(Aibrix, 0, 1)
    driven.rival.index.insert(1, PROMPT, 0.0)
    assert driven.rival.match(an_ask(9, PROMPT), [0, 1], 1200.0) == [0, 10]
    assert driven.rival.match(an_ask(9, PROMPT), [0, 1], 1200.5) == [0, 0]


# KubeAI


def test_kubeai_sends_a_session_to_its_place_on_the_ring():
    driven = Driven(Kubeai, [FakeSight() for _ in range(4)])
    (home,) = driven.spread(3, session=7)
    assert home == next(driven.rival.order(7, range(4)))


def test_kubeai_spreads_sessions_about_evenly():
    rival = Driven(Kubeai, [FakeSight() for _ in range(4)]).rival
    homes = Counter(next(rival.order(session, range(4))) for session in range(1000))
    assert min(homes.values()) > 180


def test_kubeai_walks_on_from_an_engine_above_the_bound():
    driven = Driven(Kubeai, [FakeSight() for _ in range(4)])
    first, second, third, fourth = driven.rival.order(7, range(4))
    driven.load(first, 1)
    driven.load(third, 3)  # 1.25 x 5 / 4 = 1.56: below 2
    assert driven.ask(session=7) == second
    driven.load(fourth, 4)  # 1.25 x 10 / 4 = 3.1
    assert driven.ask(session=7) == first


def test_kubeai_moves_only_the_sessions_of_an_engine_that_is_gone():
    rival = Driven(Kubeai, [FakeSight() for _ in range(4)]).rival
    before = [next(rival.order(session, range(4))) for session in range(100)]
    after = [next(rival.order(session, (0, 1, 3))) for session in range(100)]
    assert all(was in (now, 2) for was, now in zip(before, after, strict=True))


# Preble


def test_preble_exploits_if_more_is_matched_than_not():
    driven = Driven(Preble, [FakeSight(), FakeSight()])
    driven.load(1, 20, PROMPT[:6])
    assert driven.ask(PROMPT) == 1


def test_preble_explores_if_not_more_is_matched_than_not():
    driven = Driven(Preble, [FakeSight(), FakeSight()])
    driven.load(1, 20, PROMPT[:5])
    assert driven.ask(PROMPT) == 0


def test_preble_exploring_adds_the_prefill_to_the_load():
    driven = Driven(Preble, [FakeSight(), FakeSight(prefill_tokens_per_s=1000.0)])
    driven.load(0, 1, chain(2, 1))  # 1.125 s of decode + 0.1 s against 1 s
    assert driven.ask(PROMPT) == 1
    driven = Driven(Preble, [FakeSight(), FakeSight(prefill_tokens_per_s=800.0)])
    driven.load(0, 1, chain(2, 1))  # against 1.25 s
    assert driven.ask(PROMPT) == 0


def test_preble_counts_prefill_for_three_minutes():
    driven = Driven(Preble, [FakeSight(), FakeSight()])
    first = driven.ask(chain(2, 50), now=0.0)
    driven.rival.finished(0, 0, 1.0)
    assert driven.ask(chain(3, 10), now=180.0) == 1 - first
    driven.rival.finished(1, 0, 180.5)
    assert driven.ask(chain(4, 10), now=180.5) == first


def test_preble_learns_how_long_answers_are():
    driven = Driven(Preble, [FakeSight(), FakeSight(prefill_tokens_per_s=1000.0)])
    driven.rival.send(an_ask(70, output_tokens=4), 0, 0, 0.0)
    driven.rival.finished(70, 0, 1.0)
    driven.load(0, 1)  # 0.1 s of decode + 0.1 s against 1 s
    assert driven.ask(PROMPT) == 0


@pytest.mark.parametrize(("earlier", "engine"), [(49, 0), (50, 1)])
def test_preble_hands_over_from_the_heaviest_to_the_lightest_after_50_requests(earlier, engine):
    driven = Driven(Preble, [FakeSight(), FakeSight()])
    driven.load(0, 3, PROMPT)
    driven.load(1, 1)
    for _ in range(earlier):
        assert driven.rival.choose(an_ask(9, PROMPT), [10, 0], [0], 0.0) == 0
    assert driven.rival.choose(an_ask(9, PROMPT), [10, 0], [0, 1], 0.0) == engine


def test_preble_does_not_hand_over_at_one_and_a_half_times_the_load():
    driven = Driven(Preble, [FakeSight(), FakeSight()])
    driven.load(0, 3, PROMPT)
    driven.load(1, 2)
    for _ in range(60):
        driven.rival.choose(an_ask(9, PROMPT), [10, 0], [0], 0.0)
    assert driven.rival.choose(an_ask(9, PROMPT), [10, 0], [0, 1], 0.0) == 0


def test_preble_does_not_hand_over_what_would_make_the_lightest_heavier():
    prompt = chain(1, 120)
    driven = Driven(Preble, [FakeSight(), FakeSight()])
    driven.load(0, 2, prompt)
    driven.load(1, 1)
    for _ in range(60):
        driven.rival.choose(an_ask(9, PROMPT), [10, 0], [0], 0.0)
    assert driven.ask(prompt) == 0  # 2.25 s against 1.125 s and 1.2 s of prefill


def test_preble_hands_over_from_the_heaviest_only():
    driven = loaded(Preble, 3, 1, 9)
    for _ in range(60):
        driven.rival.choose(an_ask(9, PROMPT), [10, 0, 0], [0], 0.0)
    assert driven.rival.choose(an_ask(9, PROMPT), [10, 0, 0], [0, 1, 2], 0.0) == 0


# SkyWalker


def test_skywalker_pushes_only_to_engines_without_a_pending_request():
    driven = Driven(Skywalker, [FakeSight(waiting=1), FakeSight()])
    driven.load(0, 1, PROMPT)
    assert driven.ask(PROMPT) == 1


def test_skywalker_takes_the_longest_match_above_a_half_else_the_fewest_in_flight():
    driven = Driven(Skywalker, [FakeSight(), FakeSight()])
    driven.load(1, 3, PROMPT[:6])
    driven.load(0, 1)
    assert driven.ask(PROMPT) == 1
    assert driven.ask(chain(2, 10, start=PROMPT[:5])) == 0


def test_skywalker_queues_here_first_in_first_out_until_an_engine_has_none_pending():
    sight = FakeSight(slots=2, running=2, waiting=1)
    rival = Driven(Skywalker, [sight]).rival
    assert [rival.arrived(an_ask(key), 1.0) for key in (1, 2, 3)] == [[], [], []]
    sight.waiting = 0
    assert rival.wake(1.1) == [(1, 0)]
    sight.running = 1
    assert rival.wake(1.2) == [(2, 0), (3, 0)]


def test_skywalker_pushes_when_an_answer_ends():
    sight = FakeSight(slots=1)
    rival = Driven(Skywalker, [sight]).rival
    rival.arrived(an_ask(1), 0.0)
    sight.running, sight.waiting = 1, 1
    rival.arrived(an_ask(2), 0.5)
    sight.waiting = 0
    assert rival.finished(1, 0, 2.0) == [(2, 0)]


def test_skywalker_asks_the_engines_every_100_ms_while_requests_wait():
    sight = FakeSight(waiting=1)
    rival = Driven(Skywalker, [sight]).rival
    assert rival.due_s() is None
    rival.arrived(an_ask(1), 1.0)
    assert rival.due_s() == pytest.approx(1.1)
    sight.waiting = 0
    rival.wake(1.1)
    assert rival.due_s() is None
