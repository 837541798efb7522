"""Values for the tests of the bench: asks, workloads, and a router that does as it is told."""

from collections.abc import Sequence

from gateway.bench.arrivals import Arrival, Player
from gateway.bench.router import REFUSED, Sent
from gateway.bench.workload import Ask, Done, Session, Turn, Workload

BLOCK_TOKENS = 100


def ids(*runs: tuple[int, int]) -> tuple[int, ...]:
    """Block ids of runs (first, count)."""
    return tuple(block for first, count in runs for block in range(first, first + count))


def ask(key: int, *runs: tuple[int, int], output: int = 1, more: int = 0, at: float = 0.0) -> Ask:
    """A prompt of whole blocks and `more` tokens."""
    blocks = ids(*runs)
    return Ask(
        key=key,
        session=key,
        prompt_tokens=len(blocks) * BLOCK_TOKENS + more,
        output_tokens=output,
        blocks=blocks,
        arrived_s=at,
    )


def turn(blocks: int, *, first: int = 1, output: int = 1, think: float = 0.0, at: float = 0.0) -> Turn:
    return Turn(
        prompt_tokens=blocks * BLOCK_TOKENS,
        output_tokens=output,
        blocks=ids((first, blocks)),
        think_s=think,
        at_s=at,
    )


def session(*turns: Turn, shared: int = 0) -> Session:
    return Session(turns=turns, shared_blocks=shared)


def workload(*sessions: Session) -> Workload:
    return Workload(name="w", block_tokens=BLOCK_TOKENS, sessions=sessions)


def done(
    arrived: float = 0.0,
    first: float | None = None,
    finished: float | None = None,
    *,
    prompt: int = 1000,
    output: int = 1,
    cached: int = 0,
    best: int = 0,
    seen: int = 0,
    engine: int = 0,
    refused: bool = False,
) -> Done:
    return Done(
        ask=Ask(key=0, session=0, prompt_tokens=prompt, output_tokens=output, blocks=(), arrived_s=arrived),
        engine=engine,
        sent_s=arrived,
        started_s=first,
        first_token_s=first,
        finished_s=finished,
        cached_tokens=cached,
        best_tokens=best,
        seen_tokens=seen,
        refused=refused,
    )


class Script:
    """A source of literal arrivals. Who is answered is gone, who is refused comes back after 5 s."""

    def __init__(self, *arrivals: tuple[float, Session]) -> None:
        self._arrivals = arrivals

    def source(self, *_: object) -> "Script":
        return self

    def start(self) -> list[Arrival]:
        numbered = enumerate(self._arrivals)
        return [Arrival(at_s, Player(it, number, fresh=False)) for number, (at_s, it) in numbered]

    def answered(self, player: Player, now: float) -> Arrival | None:
        return None

    def refused(self, player: Player, now: float) -> Arrival | None:
        return Arrival(now + 5.0, player)


class Told:
    """A router that sends each request to the engine that its list names next, and writes down its calls."""

    def __init__(self, *engines: int, due: Sequence[float] = ()) -> None:
        self.engines = list(engines)
        self.due = list(due)
        self.calls: list[tuple[object, ...]] = []

    def next(self, key: int) -> list[Sent]:
        return [Sent(key, self.engines.pop(0) if self.engines else REFUSED)]

    def arrived(self, ask: Ask, now: float) -> list[Sent]:
        self.calls.append(("arrived", ask.key, now))
        return self.next(ask.key)

    def first_token(self, key: int, now: float) -> None:
        self.calls.append(("first", key, round(now, 6)))

    def finished(self, key: int, cached_tokens: int, now: float) -> list[Sent]:
        self.calls.append(("finished", key, cached_tokens, round(now, 6)))
        return []

    def failed(self, key: int, now: float) -> list[Sent]:
        self.calls.append(("failed", key, round(now, 6)))
        return self.next(key)

    def went_down(self, engine: int, now: float) -> list[Sent]:
        self.calls.append(("down", engine, now))
        return []

    def came_up(self, engine: int, now: float) -> list[Sent]:
        self.calls.append(("up", engine, now))
        return []

    def due_s(self) -> float | None:
        return self.due[0] if self.due else None

    def wake(self, now: float) -> list[Sent]:
        self.calls.append(("wake", round(now, 6)))
        self.due.pop(0)
        return []
