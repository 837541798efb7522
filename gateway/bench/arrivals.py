"""The ways to play a workload: who sends which turn when, and what follows an answer.

`gateway.bench.load` says how many agents, or which rate or speed, a load comes to.
"""

from collections.abc import Callable, Sequence
from itertools import cycle, islice
from random import Random
from typing import NamedTuple, Protocol

from msgspec import Struct

from gateway.bench.engine import common_blocks
from gateway.bench.workload import Ask, Session, Turn, Workload

RETRY_S = 5.0
"""How long an agent waits after a refusal before it sends the same turn again."""

BURST_WITHIN_S = 0.05

_PLAY_BITS = 32
_MEMBER_BITS = 20
_FIRST_BURST = 1 << 30


class Player:
    """One play of a session, at one of its turns.

    `fresh`: the blocks after the shared ones get ids of this play's own, as if the session were a new one;
    else they are as recorded, and two plays share all.
    """

    def __init__(self, session: Session, number: int, turn: int = 0, *, fresh: bool = True) -> None:
        self.session = session
        self.number = number
        self.turn = turn
        self._base = number << _PLAY_BITS if fresh else None
        self._recorded: tuple[int, ...] = ()
        self._blocks: tuple[int, ...] = ()

    def ask(self, key: int, now: float) -> Ask:
        turn = self.session.turns[self.turn]
        return Ask(
            key=key,
            session=self.number,
            prompt_tokens=turn.prompt_tokens,
            output_tokens=turn.output_tokens,
            blocks=self._renamed(turn.blocks),
            arrived_s=now,
        )

    def step(self) -> Turn | None:
        """Go on to the next turn, if there is one."""
        self.turn += 1
        return self.session.turns[self.turn] if self.turn < len(self.session.turns) else None

    def _renamed(self, recorded: tuple[int, ...]) -> tuple[int, ...]:
        base = self._base
        if base is None:
            return recorded
        # The ids that a turn shares with the one before are not made twice: they are most of the memory.
        kept = common_blocks(recorded, self._recorded)
        shared = max(kept, min(self.session.shared_blocks, len(recorded)))
        new = [base + block for block in recorded[shared:]]
        self._recorded = recorded
        self._blocks = (*self._blocks[:kept], *recorded[kept:shared], *new)
        return self._blocks


class Arrival(NamedTuple):
    at_s: float
    player: Player


class Source(Protocol):
    """The arrivals of one run. `start` is called once, then one of the others for each that ended."""

    def start(self) -> list[Arrival]: ...

    def answered(self, player: Player, now: float) -> Arrival | None:
        """What this player, or who comes after it, sends next."""
        ...

    def refused(self, player: Player, now: float) -> Arrival | None: ...


class Arrivals(Protocol):
    def source(self, workload: Workload, random: Random, warm_s: float, until_s: float) -> Source: ...


class ClosedLoop(Struct, frozen=True, kw_only=True):
    """`agents` agents, each of which plays a session, waits for every answer, thinks `think_s` (at most
    `think_cap_s`), and goes on with another session, as a new one, when it is over.

    Each begins at a random turn of its first session, at a random time in the first half of the warm-up.
    A refused request is sent again after `RETRY_S`.
    """

    agents: int
    think_cap_s: float = 30.0

    def source(self, workload: Workload, random: Random, warm_s: float, until_s: float) -> Source:
        return _Agents(self, workload, random, warm_s)


class OpenSessions(Struct, frozen=True, kw_only=True):
    """`per_s` sessions start a second, whatever is still running; inside a session the next turn waits for
    the answer and thinks, at most `think_cap_s`. A session ends with a refusal.

    The starts are a Poisson process, or follow `gaps_s`, recorded seconds between arrivals, stretched to the
    rate and begun anywhere in the record. Sessions are played in a random order, again and again as new ones.
    """

    per_s: float
    gaps_s: Sequence[float] | None = None
    think_cap_s: float = 30.0

    def source(self, workload: Workload, random: Random, warm_s: float, until_s: float) -> Source:
        return _Sessions(self, workload, random, until_s)


class OpenLoop(Struct, frozen=True, kw_only=True):
    """Every turn at its recorded `at_s / speed` with its recorded block ids. Nobody waits for an answer, and
    who is refused is gone."""

    speed: float = 1.0

    def source(self, workload: Workload, random: Random, warm_s: float, until_s: float) -> Source:
        return _Recording(self, workload, until_s)


class Bursts(Struct, frozen=True, kw_only=True):
    """Sub-agents on top of `base`: at Poisson times, one in `every_s`, `width` sessions of one turn arrive
    within `BURST_WITHIN_S`. They share the blocks that the workload's first session shares with others, then
    a new prefix of `prefix_tokens`, and end with `own_tokens` of their own. They are no part of a load."""

    base: Arrivals
    every_s: float
    width: int = 8
    prefix_tokens: int = 4096
    own_tokens: int = 1024
    output_tokens: int = 150

    def source(self, workload: Workload, random: Random, warm_s: float, until_s: float) -> Source:
        base = self.base.source(workload, random, warm_s, until_s)
        return _WithBursts(self, base, workload, random, until_s)


