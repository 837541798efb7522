from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.sim.model import BATCHINGS, SimModel
from gateway.sim.work import Event, Job, Work


def model(kind: str = "vllm", *, slots: int = 2, kv_tokens: int = 4096, **more: Any) -> SimModel:
    # 100 prompt tokens take 0.1 s, one answer token takes 0.1 s.
    return SimModel(slots=slots, kv_tokens=kv_tokens, prefill_rate=1000, decode_rate=10, kind=kind, **more)


def prompt(length: int, first: int = 1) -> tuple[int, ...]:
    return (first, *range(1000, 1000 + length - 1))


def work(tokens: tuple[int, ...], out: int = 2, n: int = 1, stall_s: float | None = None) -> Work:
    return Work(
        prompts=(tokens,), outputs=tuple((choice,) * out for choice in range(n)), n=n, stall_s=stall_s
    )


def seen(events: list[Event], job: Job) -> list[tuple[int, int, bool]]:
    return [(event.choice, event.emitted, event.is_last) for event in events if event.job is job]


def run_out(sim: SimModel) -> float:
    last = 0.0
    while (due := sim.next_deadline()) is not None:
        last = due
        sim.advance(due)
    return last


def test_the_first_token_comes_when_the_prefill_is_done_and_the_rest_at_the_decode_rate():
    sim = model()
    job = sim.submit(work(prompt(100), out=3), now=5.0)
    assert sim.advance(5.09) == []
    assert seen(sim.advance(5.11), job) == [(0, 1, False)]
    assert seen(sim.advance(5.21), job) == [(0, 2, False)]
    assert seen(sim.advance(5.31), job) == [(0, 3, True)]
    assert (job.started_at, job.prompt_done_at, job.finished_at) == pytest.approx((5.0, 5.1, 5.3))
    assert sim.next_deadline() is None
    assert sim.running == 0


def test_a_late_call_gets_everything_that_happened_since():
    sim = model()
    job = sim.submit(work(prompt(100), out=3), now=0.0)
    assert seen(sim.advance(100.0), job) == [(0, 1, False), (0, 2, False), (0, 3, True)]
    assert job.finished_at == pytest.approx(0.3)


def test_a_prefill_slows_the_answers_beside_it():
    sim = model()
    first = sim.submit(work(prompt(100, 1), out=9), now=0.0)
    sim.advance(0.11)
    sim.submit(work(prompt(500, 2)), now=0.11)
    assert seen(sim.advance(0.21), first) == [(0, 2, False)]
    # The next step takes 0.5 s of prefill and 0.1 s of decode.
    assert seen(sim.advance(0.79), first) == []
    assert seen(sim.advance(0.81), first) == [(0, 3, False)]


def test_a_long_prefill_is_cut_into_steps_between_which_answers_go_on():
    sim = model(step_prefill_tokens=100)
    first = sim.submit(work(prompt(100, 1), out=9), now=0.0)
    sim.advance(0.11)
    second = sim.submit(work(prompt(300, 2)), now=0.11)
    events = sim.advance(0.81)
    # Steps end at 0.2, then every 0.2 s; the third one ends the prefill.
    assert seen(events, first) == [(0, 2, False), (0, 3, False), (0, 4, False), (0, 5, False)]
    assert seen(events, second) == [(0, 1, False)]


def test_what_finds_no_slot_waits_in_order_and_is_counted_as_deferred():
    sim = model(slots=1)
    jobs = [sim.submit(work(prompt(100, first)), now=0.0) for first in (1, 2, 3)]
    assert (sim.running, sim.waiting) == (1, 2)
    run_out(sim)
    assert [job.started_at for job in jobs] == pytest.approx([0.0, 0.2, 0.4])
    assert [job.was_deferred for job in jobs] == [False, True, True]
    assert (sim.counts.deferred_total, sim.counts.max_running) == (2, 1)


def test_a_wide_request_waits_for_all_its_slots_and_nothing_overtakes_it():
    sim = model(slots=3)
    first = sim.submit(work(prompt(100, 1)), now=0.0)
    wide = sim.submit(work(prompt(100, 2), n=3), now=0.0)
    narrow = sim.submit(work(prompt(100, 3)), now=0.0)
    assert sim.running == 1
    run_out(sim)
    assert wide.started_at == first.finished_at
    assert narrow.started_at == wide.finished_at
    assert sim.counts.max_running == 3


