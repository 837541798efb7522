"""Where requests go and who waits for what, told as scripts over several engines."""

import pytest
from core_values import (
    NOTHING,
    discovered,
    facts,
    fleet,
    granted,
    offer_all,
    ok,
    placed,
    probed,
    refused,
    rejected,
    reported,
    request,
    text,
)

from gateway.core.engine import Engine, Probe, Residency
from gateway.core.events import Restarted
from gateway.core.pairing import WINDOW
from gateway.core.request import Outcome, Reason, Route
from gateway.core.router import Policy
from gateway.core.scheduler import Limits, Scheduler

SHARED = text(3000, "s")


# Width


def test_a_request_of_two_sequences_takes_two_slots() -> None:
    scheduler = fleet("a", slots=3)
    assert granted(scheduler.offer(request(1, width=2), 0.0)).width == 2
    assert scheduler.offer(request(2, width=2), 0.0).decisions == []
    assert scheduler.engines["a"].free == 1
    assert placed(ok(scheduler, 1, 1.0)) == [(2, "a")]


def test_a_wide_request_is_not_starved_by_narrow_ones_behind_it() -> None:
    scheduler = fleet("a", slots=4)
    offer_all(scheduler, [request(key) for key in range(4)])
    scheduler.offer(request(10, width=4), 0.0)
    offer_all(scheduler, [request(key) for key in range(20, 24)])
    for key in range(3):
        assert ok(scheduler, key, 1.0 + key).decisions == []
    assert placed(ok(scheduler, 3, 4.0)) == [(10, "a")]
    assert scheduler.idle_while_waiting_s("a", 4.0) == 3.0
    assert placed(ok(scheduler, 10, 5.0)) == [(20, "a"), (21, "a"), (22, "a"), (23, "a")]


def test_slots_beyond_those_kept_for_a_wide_request_are_used() -> None:
    scheduler = fleet("a", slots=5)
    offer_all(scheduler, [request(1, width=3), request(2), request(3, width=4), request(4)])
    assert placed(ok(scheduler, 1, 1.0)) == [(3, "a")]
    assert placed(ok(scheduler, 2, 2.0)) == [(4, "a")]


def test_slots_kept_for_a_wide_request_are_not_given_to_one_that_could_go_elsewhere() -> None:
    scheduler = fleet("a", "b", slots=3, policy="prefix")
    offer_all(scheduler, [request(1, SHARED, width=2), request(2, SHARED, width=2), request(3, SHARED)])
    assert [(it.request.key, it.engine) for it in scheduler.queue] == [(2, "a"), (3, "a")]
    assert scheduler.engines["b"].free == 3
    assert placed(ok(scheduler, 1, 1.0)) == [(2, "a"), (3, "a")]


def test_an_idle_span_is_counted_while_it_is_open() -> None:
    scheduler = fleet("a", slots=2)
    offer_all(scheduler, [request(1), request(2, width=2)], 1.0)
    assert scheduler.idle_while_waiting_s("a", 3.0) == 2.0
    scheduler.tick(4.0)
    assert scheduler.idle_while_waiting_s("a", 5.0) == 4.0


# Many models


def test_a_long_queue_for_one_model_does_not_hide_a_free_engine_from_another() -> None:
    scheduler = fleet("a", "b", slots=1)
    discovered(scheduler, "b", facts(1, models=("n",)))
    offer_all(scheduler, [request(key) for key in range(2 * WINDOW)])
    assert placed(scheduler.offer(request(900, model="n"), 1.0)) == [(900, "b")]
    assert scheduler.offer(request(901, model="n"), 1.0).decisions == []
    assert placed(ok(scheduler, 900, 2.0)) == [(901, "b")]


