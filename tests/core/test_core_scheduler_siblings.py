"""Sub-agents that come at once with one new prefix, told as scripts: what is pending, and what stays."""

import pytest
from core_values import NOTHING, discovered, facts, fleet, offer_all, ok, request, text, usage

from gateway.core.prefix import PooledCache
from gateway.core.request import Outcome, Request
from gateway.core.scheduler import Scheduler

PREFIX = text(4096, "agents")
KEYS = range(1, 9)
PROMPT_TOKENS = 4096 + 256


def sibling(key: int) -> Request:
    return request(key, PREFIX + text(256, f"own {key}"), stream=True)


def burst(engines: int, kv_tokens: int = 100_000) -> Scheduler:
    names = "abcd"[:engines]
    scheduler = fleet(*names, slots=8)
    for name in names:
        discovered(scheduler, name, facts(8, kv_tokens=kv_tokens, block_tokens=16))
    assert len(offer_all(scheduler, map(sibling, KEYS))) == 8
    return scheduler


def cache(scheduler: Scheduler, engine: str) -> PooledCache:
    found = scheduler.index._caches[engine]
    assert isinstance(found, PooledCache)
    return found


def known_tokens(scheduler: Scheduler, key: int = 99) -> list[tuple[int, int]]:
    """Resident and pending tokens of one more sibling on each engine."""
    candidates, _ = scheduler.explain(sibling(key))
    return [(it.resident_tokens, it.pending_tokens) for it in candidates]


@pytest.mark.parametrize("engines", [1, 2, 4])
def test_what_siblings_share_is_pending_until_one_of_them_has_its_first_token(engines: int) -> None:
    scheduler = burst(engines)
    grants = [scheduler.entries[key].grant for key in KEYS]
    assert [it.predicted_tokens for it in grants if it is not None] == [0] * 8
    assert known_tokens(scheduler) == [(0, 4096)] * engines
    for key in KEYS:
        scheduler.first_token(key, 1.0)
    assert known_tokens(scheduler) == [(4096, 0)] * engines


@pytest.mark.parametrize("engines", [1, 2, 4])
@pytest.mark.parametrize("cached", [0, 4096], ids=["computed beside each other", "shared"])
def test_a_burst_teaches_nothing_and_nothing_of_it_is_forgotten(engines: int, cached: int) -> None:
    scheduler = burst(engines)
    bounds = [cache(scheduler, name).believed_blocks for name in scheduler.engines]
    for key in KEYS:
        scheduler.first_token(key, 1.0)
        ok(scheduler, key, 2.0, usage(PROMPT_TOKENS, cached))
    assert known_tokens(scheduler) == [(4096, 0)] * engines
    caches = [cache(scheduler, name) for name in scheduler.engines]
    assert [it.ghosts for it in caches] == [0] * engines
    assert [it.believed_blocks for it in caches] == bounds
    # All eight prompts are there to go on from, each where it was answered.
    for key in KEYS:
        candidates, _ = scheduler.explain(sibling(key))
        assert max(it.resident_tokens for it in candidates) >= PROMPT_TOKENS - 16


@pytest.mark.parametrize(
    "outcome", [Outcome.CLIENT_DISCONNECT, Outcome.ENGINE_ERROR, Outcome.ENGINE_TRUNCATED, Outcome.SHUTDOWN]
)
def test_who_leaves_early_takes_nothing_from_those_who_go_on(outcome: Outcome) -> None:
    scheduler = burst(1)
    for key in KEYS[:-1]:
        scheduler.finish(key, outcome, NOTHING, 1.0)
        assert known_tokens(scheduler) == [(0, 4096)]
    scheduler.first_token(8, 2.0)
    assert known_tokens(scheduler) == [(4096, 0)]
    ok(scheduler, 8, 3.0, usage(PROMPT_TOKENS))
    assert known_tokens(scheduler) == [(4096, 0)]


def test_what_one_has_computed_stays_when_all_others_fail() -> None:
    scheduler = burst(1)
    scheduler.first_token(3, 1.0)
    for key in KEYS:
        scheduler.finish(key, Outcome.ENGINE_ERROR, NOTHING, 2.0)
    assert known_tokens(scheduler) == [(4096, 0)]


def test_nothing_is_left_of_a_burst_of_which_none_came_to_its_first_token() -> None:
    scheduler = burst(1)
    for key in KEYS:
        scheduler.finish(key, Outcome.CLIENT_DISCONNECT, NOTHING, 1.0)
    assert known_tokens(scheduler) == [(0, 0)]
    assert len(cache(scheduler, "a")) == 0


def test_a_miss_on_what_was_there_before_the_burst_still_teaches() -> None:
    """Only what was pending excuses a miss."""
    scheduler = fleet("a", slots=8)
    discovered(scheduler, "a", facts(8, kv_tokens=100_000, block_tokens=16))
    for key, words in ((20, "old"), (21, "newer")):
        offer_all(scheduler, [request(key, text(1024, words), stream=True)])
        ok(scheduler, key, 1.0, usage(1024))
    offer_all(scheduler, [request(22, text(1024, "newer") + PREFIX, stream=True)], 2.0)
    scheduler.first_token(22, 3.0)
    ok(scheduler, 22, 4.0, usage(1024 + 4096, 0))
    candidates, _ = scheduler.explain(request(23, text(1024, "old")))
    assert [it.resident_tokens for it in candidates] == [0]
