"""Results for the tests of the bench's reports."""

from gateway.bench.cells import Cell, read_plan
from gateway.bench.measure import Figures
from gateway.bench.replay import Result, fingerprint

PLAN = """
cells:
  - name: small
    workload: miniswe
    half: dev
    loads: [0.5]
    engines: [{count: 2, slots: 4, kv_tokens: 100_000, prefill_tokens_per_s: 4_000}]
    warm_s: 5
    until_s: 25
"""

CELL = read_plan(PLAN)[0]


def a_result(
    policy: str,
    *,
    cell: Cell = CELL,
    seed: int = 1,
    hit_share: float = 0.5,
    ttft_p90_s: float = 1.0,
    goodput_per_s: float = 1.0,
    decision_us: float | None = None,
    dropped_sessions: int = 0,
    answered: bool = True,
) -> Result:
    return Result(
        cell=cell.name,
        fingerprint=fingerprint(cell),
        policy=policy,
        seed=seed,
        figures=Figures(
            requests=10,
            refused=0,
            undecided=0,
            hit_share=hit_share,
            best_share=0.9,
            ideal_share=0.9,
            regret_tokens_share=0.1,
            ttft_p50_s=0.5,
            ttft_p90_s=ttft_p90_s,
            ttft_p99_s=2.0,
            ttft_mean_s=0.6,
            answers_per_s=1.0,
            goodput_per_s=goodput_per_s,
            good_share=1.0,
            imbalance=1.0,
            longest_wait_s=3.0,
        )
        if answered
        else None,
        decision_us=decision_us,
        dropped_sessions=dropped_sessions,
        wall_s=0.1,
    )
