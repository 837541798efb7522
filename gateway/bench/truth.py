"""How far what an index predicts is from what engines deliver, where they hold less than they declare.

Every engine's cache is half of what it declares, and the conversations that are alive need three times the
caches. Three indexes route the same workload: one that forgets nothing, as most routers ship theirs; one that
forgets what is least recently used beyond the declared size; and the product's, which learns from the cached
tokens that engines report.
"""

import multiprocessing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from random import Random
from statistics import fmean

from msgspec import Struct
from rich.table import Table

from gateway.bench import traces
from gateway.bench.arrivals import ClosedLoop
from gateway.bench.cluster import play
from gateway.bench.gateway import Gateway
from gateway.bench.router import Router, Sight
from gateway.bench.traces import Half
from gateway.bench.workload import Done, EngineSpec, Workload

INDEXES: Mapping[str, tuple[int | None, bool]] = {
    "unbounded": (10**12, False),
    "bounded": (None, False),
    "corrected": (None, True),
}
"""By name: the tokens that it takes an engine to hold (None: what that declares), and whether it learns."""

DECLARED = 2
"""What an engine declares, in multiples of what it has."""

WORKING_SET = 3.0
"""What the conversations that are alive need, in multiples of what all engines have."""

ENGINES = 2

FIRST_PART = 0.25
"""Of a run's time: caches fill, and it is learned how large they are."""


class Case(Struct, frozen=True, kw_only=True):
    """One workload and its engines: `kv_tokens` is what each of them really holds."""

    workload: str
    kv_tokens: int
    prefill_tokens_per_s: float
    until_s: float
    think_cap_s: float

    def spec(self, declared_kv_tokens: int | None) -> EngineSpec:
        return EngineSpec(
            kv_tokens=self.kv_tokens,
            declared_kv_tokens=declared_kv_tokens or DECLARED * self.kv_tokens,
            prefill_tokens_per_s=self.prefill_tokens_per_s,
        )


def _case(workload: str, kv_tokens: int, rate: float, until_s: float, think_cap_s: float) -> Case:
    return Case(
        workload=workload,
        kv_tokens=kv_tokens,
        prefill_tokens_per_s=rate,
        until_s=until_s,
        think_cap_s=think_cap_s,
    )


CASES = (
    _case("claude_code", 1_000_000, 10_000, 2400, 30),
    _case("miniswe", 40_000, 4_000, 1200, 20),
    _case("magagent", 40_000, 4_000, 1200, 20),
    _case("mooncake_conversation", 500_000, 20_000, 1200, 30),
)


class Part(Struct, frozen=True, kw_only=True):
    """Sums over requests, in tokens; `off` of the distances between predicted and delivered."""

    requests: int
    prompt: int
    predicted: int
    delivered: int
    off: int

    @property
    def difference_points(self) -> float:
        """Predicted less delivered, in points of the prompt tokens."""
        return 100 * (self.predicted - self.delivered) / self.prompt

    @property
    def predicted_percent(self) -> float:
        return 100 * self.predicted / self.prompt

    @property
    def delivered_percent(self) -> float:
        return 100 * self.delivered / self.prompt

    @property
    def off_percent(self) -> float:
        return 100 * self.off / self.prompt


class Truth(Struct, frozen=True, kw_only=True):
    """One run: the requests that began in its first part, and the others."""

    workload: str
    index: str
    seed: int
    first: Part
    rest: Part


