"""How long a request waits for the engine that holds its prompt while another one has a free slot."""

import pytest
from core_values import NOTHING, fleet, granted, offer_all, ok, placed, request, text

from gateway.core.placing import MAX_PATIENCE_S
from gateway.core.request import Outcome
from gateway.core.router import Policy
from gateway.core.scheduler import Scheduler

SHARED = text(3000, "shared")


def held_by_a_full_engine(policy: Policy = "cost") -> tuple[Scheduler, str]:
    """Two engines x 2 slots; one has the prefix, answers quickly so far, and now runs two long requests."""
    scheduler = fleet("a", "b", slots=2, policy=policy)
    first = granted(scheduler.offer(request(1, SHARED), 0.0)).engine
    scheduler.first_token(1, 0.1)
    ok(scheduler, 1, 0.2)
    busy = offer_all(
        scheduler, [request(2, SHARED + text(100, "x")), request(3, SHARED + text(100, "y"))], 1.0
    )
    assert busy == [(2, first), (3, first)]
    for key in (2, 3):
        scheduler.first_token(key, 1.0)
    return scheduler, first


@pytest.mark.parametrize("width", [1, 2])
def test_it_waits_as_long_as_the_prefill_that_it_would_save_and_no_longer(width: int) -> None:
    scheduler, first = held_by_a_full_engine()
    it = request(4, SHARED + text(100, "z"), width=width, max_wait_s=60.0)
    assert placed(scheduler.offer(it, 2.0)) == []
    due = scheduler.next_deadline()
    # 3,100 tokens at the 2,000 a second that are assumed, and 2,944 of them four times again and 2 s.
    assert due == pytest.approx(11.3, abs=0.1)
    assert placed(scheduler.tick(due - 0.01)) == []
    assert placed(scheduler.tick(due)) == [(4, ({"a", "b"} - {first}).pop())]


def test_nobody_waits_for_ever_beside_a_free_slot_however_long_the_prompt() -> None:
    scheduler = fleet("a", "b", slots=1)
    history = text(12_000, "history")
    holder = granted(scheduler.offer(request(1, history), 0.0)).engine
    scheduler.first_token(1, 0.1)
    ok(scheduler, 1, 0.2)
    assert granted(scheduler.offer(request(2, history + text(100, "x")), 1.0)).engine == holder
    scheduler.first_token(2, 1.1)
    assert placed(scheduler.offer(request(3, history + text(100, "y")), 2.0)) == []
    assert scheduler.next_deadline() == 2.0 + MAX_PATIENCE_S


def test_what_is_computed_ahead_does_not_count_for_it_passes_meanwhile() -> None:
    scheduler, first = held_by_a_full_engine()
    ok(scheduler, 2, 1.5)
    assert granted(scheduler.offer(request(5, SHARED + text(4000, "more")), 1.6)).engine == first
    assert placed(scheduler.offer(request(4, SHARED + text(100, "z")), 2.0)) == []
    assert scheduler.next_deadline() == pytest.approx(11.3, abs=0.1)


def test_a_slot_that_frees_in_time_is_taken() -> None:
    scheduler, first = held_by_a_full_engine()
    scheduler.offer(request(4, SHARED + text(100, "z")), 2.0)
    assert placed(ok(scheduler, 2, 2.5)) == [(4, first)]


def test_only_time_beside_a_free_slot_counts() -> None:
    scheduler, first = held_by_a_full_engine()
    other = ({"a", "b"} - {first}).pop()
    assert {engine for _, engine in offer_all(scheduler, [request(5), request(6)], 1.5)} == {other}
    assert placed(scheduler.offer(request(4, SHARED + text(100, "z")), 2.0)) == []
    assert placed(scheduler.tick(60.0)) == []
    assert placed(scheduler.finish(5, Outcome.OK, NOTHING, 60.0)) == []
    due = scheduler.next_deadline()
    # What runs beside it on the other engine weighs its prefill higher there.
    assert due == pytest.approx(70.4, abs=0.1)
    assert placed(scheduler.tick(due)) == [(4, other)]


def test_a_slot_elsewhere_that_is_taken_again_ends_the_count() -> None:
    scheduler, first = held_by_a_full_engine()
    scheduler.offer(request(4, SHARED + text(100, "z")), 2.0)
    offer_all(scheduler, [request(5), request(6)], 2.1)
    assert scheduler.next_deadline() == 122.0
    assert placed(ok(scheduler, 2, 9.0)) == [(4, first)]


def test_it_is_counted_anew_when_a_slot_elsewhere_frees_again() -> None:
    scheduler, first = held_by_a_full_engine()
    other = ({"a", "b"} - {first}).pop()
    scheduler.offer(request(4, SHARED + text(100, "z")), 2.0)
    offer_all(scheduler, [request(5), request(6)], 2.1)
    assert placed(ok(scheduler, 5, 8.9)) == []
    assert placed(scheduler.tick(15.0)) == []
    assert placed(scheduler.tick(21.0)) == [(4, other)]


def test_other_policies_wait_for_their_engine() -> None:
    scheduler, _ = held_by_a_full_engine("prefix")
    scheduler.engines["a"].quota = scheduler.engines["b"].quota = 2
    placed(scheduler.offer(request(4, SHARED + text(100, "z"), max_wait_s=60.0), 2.0))
    due = scheduler.next_deadline()
    assert due is None or due == 62.0