def test_a_request_wider_than_the_engine_still_ends():
    sim = model(slots=2)
    job = sim.submit(work(prompt(100), n=5), now=0.0)
    run_out(sim)
    assert job.finished_at is not None
    assert sim.counts.max_running == 2


def test_choices_of_one_prompt_share_its_prefill():
    sim = model(slots=2)
    job = sim.submit(work(prompt(100), out=1, n=2), now=0.0)
    assert seen(sim.advance(0.11), job) == [(0, 1, True), (1, 1, True)]
    assert sim.counts.prompt_tokens == 100


def test_an_embedding_ends_with_its_prefill():
    sim = model()
    job = sim.submit(Work(prompts=(prompt(100),), outputs=((),)), now=0.0)
    assert seen(sim.advance(0.11), job) == [(0, 0, True)]
    assert sim.running == 0


def test_vllm_hits_full_blocks_and_never_the_whole_prompt():
    sim = model()
    for length in (100, 100, 96, 97, 40):
        sim.submit(work(prompt(length)), now=sim.next_deadline() or run_out(sim))
        run_out(sim)
    # 100 -> 6 blocks of 16; 96 is a multiple of 16, its last block is computed again.
    assert sim.counts.prompt_tokens == 433
    assert sim.counts.cached_tokens == 0 + 96 + 80 + 96 + 32


def test_sglang_hits_by_token():
    sim = model("sglang")
    sim.submit(work(prompt(100)), now=0.0)
    run_out(sim)
    assert sim.submit(work(prompt(100)), now=9.0).cached_tokens == 99


def test_a_prefix_is_usable_only_when_its_prefill_is_done():
    sim = model(slots=3)
    sim.submit(work(prompt(100)), now=0.0)
    assert sim.submit(work(prompt(100)), now=0.05).cached_tokens == 0
    sim.advance(0.11)
    assert sim.submit(work(prompt(100)), now=0.12).cached_tokens == 96


def test_the_next_turn_finds_the_answer_cached_but_for_its_last_token():
    sim = model("sglang")
    sim.submit(Work(prompts=(prompt(100),), outputs=((7, 8, 9),)), now=0.0)
    run_out(sim)
    assert sim.submit(work((*prompt(100), 7, 8, 9, 10, 11)), now=9.0).cached_tokens == 102


def test_a_salt_is_a_cache_of_its_own():
    sim = model()
    sim.submit(work(prompt(100)), now=0.0)
    run_out(sim)
    salted = Work(prompts=(prompt(100),), outputs=((1,),), salt="team")
    assert sim.submit(salted, now=9.0).cached_tokens == 0
    run_out(sim)
    assert sim.submit(salted, now=19.0).cached_tokens == 96


def test_the_pool_evicts_the_least_recently_used_prefix_from_its_end():
    sim = model(kv_tokens=320)
    now = 0.0
    for first in (1, 2, 1, 3):
        job = sim.submit(work(prompt(112, first), out=1), now=now)
        now = run_out(sim) + 1
    # 20 blocks: prompts 1 and 3 keep their 7, prompt 2 the 6 at its start.
    job = sim.submit(work(prompt(112, 2), out=1), now=now)
    assert job.cached_tokens == 96
    run_out(sim)


def test_what_finds_no_kv_waits_even_with_a_free_slot():
    sim = model(kv_tokens=160)
    sim.submit(work(prompt(100, 1)), now=0.0)
    second = sim.submit(work(prompt(100, 2)), now=0.0)
    assert (sim.running, sim.waiting, second.was_deferred) == (1, 1, True)
    run_out(sim)
    assert second.started_at == pytest.approx(0.2)


def test_running_requests_that_share_blocks_hold_them_once():
    sim = model(kv_tokens=208)
    sim.submit(work(prompt(160), out=20), now=0.0)
    sim.advance(0.17)
    assert not sim.submit(work(prompt(161)), now=0.17).was_deferred
    assert sim.kv_usage == 1.0


def test_a_llamacpp_slot_keeps_one_prefix_and_the_one_that_shares_most_is_taken():
    sim = model("llamacpp")
    for first in (1, 2):
        sim.submit(work(prompt(100, first), out=1), now=0.0)
    run_out(sim)
    # One token more than the prompt has to be evaluated at least.
    assert sim.submit(work(prompt(100, 1)), now=9.0).cached_tokens == 99
    assert sim.slot_views()[0].slot == 0


def test_a_busy_llamacpp_slots_prefix_helps_nobody():
    sim = model("llamacpp")
    sim.submit(work(prompt(100), out=50), now=0.0)
    sim.advance(1.0)
    assert sim.submit(work(prompt(100)), now=1.0).cached_tokens == 0


