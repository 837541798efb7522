"""An alias that names models m and n, as scripts: engine a serves m, engine b serves n."""

import pytest
from core_values import (
    discovered,
    facts,
    fleet,
    granted,
    offer_all,
    ok,
    placed,
    probed,
    rejected,
    request,
    text,
    usage,
)

from gateway.core.engine import Probe
from gateway.core.request import Reason, Request, Route
from gateway.core.scheduler import Scheduler

POOL = ("m", "n")


def turn(key: int, conversation: str = "x", count: int = 1, session: int = 0) -> Request:
    return request(key, text(640 * count, conversation), pool=POOL, session=session)


def two_models(slots: int = 2) -> Scheduler:
    scheduler = fleet("a", "b", slots=slots)
    discovered(scheduler, "b", facts(slots, models=("n",)))
    return scheduler


def after_one_turn(slots: int = 2, session: int = 0) -> Scheduler:
    """The conversation is on m."""
    scheduler = two_models(slots)
    grant = granted(scheduler.offer(turn(1, session=session), 0.0))
    assert (grant.engine, grant.model) == ("a", "m")
    scheduler.first_token(1, 0.5)
    ok(scheduler, 1, 1.0)
    return scheduler


# Which model


def test_conversations_spread_over_the_models() -> None:
    scheduler = two_models(slots=4)
    grants = offer_all(scheduler, [turn(key, f"c{key}") for key in range(8)])
    assert sorted(engine for _, engine in grants) == ["a"] * 4 + ["b"] * 4


def test_the_faster_model_is_taken_by_what_was_learned_of_its_engines() -> None:
    scheduler = two_models()
    scheduler.engines["a"].prefill_tokens_per_s = 500.0
    scheduler.engines["b"].prefill_tokens_per_s = 4000.0
    grant = granted(scheduler.offer(turn(1), 0.0))
    assert (grant.engine, grant.model) == ("b", "n")


def test_each_model_knows_the_prompt_by_its_own_chain() -> None:
    scheduler = two_models()
    granted(scheduler.offer(request(1, text(640, "x"), model="n"), 0.0))
    scheduler.first_token(1, 0.5)
    ok(scheduler, 1, 1.0)
    grant = granted(scheduler.offer(turn(2), 2.0))
    assert (grant.engine, grant.route, grant.predicted_tokens) == ("b", Route.PREFIX, 639)


def test_what_is_learned_of_a_token_is_learned_of_the_model_that_answered() -> None:
    scheduler = after_one_turn()
    ok(scheduler, granted(scheduler.offer(turn(2, count=2), 2.0)).key, 3.0, usage(640, 0, 5))
    assert scheduler.index.bytes_per_token(turn(3), "m") == 8.0
    assert scheduler.index.bytes_per_token(turn(3), "n") == 4.0


# It stays


@pytest.mark.parametrize("session", [0, 7])
def test_a_session_stays_on_its_model_though_the_other_one_is_idle(session: int) -> None:
    scheduler = after_one_turn(slots=1, session=session)
    assert placed(scheduler.offer(request(9), 1.0)) == [(9, "a")]
    assert placed(scheduler.offer(turn(2, count=2, session=session), 1.1)) == []
    assert placed(scheduler.tick(100.0)) == []
    assert placed(ok(scheduler, 9, 101.0)) == [(2, "a")]


def test_another_session_goes_to_the_other_model_at_once() -> None:
    scheduler = after_one_turn(slots=1)
    offer_all(scheduler, [request(9)], 1.0)
    grant = granted(scheduler.offer(turn(2, "y"), 1.1))
    assert (grant.engine, grant.model) == ("b", "n")


def test_it_waits_while_its_model_is_loaded_again() -> None:
    scheduler = after_one_turn()
    probed(scheduler, "a", Probe.LOADING, 1.0)
    assert placed(scheduler.offer(turn(2, count=2), 2.0)) == []
    assert placed(probed(scheduler, "a", Probe.OK, 30.0)) == [(2, "a")]


# It leaves


