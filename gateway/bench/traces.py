"""Public traces as workloads: Claude Code and other agents' sessions, Mooncake's requests, Azure's arrivals.

Files, sources, licences and encodings: `benchmarks/data/README.md`. Every workload comes whole or as one of
two halves: policies are developed on the sessions of one and decided on those of the other.
"""

import gzip
import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from gateway.bench.workload import Session, Turn, Workload

Half = Literal["dev", "held", "all"]
Sessions = Mapping[str, Sequence[Turn]]

# Fewer turns or longer prompts than a cluster of this size is bought for say nothing about routing.
CLAUDE_CODE_MIN_TURNS = 5
CLAUDE_CODE_MAX_PROMPT_TOKENS = 200_000
# The source's blocks are of 64 tokens; four to one keep a 100k prompt at 400 ids.
CLAUDE_CODE_BLOCK_TOKENS = 256
_SOURCE_BLOCK_TOKENS = 64
# Above any id of a session that a replay numbers anew, see `Session.shared_blocks`.
_SHARED_IDS = 1 << 56
_SHARED_IDS_EACH = 1 << 12

MOONCAKE_BLOCK_TOKENS = 512
AGENT_BLOCK_TOKENS = 64
# miniswe and magagent are text: 4 characters a token is the usual rule of thumb, no tokenizer was used.
_CHARS_PER_TOKEN = 4
_AGENT_BLOCK_CHARS = AGENT_BLOCK_TOKENS * _CHARS_PER_TOKEN

# Where only the requests' times were recorded: what an answer is taken to have lasted, for the think time.
_GUESSED_S_PER_OUTPUT_TOKEN = 0.02
_LEAST_THINK_S = 0.5


class TraceError(ValueError):
    """A trace that is not there, or a name that is none; says which and where."""


class _MooncakeRow(Struct):
    timestamp: int
    input_length: int
    output_length: int
    hash_ids: list[int]
    session: int | None = None


class _DeltaRow(Struct):
    s: str
    ts: int
    keep: int
    add: str
    out: str


class _ClaudeCodeRow(Struct):
    id: str
    tool: int
    req: list[Any]


def half_of(session_id: str) -> Half:
    """The half a session belongs to, the same on every machine: of the SHA-256 of its id the last bit."""
    return "held" if hashlib.sha256(session_id.encode()).digest()[-1] & 1 else "dev"


def load(name: str, data: Path, half: Half = "all") -> Workload:
    """The workload `name` of `WORKLOADS` from the files below `data`. Raises TraceError."""
    if name not in WORKLOADS:
        raise TraceError(f"workload {name!r} is unknown; one of {', '.join(WORKLOADS)}")
    return WORKLOADS[name](data, half)


def fitting(workload: Workload, max_prompt_tokens: int) -> Workload:
    """The workload without the sessions that have a longer prompt."""
    kept = tuple(
        session
        for session in workload.sessions
        if all(turn.prompt_tokens <= max_prompt_tokens for turn in session.turns)
    )
    return Workload(name=workload.name, block_tokens=workload.block_tokens, sessions=kept)


def claude_code(data: Path, half: Half = "all") -> Workload:
    """Recorded Claude Code sessions without their sub-agents; `at_s` counts from each session's start.

    The source numbers blocks per session. Those wholly inside the tool definitions, which come first, are
    taken to be shared by all sessions whose definitions are equally large.
    """
    sessions = []
    for line in _lines(data / "kv-cache-tester" / "cc_sessions.jsonl.gz"):
        row = msgspec.json.decode(line, type=_ClaudeCodeRow)
        if half not in ("all", half_of(row.id)):
            continue
        requests = [request for request in row.req if isinstance(request, list)]
        if len(requests) < CLAUDE_CODE_MIN_TURNS:
            continue
        if max(request[3] for request in requests) <= CLAUDE_CODE_MAX_PROMPT_TOKENS:
            sessions.append(_claude_code_session(row.tool, requests))
    return Workload(
        name="claude_code",
        block_tokens=CLAUDE_CODE_BLOCK_TOKENS,
        sessions=_some(sessions, "claude_code", half),
    )


