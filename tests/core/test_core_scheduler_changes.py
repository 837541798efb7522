"""Engines that come and go, and limits and policies that change, while requests run and wait."""

import pytest
from core_values import (
    discovered,
    facts,
    fleet,
    granted,
    ok,
    placed,
    probed,
    refused,
    reported,
    request,
    text,
    usage,
)

from gateway.core.engine import Engine, Health, Probe, Residency
from gateway.core.events import Probed
from gateway.core.holds import Hold
from gateway.core.request import Outcome, Reason
from gateway.core.scheduler import Limits
from gateway.core.view import snapshot

PROMPT = text(600, "p")


def comes(scheduler, name, now=0.0, slots=2, models=("m",)):
    """Detected and ready; what was granted meanwhile."""
    first = discovered(scheduler, name, facts(slots, models=models), now)
    second = probed(scheduler, name, Probe.OK, now)
    return placed(first) + placed(second)


def new(name, url=None):
    return Engine(name, url or f"http://{name}:8000")


def test_an_engine_that_comes_takes_what_waits_once_it_is_ready():
    scheduler = fleet("a", slots=1)
    granted(scheduler.offer(request(1), 0.0))
    assert scheduler.offer(request(2), 0.0).decisions == []
    assert scheduler.change_engines([], [new("b")], 1.0).decisions == []
    assert comes(scheduler, "b", 1.0) == [(2, "b")]


def test_a_removed_engine_is_given_nothing_and_stays_until_its_last_request_ends():
    scheduler = fleet("a", "b")
    assert granted(scheduler.offer(request(1), 0.0)).engine == "a"
    scheduler.change_engines(["a"], [], 1.0)
    assert placed(scheduler.offer(request(2), 1.0)) == [(2, "b")]
    views = snapshot(scheduler, 2.0).engines
    assert [(it.name, it.leaving, it.draining, it.in_flight) for it in views] == [
        ("b", False, False, 1),
        ("a", True, True, 1),
    ]
    assert {it.engine for it in snapshot(scheduler, 2.0).running} == {"a", "b"}
    scheduler.first_token(1, 2.0)
    step = ok(scheduler, 1, 3.0, usage(100))
    assert dict(step.want) == {"b": 1}
    assert [it.name for it in snapshot(scheduler, 3.0).engines] == ["b"]


def test_an_idle_engine_is_gone_at_once():
    scheduler = fleet("a", "b")
    scheduler.change_engines(["a"], [], 1.0)
    assert [it.name for it in snapshot(scheduler, 1.0).engines] == ["b"]
    assert scheduler.fleet.leaving == []


def test_whoever_waited_for_a_removed_engine_looks_elsewhere():
    scheduler = fleet("a", "b", slots=1)
    granted(scheduler.offer(request(1, PROMPT), 0.0))
    granted(scheduler.offer(request(2), 0.0))
    scheduler.first_token(1, 0.1)
    scheduler.offer(request(3, PROMPT + text(100, "more")), 0.2)
    assert [it.engine for it in scheduler.queue] == ["a"]
    step = scheduler.change_engines(["a"], [], 1.0)
    assert (step.decisions, dict(step.want)) == ([], {"b": 2})
    (waiting,) = scheduler.queue
    assert (waiting.engine, waiting.why) == ("b", "a slot on b")
    assert placed(ok(scheduler, 2, 2.0)) == [(3, "b")]


def test_whoever_only_a_removed_engine_could_serve_is_refused_as_if_it_were_drained():
    scheduler = fleet("a", slots=1)
    granted(scheduler.offer(request(1), 0.0))
    scheduler.offer(request(2), 0.0)
    assert refused(scheduler.change_engines(["a"], [], 1.0)) == [(2, Reason.NO_READY_ENGINE)]
    assert placed(ok(scheduler, 1, 2.0)) == []


