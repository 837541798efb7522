"""What the rivals share: counts of what they have sent, and an engine chosen when a request arrives."""

from collections.abc import Callable, Sequence
from random import Random
from typing import ClassVar

from gateway.bench.rivals.prefixes import Index
from gateway.bench.router import Router, Sent, Sight
from gateway.bench.workload import Ask, EngineSpec

CHARS_PER_TOKEN = 4
"""For bounds that a rival gives in characters or bytes."""


class Rival(Router):
    """Chooses an engine at arrival and lets that engine queue, as all systems here but SkyWalker do.

    A subclass gives `choose`, and `match` if it looks at prefixes. In a rival's favour throughout: its counts
    and its polled figures are of this moment; an engine that dies is known and forgotten at once; a failed
    request is chosen for again as often as it takes; what a rival matches by characters, 4 bytes or 16 tokens
    is matched by the workload's blocks, which differs by less than one block.
    """

    source: ClassVar[str]
    """Where the rule and its constants come from, in one line for the report."""

    def __init__(self, sights: Sequence[Sight], block_tokens: int, random: Random) -> None:
        self.sights = sights
        self.block_tokens = block_tokens
        self.random = random
        self.in_flight = [0] * len(sights)
        self.prefill_tokens = [0] * len(sights)
        """Prompt tokens believed uncached of requests that have been sent and show no first token yet."""
        self._flights: dict[int, tuple[Ask, int]] = {}
        self._prefilling: dict[int, int] = {}
        self._stranded: list[Ask] = []

    def match(self, ask: Ask, ups: Sequence[int], now: float) -> Sequence[int]:
        """Leading blocks that each engine, by number, is believed to hold."""
        return [0] * len(self.sights)

    def choose(self, ask: Ask, matched: Sequence[int], ups: Sequence[int], now: float) -> int:
        """One of `ups`, the numbers of the engines that are up, of which there is at least one."""
        raise NotImplementedError

    def sent(self, ask: Ask, engine: int, now: float) -> None:
        """Called when a request has been given to an engine."""

    def ended(self, ask: Ask, engine: int, answered: bool) -> None:
        """Called when an engine no longer has a request, answered or failed."""

    def freed(self, now: float) -> list[Sent]:
        """What can be sent now that an answer has ended or an engine has come up."""
        return []

    def cleared(self, engine: int) -> None:
        """Called when an engine has lost its cache."""

    def place(self, ask: Ask, now: float) -> list[Sent]:
        ups = self.ups()
        if not ups:
            self._stranded.append(ask)
            return []
        matched = self.match(ask, ups, now)
        engine = self.choose(ask, matched, ups, now)
        return [self.send(ask, engine, matched[engine], now)]

    def send(self, ask: Ask, engine: int, matched_blocks: int, now: float) -> Sent:
        uncached_tokens = self.uncached_tokens(ask, matched_blocks)
        self._flights[ask.key] = ask, engine
        self._prefilling[ask.key] = uncached_tokens
        self.in_flight[engine] += 1
        self.prefill_tokens[engine] += uncached_tokens
        self.sent(ask, engine, now)
        return Sent(ask.key, engine)

    def ups(self) -> list[int]:
        return [engine for engine, sight in enumerate(self.sights) if sight.up]

    def uncached_tokens(self, ask: Ask, matched_blocks: int) -> int:
        return max(0, ask.prompt_tokens - matched_blocks * self.block_tokens)

    def least(self, engines: Sequence[int], cost: Callable[[int], float]) -> int:
        """The engine of least cost, at random among equals."""
        costs = [cost(engine) for engine in engines]
        lowest = min(costs)
        return self.random.choice(
            [engine for engine, its in zip(engines, costs, strict=True) if its == lowest]
        )

    def least_in_flight(self, engines: Sequence[int]) -> int:
        return self.least(engines, self.in_flight.__getitem__)

    def arrived(self, ask: Ask, now: float) -> Sequence[Sent]:
        return self.place(ask, now)

    def first_token(self, key: int, now: float) -> None:
        _, engine = self._flights[key]
        self.prefill_tokens[engine] -= self._prefilling.pop(key, 0)

    def finished(self, key: int, cached_tokens: int, now: float) -> Sequence[Sent]:
        self._end(key, answered=True)
        return self.freed(now)

    def failed(self, key: int, now: float) -> Sequence[Sent]:
        return self.place(self._end(key, answered=False), now)

    def went_down(self, engine: int, now: float) -> Sequence[Sent]:
        self.cleared(engine)
        return []

    def came_up(self, engine: int, now: float) -> Sequence[Sent]:
        self.cleared(engine)
        stranded, self._stranded = self._stranded, []
        return [sent for ask in stranded for sent in self.place(ask, now)] + self.freed(now)

    def due_s(self) -> float | None:
        return None

    def wake(self, now: float) -> Sequence[Sent]:
        return []

    def _end(self, key: int, *, answered: bool) -> Ask:
        ask, engine = self._flights.pop(key)
        self.in_flight[engine] -= 1
        self.prefill_tokens[engine] -= self._prefilling.pop(key, 0)
        self.ended(ask, engine, answered)
        return ask


class Approximate(Rival):
    """Believes that an engine holds what was sent there, inserted at dispatch, within the rival's bounds."""

    ttl_s: ClassVar[float | None] = None

    def __init__(self, sights: Sequence[Sight], block_tokens: int, random: Random) -> None:
        super().__init__(sights, block_tokens, random)
        self.index = Index([self._limit_blocks(sight.spec) for sight in sights])

    def index_tokens(self, spec: EngineSpec) -> int | None:
        """The most tokens believed to be in an engine; None: no bound."""
        raise NotImplementedError

    def match(self, ask: Ask, ups: Sequence[int], now: float) -> Sequence[int]:
        if self.ttl_s is not None:
            self.index.expire(now - self.ttl_s)
        return self.index.match(ask.blocks)

    def sent(self, ask: Ask, engine: int, now: float) -> None:
        self.index.insert(engine, ask.blocks, now)

    def cleared(self, engine: int) -> None:
        self.index.clear(engine)

    def _limit_blocks(self, spec: EngineSpec) -> int | None:
        tokens = self.index_tokens(spec)
        return None if tokens is None else tokens // self.block_tokens


class Precise(Rival):
    """Knows what each engine holds, from its KV events, and nothing of what is still to be computed there."""

    def match(self, ask: Ask, ups: Sequence[int], now: float) -> Sequence[int]:
        matched = [0] * len(self.sights)
        for engine in ups:
            matched[engine] = self.sights[engine].cached_blocks(ask.blocks)
        return matched


def declared_tokens(spec: EngineSpec) -> int:
    """The KV size that an engine tells."""
    return spec.kv_tokens if spec.declared_kv_tokens is None else spec.declared_kv_tokens
