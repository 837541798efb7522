"""What a grant tells for the account of its losses, as scripts. Prompts of 3000 tokens have 46 whole blocks,
2944 tokens, in the index."""

import pytest
from core_values import discovered, facts, fleet, granted, ok, request, text, usage

from gateway.core.engine import Residency
from gateway.core.events import Restarted
from gateway.core.request import Grant
from gateway.core.scheduler import Scheduler

SHARED, OTHER = text(3000, "s"), text(3000, "o")


def ran(scheduler: Scheduler, key: int, prompt: bytes, at: float, cached: int = 0) -> Grant:
    grant = granted(scheduler.offer(request(key, prompt), at))
    scheduler.first_token(key, at + 0.5)
    ok(scheduler, key, at + 1.0, usage(len(prompt) // 4, cached))
    return grant


def told(grant: Grant) -> tuple[int, int, int, int, int]:
    """(predicted, coming, best, known, seen)."""
    coming = grant.predicted_tokens + grant.pending_tokens
    return grant.predicted_tokens, coming, grant.best_tokens, grant.known_tokens, grant.seen_tokens


@pytest.mark.parametrize("names", ["a", "ab"])
def test_of_a_new_prompt_nothing_is_known_or_seen(names: str) -> None:
    grant = granted(fleet(*names).offer(request(1, SHARED), 0.0))
    assert told(grant) == (0, 0, 0, 0, 0)
    assert grant.expected is not None
    assert grant.expected.may_be(0)


@pytest.mark.parametrize("names", ["a", "ab"])
def test_what_is_resident_was_seen(names: str) -> None:
    scheduler = fleet(*names)
    ran(scheduler, 1, SHARED, 0.0)
    grant = granted(scheduler.offer(request(2, SHARED + text(500, "q")), 2.0))
    assert told(grant) == (2944, 2944, 2944, 2944, 2944)
    assert grant.expected is not None
    # A block less may be how it is counted, half of it not.
    assert grant.expected.may_be(2880)
    assert not grant.expected.may_be(1500)


@pytest.mark.parametrize("names", ["a", "ab"])
def test_what_is_being_computed_is_pending(names: str) -> None:
    scheduler = fleet(*names)
    scheduler.offer(request(1, SHARED), 0.0)
    scheduler.engines["a"].prefill_tokens_per_s = 1e6
    grant = granted(scheduler.offer(request(2, SHARED), 0.0))
    assert grant.known_tokens == 2944
    assert (grant.predicted_tokens, grant.best_tokens) == (0, 0)
    assert grant.pending_tokens == (2944 if grant.engine == "a" else 0)


@pytest.mark.parametrize("names", ["a", "ab"])
def test_what_was_seen_is_seen_though_nobody_holds_it_any_more(names: str) -> None:
    scheduler = fleet(*names)
    ran(scheduler, 1, SHARED, 0.0)
    for name in names:
        scheduler.update(name, Restarted(), 2.0)
    grant = granted(scheduler.offer(request(2, SHARED + text(500, "q")), 3.0))
    assert told(grant) == (0, 0, 0, 0, 2944)


def test_what_was_seen_is_counted_in_the_engines_blocks() -> None:
    scheduler = fleet("a")
    ran(scheduler, 1, text(3000, "s"), 0.0)
    discovered(scheduler, "a", facts(2, block_tokens=128))
    scheduler.update("a", Restarted(), 2.0)
    assert granted(scheduler.offer(request(2, SHARED + text(500, "q")), 3.0)).seen_tokens == 2944
    assert granted(scheduler.offer(request(3, SHARED), 3.0)).seen_tokens == 2944
    discovered(scheduler, "a", facts(4, block_tokens=1000))
    assert granted(scheduler.offer(request(4, SHARED), 3.0)).seen_tokens == 2000


@pytest.mark.parametrize("policy", ["cost", "least_loaded"])
def test_another_engine_has_more_and_a_slot_free(policy: str) -> None:
    scheduler = fleet("a", "b", policy=policy)
    ran(scheduler, 1, SHARED, 0.0)
    scheduler.offer(request(2, text(100, "s")), 2.0)
    a = scheduler.engines["a"]
    a.pending_prefill_tokens = 1_000_000
    grant = granted(scheduler.offer(request(3, SHARED), 2.0))
    assert (grant.engine, grant.holder_full) == ("b", False)
    assert told(grant)[:4] == (0, 0, 2944, 2944)


@pytest.mark.parametrize("policy", ["cost", "least_loaded"])
def test_another_engine_has_more_and_no_slot_free(policy: str) -> None:
    scheduler = fleet("a", "b", slots=1, policy=policy)
    ran(scheduler, 1, SHARED, 0.0)
    assert granted(scheduler.offer(request(2, SHARED), 2.0)).engine == "a"
    scheduler.engines["a"].slot_s = 1000.0
    grant = granted(scheduler.offer(request(3, SHARED), 2.0))
    assert (grant.engine, grant.holder_full) == ("b", True)
    assert told(grant)[:4] == (0, 0, 2944, 2944)


def test_the_second_grant_counts() -> None:
    scheduler = fleet("a", "b")
    ran(scheduler, 1, SHARED, 0.0)
    assert granted(scheduler.offer(request(2, SHARED), 2.0)).best_tokens == 2944
    grant = granted(scheduler.retry(2, 3.0, reached=True))
    # Nobody else holds it, and what the failed engine holds is out of reach.
    assert (grant.engine, *told(grant)) == ("b", 0, 0, 0, 0, 2944)


def slotted(*names: str, slots: int) -> Scheduler:
    scheduler = fleet(*names, slots=slots)
    for name in names:
        discovered(scheduler, name, facts(slots, residency=Residency.SLOTS))
    return scheduler


@pytest.mark.parametrize("names", ["a", "ab"])
def test_what_lies_in_a_busy_slot_is_known_and_of_no_use(names: str) -> None:
    scheduler = slotted(*names, slots=2)
    granted(scheduler.offer(request(1, SHARED), 0.0))
    grant = granted(scheduler.offer(request(2, SHARED), 0.0))
    assert (grant.predicted_tokens, grant.best_tokens, grant.known_tokens) == (0, 0, 2944)
    assert grant.pending_tokens == (2944 if grant.engine == "a" else 0)


def test_what_lies_behind_busy_slots_is_held_by_a_full_engine() -> None:
    scheduler = slotted("a", "b", slots=1)
    scheduler.drain("b", True, 0.0)
    ran(scheduler, 1, SHARED, 0.0)
    # Another prompt takes the slot, and the first one's copy lies in the host's memory.
    granted(scheduler.offer(request(2, OTHER), 2.0))
    scheduler.drain("b", False, 3.0)
    grant = granted(scheduler.offer(request(3, SHARED), 3.0))
    assert (grant.engine, grant.holder_full) == ("b", True)
    assert told(grant)[:4] == (0, 0, 2944, 2944)
