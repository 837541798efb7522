"""What a load comes to, by hand."""

import pytest
from bench_values import session, turn, workload

from gateway.bench import load
from gateway.bench.workload import EngineSpec

SPEC = EngineSpec(slots=4, prefill_tokens_per_s=1000.0, decode_s=0.1)
SLOW = EngineSpec(slots=4, prefill_tokens_per_s=500.0, decode_s=0.2)

# Two blocks that all sessions share, then 3 + 2 of each play: 500, 200, 300 and 200 tokens are novel.
TURNS = (turn(5, output=3, think=10.0, at=0.0), turn(7, output=3, think=50.0, at=8.0))
WORKLOAD = workload(session(*TURNS, shared=2), session(*TURNS, shared=2))


def test_novel_is_what_a_cache_without_limit_would_compute() -> None:
    assert load.mean_novel_tokens(WORKLOAD) == 300


def test_a_recording_shares_what_its_ids_share() -> None:
    # 500, then a repeated prompt's last token, 200, and again one token.
    assert load.mean_novel_tokens(WORKLOAD, fresh=False) == (500 + 1 + 200 + 1) / 4


def test_capacity_adds_up_over_the_engines() -> None:
    # 0.3 s of prefill and 3 x 0.1 s / 4 of decode; twice that on the slow one.
    assert load.capacity_per_s(WORKLOAD, [SPEC]) == pytest.approx(1 / 0.375)
    assert load.capacity_per_s(WORKLOAD, [SPEC, SLOW]) == pytest.approx(1 / 0.375 + 1 / 0.75)


def test_agents_keep_the_slots_busy_and_think() -> None:
    # A slot time is 0.6 s, thinking takes 10 s and 20 s: 4 x (1 + 15 / 0.6).
    assert load.agents(1.0, WORKLOAD, [SPEC], think_cap_s=20.0) == 104
    assert load.agents(0.5, WORKLOAD, [SPEC, SLOW], think_cap_s=20.0) == 79
    assert load.agents(0.0001, WORKLOAD, [SPEC]) == 1


def test_sessions_start_at_the_rate_that_brings_the_load() -> None:
    assert load.sessions_per_s(0.5, WORKLOAD, [SPEC]) == pytest.approx(0.5 / 0.375 / 2)


def test_a_recording_is_sped_up_to_the_load() -> None:
    # 4 requests in 8 s of record, against 1 / (0.1755 + 0.075) a second.
    assert load.speed(0.5, WORKLOAD, [SPEC]) == pytest.approx(0.5 / 0.2505 * 8 / 4)


def test_a_workload_without_times_has_no_speed() -> None:
    with pytest.raises(ValueError, match="'w' has no recorded times"):
        load.speed(1.0, workload(session(turn(3))), [SPEC])