class _Shuffled:
    """Sessions in one random order, round and round, each play under a number of its own."""

    def __init__(self, workload: Workload, random: Random) -> None:
        self._order = list(workload.sessions)
        random.shuffle(self._order)
        self._plays = 0

    def next_player(self) -> Player:
        session = self._order[self._plays % len(self._order)]
        self._plays += 1
        return Player(session, self._plays)


class _Agents:
    def __init__(self, plan: ClosedLoop, workload: Workload, random: Random, warm_s: float) -> None:
        self._plan = plan
        self._random = random
        self._warm_s = warm_s
        self._sessions = _Shuffled(workload, random)

    def start(self) -> list[Arrival]:
        arrivals = []
        for _ in range(self._plan.agents):
            player = self._sessions.next_player()
            player.turn = self._random.randrange(len(player.session.turns))
            arrivals.append(Arrival(self._random.random() * self._warm_s / 2, player))
        return arrivals

    def answered(self, player: Player, now: float) -> Arrival | None:
        turn = player.step()
        if turn is None:
            player = self._sessions.next_player()
            turn = player.session.turns[0]
        return Arrival(now + min(turn.think_s, self._plan.think_cap_s), player)

    def refused(self, player: Player, now: float) -> Arrival | None:
        return Arrival(now + RETRY_S, player)


class _Sessions:
    def __init__(self, plan: OpenSessions, workload: Workload, random: Random, until_s: float) -> None:
        self._plan = plan
        self._random = random
        self._until_s = until_s
        self._sessions = _Shuffled(workload, random)

    def start(self) -> list[Arrival]:
        times = _times(self._gap(), self._until_s)
        return [Arrival(at_s, self._sessions.next_player()) for at_s in times]

    def answered(self, player: Player, now: float) -> Arrival | None:
        turn = player.step()
        return Arrival(now + min(turn.think_s, self._plan.think_cap_s), player) if turn else None

    def refused(self, player: Player, now: float) -> Arrival | None:
        return None

    def _gap(self) -> Callable[[], float]:
        per_s, gaps_s = self._plan.per_s, self._plan.gaps_s
        if gaps_s is None:
            return lambda: self._random.expovariate(per_s)
        stretch = len(gaps_s) / (sum(gaps_s) * per_s)
        place = self._random.randrange(len(gaps_s))
        recorded = islice(cycle(gaps_s), place, None)
        return lambda: next(recorded) * stretch


class _Recording:
    def __init__(self, plan: OpenLoop, workload: Workload, until_s: float) -> None:
        self._arrivals = [
            Arrival(turn.at_s / plan.speed, Player(session, number, place, fresh=False))
            for number, session in enumerate(workload.sessions)
            for place, turn in enumerate(session.turns)
            if turn.at_s / plan.speed <= until_s
        ]

    def start(self) -> list[Arrival]:
        return self._arrivals

    def answered(self, player: Player, now: float) -> Arrival | None:
        return None

    def refused(self, player: Player, now: float) -> Arrival | None:
        return None


class _WithBursts:
    def __init__(
        self, plan: Bursts, base: Source, workload: Workload, random: Random, until_s: float
    ) -> None:
        self._plan = plan
        self._base = base
        self._block_tokens = workload.block_tokens
        first = workload.sessions[0]
        self._shared = first.turns[0].blocks[: first.shared_blocks]
        self._random = random
        self._until_s = until_s

    def start(self) -> list[Arrival]:
        arrivals = self._base.start()
        times = _times(lambda: self._random.expovariate(1 / self._plan.every_s), self._until_s)
        return [*arrivals, *(it for burst, at_s in enumerate(times) for it in self._burst(burst, at_s))]

    def answered(self, player: Player, now: float) -> Arrival | None:
        return None if player.number >= _FIRST_BURST else self._base.answered(player, now)

    def refused(self, player: Player, now: float) -> Arrival | None:
        return None if player.number >= _FIRST_BURST else self._base.refused(player, now)

    def _burst(self, burst: int, at_s: float) -> list[Arrival]:
        plan, within_s = self._plan, self._random.random
        return [
            Arrival(
                at_s + within_s() * BURST_WITHIN_S,
                Player(self._session(burst, member), _FIRST_BURST + burst * plan.width + member, fresh=False),
            )
            for member in range(plan.width)
        ]

    def _session(self, burst: int, member: int) -> Session:
        plan, block_tokens = self._plan, self._block_tokens
        common_tokens = len(self._shared) * block_tokens + plan.prefix_tokens
        prompt_tokens = common_tokens + plan.own_tokens
        prefix = range(common_tokens // block_tokens - len(self._shared))
        own = range(prompt_tokens // block_tokens - common_tokens // block_tokens)
        base = (_FIRST_BURST + burst) << _PLAY_BITS
        own_base = base + ((member + 1) << _MEMBER_BITS)
        blocks = (*self._shared, *(base + it for it in prefix), *(own_base + it for it in own))
        turn = Turn(prompt_tokens=prompt_tokens, output_tokens=plan.output_tokens, blocks=blocks)
        return Session(turns=(turn,))


def _times(gap_s: Callable[[], float], until_s: float) -> list[float]:
    times = []
    at_s = gap_s()
    while at_s <= until_s:
        times.append(at_s)
        at_s += gap_s()
    return times
