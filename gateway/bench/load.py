"""From a load to a number of agents, a rate or a speed.

Load 1.0 is what the cluster could answer if nothing were computed twice: an engine's capacity is then

    1 / mean(novel tokens / prefill rate + output tokens x decode step / slots)   requests a second

with `novel` what a single cache without limit would have to compute of a prompt.
"""

from collections.abc import Iterator, Sequence
from statistics import fmean

from gateway.bench.arrivals import Player
from gateway.bench.engine import matched_blocks
from gateway.bench.workload import EngineSpec, Turn, Workload


def mean_novel_tokens(workload: Workload, *, fresh: bool = True) -> float:
    """Mean over all requests. `fresh`: every session is played once as a new one; else all turns in the
    order of the recording, with what sessions have in common there."""
    seen: set[int] = set()
    novel = 0
    count = 0
    for prompt_tokens, blocks in _prompts(workload, fresh):
        matched = matched_blocks(blocks, seen)
        seen.update(blocks[matched:])
        novel += prompt_tokens - min(matched * workload.block_tokens, prompt_tokens - 1)
        count += 1
    return novel / count


def capacity_per_s(workload: Workload, specs: Sequence[EngineSpec], *, fresh: bool = True) -> float:
    """Requests a second that all engines together can answer if nothing is computed twice."""
    novel = mean_novel_tokens(workload, fresh=fresh)
    outputs = fmean(turn.output_tokens for turn in _turns(workload))
    return sum(
        1 / (novel / spec.prefill_tokens_per_s + outputs * spec.decode_s / spec.slots) for spec in specs
    )


def agents(load: float, workload: Workload, specs: Sequence[EngineSpec], *, think_cap_s: float = 30.0) -> int:
    """Agents of a closed loop that keep `load` of all slots busy if nothing queues: each slot has one more
    agent for every slot time that it thinks. A slot time is novel / prefill rate + output x decode step."""
    novel = mean_novel_tokens(workload)
    outputs = fmean(turn.output_tokens for turn in _turns(workload))
    think_s = fmean(min(turn.think_s, think_cap_s) for turn in _turns(workload))
    wanted = sum(
        spec.slots * (1 + think_s / (novel / spec.prefill_tokens_per_s + outputs * spec.decode_s))
        for spec in specs
    )
    return max(1, round(load * wanted))


def sessions_per_s(load: float, workload: Workload, specs: Sequence[EngineSpec]) -> float:
    """Rate of `OpenSessions`: `load` times the capacity, in sessions of the mean number of turns."""
    turns = sum(1 for _ in _turns(workload))
    return load * capacity_per_s(workload, specs) * len(workload.sessions) / turns


def speed(load: float, workload: Workload, specs: Sequence[EngineSpec]) -> float:
    """Speed of `OpenLoop` at which the recording's mean rate is `load` times the capacity."""
    turns = list(_turns(workload))
    span_s = max(turn.at_s for turn in turns)
    if span_s <= 0:
        raise ValueError(f"workload {workload.name!r} has no recorded times: play it closed or by sessions")
    return load * capacity_per_s(workload, specs, fresh=False) * span_s / len(turns)


def _turns(workload: Workload) -> Iterator[Turn]:
    return (turn for session in workload.sessions for turn in session.turns)


def _prompts(workload: Workload, fresh: bool) -> Iterator[tuple[int, tuple[int, ...]]]:
    if not fresh:
        for turn in sorted(_turns(workload), key=lambda it: it.at_s):
            yield turn.prompt_tokens, turn.blocks
        return
    for number, session in enumerate(workload.sessions, start=1):
        player = Player(session, number)
        for _ in session.turns:
            ask = player.ask(0, 0.0)
            yield ask.prompt_tokens, ask.blocks
            player.step()