def run(case: Case, index: str, seed: int, data: Path, half: Half) -> Truth:
    """Raises TraceError."""
    workload = traces.fitting(traces.load(case.workload, data, half), case.kv_tokens // 2)
    bound_tokens, learns = INDEXES[index]
    made: list[Gateway] = []
    done = play(
        workload,
        ClosedLoop(agents=agents(case, workload), think_cap_s=case.think_cap_s),
        [case.spec(bound_tokens)] * ENGINES,
        partial(_make, made, learns),
        until_s=case.until_s,
        seed=seed,
    )
    began = [it for it in done if it.started_s is not None and it.first_token_s is not None]
    split_s = FIRST_PART * case.until_s
    predicted = made[0].predicted_tokens
    return Truth(
        workload=case.workload,
        index=index,
        seed=seed,
        first=part([it for it in began if (it.started_s or 0.0) < split_s], predicted),
        rest=part([it for it in began if (it.started_s or 0.0) >= split_s], predicted),
    )


def _make(
    made: list[Gateway], learns: bool, sights: Sequence[Sight], block_tokens: int, random: Random
) -> Router:
    made.append(Gateway(sights, block_tokens, random, learns=learns))
    return made[-1]


def agents(case: Case, workload: Workload) -> int:
    """So many that their prompts, of the mean length, are the working set."""
    prompt_tokens = fmean(turn.prompt_tokens for session in workload.sessions for turn in session.turns)
    return max(1, round(WORKING_SET * ENGINES * case.kv_tokens / prompt_tokens))


def part(done: Iterable[Done], predicted: Mapping[int, int]) -> Part:
    sums = [(it.ask.prompt_tokens, predicted[it.ask.key], it.cached_tokens) for it in done]
    return Part(
        requests=len(sums),
        prompt=sum(prompt for prompt, _, _ in sums),
        predicted=sum(expected for _, expected, _ in sums),
        delivered=sum(got for _, _, got in sums),
        off=sum(abs(expected - got) for _, expected, got in sums),
    )


def play_all(cases: Sequence[Case], seeds: int, data: Path, half: Half, *, jobs: int) -> Iterator[Truth]:
    """Every case with every index and seed, in `jobs` processes, as they come. Raises TraceError."""
    wanted = [(case, index, seed) for case in cases for index in INDEXES for seed in range(1, seeds + 1)]
    if jobs == 1:
        yield from (run(*it, data, half) for it in wanted)
        return
    # Not forked: the progress bar's thread runs in this process.
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = [pool.submit(run, *it, data, half) for it in wanted]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def joined(parts: Sequence[Part]) -> Part:
    return Part(**{field: sum(getattr(it, field) for it in parts) for field in Part.__struct_fields__})


def rows(truths: Sequence[Truth]) -> list[list[str]]:
    """A row for each workload and index, over all seeds."""
    out = []
    for workload, index in sorted({(it.workload, it.index) for it in truths}, key=_place):
        mine = [it for it in truths if (it.workload, it.index) == (workload, index)]
        first, rest = joined([it.first for it in mine]), joined([it.rest for it in mine])
        worst = max((it.rest.difference_points for it in mine), key=abs)
        out.append(
            [
                workload,
                index,
                f"{rest.predicted_percent:.1f}",
                f"{rest.delivered_percent:.1f}",
                f"{rest.difference_points:+.1f}",
                f"{worst:+.1f}",
                f"{rest.off_percent:.1f}",
                f"{first.difference_points:+.1f}",
                f"{rest.requests}",
            ]
        )
    return out


HEADS = (
    "workload",
    "index",
    "predicted %",
    "delivered %",
    "points",
    "worst seed",
    "mean error %",
    "first quarter",
    "requests",
)
"""Tokens in percent of the prompts', after the first quarter of the time; of that only the points between
predicted and delivered."""


def table(truths: Sequence[Truth]) -> Table:
    out = Table()
    for place, head in enumerate(HEADS):
        is_name = place < 2
        out.add_column(head, justify="left" if is_name else "right", no_wrap=is_name)
    for row in rows(truths):
        out.add_row(*row)
    return out


def markdown(truths: Sequence[Truth]) -> str:
    lines = [HEADS, ("---",) * len(HEADS), *rows(truths)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _place(of: tuple[str, str]) -> tuple[int, int]:
    workload, index = of
    return [case.workload for case in CASES].index(workload), list(INDEXES).index(index)