def test_slots_that_free_together_are_handed_out_to_each_model() -> None:
    scheduler = fleet("a", "b", slots=1)
    discovered(scheduler, "b", facts(1, models=("n",)))
    for name in "ab":
        scheduler.set_quota(name, 0, 0.0)
    offer_all(scheduler, [request(1), request(2), request(3, model="n"), request(4, model="n")])
    assert placed(scheduler.set_quota("a", 1, 1.0)) == [(1, "a")]
    scheduler.drain("a", True, 1.5)
    assert placed(scheduler.set_quota("b", 1, 2.0)) == [(3, "b")]


def test_an_engine_that_opens_for_two_models_stops_at_its_last_slot() -> None:
    scheduler = fleet("a", slots=1)
    discovered(scheduler, "a", facts(1, models=("m", "n")))
    offer_all(scheduler, [request(1), request(2, model="n"), request(3), request(4, model="n")])
    assert placed(ok(scheduler, 1, 1.0)) == [(2, "a")]
    assert placed(ok(scheduler, 2, 2.0)) == [(3, "a")]


def test_one_models_last_slot_ends_its_turn_and_not_the_others() -> None:
    scheduler = fleet("a", "b", slots=1)
    discovered(scheduler, "b", facts(1, models=("n",)))
    for name in "ab":
        probed(scheduler, name, Probe.LOADING)
    offer_all(scheduler, [request(1), request(2), request(3, model="n")])
    scheduler.engines["a"].probed(Probe.OK, 1.0)
    assert placed(probed(scheduler, "b", Probe.OK, 1.0)) == [(1, "a"), (3, "b")]


# Engines that come and go


def test_requests_wait_for_an_engine_that_is_loading() -> None:
    scheduler = fleet("a", slots=1)
    probed(scheduler, "a", Probe.LOADING)
    assert scheduler.offer(request(1), 0.0).decisions == []
    assert scheduler.offer(request(2, width=0), 0.0).decisions == []
    assert placed(probed(scheduler, "a", Probe.OK, 5.0)) == [(2, "a"), (1, "a")]


def test_requests_wait_for_an_engine_that_is_not_known_yet_and_no_longer_once_it_is() -> None:
    scheduler = Scheduler([Engine("a", "http://a")], Limits())
    assert scheduler.offer(request(1), 0.0).decisions == []
    assert scheduler.offer(request(2, model="n"), 0.0).decisions == []
    assert refused(discovered(scheduler, "a", facts(1), 1.0)) == [(2, Reason.NO_READY_ENGINE)]
    assert placed(probed(scheduler, "a", Probe.OK, 2.0)) == [(1, "a")]


def test_requests_that_wait_for_an_engine_that_turns_out_to_be_down_are_refused() -> None:
    scheduler = Scheduler([Engine("a", "http://a")], Limits())
    assert scheduler.offer(request(1), 0.0).decisions == []
    assert refused(probed(scheduler, "a", Probe.REFUSED, 1.0)) == [(1, Reason.NO_READY_ENGINE)]


def test_requests_that_no_engine_may_serve_are_refused_at_once() -> None:
    scheduler = Scheduler([Engine("a", "http://a")], Limits())
    discovered(scheduler, "a", facts(1, models=("n",)))
    assert refused(scheduler.offer(request(1), 0.0)) == [(1, Reason.NO_READY_ENGINE)]
    probed(scheduler, "a", Probe.LOADING)
    assert refused(scheduler.offer(request(2), 0.0)) == [(2, Reason.NO_READY_ENGINE)]
    probed(scheduler, "a", Probe.REFUSED)
    rejection = rejected(scheduler.offer(request(3, model="n"), 0.0))
    assert (rejection.reason, rejection.message) == (
        Reason.NO_READY_ENGINE,
        "No engine that serves 'n' is ready: a is down. Retry later.",
    )
    assert scheduler.entries == {}


def test_those_who_wait_are_refused_when_their_last_engine_goes_down() -> None:
    scheduler = fleet("a", "b", slots=1)
    offer_all(scheduler, [request(1), request(2), request(3)])
    assert probed(scheduler, "a", Probe.REFUSED, 1.0).decisions == []
    assert refused(probed(scheduler, "b", Probe.REFUSED, 2.0)) == [(3, Reason.NO_READY_ENGINE)]
    assert scheduler.engines["b"].in_flight == 1
    assert (len(scheduler.queue), set(scheduler.entries)) == (0, {1, 2})


