"""Rounds as an ideal endpoint would answer them; a test names only what matters to it."""

from collections.abc import Sequence
from typing import Any

from gateway.doctor.seen import Engine, Findings, Role, Round, Shape, Stream

SHAPE = Shape(prompt_tokens=512, output_tokens=33)


def a_stream(
    number: int = 0,
    *,
    sent_at: float = 0.0,
    begun_at: float = 0.0,
    took_s: float = 2.0,
    ttft_s: float | None = 0.4,
    shape: Shape = SHAPE,
    **others: Any,
) -> Stream:
    """Answered: waited from `sent_at` to `begun_at`, then took `took_s`, `ttft_s` of it to the first token.
    None: the answer came in one piece."""
    ended_at = begun_at + took_s
    first_at = None if ttft_s is None else begun_at + ttft_s
    tokens = shape.output_tokens
    return Stream(
        number=number,
        sent_at=sent_at,
        ended_at=ended_at,
        shape=shape,
        first_at=first_at,
        arrivals=() if first_at is None else _evenly(first_at, ended_at, tokens),
        tokens=tokens,
        prompt_tokens=shape.prompt_tokens,
        **others,
    )


def _evenly(first_at: float, last_at: float, count: int) -> tuple[float, ...]:
    if count < 2:
        return (last_at,) * count
    return tuple(first_at + (last_at - first_at) * at / (count - 1) for at in range(count))


def a_refused(number: int = 0, *, sent_at: float = 0.0, took_s: float = 0.01, status: int = 429) -> Stream:
    return Stream(
        number=number,
        sent_at=sent_at,
        ended_at=sent_at + took_s,
        shape=SHAPE,
        status=status,
        error="too many",
    )


def a_failed(number: int = 0, *, sent_at: float = 0.0, took_s: float = 1.0, error: str = "reset") -> Stream:
    return Stream(
        number=number, sent_at=sent_at, ended_at=sent_at + took_s, shape=SHAPE, status=0, error=error
    )


def a_capped_round(
    n: int,
    slots: int,
    took_s: float | Sequence[float] = 2.0,
    *,
    ttft_s: float | None = 0.4,
    role: Role = Role.RAMP,
    shape: Shape | Sequence[Shape] = SHAPE,
    more: Sequence[Stream] = (),
    **others: Any,
) -> Round:
    """`n` requests sent at 0 to `slots` slots, the first come first; each begins when a slot is free.

    `took_s` and `shape`: of all, or of each. `ttft_s` None: answers in one piece. `more`: others beside.
    """
    lengths = [took_s] * n if isinstance(took_s, float) else list(took_s)
    shapes = [shape] * n if isinstance(shape, Shape) else list(shape)
    free_at = [0.0] * min(slots, n)
    streams = []
    for number, (length_s, one) in enumerate(zip(lengths, shapes, strict=True)):
        slot = min(range(len(free_at)), key=free_at.__getitem__)
        begun_at = free_at[slot]
        free_at[slot] = begun_at + length_s
        streams.append(a_stream(number, begun_at=begun_at, took_s=length_s, ttft_s=ttft_s, shape=one))
    return Round(role=role, wanted=n + len(more), streams=(*streams, *more), **others)


def an_unequal_round(
    n: int, slots: int, *, token_s: float = 0.18, ttft_s: float = 0.4, streamed: bool = True, **others: Any
) -> Round:
    """Short and long ones mixed, as the doctor mixes them; each token takes `token_s`."""
    shapes = [
        Shape(SHAPE.prompt_tokens, round(SHAPE.output_tokens * (0.5, 1.5, 0.75, 1.25)[at % 4]))
        for at in range(n)
    ]
    took_s = [ttft_s + (it.output_tokens - 1) * token_s for it in shapes]
    return a_capped_round(
        n, slots, took_s, ttft_s=ttft_s if streamed else None, role=Role.UNEQUAL, shape=shapes, **others
    )


def a_paced_round(
    n: int, every_s: float, took_s: float = 1.0, *, ttft_s: float | None = None, role: Role = Role.RAMP
) -> Round:
    """`n` requests sent at 0, of which a limiter lets one through every `every_s`, whoever ends."""
    streams = [a_stream(at, begun_at=at * every_s, took_s=took_s, ttft_s=ttft_s) for at in range(n)]
    return Round(role=role, wanted=n, streams=tuple(streams))


def a_ramp(
    slots: int,
    upto: int = 16,
    *,
    alone_s: float = 0.1,
    each_s: float = 0.02,
    ttft_s: float = 0.4,
    streamed: bool = True,
) -> list[Round]:
    """1, 2, 4 ... `upto` at once; a token takes `alone_s` + `each_s` for each that runs."""
    rounds, n = [], 1
    while n <= upto:
        running = min(n, slots)
        took_s = ttft_s + (SHAPE.output_tokens - 1) * (alone_s + each_s * running)
        rounds.append(a_capped_round(n, slots, took_s, ttft_s=ttft_s if streamed else None))
        n *= 2
    return rounds


def findings(rounds: Sequence[Round], **changes: Any) -> Findings:
    values: dict[str, Any] = {
        "url": "http://127.0.0.1:8000",
        "model": "m",
        "shape": SHAPE,
        "max_concurrency": 16,
        "rounds": list(rounds),
    }
    return Findings(**values | changes)


def capped_findings(slots: int = 4, upto: int = 16, *, streamed: bool = True, **changes: Any) -> Findings:
    """An engine of so many slots, looked at as far as a verdict of slots needs."""
    unequal = an_unequal_round(3 * slots, slots, token_s=0.1 + 0.02 * slots, streamed=streamed)
    engine = Engine(kind="llamacpp", setting="-np (llama.cpp, default 4)", slots=slots)
    return findings([*a_ramp(slots, upto, streamed=streamed), unequal], **{"engine": engine} | changes)
