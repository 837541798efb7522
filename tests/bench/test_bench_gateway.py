"""Our own scheduler behind the router's calls."""

from collections.abc import Sequence
from random import Random

import pytest
from bench_values import BLOCK_TOKENS, Script, ask, session, turn, workload

from gateway.bench.arrivals import ClosedLoop
from gateway.bench.cluster import play
from gateway.bench.engine import SimulatedEngine
from gateway.bench.gateway import MODEL, Gateway
from gateway.bench.router import Router, Sent, Sight
from gateway.bench.workload import EngineSpec
from gateway.core.engine import Health, SlotSource
from gateway.core.router import Policy


def gateway(
    *specs: EngineSpec, policy: Policy = "cost", max_wait_s: float = 1e9, timed: bool = False
) -> Gateway:
    sights = [SimulatedEngine(spec, BLOCK_TOKENS) for spec in specs]
    return Gateway(sights, BLOCK_TOKENS, Random(1), policy=policy, max_wait_s=max_wait_s, timed=timed)


ONE_SLOT = EngineSpec(slots=1, kv_tokens=100_000)


def test_engines_are_ready_and_known_by_what_they_declare() -> None:
    router = gateway(EngineSpec(slots=3, kv_tokens=5000, declared_kv_tokens=9000), EngineSpec(kv_tokens=7000))
    first, second = router.scheduler.engines.values()

    assert (first.health, second.health) == (Health.READY, Health.READY)
    assert (first.facts.kind, first.facts.models, first.facts.block_tokens) == (
        "vllm",
        (MODEL,),
        BLOCK_TOKENS,
    )
    assert (first.facts.slots, first.facts.slots_source) == (3, SlotSource.CONFIGURED)
    assert (first.facts.kv_tokens, second.facts.kv_tokens) == (9000, 7000)


def test_what_does_not_fit_the_slots_waits_here() -> None:
    router = gateway(ONE_SLOT)

    assert router.arrived(ask(1, (0, 5)), 0.0) == [Sent(1, 0)]
    assert router.arrived(ask(2, (100, 5)), 0.1) == []
    router.first_token(1, 0.5)
    assert router.finished(1, 0, 1.0) == [Sent(2, 0)]
    assert router.finished(2, 0, 2.0) == []


def test_a_session_returns_to_the_engine_that_holds_it() -> None:
    router = gateway(EngineSpec(), EngineSpec())
    ((_, home),) = router.arrived(ask(1, (0, 50)), 0.0)
    router.first_token(1, 1.0)
    router.finished(1, 0, 2.0)

    for key in range(2, 10):
        assert router.arrived(ask(key, (0, 50 + key)), key * 10.0) == [Sent(key, home)]
        router.first_token(key, key * 10.0 + 1)
        router.finished(key, 5000, key * 10.0 + 2)


def test_tokens_are_the_workloads_own() -> None:
    router = gateway(ONE_SLOT)
    router.arrived(ask(1, (0, 50), more=30), 0.0)
    router.first_token(1, 1.0)
    router.finished(1, 0, 2.0)
    request = router._request(ask(2, (0, 40), (90, 5), more=30))
    (candidate,), _ = router.scheduler.explain(request)

    assert (candidate.prompt_tokens, candidate.resident_tokens) == (4530, 4000)


def test_who_waits_too_long_is_refused_when_it_is_due() -> None:
    router = gateway(ONE_SLOT, max_wait_s=30.0)
    router.arrived(ask(1, (0, 5)), 0.0)
    router.arrived(ask(2, (100, 5)), 1.0)

    assert router.due_s() == 31.0
    assert router.wake(31.0) == [Sent(2, -1)]


def test_a_dead_engine_gets_nothing_until_it_is_back_and_is_then_empty() -> None:
    router = gateway(EngineSpec(), EngineSpec())
    ((_, home),) = router.arrived(ask(1, (0, 50)), 0.0)
    router.first_token(1, 1.0)
    other = 1 - home

    assert router.went_down(home, 2.0) == []
    assert router.failed(1, 2.0) == [Sent(1, other)]
    assert router.arrived(ask(2, (0, 60)), 3.0) == [Sent(2, other)]
    router.came_up(home, 20.0)
    request = router._request(ask(3, (0, 50)))
    candidates, _ = router.scheduler.explain(request)
    assert [it.resident_tokens for it in candidates if it.engine.name == f"e{home}"] == [0]


def test_one_that_is_lost_twice_is_refused() -> None:
    router = gateway(EngineSpec(), EngineSpec())
    ((_, home),) = router.arrived(ask(1, (0, 50)), 0.0)
    router.went_down(home, 1.0)
    router.failed(1, 1.0)
    router.went_down(1 - home, 2.0)

    assert router.failed(1, 2.0) == [Sent(1, -1)]


@pytest.mark.parametrize(("policy", "told"), [("session", 7), ("cost", 0)])
def test_only_the_session_policy_knows_the_session(policy: Policy, told: int) -> None:
    assert gateway(ONE_SLOT, policy=policy)._request(ask(7, (0, 5))).session == told


@pytest.mark.parametrize(("timed", "calls"), [(True, 3), (False, 0)])
def test_decisions_are_timed_where_wanted(timed: bool, calls: int) -> None:
    router = gateway(ONE_SLOT, timed=timed)
    router.arrived(ask(1, (0, 5)), 0.0)
    router.first_token(1, 0.5)
    router.finished(1, 0, 1.0)

    assert len(router.decisions_ns) == calls
    assert all(it > 0 for it in router.decisions_ns)


def test_engines_that_die_lose_no_request() -> None:
    specs = [
        EngineSpec(slots=2, restarts_s=(10.0, 60.0), down_s=5.0),
        EngineSpec(slots=2, restarts_s=(30.0,), down_s=5.0),
    ]
    arrivals = Script(*((at / 4, session(turn(40 + at % 9, output=20))) for at in range(400)))
    done = play(workload(), arrivals, specs, Gateway, until_s=1000.0)

    assert len(done) == 400
    assert all(it.finished_s is not None for it in done)


@pytest.mark.parametrize("policy", ["cost", "round_robin", "least_loaded", "session", "prefix"])
def test_every_policy_plays_a_closed_loop(policy: Policy) -> None:
    sessions = [session(*(turn(blocks, output=20) for blocks in range(2, 30))) for _ in range(5)]

    def build(sights: Sequence[Sight], block_tokens: int, random: Random) -> Router:
        return Gateway(sights, block_tokens, random, policy=policy)

    done = play(workload(*sessions), ClosedLoop(agents=20), [ONE_SLOT] * 4, build, until_s=60.0)

    answered = [it for it in done if it.finished_s is not None]
    assert len(done) - len(answered) == 20
    assert all(it.started_s == it.sent_s for it in answered)