def test_a_llamacpp_slot_that_shares_a_tenth_or_less_is_not_preferred():
    sim = model("llamacpp")
    sim.submit(work(prompt(100, 1), out=1), now=0.0)
    run_out(sim)
    sim.submit(work((*prompt(10, 1), *([5] * 90)), out=1), now=9.0)
    # Slot 1 was never used: it is the least recently used one.
    assert [view.slot for view in sim.slot_views()] == [1]


@pytest.mark.parametrize(("kind", "free_at"), [("vllm", 0.45), ("sglang", 0.45), ("llamacpp", 2.0)])
def test_a_cancel_in_a_prefill_frees_the_slot_when_that_kind_does(kind: str, free_at: float):
    sim = model(kind)
    job = sim.submit(work(prompt(2000)), now=0.0)
    sim.cancel(job, now=0.05)
    sim.advance(free_at - 0.01)
    assert sim.running == 1
    assert sim.advance(free_at + 0.01) == []
    assert (sim.running, sim.counts.cancelled) == (0, 1)


@pytest.mark.parametrize("kind", ["vllm", "sglang", "llamacpp"])
def test_a_cancel_in_decode_frees_the_slot_a_tenth_of_a_second_later(kind: str):
    sim = model(kind)
    job = sim.submit(work(prompt(100), out=50), now=0.0)
    sim.advance(1.0)
    sim.cancel(job, now=1.0)
    sim.advance(1.09)
    assert sim.running == 1
    assert sim.advance(1.11) == []
    assert (sim.running, sim.next_deadline()) in [(0, None), (0, pytest.approx(1.2))]


def test_a_cancel_in_the_queue_leaves_at_once_and_lets_the_next_one_pass():
    sim = model(slots=2)
    sim.submit(work(prompt(100, 1)), now=0.0)
    wide = sim.submit(work(prompt(100, 2), n=2), now=0.0)
    narrow = sim.submit(work(prompt(100, 3)), now=0.0)
    sim.cancel(wide, now=0.05)
    assert (sim.waiting, narrow.started_at) == (0, 0.05)


def test_a_cancel_of_what_has_ended_changes_nothing():
    sim = model()
    job = sim.submit(work(prompt(100)), now=0.0)
    run_out(sim)
    sim.cancel(job, now=9.0)
    assert sim.counts.cancelled == 0


@pytest.mark.parametrize("kind", ["vllm", "llamacpp"])
def test_a_slow_cancel_keeps_the_slot_for_its_time(kind: str):
    sim = model(kind)
    sim.slow_cancel_s = 3.0
    job = sim.submit(work(prompt(500)), now=0.0)
    sim.cancel(job, now=0.1)
    sim.advance(3.09)
    assert sim.running == 1
    sim.advance(3.11)
    assert sim.running == 0


def test_a_stalled_answer_stops_after_its_first_token_and_keeps_its_slot():
    sim = model()
    job = sim.submit(work(prompt(100), out=3, stall_s=5.0), now=0.0)
    assert seen(sim.advance(5.09), job) == [(0, 1, False)]
    assert sim.running == 1
    assert seen(sim.advance(5.31), job) == [(0, 2, False), (0, 3, True)]


def test_a_stall_for_good_leaves_nothing_to_wait_for():
    sim = model()
    sim.submit(work(prompt(100), stall_s=float("inf")), now=0.0)
    sim.advance(1.0)
    assert (sim.next_deadline(), sim.running) == (None, 1)


def test_a_static_batch_takes_nobody_before_its_longest_has_ended():
    sim = model(batching="static")
    first = sim.submit(work(prompt(100, 1), out=2), now=0.0)
    short = sim.submit(work(prompt(100, 2), out=1), now=0.0)
    long = sim.submit(work(prompt(100, 3), out=3), now=0.05)
    last = sim.submit(work(prompt(100, 4), out=1), now=0.05)
    assert (sim.running, sim.waiting) == (1, 3)
    # Both of the batch send their first token after 0.2 s of prefill, and each ends on its own.
    assert seen(sim.advance(0.41), short) == [(0, 1, True)]
    assert (sim.running, sim.waiting) == (1, 1)
    run_out(sim)
    assert (short.started_at, short.finished_at) == pytest.approx((0.2, 0.4))
    assert (long.started_at, long.finished_at) == pytest.approx((0.2, 0.6))
    assert (first.finished_at, last.started_at) == pytest.approx((0.2, 0.6))
    assert (sim.counts.deferred_total, sim.counts.max_running) == (3, 2)


