"""Sending one round of requests at once, and what is looked at beside it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence

from msgspec.structs import replace

from gateway.doctor.behind import Behind
from gateway.doctor.client import Client, longest_lag
from gateway.doctor.requests import Form
from gateway.doctor.seen import Findings, Look, Reading, Role, Round, Shape, Stream
from gateway.engines.reading import MODELS_PATH

_DRIZZLE_S = 3.0
_DRIZZLE_REQUESTS = 300
_DRIZZLE_PAUSE_S = 0.05
_DRIZZLE_AT_ONCE = 4
_STAGGER_S = 0.002
_STAGGERED = 0.1
"""Of one answer's time are requests sent a moment apart, so that they stand in line in a known order."""

_HUNG_TIMES, _HUNG_LEAST_S = 4, 10.0
_HUNG = "no end, long after the others had theirs"
_RETRIES = 5
_LAG_EVERY_S = 0.02
_SHORT = Shape(4, 2)


class Rounds:
    """Each round ends up in `findings`. `form` and `in_one_piece` are found out with the first requests."""

    def __init__(self, client: Client, base: str, findings: Findings, form: Form, *, stream: bool) -> None:
        self._client = client
        self._base = base
        self._findings = findings
        self.form = form
        self.in_one_piece = not stream
        self.behind: Behind | None = None

    async def look_once(self) -> float | None:
        began = self._client.now()
        answer = await self._client.get(self._base + MODELS_PATH)
        return None if answer is None else self._client.now() - began

    async def alone(self, shape: Shape) -> Stream:
        """Alone; where it is refused for load, again a little later."""
        for attempt in range(_RETRIES):
            one = await self._ask(shape, 0, self._client.now())
            if not one.is_refused:
                break
            await asyncio.sleep(0.5 * (attempt + 1))
        return one

    async def _ask(self, shape: Shape, number: int, began_at: float) -> Stream:
        body = self.form.body(self._findings.model, shape)
        one = await self._client.ask(self._base + self.form.path, body, number, shape, began_at)
        return replace(one, first_at=None, arrivals=()) if self.in_one_piece else one

    async def send(
        self, role: Role, shapes: Sequence[Shape], *, looks: bool = False, short_at_s: float | None = None
    ) -> Round:
        """`short_at_s`: when a short one is sent besides."""
        began_at = self._client.now()
        seen: list[Look] = []
        readings: list[Reading] = []
        lag = [0.0]
        stagger_s = min(_STAGGER_S, _STAGGERED * (self._findings.single_s or 1.0) / len(shapes))

        sending = [(number, shape, number * stagger_s) for number, shape in enumerate(shapes)]
        if short_at_s is not None:
            sending.append((len(shapes), _SHORT, short_at_s))

        async def one(number: int, shape: Shape, at_s: float) -> Stream:
            await asyncio.sleep(at_s)
            return await self._ask(shape, number, began_at)

        beside = [longest_lag(self._client.now, _LAG_EVERY_S, lag)]
        if looks:
            beside.append(self._take_looks(began_at, seen))
        elif self.behind is not None:
            beside.append(self.behind.watch(lambda: self._client.now() - began_at, readings))
        async with _beside(beside):
            ended = await _all_but_hung([one(*it) for it in sending], self._client.now)
        now = self._client.now() - began_at
        streams = [
            it or Stream(number=number, sent_at=at_s, ended_at=now, shape=shape, status=0, error=_HUNG)
            for it, (number, shape, at_s) in zip(ended, sending, strict=True)
        ]
        done = Round(
            role=role,
            wanted=len(shapes),
            streams=tuple(streams),
            looks=tuple(seen),
            readings=tuple(readings),
            lag_s=lag[0],
        )
        self._findings.rounds.append(done)
        return done

    async def _take_looks(self, began_at: float, seen: list[Look]) -> None:
        """Two cheap GETs, one after another, while the last stream waits. Not more at once: llama-server has
        two more threads than slots, and one is taken by the stream that waits."""
        for share in (0.2, 0.5):
            at_s = share * (self._findings.single_s or 1.0)
            await asyncio.sleep(max(0.0, at_s - (self._client.now() - began_at)))
            sent_at = self._client.now() - began_at
            seen.append(Look(sent_at, None))
            took_s = await self.look_once()
            seen[-1] = Look(sent_at, took_s)

    async def drizzle(self, shape: Shape) -> None:
        began_at, streams = self._client.now(), list[Stream]()

        async def worker() -> None:
            while self._client.now() - began_at < _DRIZZLE_S and len(streams) < _DRIZZLE_REQUESTS:
                one = await self._ask(shape, len(streams), began_at)
                streams.append(one)
                if not one.is_ok:
                    await asyncio.sleep(_DRIZZLE_PAUSE_S)

        await asyncio.gather(*(worker() for _ in range(_DRIZZLE_AT_ONCE)))
        self._findings.rounds.append(Round(role=Role.AGAIN, wanted=_DRIZZLE_AT_ONCE, streams=tuple(streams)))


async def _all_but_hung(
    work: Sequence[Coroutine[object, object, Stream]], now: Callable[[], float]
) -> list[Stream | None]:
    """Runs all of `work` at once. None for what had no end when half of it had ended and then nothing for
    `_HUNG_TIMES` as long as it ever took from one end to the next: one request that hangs would else take
    all the time there is."""
    tasks = [asyncio.create_task(it) for it in work]
    running, last, longest_s = set(tasks), now(), _HUNG_LEAST_S / _HUNG_TIMES
    try:
        while running:
            half = 2 * len(running) <= len(tasks)
            limit_s = _HUNG_TIMES * longest_s if half else None
            done, running = await asyncio.wait(running, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                break
            longest_s, last = max(longest_s, now() - last), now()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    return [it.result() if it.done() and not it.cancelled() else None for it in tasks]


@contextlib.asynccontextmanager
async def _beside(work: Sequence[Coroutine[object, object, None]]) -> AsyncIterator[None]:
    """Runs `work` until the block is over."""
    tasks = [asyncio.create_task(it) for it in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
