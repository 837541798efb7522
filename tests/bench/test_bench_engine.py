"""The simulated engine: steps, its queue, its cache, by literal times.

Engines here compute 1,000 prompt tokens a second in steps of 1,000, and decode a token in 0.1 s.
"""

from collections import OrderedDict

import pytest
from bench_values import BLOCK_TOKENS, ask, ids
from hypothesis import given
from hypothesis import strategies as st

from gateway.bench.engine import NEVER_S, BlockCache, SimulatedEngine, common_blocks, matched_blocks
from gateway.bench.workload import Ask, EngineSpec


def engine(slots: int = 8, blocks: int = 1000, *, shares_pending: bool = False) -> SimulatedEngine:
    spec = EngineSpec(
        slots=slots,
        kv_tokens=blocks * BLOCK_TOKENS,
        prefill_tokens_per_s=1000.0,
        decode_s=0.1,
        step_tokens=1000,
        shares_pending=shares_pending,
    )
    return SimulatedEngine(spec, BLOCK_TOKENS)


Event = tuple[str, int, float]


def run(engine: SimulatedEngine, *asks: Ask) -> list[Event]:
    """Submit each at its `arrived_s` and run until nothing is left: first tokens and ends."""
    events: list[Event] = []
    for it in asks:
        while engine.due_s <= it.arrived_s:
            events += step(engine)
        engine.submit(it, it.arrived_s)
    while engine.due_s != NEVER_S:
        events += step(engine)
    return events


def step(engine: SimulatedEngine) -> list[Event]:
    now = engine.due_s
    progress = engine.advance(now)
    return [
        *(("first", it.ask.key, round(now, 6)) for it in progress.first),
        *(("done", it.ask.key, round(now, 6)) for it in progress.done),
    ]


def test_a_prompt_takes_its_tokens_at_the_rate_and_then_a_step_a_token() -> None:
    assert run(engine(), ask(1, (0, 25), output=4)) == [("first", 1, 2.5), ("done", 1, 2.8)]


def test_one_token_ends_with_the_prefill() -> None:
    assert run(engine(), ask(1, (0, 5))) == [("first", 1, 0.5), ("done", 1, 0.5)]


def test_prompts_that_fit_one_step_are_done_together() -> None:
    asks = ask(1, (0, 10)), ask(2, (100, 3)), ask(3, (200, 7))

    # 1 started alone; 2 and 3 share the next step.
    assert run(engine(), *asks)[:5:2] == [("first", 1, 1.0), ("first", 2, 2.0), ("done", 2, 2.0)]


def test_a_long_prompt_goes_before_those_behind_it() -> None:
    events = run(engine(), ask(1, (0, 25)), ask(2, (100, 3), at=0.2))

    # The last step of 1 has room for 500 more tokens.
    assert [it for it in events if it[0] == "first"] == [("first", 1, 2.8), ("first", 2, 2.8)]


def test_prefill_slows_decode() -> None:
    asks = ask(1, (0, 5), output=6), ask(2, (100, 20), at=0.55)

    # 1 decodes from 0.5. The prompt joins at 0.6, takes two steps of 1 s + 0.1 s, and 1 gets a token in each.
    assert run(engine(), *asks) == [
        ("first", 1, 0.5),
        ("first", 2, 2.8),
        ("done", 2, 2.8),
        ("done", 1, 3.0),
    ]


def test_one_that_comes_as_a_step_begins_waits_for_the_next() -> None:
    asks = ask(1, (0, 5), output=9), ask(2, (100, 5), at=0.5)

    assert run(engine(), *asks)[1] == ("first", 2, 1.2)


def test_an_answer_ends_between_the_steps_of_a_long_prompt() -> None:
    asks = ask(1, (0, 5), output=3), ask(2, (100, 40), at=0.5)

    # One more decode step, one beside the prompt's first step, then the prompt is alone.
    assert run(engine(), *asks) == [
        ("first", 1, 0.5),
        ("done", 1, 1.7),
        ("first", 2, 4.7),
        ("done", 2, 4.7),
    ]