def test_whoever_waits_is_not_refused_while_a_replacement_comes():
    scheduler = fleet("a", slots=1)
    granted(scheduler.offer(request(1), 0.0))
    scheduler.offer(request(2), 0.0)
    assert scheduler.change_engines(["a"], [new("a", "http://other:8000")], 1.0).decisions == []
    assert comes(scheduler, "a", 2.0) == [(2, "a")]
    assert {it.url: it.in_flight for it in snapshot(scheduler, 2.0).engines} == {
        "http://other:8000": 1,
        "http://a:8000": 1,
    }
    # Each request ends on the engine that it began on, whatever the names.
    assert dict(ok(scheduler, 1, 3.0).want) == {"a": 1}
    assert scheduler.fleet.leaving == []
    assert dict(ok(scheduler, 2, 3.0).want) == {"a": 0}


def test_another_engine_of_the_same_name_knows_nothing_of_the_first():
    scheduler = fleet("a", "b")
    assert granted(scheduler.offer(request(1, PROMPT), 0.0)).engine == "a"
    scheduler.first_token(1, 0.1)
    ok(scheduler, 1, 1.0, usage(600))
    scheduler.change_engines(["a"], [new("a", "http://other:8000")], 2.0)
    comes(scheduler, "a", 2.0)
    grant = granted(scheduler.offer(request(2, PROMPT), 3.0))
    assert (grant.predicted_tokens, grant.best_tokens) == (0, 0)
    assert scheduler.engines["a"].prefill_tokens_per_s is None


def test_a_waiting_prompt_is_not_taken_for_known_by_the_next_engine_of_the_name():
    scheduler = fleet("a", slots=1)
    granted(scheduler.offer(request(1, PROMPT), 0.0))
    scheduler.first_token(1, 0.1)
    scheduler.offer(request(2, PROMPT), 0.2)
    scheduler.change_engines(["a"], [new("a", "http://other:8000")], 1.0)
    discovered(scheduler, "a", facts(1), 2.0)
    grant = granted(probed(scheduler, "a", Probe.OK, 2.0))
    assert (grant.key, grant.predicted_tokens, grant.best_tokens) == (2, 0, 0)


@pytest.mark.parametrize("names", ["a", "ab"])
def test_an_engine_detected_otherwise_and_back_is_known_by_what_it_has_now(names):
    scheduler = fleet(*names, slots=1)
    for key in (1, 2, 3):
        scheduler.offer(request(key, PROMPT), 0.0)
    for key in (1, 2, 3):
        ok(scheduler, key, 1.0, usage(600))
    for name in names:
        discovered(scheduler, name, facts(1, residency=Residency.SLOTS), 2.0)
        discovered(scheduler, name, facts(1), 2.0)
    for key, name in enumerate(names, 11):
        assert granted(scheduler.offer(request(key, text(600, name)), 3.0)).predicted_tokens == 0
    # It is looked at before the first of its tokens are there.
    assert placed(scheduler.offer(request(21, text(600, "a") + text(64, "x")), 3.1)) == []
    scheduler.first_token(11, 3.2)
    assert granted(ok(scheduler, 11, 4.0, usage(600))).predicted_tokens > 500


def test_the_other_engines_keep_all_they_know():
    scheduler = fleet("a", "b")
    granted(scheduler.offer(request(1, PROMPT), 0.0))
    scheduler.first_token(1, 0.1)
    ok(scheduler, 1, 1.0, usage(600))
    scheduler.drain("b", True, 1.0)
    before = scheduler.engines["a"], scheduler.index.size("a"), scheduler.engines["a"].prefill_tokens_per_s
    scheduler.change_engines([], [new("c")], 2.0)
    scheduler.change_engines(["c"], [], 3.0)
    after = scheduler.engines["a"], scheduler.index.size("a"), scheduler.engines["a"].prefill_tokens_per_s
    assert after == before
    assert scheduler.engines["b"].draining
    assert granted(scheduler.offer(request(2, PROMPT), 4.0)).predicted_tokens > 500