def _claude_code_session(tool_tokens: int, requests: list[list[Any]]) -> Session:
    # One int object per id, however many of the session's prompts hold it: they are 400 of 256 tokens each.
    ids = list(range(1 + max(s + n for request in requests for s, n in _pairs(request[6]))))
    chains = [_coarse(request[6], ids)[: request[3] // CLAUDE_CODE_BLOCK_TOKENS] for request in requests]
    shared = min(tool_tokens // CLAUDE_CODE_BLOCK_TOKENS, *map(len, chains))
    first = _SHARED_IDS + tool_tokens * _SHARED_IDS_EACH
    tools = list(range(first, first + shared))
    turns = tuple(
        Turn(
            prompt_tokens=prompt,
            output_tokens=max(1, output),
            blocks=tuple(tools + chain[shared:]),
            think_s=think_s,
            at_s=at_s,
        )
        for (at_s, think_s, _, prompt, output, *_), chain in zip(requests, chains, strict=True)
    )
    return Session(turns=turns, shared_blocks=shared)


def _pairs(runs: list[int]) -> Iterator[tuple[int, int]]:
    return zip(runs[::2], runs[1::2], strict=True)


def _coarse(runs: list[int], ids: list[int]) -> list[int]:
    """Of runs `start, count, ...` of consecutive small blocks those with which a large one ends."""
    step = CLAUDE_CODE_BLOCK_TOKENS // _SOURCE_BLOCK_TOKENS
    chain: list[int] = []
    blocks = 0
    for start, count in _pairs(runs):
        chain += ids[start + (-blocks - 1) % step : start + count : step]
        blocks += count
    return chain


def mooncake_conversation(data: Path, half: Half = "all") -> Workload:
    """An hour of chat requests with the times they came at; for one half of the sessions half the rate."""
    path = data / "mooncake" / "conversation_trace.jsonl.gz"
    return _chained("mooncake_conversation", MOONCAKE_BLOCK_TOKENS, _mooncake_rows(path), half)


def mooncake_synthetic(data: Path, half: Half = "all") -> Workload:
    """Mooncake's composed trace: much is shared between sessions."""
    path = data / "mooncake" / "synthetic_trace.jsonl.gz"
    return _chained("mooncake_synthetic", MOONCAKE_BLOCK_TOKENS, _mooncake_rows(path), half)


def magagent(data: Path, half: Half = "all") -> Workload:
    """Sessions in which several agents with prompts of their own take turns; 25 only."""
    path = data / "lmcache-agent-trace" / "magagent.hash64.jsonl.gz"
    return _chained("magagent", AGENT_BLOCK_TOKENS, _mooncake_rows(path, AGENT_BLOCK_TOKENS), half)


def _mooncake_rows(path: Path, block_tokens: int = MOONCAKE_BLOCK_TOKENS) -> Sessions:
    """Sessions are as recorded, or derived: a request continues the one whose latest request's last full
    block (not the very first block, which all share) is the deepest that it extends."""
    sessions: dict[str, list[Turn]] = {}
    ends: dict[int, str] = {}
    rows = [msgspec.json.decode(line, type=_MooncakeRow) for line in _lines(path)]
    for number, row in enumerate(sorted(rows, key=lambda row: row.timestamp)):
        blocks = tuple(row.hash_ids[: row.input_length // block_tokens])
        if row.session is not None:
            session = str(row.session)
        else:
            session = next((ends[b] for b in reversed(blocks[1:]) if b in ends), str(number))
        if len(blocks) > 1:
            ends[blocks[-1]] = session
        turn = Turn(
            prompt_tokens=row.input_length,
            output_tokens=max(1, row.output_length),
            blocks=blocks,
            at_s=row.timestamp / 1000,
        )
        sessions.setdefault(session, []).append(turn)
    return sessions


def miniswe(data: Path, half: Half = "all") -> Workload:
    """Mini-SWE-agent sessions from their text, blocks of 256 characters taken for 64 tokens; 20 only."""
    texts: dict[str, str] = {}
    chains: dict[tuple[int, str], int] = {}
    sessions: dict[str, list[Turn]] = defaultdict(list)
    for line in _lines(data / "lmcache-agent-trace" / "miniswe.delta.jsonl.gz"):
        row = msgspec.json.decode(line, type=_DeltaRow)
        text = texts[row.s] = texts.get(row.s, "")[: row.keep] + row.add
        turn = Turn(
            prompt_tokens=max(1, len(text) // _CHARS_PER_TOKEN),
            output_tokens=max(1, len(row.out) // _CHARS_PER_TOKEN),
            blocks=tuple(_text_blocks(text, chains)),
            at_s=row.ts / 1e6,
        )
        sessions[row.s].append(turn)
    return _chained("miniswe", AGENT_BLOCK_TOKENS, sessions, half)


def _text_blocks(text: str, chains: dict[tuple[int, str], int]) -> Iterator[int]:
    parent = -1
    for start in range(0, len(text) - _AGENT_BLOCK_CHARS + 1, _AGENT_BLOCK_CHARS):
        parent = chains.setdefault((parent, text[start : start + _AGENT_BLOCK_CHARS]), len(chains))
        yield parent


def _chained(name: str, block_tokens: int, sessions: Sessions, half: Half) -> Workload:
    """A workload whose ids are one space over all sessions: what several of them hold is shared."""
    start_s = min(turn.at_s for turns in sessions.values() for turn in turns)
    holders = Counter(b for turns in sessions.values() for b in {b for turn in turns for b in turn.blocks})
    chosen = [
        Session(
            turns=tuple(_with_think(turns, start_s)),
            shared_blocks=min(_leading(turn.blocks, holders) for turn in turns),
        )
        for session_id, turns in sessions.items()
        if half in ("all", half_of(session_id))
    ]
    return Workload(name=name, block_tokens=block_tokens, sessions=_some(chosen, name, half))


def _leading(blocks: Sequence[int], holders: Mapping[int, int]) -> int:
    return next((at for at, block in enumerate(blocks) if holders[block] < 2), len(blocks))


def _with_think(turns: Sequence[Turn], start_s: float) -> Iterator[Turn]:
    before: Turn | None = None
    for turn in turns:
        think_s = 0.0
        if before is not None:
            answer_s = before.output_tokens * _GUESSED_S_PER_OUTPUT_TOKEN
            think_s = max(_LEAST_THINK_S, turn.at_s - before.at_s - answer_s)
        yield msgspec.structs.replace(turn, think_s=think_s, at_s=turn.at_s - start_s)
        before = turn


def azure_gaps_s(name: Literal["code", "conv"], data: Path) -> tuple[float, ...]:
    """Seconds between the arrivals of an hour of Azure's requests, which are bursty. Raises TraceError."""
    path = data / "azure" / f"AzureLLMInferenceTrace_{name}.csv.gz"
    # The last of the seven decimals is beyond what datetime holds.
    times = [datetime.fromisoformat(line.split(b",")[0].decode()[:26]) for line in _lines(path)[1:]]
    return tuple((after - before).total_seconds() for before, after in pairwise(times))


def _lines(path: Path) -> list[bytes]:
    try:
        with gzip.open(path) as file:
            return file.read().splitlines()
    except (OSError, EOFError) as error:
        raise TraceError(f"cannot read trace {path}: {error}; see benchmarks/data/README.md") from error


def _some(sessions: Sequence[Session], name: str, half: Half) -> tuple[Session, ...]:
    if not sessions:
        raise TraceError(f"workload {name!r} has no session in half {half!r}")
    return tuple(sessions)


WORKLOADS: Mapping[str, Callable[[Path, Half], Workload]] = {
    "claude_code": claude_code,
    "mooncake_conversation": mooncake_conversation,
    "mooncake_synthetic": mooncake_synthetic,
    "miniswe": miniswe,
    "magagent": magagent,
}