def test_a_refused_retry_names_the_engine_that_failed_it() -> None:
    scheduler = fleet("a", "b", slots=1)
    offer_all(scheduler, [request(1), request(2)])
    scheduler.retry(1, 1.0, reached=False)
    rejection = rejected(probed(scheduler, "b", Probe.REFUSED, 2.0))
    assert rejection.key == 1
    assert "a did not take it before, b is down" in rejection.message


def test_a_retry_waits_for_an_engine_that_goes_back_to_loading() -> None:
    scheduler = fleet("a", "b", slots=1)
    offer_all(scheduler, [request(1), request(2)])
    scheduler.retry(1, 1.0, reached=False)
    assert probed(scheduler, "b", Probe.LOADING, 2.0).decisions == []
    (waiting,) = scheduler.queue
    assert waiting.why == "an engine that has not failed it"
    ok(scheduler, 2, 3.0)
    assert placed(probed(scheduler, "b", Probe.OK, 4.0)) == [(1, "b")]


def test_a_draining_engine_finishes_and_gets_nothing_new() -> None:
    scheduler = fleet("a", "b", slots=1)
    offer_all(scheduler, [request(1), request(2), request(3)])
    assert scheduler.drain("a", True, 1.0).decisions == []
    assert ok(scheduler, 1, 2.0).decisions == []
    assert refused(scheduler.drain("b", True, 3.0)) == [(3, Reason.NO_READY_ENGINE)]
    assert scheduler.engines["b"].in_flight == 1


def test_an_engine_that_stops_draining_is_used_at_once() -> None:
    scheduler = fleet("a", "b", slots=1)
    scheduler.drain("a", True, 0.0)
    offer_all(scheduler, [request(1), request(2)])
    assert placed(scheduler.drain("a", False, 1.0)) == [(2, "a")]


def test_a_restarted_engine_is_forgotten() -> None:
    scheduler = fleet("a", "b", slots=2)
    offer_all(scheduler, [request(1, SHARED)])
    scheduler.first_token(1, 1.0)
    scheduler.offer(request(2, text(100, "q")), 1.0)
    scheduler.finish(2, Outcome.CLIENT_DISCONNECT, NOTHING, 1.5)
    scheduler.update("a", Restarted(), 2.0)
    assert scheduler.index.size("a")[0] == 0
    assert scheduler.engines["a"].restarts == 1
    scheduler.finish(1, Outcome.ENGINE_TRUNCATED, NOTHING, 2.1)
    assert granted(scheduler.offer(request(3, SHARED), 3.0)).predicted_tokens == 0


def test_a_restart_ends_the_cooling() -> None:
    scheduler = fleet("a", slots=1)
    offer_all(scheduler, [request(1), request(2)])
    scheduler.finish(1, Outcome.CLIENT_DISCONNECT, NOTHING, 1.0)
    assert placed(scheduler.update("a", Restarted(), 1.1)) == [(2, "a")]


def test_an_engine_discovered_with_more_slots_takes_those_who_wait() -> None:
    scheduler = fleet("a", slots=1)
    offer_all(scheduler, map(request, range(4)))
    assert placed(discovered(scheduler, "a", facts(3), 1.0)) == [(1, "a"), (2, "a")]


def test_an_engine_discovered_with_fewer_slots_gets_nothing_until_enough_have_ended() -> None:
    scheduler = fleet("a", slots=3)
    offer_all(scheduler, map(request, range(4)))
    discovered(scheduler, "a", facts(1), 1.0)
    assert scheduler.engines["a"].free == -2
    assert ok(scheduler, 0, 2.0).decisions == []
    assert ok(scheduler, 1, 3.0).decisions == []
    assert placed(ok(scheduler, 2, 4.0)) == [(3, "a")]