def test_past_its_slots_it_queues_silently() -> None:
    it = engine(slots=1)
    for key in (1, 2, 3):
        it.submit(ask(key, (100 * key, 5), output=2), 0.0)

    assert (it.running, it.waiting) == (1, 2)
    assert run(it)[:3] == [("first", 1, 0.5), ("done", 1, 0.6), ("first", 2, 1.1)]


def test_one_whose_prompt_does_not_fit_keeps_all_behind_it_waiting() -> None:
    it = engine(blocks=10)
    it.submit(ask(1, (0, 6), output=11), 0.0)
    it.submit(ask(2, (100, 5)), 0.0)
    it.submit(ask(3, (200, 1)), 0.0)

    assert (it.running, it.waiting, it.kv_usage) == (1, 2, 0.6)
    assert run(it) == [
        ("first", 1, 0.6),
        ("done", 1, 1.6),
        ("first", 2, 2.2),
        ("first", 3, 2.2),
        ("done", 2, 2.2),
        ("done", 3, 2.2),
    ]


def test_what_running_prompts_share_takes_room_once() -> None:
    it = engine(blocks=10)
    it.submit(ask(1, (0, 6), output=100), 0.0)
    it.submit(ask(2, (0, 4), (50, 4), output=100), 0.0)
    it.advance(it.due_s)

    assert (it.running, it.kv_usage) == (2, 1.0)


def test_a_request_runs_from_when_its_prefill_starts() -> None:
    it = engine()
    it.submit(ask(1, (0, 25), output=9), 0.0)
    work = it.submit(ask(2, (100, 3)), 0.1)
    seen = []
    while it.due_s != NEVER_S:
        seen.append((it.running, it.waiting, it.kv_usage, work.started_s))
        it.advance(it.due_s)

    # Two whole steps of the first prompt; its last one has room for the second; then the first decodes.
    assert seen == [(1, 1, 0.025, None), (2, 0, 0.028, 2.0), (1, 0, 0.025, 2.0)]


def test_a_prompt_larger_than_the_cache_runs_alone() -> None:
    it = engine(blocks=4)
    it.submit(ask(1, (0, 6)), 0.0)
    it.submit(ask(2, (100, 1)), 0.0)

    assert (it.running, it.waiting, it.kv_usage) == (1, 1, 1.0)
    assert [key for what, key, _ in run(it) if what == "done"] == [1, 2]
    # The leaves went, for what was too much and then for the second one.
    assert it.cached_blocks(ids((0, 6))) == 3


@pytest.mark.parametrize(
    ("blocks", "more", "cached"),
    [(8, 50, 500), (5, 0, 499), (3, 0, 299)],
    ids=["the common part", "not the last token", "part of it"],
)
def test_what_was_computed_before_is_cached(blocks: int, more: int, cached: int) -> None:
    it = engine()
    run(it, ask(1, (0, 5)))
    work = it.submit(ask(2, (0, blocks), more=more), 10.0)
    run(it)

    assert (work.started_s, work.cached_tokens) == (10.0, cached)
    assert work.first_token_s == pytest.approx(10.0 + (blocks * 100 + more - cached) / 1000)


@pytest.mark.parametrize(
    ("at", "cached"),
    [(0.5, 0), (1.1, 1200), (2.0, 1200)],
    ids=["it shares a step with the first", "it has to wait for the first", "the first has ended"],
)
def test_a_sibling_finds_only_what_is_there_when_its_own_prefill_starts(at: float, cached: int) -> None:
    it = engine()
    it.submit(ask(1, (0, 12)), 0.0)
    while it.due_s <= at:
        it.advance(it.due_s)
    sibling = it.submit(ask(2, (0, 12), (100, 1)), at)
    run(it)

    assert sibling.cached_tokens == cached


def test_what_was_used_least_recently_goes_first_and_leaves_before_roots() -> None:
    it = engine(blocks=10)
    run(it, ask(1, (0, 4)), ask(2, (10, 4), at=1.0), ask(3, (0, 2), at=2.0), ask(4, (20, 3), at=3.0))

    # The prompt of three took the two that were free and the last block of the prompt that nobody used again.
    assert [it.cached_blocks(ids(run)) for run in ((0, 4), (10, 4), (20, 3))] == [3, 4, 3]


