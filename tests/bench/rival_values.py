from random import Random

from gateway.bench.engine import matched_blocks
from gateway.bench.workload import Ask, EngineSpec

BLOCK_TOKENS = 100


class FakeSight:
    """An engine as a literal: `held` are the blocks in its cache."""

    def __init__(self, *, up=True, running=0, waiting=0, kv_usage=0.0, held=(), **spec):
        self.spec = EngineSpec(**spec)
        self.up = up
        self.running = running
        self.waiting = waiting
        self.kv_usage = kv_usage
        self.held = set(held)

    def cached_blocks(self, blocks):
        return matched_blocks(blocks, self.held)


def chain(name, length, start=()):
    """Blocks that go on from `start`, a chain of its own for each number `name`."""
    return (*start, *range(name * 1000 + len(start), name * 1000 + length))


def an_ask(key, blocks=(), *, session=None, prompt_tokens=None, output_tokens=10):
    """Full blocks and nothing behind them, if not told otherwise."""
    return Ask(
        key=key,
        session=key if session is None else session,
        prompt_tokens=len(blocks) * BLOCK_TOKENS if prompt_tokens is None else prompt_tokens,
        output_tokens=output_tokens,
        blocks=blocks,
        arrived_s=0.0,
    )


class Driven:
    """A rival and what it is told: who sent what where."""

    def __init__(self, build, sights, seed=1):
        self.sights = list(sights)
        self.rival = build(self.sights, BLOCK_TOKENS, Random(seed))
        self._keys = iter(range(1_000_000))

    def ask(self, blocks=(), *, now=0.0, **fields):
        """The engine that a new request goes to."""
        ((_, engine),) = self.rival.arrived(an_ask(next(self._keys), blocks, **fields), now)
        return engine

    def load(self, engine, count, blocks=(), *, prefilled=True):
        """As if `count` requests had been sent to the engine, with a first token each if `prefilled`."""
        for _ in range(count):
            key = next(self._keys)
            self.rival.send(an_ask(key, blocks), engine, 0, 0.0)
            if prefilled:
                self.rival.first_token(key, 0.0)

    def spread(self, count, blocks=(), **fields):
        """The engines that `count` requests go to, each ended before the next comes."""
        engines = set()
        for _ in range(count):
            ask = an_ask(next(self._keys), blocks, **fields)
            ((key, engine),) = self.rival.arrived(ask, 0.0)
            self.rival.finished(key, 0, 0.0)
            engines.add(engine)
        return engines