def test_an_engine_that_is_configured_again_still_counts_what_runs_there():
    scheduler = fleet("a", "b", slots=1)
    assert granted(scheduler.offer(request(1), 0.0)).engine == "a"
    scheduler.change_engines(["a"], [], 1.0)
    step = scheduler.change_engines([], [new("renamed", "http://a:8000")], 2.0)
    assert (step.decisions, dict(step.want)) == ([], {"b": 0, "renamed": 1})
    assert scheduler.engines["renamed"].health is Health.UNKNOWN
    assert comes(scheduler, "renamed", 3.0, slots=1) == []
    assert placed(scheduler.offer(request(2), 3.0)) == [(2, "b")]
    assert scheduler.offer(request(3), 3.0).decisions == []
    assert placed(ok(scheduler, 1, 4.0)) == [(3, "renamed")]


def test_what_was_wrong_with_an_engine_is_not_said_of_it_once_it_is_configured_again():
    scheduler = fleet("a")
    granted(scheduler.offer(request(1), 0.0))
    scheduler.update("a", Probed(probe=Probe.REFUSED, why="its certificate is not trusted"), 1.0)
    assert scheduler.engines["a"].trouble
    scheduler.change_engines(["a"], [new("again", "http://a:8000")], 2.0)
    assert scheduler.engines["again"].in_flight == 1
    assert scheduler.engines["again"].trouble == ""


@pytest.mark.parametrize("reached", [True, False])
def test_a_request_whose_removed_engine_fails_goes_elsewhere(reached):
    scheduler = fleet("a", "b")
    assert granted(scheduler.offer(request(1), 0.0)).engine == "a"
    scheduler.change_engines(["a"], [], 1.0)
    assert placed(scheduler.retry(1, 2.0, reached=reached)) == [(1, "b")]
    assert scheduler.fleet.leaving == []


def test_an_engine_with_the_name_of_one_that_failed_a_request_may_have_it():
    scheduler = fleet("a", "b", slots=1)
    granted(scheduler.offer(request(1), 0.0))
    granted(scheduler.offer(request(2), 0.0))
    assert scheduler.decline(1, 1.0).decisions == []
    assert scheduler.change_engines(["a"], [new("a", "http://other:8000")], 2.0).decisions == []
    assert comes(scheduler, "a", 3.0) == [(1, "a")]


def test_a_request_that_a_removed_engine_failed_may_go_to_the_next_one_of_its_name():
    scheduler = fleet("a")
    granted(scheduler.offer(request(1), 0.0))
    scheduler.change_engines(["a"], [new("a", "http://other:8000")], 1.0)
    comes(scheduler, "a", 1.0)
    assert placed(scheduler.decline(1, 2.0)) == [(1, "a")]


def test_a_request_that_a_removed_engine_failed_waits_for_the_one_that_comes():
    scheduler = fleet("a")
    granted(scheduler.offer(request(1), 0.0))
    scheduler.change_engines(["a"], [new("a", "http://other:8000")], 1.0)
    assert scheduler.retry(1, 2.0, reached=True).decisions == []
    assert comes(scheduler, "a", 3.0) == [(1, "a")]


def test_a_request_that_the_last_engine_failed_after_it_was_removed_is_refused():
    scheduler = fleet("a")
    granted(scheduler.offer(request(1), 0.0))
    scheduler.change_engines(["a"], [], 1.0)
    assert refused(scheduler.retry(1, 2.0, reached=True)) == [(1, Reason.ENGINE_UNREACHABLE)]


def test_a_client_that_leaves_a_removed_engine_cools_nothing():
    scheduler = fleet("a", "b")
    granted(scheduler.offer(request(1), 0.0))
    scheduler.change_engines(["a"], [], 1.0)
    scheduler.finish(1, Outcome.CLIENT_DISCONNECT, usage(1), 2.0)
    assert scheduler.next_deadline() is None


