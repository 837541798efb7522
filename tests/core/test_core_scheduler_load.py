"""Between a prefix and the load of the engine that holds it, told as scripts."""

from collections import Counter

import pytest
from core_values import (
    fleet,
    granted,
    offer_all,
    ok,
    placed,
    request,
    text,
    usage,
)

from gateway.core.request import Route

SHARED = text(3000, "s")


def test_a_burst_that_shares_a_short_prefix_spreads_over_idle_engines() -> None:
    scheduler = fleet("a", "b", slots=8)
    shared = text(100, "s")
    grants = offer_all(scheduler, (request(key, shared + text(400, f"q{key}")) for key in range(12)))
    load = Counter(engine for _, engine in grants)
    assert len(grants) == 12
    assert max(load.values()) <= 7


@pytest.mark.parametrize("slots", [8, 16])
def test_a_burst_that_shares_a_long_prefix_spreads_over_idle_engines(slots: int) -> None:
    scheduler = fleet("a", "b", slots=slots)
    grants = offer_all(scheduler, (request(key, SHARED + text(50, f"q{key}")) for key in range(16)))
    load = Counter(engine for _, engine in grants)
    assert len(grants) == 16
    assert max(load.values()) / 8 <= 1.3


def test_one_after_another_they_stay_where_the_prefix_is() -> None:
    scheduler = fleet("a", "b", slots=8)
    engines = []
    for key in range(16):
        grant = granted(scheduler.offer(request(key, SHARED + text(50, f"q{key}")), float(key)))
        engines.append(grant.engine)
        scheduler.first_token(key, key + 0.2)
        ok(scheduler, key, key + 0.5, usage(3050, grant.predicted_tokens, 10))
    assert set(engines) == {"a"}


def test_a_prefix_beats_an_empty_engine_while_its_holder_is_not_busy() -> None:
    scheduler = fleet("a", "b", slots=4)
    offer_all(scheduler, [request(1, SHARED), request(2, text(3000, "t"))])
    for key in (1, 2):
        scheduler.first_token(key, 1.0)
        ok(scheduler, key, 2.0)
    scheduler.offer(request(3, text(100, "u")), 3.0)
    grant = granted(scheduler.offer(request(4, text(3000, "t") + b"more"), 3.0))
    assert (grant.engine, grant.route) == ("b", Route.PREFIX)
    grant = granted(scheduler.offer(request(5, SHARED + b"more"), 3.0))
    assert (grant.engine, grant.route, grant.predicted_tokens) == ("a", Route.PREFIX, 2944)


def test_a_prefix_is_given_up_for_load_and_the_grant_says_what_that_costs() -> None:
    scheduler = fleet("a", "b", slots=2)
    offer_all(scheduler, [request(1, SHARED)])
    scheduler.first_token(1, 1.0)
    scheduler.offer(request(2, SHARED, width=1), 1.0)
    scheduler.first_token(2, 1.5)
    scheduler.engines["a"].slot_s = 20.0
    grant = granted(scheduler.offer(request(3, SHARED), 2.0))
    assert (grant.engine, grant.route) == ("b", Route.LOAD)
    assert (grant.predicted_tokens, grant.best_tokens) == (0, 2944)


def test_a_freed_slot_goes_to_the_first_whose_best_engine_it_is() -> None:
    scheduler = fleet("a", "b", slots=1)
    for name in "ab":
        scheduler.engines[name].slot_s = 0.1
    offer_all(scheduler, [request(1, text(3000, "x")), request(2, text(3000, "y"))])
    for key in (1, 2):
        scheduler.first_token(key, 1.0)
    offer_all(scheduler, [request(3, text(3000, "x")), request(4, text(3000, "y"))], 2.0)
    assert placed(ok(scheduler, 2, 3.0)) == [(4, "b")]
    (waiting,) = scheduler.queue
    assert (waiting.request.key, waiting.engine, waiting.why) == (3, "a", "a slot on a")
    assert placed(ok(scheduler, 1, 4.0)) == [(3, "a")]
    assert scheduler.idle_while_waiting_s("b", 4.0) == 0.0


def test_nobody_waits_for_a_prefix_that_costs_less_to_compute_than_to_wait_for() -> None:
    scheduler = fleet("a", "b", slots=1)
    offer_all(scheduler, [request(1, text(300, "x")), request(2, text(300, "y"))])
    scheduler.first_token(1, 1.0)
    offer_all(scheduler, [request(3, text(300, "x"))], 2.0)
    assert placed(ok(scheduler, 2, 3.0)) == [(3, "b")]
