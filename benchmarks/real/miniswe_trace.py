"""What is played: the sessions of the miniswe trace, cut to the benchmark's size."""

import gzip
import itertools
import json
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

CHARS_PER_TOKEN = 4
"""The trace holds text, no token counts; four characters a token, as its own statistics assume."""


class Cut(Struct, frozen=True, kw_only=True):
    """How much of the trace is played; the defaults are the size that earlier figures were taken at.

    `prompt_chars` keeps the head of a longer prompt, so a session that reached it goes on with equal prompts.
    `think_s` bounds the pause before a turn, `start_gap_s` lies between the starts of two sessions.
    """

    sessions: int = 20
    turns: int = 10
    prompt_chars: int = 36_000
    output_tokens: int = 32
    think_s: float = 2.0
    start_gap_s: float = 1.0


class Turn(Struct, frozen=True, kw_only=True):
    """One request. `think_s` passes between the answer before and this one."""

    prompt: str
    output_tokens: int
    think_s: float


class Session(Struct, frozen=True, kw_only=True):
    turns: tuple[Turn, ...]
    start_s: float


def load(path: Path, cut: Cut) -> tuple[Session, ...]:
    """Raises ValueError for a file that is no delta-encoded miniswe trace, OSError if it cannot be read."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as lines:
        return sessions(lines, cut)


def sessions(lines: Iterable[str], cut: Cut) -> tuple[Session, ...]:
    """Sessions in the order in which the trace starts them, their turns by recorded time.

    A line is `{s, ts, keep, add, out}`: the prompt is the first `keep` characters of the prompt on the
    session's line before, and `add`; `ts` is in microseconds, `out` the answer's text. Lines are not in
    the order of their times.
    """
    recorded: dict[str, list[tuple[float, str, int]]] = {}
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            turns = recorded.setdefault(row["s"], [])
            before = turns[-1][1] if turns else ""
            turns.append((row["ts"] / 1e6, before[: row["keep"]] + row["add"], len(row["out"])))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"line {number} is no line of the miniswe trace: {error!r}") from None
    if len(recorded) < cut.sessions:
        raise ValueError(f"{cut.sessions} sessions are to be played, the trace has {len(recorded)}")
    by_start = sorted((sorted(turns, key=lambda turn: turn[0]) for turns in recorded.values()), key=_started)
    return tuple(
        Session(turns=_cut(turns, cut), start_s=index * cut.start_gap_s)
        for index, turns in enumerate(by_start[: cut.sessions])
    )


def _started(turns: list[tuple[float, str, int]]) -> float:
    return turns[0][0]


def _cut(turns: list[tuple[float, str, int]], cut: Cut) -> tuple[Turn, ...]:
    gaps = [0.0] + [after[0] - before[0] for before, after in itertools.pairwise(turns)]
    return tuple(
        Turn(
            prompt=prompt[: cut.prompt_chars],
            output_tokens=min(max(1, chars // CHARS_PER_TOKEN), cut.output_tokens),
            think_s=min(gap_s, cut.think_s),
        )
        for gap_s, (_, prompt, chars) in list(zip(gaps, turns, strict=True))[: cut.turns]
    )
