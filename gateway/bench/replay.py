"""Plays cells with policies, several runs at once, and keeps what comes out as JSON lines.

A result is kept as soon as it is there, so that a replay that was broken off goes on where it was.
"""

import hashlib
import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import lru_cache, partial
from pathlib import Path
from random import Random
from statistics import fmean
from time import perf_counter

import msgspec
from msgspec import Struct

from gateway.bench import load, traces
from gateway.bench.arrivals import Arrivals, Bursts, ClosedLoop, OpenLoop, OpenSessions
from gateway.bench.cells import Cell
from gateway.bench.cluster import Build, play
from gateway.bench.gateway import Gateway
from gateway.bench.measure import Figures, measure
from gateway.bench.rivals import RIVALS
from gateway.bench.router import Router, Sight
from gateway.bench.workload import Workload

OWN = "gateway"
"""Our own policy's name among the rivals'."""

POLICIES: Mapping[str, Build] = {OWN: Gateway, **RIVALS}


class Run(Struct, frozen=True, kw_only=True):
    cell: Cell
    policy: str
    seed: int


class Result(Struct, frozen=True, kw_only=True):
    """What came out of one run. `figures` is None if nobody got an answer that counts; `fingerprint` is that
    of the cell as it was then; `decision_us` is the mean time of a call into our scheduler, None for rivals;
    `dropped_sessions` did not fit the cell's engines."""

    cell: str
    fingerprint: str
    policy: str
    seed: int
    figures: Figures | None
    decision_us: float | None
    dropped_sessions: int
    wall_s: float


class ReplayError(RuntimeError):
    """A cell that cannot be played; says which and why."""


class Setting(Struct, frozen=True, kw_only=True):
    """A cell made ready to be played."""

    workload: Workload
    arrivals: Arrivals
    dropped_sessions: int


def prepare(cell: Cell, data: Path) -> Setting:
    """Raises TraceError, or ReplayError if no session fits the cell's engines."""
    whole = traces.load(cell.workload, data, cell.half)
    workload = traces.fitting(whole, cell.max_prompt_tokens)
    if not workload.sessions:
        raise ReplayError(
            f"cell {cell.name}: every session of {cell.workload} has a prompt longer than"
            f" {cell.max_prompt_tokens} tokens, half of the smallest cache: raise kv_tokens"
        )
    return Setting(
        workload=workload,
        arrivals=_arrivals(cell, workload, data),
        dropped_sessions=len(whole.sessions) - len(workload.sessions),
    )


def _arrivals(cell: Cell, workload: Workload, data: Path) -> Arrivals:
    base = _base_arrivals(cell, workload, data)
    bursts = cell.bursts
    if bursts is None:
        return base
    return Bursts(
        base=base,
        every_s=bursts.every_s,
        width=bursts.width,
        prefix_tokens=bursts.prefix_tokens,
        own_tokens=bursts.own_tokens,
        output_tokens=bursts.output_tokens,
    )


def _base_arrivals(cell: Cell, workload: Workload, data: Path) -> Arrivals:
    if cell.arrivals == "open":
        return OpenLoop(speed=load.speed(cell.load, workload, cell.engines))
    if cell.arrivals == "sessions":
        return OpenSessions(
            per_s=load.sessions_per_s(cell.load, workload, cell.engines),
            gaps_s=None if cell.gaps is None else traces.azure_gaps_s(cell.gaps, data),
            think_cap_s=cell.think_cap_s,
        )
    agents = load.agents(cell.load, workload, cell.engines, think_cap_s=cell.think_cap_s)
    return ClosedLoop(agents=agents, think_cap_s=cell.think_cap_s)


# Runs come cell by cell: a process reads the traces of a cell once for all its policies.
_prepared = lru_cache(maxsize=1)(prepare)


def execute(run: Run, data: Path) -> Result:
    """Raises TraceError and ReplayError."""
    cell = run.cell
    setting = _prepared(cell, data)
    own: list[Gateway] = []
    began = perf_counter()
    done = play(
        setting.workload,
        setting.arrivals,
        cell.engines,
        partial(_own, own) if run.policy == OWN else POLICIES[run.policy],
        until_s=cell.until_s,
        warm_s=cell.warm_s,
        seed=run.seed,
    )
    wall_s = perf_counter() - began
    try:
        figures = measure(done, cell.engines, warm_s=cell.warm_s, until_s=cell.until_s)
    except ValueError:
        figures = None
    decisions_ns = [took_ns for router in own for took_ns in router.decisions_ns]
    return Result(
        cell=cell.name,
        fingerprint=fingerprint(cell),
        policy=run.policy,
        seed=run.seed,
        figures=figures,
        decision_us=fmean(decisions_ns) / 1000 if decisions_ns else None,
        dropped_sessions=setting.dropped_sessions,
        wall_s=wall_s,
    )


def _own(made: list[Gateway], sights: Sequence[Sight], block_tokens: int, random: Random) -> Router:
    made.append(Gateway(sights, block_tokens, random, timed=True))
    return made[-1]


def fingerprint(cell: Cell) -> str:
    """Tells a cell from another under the same name."""
    return hashlib.sha256(msgspec.json.encode(cell)).hexdigest()[:16]


def runs(cells: Sequence[Cell], policies: Sequence[str]) -> list[Run]:
    return [
        Run(cell=cell, policy=policy, seed=seed)
        for cell in cells
        for seed in cell.seeds
        for policy in policies
    ]


def kept(path: Path, wanted: Sequence[Run]) -> dict[Run, Result]:
    """Of the wanted runs those whose results are in the file, if there is one."""
    if not path.exists():
        return {}
    by_name = {(run.cell.name, fingerprint(run.cell), run.policy, run.seed): run for run in wanted}
    found = {}
    for line in path.read_bytes().splitlines():
        try:
            result = msgspec.json.decode(line, type=Result)
        except msgspec.DecodeError:
            continue  # The line at which an earlier replay was broken off.
        run = by_name.get((result.cell, result.fingerprint, result.policy, result.seed))
        if run is not None:
            found[run] = result
    return found


def replay(
    wanted: Sequence[Run], data: Path, *, jobs: int, out: Path | None
) -> Iterator[Result | ReplayError]:
    """Plays all of `wanted` in `jobs` processes, one result or failure each as they come, in any order.

    With `out` every result is appended to that file before it is yielded. Raises TraceError and OSError.
    """
    if out is not None:
        _make_ready(out)
    for result in _executed(wanted, data, jobs):
        if out is not None and isinstance(result, Result):
            with out.open("ab") as file:
                file.write(msgspec.json.encode(result) + b"\n")
        yield result


def _make_ready(out: Path) -> None:
    """Ends the line at which an earlier replay may have been broken off."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")


def _executed(wanted: Sequence[Run], data: Path, jobs: int) -> Iterator[Result | ReplayError]:
    if jobs == 1:
        yield from (_outcome(partial(execute, run, data)) for run in wanted)
        return
    # Not forked: the progress bar's thread runs in this process.
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = [pool.submit(execute, run, data) for run in wanted]
        try:
            for future in as_completed(futures):
                yield _outcome(future.result)
        finally:
            pool.shutdown(cancel_futures=True)


def _outcome(result: Callable[[], Result]) -> Result | ReplayError:
    try:
        return result()
    except ReplayError as error:
        return error