def test_a_static_batch_ends_when_the_slot_of_a_client_that_left_is_free():
    sim = model(batching="static")
    job = sim.submit(work(prompt(100, 1), out=50), now=0.0)
    after = sim.submit(work(prompt(100, 2)), now=0.0)
    sim.cancel(job, now=1.0)
    run_out(sim)
    assert after.started_at == pytest.approx(1.1)


def test_a_static_engine_takes_what_is_wider_than_it_in_several_batches():
    sim = model(batching="static")
    job = sim.submit(work(prompt(100, 1), out=1, n=3), now=0.0)
    after = sim.submit(work(prompt(100, 2), out=1), now=0.0)
    run_out(sim)
    # The third answer runs beside `after`: 100 tokens, and 4 that no block of the first two answers holds.
    assert job.finished_at == pytest.approx(0.204)
    assert after.started_at == pytest.approx(0.1)


def test_jitter_changes_each_step_by_its_share_at_most_and_nothing_on_average():
    sim = model(jitter=0.5, seed=7)
    job = sim.submit(work(prompt(100), out=401), now=0.0)
    times = []
    while (due := sim.next_deadline()) is not None:
        times += [due] * len(sim.advance(due))
    steps_s = [after - before for before, after in zip([0.0, *times], times, strict=False)]
    assert len(steps_s) == 401
    assert 0.05 <= min(steps_s) < 0.06
    assert 0.14 < max(steps_s) <= 0.15
    assert job.finished_at == pytest.approx(40.1, rel=0.05)
    assert sim.counts.prefill_s + sim.counts.decode_s == pytest.approx(job.finished_at)


def test_the_same_seed_draws_the_same_jitter():
    ends = []
    for seed in (1, 1, 2):
        sim = model(jitter=0.2, seed=seed)
        sim.submit(work(prompt(100), out=9), now=0.0)
        ends.append(run_out(sim))
    assert ends[0] == ends[1] != ends[2]


def test_slot_views_show_the_progress_of_a_prefill():
    sim = model("llamacpp", step_prefill_tokens=100)
    sim.submit(work(prompt(300)), now=0.0)
    sim.advance(0.21)
    [view] = sim.slot_views()
    assert (view.prompt_tokens, view.processed_tokens, view.decoded_tokens) == (300, 200, 0)


def test_a_sequence_that_is_freed_within_a_step_is_not_counted_at_its_end():
    sim = model("vllm", slots=1)
    job = sim.submit(work(prompt(2000), out=9), now=0.0)
    sim.cancel(job, now=0.1)
    after = sim.submit(work(prompt(100, 2), out=1), now=0.2)
    run_out(sim)
    # Its slot came free at 0.5 s, the step it was in ended at 2 s.
    assert (after.started_at, after.finished_at) == pytest.approx((0.5, 2.1))
    assert sim.counts.generated_tokens == 1


ASKS = st.tuples(st.integers(1, 3), st.integers(1, 120), st.integers(0, 6), st.integers(1, 4), st.booleans())


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(["vllm", "sglang", "llamacpp"]),
    slots=st.integers(1, 3),
    batching=st.sampled_from(BATCHINGS),
    jitter=st.sampled_from([0.0, 0.9]),
    asks=st.lists(ASKS, max_size=12),
)
def test_whatever_is_asked_slots_are_never_exceeded_and_everything_ends(
    kind: str, slots: int, batching: str, jitter: float, asks: list[tuple[int, int, int, int, bool]]
):
    sim = model(kind, slots=slots, kv_tokens=256, batching=batching, jitter=jitter)
    jobs, now, lasts = [], 0.0, []
    for first, length, out, n, leaves in asks:
        now += 0.07
        job = sim.submit(work(prompt(length, first), out=out, n=n), now=now)
        if leaves:
            now += 0.03
            sim.cancel(job, now=now)
        jobs.append(job)
    while (due := sim.next_deadline()) is not None:
        lasts += [(event.job.id, event.choice) for event in sim.advance(due) if event.is_last]
        assert 0 <= sim.running <= slots
    assert (sim.running, sim.waiting, sim.kv_usage) == (0, 0, 0.0)
    assert sim.counts.max_running <= slots
    assert len(lasts) == len(set(lasts))
    for job in jobs:
        assert job.is_cancelled or job.finished_at is not None
        assert 0 <= job.cached_tokens < job.prompt_tokens
