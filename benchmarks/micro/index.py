"""What the prefix index costs: 16 engines that hold 1 M (block, engine) pairs of agent sessions.

usage: python benchmarks/micro/index.py [--engines 16] [--pairs 1000000] [--rounds 500]

Every engine is full, so that each new block makes an old one go. The prompts are 1,300 to 1,600 blocks long,
and each engine holds another part of them. Times are CPU times of whole calls, so that other load on the
machine stays out. Memory is what the caches add to the process (RSS) and to Python's heap (tracemalloc, in a
run of its own, because tracing is slow).
"""

import argparse
import gc
import os
import random
import time
import tracemalloc
from functools import partial
from pathlib import Path

from agents import Chain, fill, fresh, line

from gateway.core.prefix import PooledCache

PROMPT_BLOCKS, NEW_BLOCKS = 1600, 32
_now = time.thread_time_ns


class Filled:
    """Caches that are full, and the next request's key."""

    def __init__(self, engines: int, pairs: int) -> None:
        self.draw = random.Random(1)  # noqa: S311
        self.key = 0
        bound = pairs // engines
        self.caches = [PooledCache(bound) for _ in range(engines)]
        for cache in self.caches:
            fill(bound, partial(self.play, cache), cache.__len__, self.draw)

    def play(self, cache: PooledCache, prompt: Chain) -> None:
        self.key += 1
        cache.begin(self.key, prompt)
        cache.confirm(self.key)
        cache.end(self.key)

    def pairs(self) -> int:
        return sum(len(cache) for cache in self.caches)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--engines", type=int, default=16)
    arguments.add_argument("--pairs", type=int, default=1_000_000)
    arguments.add_argument("--rounds", type=int, default=500)
    args = arguments.parse_args()

    gc.collect()
    before = rss()
    filled = Filled(args.engines, args.pairs)
    gc.collect()
    pairs, grown = filled.pairs(), rss() - before
    print(
        f"{pairs:,} pairs on {args.engines} engines: {grown / 1e6:.1f} MB RSS, {grown / pairs:.1f} bytes each"
    )
    for text in times(filled, args.rounds):
        print(text)
    del filled
    print(f"tracemalloc: {traced(args.engines, args.pairs) / 1e6:.1f} MB")


def times(filled: Filled, rounds: int) -> list[str]:
    caches, draw = filled.caches, filled.draw
    match, appended, finished, new, both = [], [], [], [], []
    home = caches[0]
    prompt = fresh(draw, PROMPT_BLOCKS)
    for _ in range(rounds):
        prompt += fresh(draw, NEW_BLOCKS)
        if len(prompt) > PROMPT_BLOCKS:
            prompt = fresh(draw, PROMPT_BLOCKS - 10 * NEW_BLOCKS)
            for cache in caches:
                filled.play(cache, prompt[: draw.randrange(1, len(prompt))])
            filled.play(home, prompt)
            prompt += fresh(draw, NEW_BLOCKS)
        filled.key += 1
        start = _now()
        for cache in caches:
            cache.match(prompt)
        matched = _now()
        home.begin(filled.key, prompt)
        begun = _now()
        home.confirm(filled.key)
        home.delivered(filled.key, len(prompt), len(prompt))
        home.end(filled.key)
        ended = _now()
        match.append(matched - start)
        appended.append(begun - matched)
        both.append(begun - start)
        finished.append(ended - begun)
        other = fresh(draw, PROMPT_BLOCKS)
        cache = draw.choice(caches)
        filled.key += 1
        start = _now()
        cache.begin(filled.key, other)
        new.append(_now() - start)
        cache.confirm(filled.key)
        cache.end(filled.key)
    return [
        line(f"match x {len(caches)}, up to {PROMPT_BLOCKS} blocks", match),
        line(f"begin, {NEW_BLOCKS} blocks new", appended),
        line(f"match x {len(caches)} and begin", both),
        line("confirm, delivered, end of it", finished),
        line(f"begin, all {PROMPT_BLOCKS} blocks new", new),
    ]


def rss() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def traced(engines: int, pairs: int) -> int:
    tracemalloc.start()
    filled = Filled(engines, pairs)
    gc.collect()
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert filled.pairs()
    return size


if __name__ == "__main__":
    main()
