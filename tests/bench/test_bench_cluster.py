"""The event loop: what a router is told and when, and what is written down of each request.

Engines compute 1,000 prompt tokens a second in steps of 1,000, and decode a token in 0.1 s.
"""

from random import Random

import pytest
from bench_values import BLOCK_TOKENS, Script, Told, session, turn, workload

from gateway.bench.arrivals import ClosedLoop
from gateway.bench.cluster import play
from gateway.bench.router import Router, Sight
from gateway.bench.workload import Done, EngineSpec, Session

SPEC = EngineSpec(prefill_tokens_per_s=1000.0, decode_s=0.1, step_tokens=1000)
DYING = EngineSpec(
    prefill_tokens_per_s=1000.0, decode_s=0.1, step_tokens=1000, restarts_s=(0.5, 2.0), down_s=3.0
)


def run(
    router: Router,
    *arrivals: tuple[float, Session],
    specs: tuple[EngineSpec, ...] = (SPEC,),
    until: float = 60,
) -> list[Done]:
    return play(workload(), Script(*arrivals), specs, lambda *_: router, until_s=until)


def times(done: Done) -> tuple[float | None, ...]:
    return tuple(
        it and round(it, 6) for it in (done.sent_s, done.started_s, done.first_token_s, done.finished_s)
    )


def test_a_router_is_told_of_each_event_in_its_time() -> None:
    router = Told(0)
    (done,) = run(router, (1.0, session(turn(5, output=3))))

    assert router.calls == [("arrived", 0, 1.0), ("first", 0, 1.5), ("finished", 0, 0, 1.7)]
    assert times(done) == (1.0, 1.0, 1.5, 1.7)
    assert (done.ask.arrived_s, done.engine, done.refused) == (1.0, 0, False)


def test_every_request_is_measured_against_what_the_engines_held_and_what_was_ever_seen() -> None:
    one, more = session(turn(5)), session(turn(8))
    router = Told(0, 1, 1)
    dones = run(router, (0.0, one), (10.0, one), (20.0, more), specs=(SPEC, SPEC))

    # (cached, best, seen): the second one went to an empty engine though the first one was held elsewhere.
    assert [(it.cached_tokens, it.best_tokens, it.seen_tokens) for it in dones] == [
        (0, 0, 0),
        (0, 499, 499),
        (500, 500, 500),
    ]
    assert router.calls[-1] == ("finished", 2, 500, 20.3)


def test_what_has_arrived_counts_as_seen_before_it_is_computed() -> None:
    one = session(turn(5))
    dones = run(Told(0, 0), (0.0, one), (0.1, one))

    assert [(it.best_tokens, it.seen_tokens) for it in dones] == [(0, 0), (0, 499)]


def test_what_the_end_cuts_off_has_no_times() -> None:
    dones = run(
        Told(0, 0),
        (0.0, session(turn(20))),
        (0.5, session(turn(20, first=100))),
        (9.0, session(turn(1))),
        until=2.5,
    )

    assert [times(it) for it in dones] == [(0.0, 0.0, 2.0, 2.0), (0.5, 2.0, None, None)]


def test_a_refused_request_comes_back_as_a_new_one() -> None:
    router = Told(-1, 0)
    dones = run(router, (1.0, session(turn(5))))

    assert [(it.ask.key, it.ask.arrived_s, it.refused, it.engine) for it in dones] == [
        (0, 1.0, True, -1),
        (1, 6.0, False, 0),
    ]
    assert times(dones[0]) == (None, None, None, None)


def test_an_engine_dies_with_what_it_runs_and_comes_back_empty() -> None:
    router = Told(0, 1, 0)
    one = session(turn(10))
    dones = run(router, (0.0, one), (4.0, one), specs=(DYING, SPEC))

    # The restart at 2.0 finds it down. It is told first that the engine is gone, then who was lost with it.
    assert router.calls == [
        ("arrived", 0, 0.0),
        ("down", 0, 0.5),
        ("failed", 0, 0.5),
        ("first", 0, 1.5),
        ("finished", 0, 0, 1.5),
        ("up", 0, 3.5),
        ("arrived", 1, 4.0),
        ("first", 1, 5.0),
        ("finished", 1, 0, 5.0),
    ]
    assert [(it.engine, it.sent_s) for it in dones] == [(1, 0.5), (0, 4.0)]


def test_the_caches_of_dead_engines_are_nobodys_best() -> None:
    spec = EngineSpec(restarts_s=(5.0,))
    (_, second) = run(Told(0, 1), (0.0, session(turn(5))), (6.0, session(turn(5))), specs=(spec, SPEC))

    assert (second.best_tokens, second.seen_tokens) == (0, 499)


def test_a_request_that_is_sent_to_a_dead_engine_fails_soon() -> None:
    router = Told(0, 1)
    (done,) = run(router, (1.0, session(turn(5))), specs=(DYING, SPEC))

    assert ("failed", 0, 1.1) in router.calls
    assert (done.engine, times(done)) == (1, (1.1, 1.1, 1.6, 1.6))


def test_a_request_may_be_lost_for_good() -> None:
    (done,) = run(Told(0, -1), (0.0, session(turn(10))), specs=(DYING,), until=4)

    assert (done.refused, times(done)) == (True, (0.0, None, None, None))


def test_a_router_is_woken_when_it_wants_to_be() -> None:
    router = Told(0, due=(0.7, 1.2, 1.2))
    run(router, (0.5, session(turn(5, output=9))))

    # One that wants to be woken in the past, again, is woken a little later.
    assert [call for call in router.calls if call[0] == "wake"] == [
        ("wake", 0.7),
        ("wake", 1.2),
        ("wake", 1.201),
    ]


def test_a_builder_gets_the_engines_as_they_are_seen() -> None:
    seen: list[tuple[int, int, float]] = []

    def build(sights: list[Sight], block_tokens: int, random: Random) -> Router:
        assert [sight.spec for sight in sights] == [SPEC, DYING]
        seen.append((len(sights), block_tokens, random.random()))
        return Told()

    for seed in (1, 1, 2):
        play(workload(), Script(), (SPEC, DYING), build, until_s=1.0, seed=seed)

    assert seen[0] == seen[1]
    assert seen[0][:2] == (2, BLOCK_TOKENS)
    assert seen[0][2] != seen[2][2]


class Sticky(Told):
    def next(self, key: int) -> list:
        self.engines.append(key % 2)
        return super().next(key)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_closed_loop_is_the_same_for_the_same_seed(seed: int) -> None:
    sessions = [
        session(*(turn(blocks, output=20, think=0.5) for blocks in range(2, 12)), shared=1) for _ in range(5)
    ]

    def once() -> list[Done]:
        return play(
            workload(*sessions),
            ClosedLoop(agents=6),
            (SPEC, SPEC),
            lambda *_: Sticky(),
            until_s=100.0,
            warm_s=20.0,
            seed=seed,
        )

    dones = once()
    assert dones == once()
    assert len(dones) > 100
    assert [it.ask.key for it in dones] == list(range(len(dones)))
    assert all(it.cached_tokens <= it.seen_tokens < it.ask.prompt_tokens for it in dones)