def test_it_goes_to_another_model_once_nobody_serves_its_own_and_stays_there() -> None:
    scheduler = after_one_turn()
    probed(scheduler, "a", Probe.REFUSED, 1.0)
    grant = granted(scheduler.offer(turn(2, count=2), 2.0))
    assert (grant.engine, grant.model) == ("b", "n")
    ok(scheduler, 2, 3.0)
    probed(scheduler, "a", Probe.OK, 4.0)
    assert placed(scheduler.offer(turn(3, count=3), 5.0)) == [(3, "b")]


@pytest.mark.parametrize("is_drained", [True, False])
def test_so_does_one_that_waits_already(is_drained: bool) -> None:
    scheduler = after_one_turn(slots=1)
    offer_all(scheduler, [request(9), turn(2, count=2)], 1.0)
    assert scheduler.queue.get(2) is not None
    leaves = scheduler.drain("a", True, 2.0) if is_drained else probed(scheduler, "a", Probe.REFUSED, 2.0)
    grant = granted(leaves)
    assert (grant.key, grant.engine, grant.model) == (2, "b", "n")


def test_what_waits_for_another_model_then_is_served_when_that_one_is_free() -> None:
    scheduler = after_one_turn(slots=1)
    offer_all(scheduler, [request(9), request(8, model="n"), turn(2, count=2)], 1.0)
    assert placed(scheduler.drain("a", True, 2.0)) == []
    waiting = scheduler.queue.get(2)
    assert waiting is not None
    assert (waiting.models, waiting.why) == (POOL, "a slot on b")
    assert placed(ok(scheduler, 8, 3.0)) == [(2, "b")]


def test_an_engine_that_cannot_be_reached_is_replaced_by_another_of_the_pool() -> None:
    scheduler = after_one_turn()
    assert placed(scheduler.offer(turn(2, count=2), 2.0)) == [(2, "a")]
    grant = granted(scheduler.retry(2, 2.5, reached=False))
    assert (grant.engine, grant.model, grant.route, grant.attempt) == ("b", "n", Route.RETRY, 2)


def test_so_is_one_that_declines() -> None:
    scheduler = after_one_turn()
    scheduler.offer(turn(2, count=2), 2.0)
    assert placed(scheduler.decline(2, 2.5)) == [(2, "b")]


def test_it_waits_for_the_other_one_where_that_is_full() -> None:
    scheduler = after_one_turn(slots=1)
    offer_all(scheduler, [request(8, model="n"), turn(2, count=2)], 2.0)
    assert placed(scheduler.decline(2, 2.5)) == []
    assert placed(ok(scheduler, 8, 3.0)) == [(2, "b")]


def test_an_engine_of_its_own_model_comes_before_another_model() -> None:
    scheduler = fleet("a", "b", "c")
    discovered(scheduler, "b", facts(2, models=("n",)))
    scheduler.engines["b"].prefill_tokens_per_s = 50_000.0
    scheduler.drain("b", True, 0.0)
    ok(scheduler, granted(scheduler.offer(turn(1, session=5), 0.0)).key, 1.0)
    scheduler.drain("b", False, 1.0)
    assert placed(scheduler.offer(turn(2, count=2, session=5), 2.0)) == [(2, "a")]
    assert placed(scheduler.decline(2, 2.5)) == [(2, "c")]
    assert placed(scheduler.decline(2, 3.0)) == [(2, "b")]


def test_a_refusal_names_every_model_that_nobody_serves() -> None:
    scheduler = two_models()
    for name in "ab":
        probed(scheduler, name, Probe.REFUSED, 1.0)
    refusal = rejected(scheduler.offer(turn(1), 2.0))
    assert refusal.reason is Reason.NO_READY_ENGINE
    assert refusal.message == "No engine that serves 'm' or 'n' is ready: a is down, b is down. Retry later."


def test_an_engine_with_both_models_is_asked_for_the_first() -> None:
    scheduler = fleet("a")
    discovered(scheduler, "a", facts(2, models=("n", "m")))
    assert granted(scheduler.offer(turn(1), 0.0)).model == "m"
    assert granted(scheduler.offer(request(2, pool=("n", "m")), 0.0)).model == "n"
