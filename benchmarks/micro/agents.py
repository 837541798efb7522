"""Prompts of agent sessions as chains of block hashes, and a cache's worth of them."""

import random
from collections.abc import Callable, Iterator

BLOCK_BYTES = 256
HEADS, HEAD_BLOCKS = 4, 40
"""Tool definitions and system prompts that the sessions of a fleet share: about 2,500 tokens each."""

Chain = tuple[int, ...]


def fresh(draw: random.Random, count: int) -> Chain:
    return tuple(draw.getrandbits(64) for _ in range(count))


def heads(draw: random.Random) -> list[Chain]:
    return [fresh(draw, HEAD_BLOCKS) for _ in range(HEADS)]


def turns(draw: random.Random, head: Chain, longest: int = 1600) -> Iterator[Chain]:
    """A session: its prompt grows by 8 to 64 blocks (500 to 4,000 tokens) a turn."""
    prompt = head + fresh(draw, 60)
    end = draw.randint(100, longest)
    while len(prompt) < end:
        yield prompt
        prompt += fresh(draw, min(draw.randint(8, 64), end - len(prompt)))
    yield prompt


def fill(pairs: int, play: Callable[[Chain], None], held: Callable[[], int], draw: random.Random) -> None:
    """Play sessions, eight of them interleaved, until `held` says that `pairs` blocks are there."""
    shared = heads(draw)
    open_sessions = [turns(draw, draw.choice(shared)) for _ in range(8)]
    while held() < pairs:
        at = draw.randrange(8)
        prompt = next(open_sessions[at], None)
        if prompt is None:
            open_sessions[at] = turns(draw, draw.choice(shared))
        else:
            play(prompt)


def line(what: str, ns: list[int]) -> str:
    ns = sorted(ns)
    p50, p99 = ns[len(ns) // 2] / 1000, ns[min(len(ns) - 1, len(ns) * 99 // 100)] / 1000
    return f"{what:<58} p50 {p50:8.1f} us   p99 {p99:8.1f} us   max {ns[-1] / 1000:8.1f} us   n {len(ns)}"
