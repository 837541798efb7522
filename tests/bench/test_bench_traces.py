"""Traces as workloads: tiny ones by hand, and the real ones that come with the repository."""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gateway.bench import traces
from gateway.bench.traces import TraceError
from gateway.bench.workload import Session, Turn, Workload

DATA = Path(__file__).parent.parent.parent / "benchmarks" / "data"
CLAUDE_CODE = "kv-cache-tester/cc_sessions.jsonl.gz"
CONVERSATION = "mooncake/conversation_trace.jsonl.gz"
MINISWE = "lmcache-agent-trace/miniswe.delta.jsonl.gz"


def write(data: Path, name: str, *rows: dict[str, Any]) -> None:
    path = data / name
    path.parent.mkdir(parents=True)
    path.write_bytes(gzip.compress("\n".join(json.dumps(row) for row in rows).encode()))


def recorded(id: str, tool: int, *requests: list[Any] | dict[str, Any]) -> dict[str, Any]:
    return {"id": id, "model": "m", "tool": tool, "sys": 0, "req": list(requests)}


def asked(at: float, prompt: int, *runs: int, think: float = 0.0, output: int = 7) -> list[Any]:
    return [at, think, 1.0, prompt, output, "t", list(runs)]


def chat(ms: int, prompt: int, *ids: int, output: int = 100) -> dict[str, Any]:
    return {"timestamp": ms, "input_length": prompt, "output_length": output, "hash_ids": list(ids)}


def sizes(workload: Workload) -> Counter[tuple[int, ...]]:
    return Counter(tuple(turn.prompt_tokens for turn in session.turns) for session in workload.sessions)


def test_claude_code_takes_every_fourth_block_and_shares_tool_definitions(tmp_path: Path) -> None:
    # 64-token ids 1 to 16 are four blocks of 256; 700 tokens of tool definitions fill two of them.
    five = [asked(2.0 * n, 1100, 1, 16, think=1.5) for n in range(4)]
    forked = asked(9.0, 1100, 1, 10, 101, 6)
    write(tmp_path, CLAUDE_CODE, recorded("a", 700, *five, forked), recorded("b", 700, *five, forked))

    a, b = traces.claude_code(tmp_path).sessions

    tools = a.turns[0].blocks[:2]
    assert a.shared_blocks == 2
    assert [turn.blocks for turn in a.turns] == [(*tools, 12, 16)] * 4 + [(*tools, 102, 106)]
    assert min(tools) > 1 << 50
    assert b == a
    assert (a.turns[1].think_s, a.turns[1].at_s, a.turns[1].output_tokens) == (1.5, 2.0, 7)


def test_claude_code_shares_nothing_with_other_tools(tmp_path: Path) -> None:
    five = [asked(0.0, 520, 1, 8)] * 5
    write(tmp_path, CLAUDE_CODE, recorded("a", 600, *five), recorded("b", 601, *five))

    a, b = traces.claude_code(tmp_path).sessions

    assert not set(a.turns[0].blocks[:2]) & set(b.turns[0].blocks[:2])


def test_claude_code_leaves_out_sub_agents_and_short_and_huge_sessions(tmp_path: Path) -> None:
    five = [asked(0.0, 256, 1, 4)] * 5
    sub_agent = {"sub": 1, "t": 0, "tool": 0, "sys": 0, "model": "m", "req": five}
    write(
        tmp_path,
        CLAUDE_CODE,
        recorded("four and a sub-agent", 0, *five[1:], sub_agent),
        recorded("huge", 0, *five[1:], asked(0.0, 200_001, 1, 4)),
        recorded("kept", 0, *five, sub_agent),
    )

    (kept,) = traces.claude_code(tmp_path).sessions

    assert len(kept.turns) == 5


def test_mooncake_sessions_are_derived_from_what_requests_extend(tmp_path: Path) -> None:
    write(
        tmp_path,
        CONVERSATION,
        chat(0, 1100, 0, 1, 2),
        chat(1000, 1024, 0, 7),
        chat(9000, 2100, 0, 1, 3, 4, 5),
        chat(12_000, 600, 0, 9),
    )

    first, second, third = traces.mooncake_conversation(tmp_path).sessions

    # The last block of 1,100 and of 2,100 tokens is not full. All share the first, the first session also 1.
    assert [turn.blocks for turn in first.turns] == [(0, 1), (0, 1, 3, 4)]
    assert [turn.at_s for turn in first.turns] == [0.0, 9.0]
    # 100 tokens are guessed to have taken 2 s.
    assert [turn.think_s for turn in first.turns] == [0.0, 7.0]
    assert [turn.blocks for turn in second.turns] == [(0, 7)]
    assert [turn.blocks for turn in third.turns] == [(0,)]
    assert [session.shared_blocks for session in (first, second, third)] == [1, 1, 1]


