"""What a decision costs: `Scheduler.offer` and `finish` with full prefix indexes and long prompts.

usage: python benchmarks/micro/scheduler.py [--pairs 1000000] [--rounds 300] [--only 16|1000]

16 engines of 8 slots that hold 1 M (block, engine) pairs together, prompts of 1,300 to 1,600 blocks that are
turns of conversations they hold: with an empty queue, then with 64 and with 512 requests waiting all the
time. Then 1,000 engines of one slot, with an empty queue and with 64 waiting. Each answer teaches a rate, so
that what an unknown engine is taken for changes all the time. Times are CPU times of whole calls, so that
other load on the machine stays out.
"""

import argparse
import random
import time

from agents import BLOCK_BYTES, Chain, fresh, heads, line, turns

from gateway.core.engine import Engine, Facts, Probe, SlotSource
from gateway.core.events import Discovered, Probed
from gateway.core.request import Grant, Outcome, Request, Usage
from gateway.core.scheduler import Limits, Scheduler, Step

NEW_BLOCKS, PROMPT_BLOCKS, ANSWER_TOKENS = 32, 1600, 200
BLOCK_TOKENS = BLOCK_BYTES // 4
_now = time.thread_time_ns


class Fleet:
    """A scheduler whose conversations go on for ever; a turn takes two seconds of its own clock."""

    def __init__(self, engines: int, slots: int, pairs: int) -> None:
        self.slots = engines * slots
        self.draw = random.Random(1)  # noqa: S311
        self.now = 0.0
        # Not while it is filled: one at a time would all go to the engine that has shown the best rate.
        self.learns = False
        names = [f"e{at}" for at in range(engines)]
        made = [Engine(name, f"http://{name}") for name in names]
        self.scheduler = Scheduler(made, Limits(max_queue=100_000), random=self.draw.random)
        facts = Facts(
            models=("m",),
            slots=slots,
            slots_source=SlotSource.CONFIGURED,
            kv_tokens=pairs // engines * BLOCK_TOKENS,
        )
        for name in names:
            self.scheduler.update(name, Discovered(facts=facts), 0.0)
            self.scheduler.update(name, Probed(probe=Probe.OK), 0.0)
        self.key = 0
        self.running: dict[int, Chain] = {}
        self.waiting: dict[int, Chain] = {}
        self.idle: list[Chain] = []
        self.offers: list[int] = []
        self.finishes: list[int] = []

    def held(self) -> int:
        return sum(self.scheduler.index.size(name)[0] for name in self.scheduler.engines)

    def offer(self, blocks: Chain) -> None:
        self.key += 1
        request = Request(
            key=self.key,
            id=f"r{self.key}",
            api="chat",
            model="m",
            blocks=blocks,
            prompt_bytes=len(blocks) * BLOCK_BYTES,
            body_bytes=len(blocks) * BLOCK_BYTES,
            max_wait_s=1e9,
        )
        self.waiting[self.key] = blocks
        start = _now()
        step = self.scheduler.offer(request, self.now)
        self.offers.append(_now() - start)
        self.took(step)

    def finish(self) -> None:
        key = next(iter(self.running))
        blocks = self.running.pop(key)
        self.now += 0.01
        tokens, new_tokens = len(blocks) * BLOCK_TOKENS, NEW_BLOCKS * BLOCK_TOKENS
        used = Usage(
            prompt_tokens=tokens,
            cached_tokens=max(0, tokens - new_tokens),
            completion_tokens=ANSWER_TOKENS,
            prefill_s=new_tokens / self.draw.uniform(9_900, 10_100) if self.learns else None,
            decode_s=ANSWER_TOKENS / self.draw.uniform(49, 51) if self.learns else None,
        )
        start = _now()
        step = self.scheduler.finish(key, Outcome.OK, used, self.now)
        self.finishes.append(_now() - start)
        self.took(step)
        self.idle.append(blocks)

    def took(self, step: Step) -> None:
        for it in step.decisions:
            assert isinstance(it, Grant), it
            self.running[it.key] = self.waiting.pop(it.key)
            self.scheduler.first_token(it.key, self.now)

    def next_turn(self) -> Chain:
        """The conversation that paused longest goes on; one that is too long starts again, 300 turns back."""
        blocks = self.idle.pop(0)
        if len(blocks) + NEW_BLOCKS > PROMPT_BLOCKS:
            blocks = blocks[: PROMPT_BLOCKS - 10 * NEW_BLOCKS]
        return blocks + fresh(self.draw, NEW_BLOCKS)

    def fill(self, conversations: int, pairs: int) -> None:
        """Long conversations that will go on, then others that only take room."""
        for _ in range(conversations):
            self.offer(fresh(self.draw, PROMPT_BLOCKS - 10 * NEW_BLOCKS))
            self.finish()
        while self.held() < pairs:
            *_, last = turns(self.draw, self.draw.choice(heads(self.draw)))
            self.offer(last)
            self.finish()
            self.idle.pop()

    def measure(self, rounds: int, waiting: int) -> None:
        """`waiting` requests wait all the time; with none, half of the slots are free."""
        in_flight = self.slots + waiting if waiting else self.slots // 2
        while len(self.running) + len(self.waiting) < in_flight:
            self.offer(self.next_turn())
        self.learns = True
        self.offers.clear()
        self.finishes.clear()
        for _ in range(rounds):
            self.finish()
            self.offer(self.next_turn())
        print(line(f"offer,  {len(self.waiting)} waiting, {len(self.running)} running", self.offers))
        print(line(f"finish, {len(self.waiting)} waiting, {len(self.running)} running", self.finishes))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--pairs", type=int, default=1_000_000)
    arguments.add_argument("--rounds", type=int, default=300)
    arguments.add_argument("--only", type=int, choices=(16, 1000))
    args = arguments.parse_args()
    if args.only != 1000:
        fleet = Fleet(16, 8, args.pairs)
        fleet.fill(700, args.pairs * 9 // 10)
        print(f"16 engines, {fleet.held():,} pairs")
        for waiting in (0, 64, 512):
            fleet.measure(args.rounds, waiting)
    if args.only != 16:
        # 2,000 blocks an engine: what they hold hardly matters here, how many they are does.
        fleet = Fleet(1000, 1, 2_000_000)
        fleet.fill(1100, 0)
        print(f"1,000 engines, {fleet.held():,} pairs")
        for waiting in (0, 64):
            fleet.measure(min(args.rounds, 100), waiting)


if __name__ == "__main__":
    main()