def test_a_quota_below_the_cap_holds_until_it_is_raised_or_lifted() -> None:
    scheduler = fleet("a", slots=4)
    scheduler.set_quota("a", 1, 0.0)
    assert offer_all(scheduler, map(request, range(4))) == [(0, "a")]
    assert placed(scheduler.set_quota("a", 2, 1.0)) == [(1, "a")]
    assert placed(scheduler.set_quota("a", None, 2.0)) == [(2, "a"), (3, "a")]


def test_foreign_load_shrinks_what_is_granted_and_its_end_frees_it() -> None:
    scheduler = fleet("a", slots=2)
    for now in (1.0, 2.0):
        reported(scheduler, "a", 1, now)
    assert offer_all(scheduler, [request(1), request(2)], 2.0) == [(1, "a")]
    assert placed(reported(scheduler, "a", 1, 9.0)) == [(2, "a")]


def test_bytes_of_an_engine_that_is_down_bring_it_back_for_those_who_wait() -> None:
    scheduler = fleet("a", "b", slots=1)
    discovered(scheduler, "b", facts(1, models=("n",)))
    offer_all(scheduler, [request(1), request(2, model="n")])
    probed(scheduler, "a", Probe.REFUSED, 1.0)
    scheduler.first_token(1, 2.0)
    assert scheduler.offer(request(3), 3.0).decisions == []
    assert placed(ok(scheduler, 1, 4.0)) == [(3, "a")]


# Policies and explanations


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("round_robin", ["b", "a", "b", "a"]),
        ("least_loaded", ["a", "b", "a", "b"]),
        ("prefix", ["a", "a", "a", "a"]),
    ],
)
def test_policies_place_requests_of_one_prompt(policy: Policy, expected: list[str]) -> None:
    scheduler = fleet("a", "b", slots=4, policy=policy)
    grants = [granted(scheduler.offer(request(key, SHARED), 0.0)) for key in range(4)]
    assert [it.engine for it in grants] == expected
    assert {it.route for it in grants} == {Route.POLICY}


def test_the_session_policy_keeps_a_session_together() -> None:
    scheduler = fleet("a", "b", slots=40, policy="session")
    by_session = {
        session: {
            granted(scheduler.offer(request(10 * session + turn, session=session), 0.0)) for turn in range(3)
        }
        for session in range(1, 9)
    }
    homes = {session: {it.engine for it in grants} for session, grants in by_session.items()}
    assert all(len(it) == 1 for it in homes.values())
    assert set.union(*homes.values()) == {"a", "b"}
    assert {it.route for grants in by_session.values() for it in grants} == {Route.SESSION}


def test_an_explanation_is_what_an_offer_then_does_and_changes_nothing() -> None:
    scheduler = fleet("a", "b", slots=4, policy="round_robin")
    for key in range(5):
        candidates, chosen = scheduler.explain(request(100 + key))
        assert [it.engine.name for it in candidates] == ["a", "b"]
        assert chosen is not None
        assert granted(scheduler.offer(request(key), 0.0)).engine == chosen.engine.name
    assert set(scheduler.entries) == set(range(5))


def test_an_explanation_without_engines_is_empty() -> None:
    assert Scheduler([Engine("a", "http://a")], Limits()).explain(request(1)) == ([], None)


def test_an_engine_with_prompts_in_slots_predicts_what_its_idle_slots_hold() -> None:
    scheduler = fleet("a", slots=2)
    discovered(scheduler, "a", facts(2, residency=Residency.SLOTS))
    offer_all(scheduler, [request(1, SHARED)])
    scheduler.first_token(1, 1.0)
    assert granted(scheduler.offer(request(2, SHARED), 2.0)).predicted_tokens == 0
    ok(scheduler, 1, 3.0)
    assert granted(scheduler.offer(request(3, SHARED), 4.0)).predicted_tokens == 2944