def test_requests_that_came_before_the_guessed_end_think_for_a_moment(tmp_path: Path) -> None:
    write(tmp_path, CONVERSATION, chat(0, 1024, 0, 1), chat(1500, 1536, 0, 1, 2))

    (session,) = traces.mooncake_conversation(tmp_path).sessions

    assert session.turns[1].think_s == 0.5


def test_miniswe_blocks_are_chained_and_times_count_from_the_first(tmp_path: Path) -> None:
    text = "x" * 256 + "y" * 256
    write(
        tmp_path,
        MINISWE,
        {"s": "a", "ts": 5_000_000, "keep": 0, "add": text, "out": "z" * 400},
        {"s": "b", "ts": 6_000_000, "keep": 0, "add": "y" * 256 + "y" * 255, "out": ""},
        {"s": "a", "ts": 9_000_000, "keep": 256, "add": "x" * 256, "out": "z"},
    )

    a, b = traces.miniswe(tmp_path).sessions

    assert [turn.blocks for turn in a.turns] == [(0, 1), (0, 3)]
    assert [turn.blocks for turn in b.turns] == [(2,)]
    assert [(turn.prompt_tokens, turn.output_tokens) for turn in a.turns] == [(128, 100), (128, 1)]
    assert [(turn.at_s, turn.think_s) for turn in a.turns] == [(0.0, 0.0), (4.0, 2.0)]
    assert b.turns[0].output_tokens == 1


def test_azure_gaps_are_seconds_between_arrivals(tmp_path: Path) -> None:
    path = tmp_path / "azure" / "AzureLLMInferenceTrace_code.csv.gz"
    path.parent.mkdir()
    times = ["2023-11-16 23:59:59.9799600", "2023-11-17 00:00:00.4799600", "2023-11-17 00:00:02.4799600"]
    path.write_bytes(gzip.compress("\r\n".join(["TIMESTAMP,A,B", *(f"{it},1,2" for it in times)]).encode()))

    assert traces.azure_gaps_s("code", tmp_path) == (0.5, 2.0)


def test_sessions_that_do_not_fit_are_left_out() -> None:
    short, long = (Session(turns=(Turn(prompt_tokens=n, output_tokens=1, blocks=()),)) for n in (1000, 1001))
    workload = Workload(name="w", block_tokens=64, sessions=(short, long))

    assert traces.fitting(workload, 1000).sessions == (short,)


def test_a_half_is_known_by_the_sessions_id() -> None:
    # `echo -n a | sha256sum` ends in bb, an odd number, that of e in ea.
    assert [traces.half_of("a"), traces.half_of("e")] == ["held", "dev"]


@pytest.mark.parametrize("name", traces.WORKLOADS)
def test_the_halves_of_a_trace_are_two_parts_of_it(name: str) -> None:
    whole, dev, held = (sizes(traces.load(name, DATA, half)) for half in ("all", "dev", "held"))

    assert dev + held == whole
    assert 0.25 * whole.total() < dev.total() < 0.75 * whole.total()


@pytest.mark.parametrize("name", traces.WORKLOADS)
def test_real_prompts_are_chains_of_full_blocks(name: str) -> None:
    workload = traces.load(name, DATA, "dev")

    for session in workload.sessions[:100]:
        parents: dict[int, int | None] = {}
        for turn in session.turns:
            assert len(turn.blocks) == turn.prompt_tokens // workload.block_tokens
            assert len(set(turn.blocks)) == len(turn.blocks) >= session.shared_blocks
            for parent, block in zip((None, *turn.blocks), turn.blocks, strict=False):
                assert parents.setdefault(block, parent) == parent


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"workload 'chat' is unknown; one of claude_code, mooncake"):
        traces.load("chat", tmp_path)
    with pytest.raises(TraceError, match=r"cannot read trace .*miniswe\.delta\.jsonl\.gz: "):
        traces.load("miniswe", tmp_path)
    with pytest.raises(TraceError, match=r"cannot read trace .*Trace_conv\.csv\.gz"):
        traces.azure_gaps_s("conv", tmp_path)


def test_a_half_without_sessions_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, CLAUDE_CODE, recorded("a", 0, *[asked(0.0, 256, 1, 4)] * 5))

    with pytest.raises(TraceError, match="workload 'claude_code' has no session in half 'dev'"):
        traces.claude_code(tmp_path, "dev")