def test_time_beside_a_free_slot_ends_with_the_engine():
    scheduler = fleet("a", "b")
    granted(scheduler.offer(request(1, width=1), 0.0))
    granted(scheduler.offer(request(2, width=2), 0.0))
    scheduler.offer(request(3, width=2), 0.0)
    (waiting,) = scheduler.queue
    name = waiting.engine
    scheduler.change_engines([name], [], 5.0)
    assert [it.request.key for it in scheduler.queue] == [3]
    assert scheduler.tick(6.0).decisions == []


def test_the_queue_may_shrink_under_those_who_wait():
    scheduler = fleet("a", slots=1)
    for key in (1, 2, 3):
        scheduler.offer(request(key), 0.0)
    scheduler.configure(Limits(max_queue=1, max_queue_bytes=1 << 20), "cost", 1.0)
    assert len(scheduler.queue) == 2
    assert refused(scheduler.offer(request(4), 1.0)) == [(4, Reason.QUEUE_FULL)]
    assert snapshot(scheduler, 1.0).max_queue == 1
    assert placed(ok(scheduler, 1, 2.0)) == [(2, "a")]


def test_another_policy_decides_from_the_next_request_on_and_for_those_who_wait():
    scheduler = fleet("a", "b", slots=1)
    granted(scheduler.offer(request(1, PROMPT), 0.0))
    granted(scheduler.offer(request(2), 0.0))
    scheduler.first_token(1, 0.1)
    scheduler.offer(request(3, PROMPT), 0.2)
    (waiting,) = scheduler.queue
    assert waiting.engine == "a"
    scheduler.engines["b"].prefill_tokens_per_s = 100.0
    scheduler.engines["a"].lease(99, 1, 0, 0.3)
    step = scheduler.configure(Limits(), "least_loaded", 1.0)
    assert scheduler.policy == snapshot(scheduler, 1.0).policy == "least_loaded"
    assert (waiting.engine, waiting.why) == ("b", "a slot on b")
    assert dict(step.want) == {"a": 1, "b": 2}


def test_no_slot_is_kept_under_another_policy():
    scheduler = fleet("a")
    scheduler.engines["a"].hold(Hold(1, 1, 1, 9.0))
    scheduler.configure(Limits(), "cost", 0.0)
    assert scheduler.engines["a"].holds
    scheduler.configure(Limits(), "session", 0.0)
    assert not scheduler.engines["a"].holds


def test_an_engine_that_leaves_is_rid_of_all_but_its_leases():
    scheduler = fleet("a", slots=4)
    granted(scheduler.offer(request(1), 0.0))
    granted(scheduler.offer(request(2), 0.0))
    scheduler.finish(2, Outcome.CLIENT_DISCONNECT, usage(1), 0.5)
    for now in (1.0, 2.0):
        reported(scheduler, "a", 4, now)
    engine = scheduler.engines["a"]
    engine.hold(Hold(1, 1, 1, 9.0))
    assert (engine.cooling_width, engine.foreign > 0) == (1, True)
    scheduler.change_engines(["a"], [], 3.0)
    assert (engine.cooling_width, engine.cooling, engine.foreign, engine.holds) == (0, [], 0, [])
    (view,) = snapshot(scheduler, 99.0).engines
    assert (view.report_age_s, view.running, view.in_flight, view.blocks) == (None, None, 1, 0)


def test_whoever_needs_no_slot_goes_elsewhere_at_once():
    scheduler = fleet("a", "b", slots=1)
    discovered(scheduler, "b", facts(1, models=("n",)))
    granted(scheduler.offer(request(1, pool=("m", "n"), session=7), 0.0))
    ok(scheduler, 1, 0.5)
    granted(scheduler.offer(request(2, model="n"), 1.0))
    probed(scheduler, "a", Probe.LOADING, 1.0)
    # Its session is on the model of the engine that is loading.
    assert scheduler.offer(request(3, pool=("m", "n"), session=7, width=0), 1.0).decisions == []
    assert placed(scheduler.change_engines(["a"], [], 2.0)) == [(3, "b")]