def test_a_dead_engine_gives_back_all_that_it_had_and_forgets() -> None:
    it = engine(slots=2)
    run(it, ask(1, (0, 5)))
    for key in (2, 3, 4):
        it.submit(ask(key, (0, 5 * key), output=50), 10.0)
    it.advance(it.due_s)

    assert [lost.key for lost in it.stop()] == [3, 2, 4]
    assert (it.up, it.running, it.waiting, it.kv_usage, it.due_s) == (False, 0, 0, 0.0, NEVER_S)
    assert it.cached_blocks(ids((0, 5))) == 0

    it.start()
    assert it.up
    assert run(it, ask(5, (0, 5), at=20.0)) == [("first", 5, 20.5), ("done", 5, 20.5)]


def test_a_stretch_of_steps_is_one_event() -> None:
    it = engine()
    it.submit(ask(1, (0, 500), output=1000), 0.0)
    steps = 0
    while it.due_s != NEVER_S:
        it.advance(it.due_s)
        steps += 1

    assert steps == 2


prompts = st.lists(st.integers(0, 2), min_size=1, max_size=6).map(
    lambda path: tuple(int("1" + "".join(map(str, path[:end])), 4) for end in range(1, len(path) + 1))
)


@given(st.lists(st.tuples(prompts, st.booleans()), max_size=40), st.integers(6, 12))
def test_the_cache_is_a_leaf_first_lru_beside_what_runs(
    steps: list[tuple[tuple[int, ...], bool]], capacity: int
) -> None:
    cache = BlockCache(capacity)
    model: OrderedDict[int, None] = OrderedDict()
    running: dict[int, tuple[int, ...]] = {}
    for key, (prompt, ends) in enumerate(steps):
        pinned = {block for other in running.values() for block in other}
        fits = not running or len(pinned | set(prompt)) <= capacity
        assert cache.admit(key, prompt) == fits
        if fits:
            running[key] = prompt
            cache.fill(key)
            model.update(dict.fromkeys(prompt))
        if running and (ends or not fits):
            oldest = next(iter(running))
            cache.release(oldest)
            for block in reversed(running.pop(oldest)):
                model.move_to_end(block)
        pinned = {block for other in running.values() for block in other}
        for block in list(model):
            if len(model) > capacity and block not in pinned:
                del model[block]
        assert cache.pinned_blocks == len(pinned)
        for tried, _ in steps:
            assert cache.matched(tried) == sum(block in model for block in tried)


def test_matches_and_common_parts_are_found_by_bisection() -> None:
    assert matched_blocks((1, 2, 3, 4), {1, 2, 3}) == 3
    assert matched_blocks((), {1}) == 0
    assert common_blocks((1, 2, 3), (1, 2, 5, 6)) == 2
    assert common_blocks((1, 2), (1, 2, 3)) == 2
    assert common_blocks((), (1,)) == 0


def siblings(it: SimulatedEngine) -> list[tuple[int, float | None]]:
    """Eight at once with 4,000 tokens in common and 200 of their own: cached tokens, first token."""
    works = [it.submit(ask(key, (0, 40), (1000 * key, 2)), 0.0) for key in range(1, 9)]
    while it.due_s != NEVER_S:
        it.advance(it.due_s)
    return [(work.cached_tokens, work.first_token_s) for work in works]


def test_who_starts_in_the_step_that_ends_a_shared_prefix_computes_it_too() -> None:
    assert [cached for cached, _ in siblings(engine())] == [0, 0, *[4000] * 6]


def test_where_pending_blocks_are_shared_no_sibling_computes_them() -> None:
    found = siblings(engine(shares_pending=True))
    assert [cached for cached, _ in found] == [0, *[4000] * 7]
    # The step that ends the first prompt has room for four more, the next one for the others.
    assert [first_s for _, first_s in found] == pytest.approx([5.0] * 5 + [5.6] * 3)
