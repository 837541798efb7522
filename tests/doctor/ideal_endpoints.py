"""Ideal endpoints in virtual time: what the doctor would see of engines, fronts and limiters that do one
thing exactly, with jitter. A whole examination of minutes takes milliseconds."""

import asyncio
import random
import selectors
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from unittest.mock import patch

import msgspec

from gateway.doctor import examine, rounds
from gateway.doctor.examine import Examination, Options
from gateway.doctor.report import Report
from gateway.doctor.seen import Shape, Stream
from gateway.engines.base import Answer

MODELS = Answer(status=200, headers={}, body=msgspec.json.encode({"object": "list", "data": [{"id": "m"}]}))
NOT_FOUND = Answer(status=404, headers={}, body=b"{}")
HOP_S = 0.001


class _Jump(selectors.DefaultSelector):  # type: ignore[misc, valid-type]
    """Never waits: the time that it was to wait has passed."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.now += max(0.0, timeout or 0.0)
        ready: list[tuple[selectors.SelectorKey, int]] = super().select(0)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        return self._jump.now


class Slots:
    """So many at once; the others wait in order of arrival."""

    def __init__(self, count: int) -> None:
        self.running = 0
        self.waiting: deque[asyncio.Future[None]] = deque()
        self._count = count

    async def __aenter__(self) -> None:
        if self.running >= self._count:
            turn = asyncio.get_running_loop().create_future()
            self.waiting.append(turn)
            await turn
        else:
            self.running += 1

    async def __aexit__(self, *_: object) -> None:
        if self.waiting:
            self.waiting.popleft().set_result(None)
        else:
            self.running -= 1


class Batches:
    """So many together, and the next ones when the longest of those has ended. What comes to an empty engine
    begins at once, alone, if the first batch is greedy, and else with those who come within `gather_s`."""

    def __init__(self, size: int, gather_s: float) -> None:
        self.waiting: deque[asyncio.Future[None]] = deque()
        self.running = 0
        self._size = size
        self._gather_s = gather_s
        self._is_gathering = False

    async def __aenter__(self) -> None:
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self.waiting.append(turn)
        if self.running == 0 and not self._is_gathering:
            self._is_gathering = True
            if self._gather_s:
                loop.call_later(self._gather_s, self._begin)
            else:
                self._begin()
        await turn

    def _begin(self) -> None:
        self._is_gathering = False
        while self.waiting and self.running < self._size:
            self.running += 1
            self.waiting.popleft().set_result(None)
            if self._gather_s == 0 and self.running == 1 and not self.waiting:
                return

    async def __aexit__(self, *_: object) -> None:
        self.running -= 1
        if self.running == 0:
            self._begin()


@dataclass(kw_only=True)
class Endpoint:
    """`slots` None: no cap. A token takes `token_s` + `each_s` for each that runs, `jitter` more or less; the
    whole engine computes one token in `least_s`. `front`: so many pass at once, GETs among them.
    `rate_per_s`: a limiter that lets `burst` pass at once and delays others, or refuses them. `batch`: static
    batches of that size. `kv_tokens`: the room for prompts and answers.
    """

    slots: int | None = None
    front: int | None = None
    batch: int | None = None
    gather_s: float = 0.0
    rate_per_s: float | None = None
    burst: int = 1
    refuses: bool = False
    queue: int | None = None
    kv_tokens: int | None = None
    prefill_token_s: float = 0.0005
    is_serial: bool = False
    token_s: float = 0.05
    each_s: float = 0.0
    least_s: float = 0.0
    buffers: bool = False
    jitter: float = 0.0
    seed: int = 0
    engine_answers: Callable[["Endpoint", str], Answer] = field(default=lambda _, __: NOT_FOUND)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.gate: Slots | Batches = (
            Batches(self.batch, self.gather_s) if self.batch else Slots(self.slots or 1 << 20)
        )
        self.front_gate = Slots(self.front or 1 << 20)
        self.room = Room(self.kv_tokens or 1 << 40)
        self.prefill = asyncio.Lock()
        self.tokens, self.filled_at = float(self.burst), 0.0
        self.turn_at = 0.0

    def unsteady(self) -> float:
        return 1 + self.jitter * self.random.uniform(-1, 1)

    async def answer(self, shape: Shape) -> tuple[int, list[float]]:
        """The status, and when tokens came."""
        if not await self.passes():
            return 429, []
        if self.queue is not None and self.gate.running + len(self.gate.waiting) >= self.slots + self.queue:
            return 429, []
        async with self.front_gate, self.gate, self.room.of(shape.prompt_tokens + shape.output_tokens):
            return 200, await self.compute(shape)

    async def compute(self, shape: Shape) -> list[float]:
        loop = asyncio.get_running_loop()
        prefill_s = self.prefill_token_s * shape.prompt_tokens * self.unsteady()
        if self.is_serial:
            async with self.prefill:
                await asyncio.sleep(prefill_s)
        else:
            await asyncio.sleep(prefill_s)
        running = self.gate.running
        token_s = max(self.token_s + self.each_s * running, self.least_s * running) * self.unsteady()
        first = loop.time()
        arrivals = [first + token_s * place for place in range(shape.output_tokens)]
        await asyncio.sleep(arrivals[-1] - first)
        return arrivals

    async def passes(self) -> bool:
        if self.rate_per_s is None:
            return True
        loop = asyncio.get_running_loop()
        now = loop.time()
        self.tokens = min(float(self.burst), self.tokens + (now - self.filled_at) * self.rate_per_s)
        self.filled_at = now
        if self.refuses and self.tokens < 1:
            return False
        self.tokens -= 1
        if self.tokens < 0:
            await asyncio.sleep(-self.tokens / self.rate_per_s)
        return True


class Room:
    """KV memory: who does not fit waits, and those behind it."""

    def __init__(self, tokens: int) -> None:
        self.free = tokens
        self.waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def of(self, tokens: int) -> "_Part":
        return _Part(self, tokens)

    def admit(self) -> None:
        while self.waiting and self.waiting[0][0] <= self.free:
            tokens, turn = self.waiting.popleft()
            self.free -= tokens
            turn.set_result(None)


@dataclass
class _Part:
    room: Room
    tokens: int

    async def __aenter__(self) -> None:
        turn = asyncio.get_running_loop().create_future()
        self.room.waiting.append((self.tokens, turn))
        self.room.admit()
        await turn

    async def __aexit__(self, *_: object) -> None:
        self.room.free += self.tokens
        self.room.admit()


class IdealClient:
    """In the place of the doctor's HTTP client."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self.asked = 0

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    async def why_not(self, url: str) -> str:
        return f"no {url}"

    async def get(self, url: str, timeout_s: float | None = None) -> Answer | None:
        del timeout_s
        await asyncio.sleep(HOP_S)
        if url.startswith("http://engine/"):
            return self._endpoint.engine_answers(self._endpoint, url.removeprefix("http://engine"))
        async with self._endpoint.front_gate:
            return MODELS if url.endswith("/v1/models") else NOT_FOUND

    async def ask(
        self, url: str, body: Mapping[str, object], number: int, shape: Shape, began_at: float
    ) -> Stream:
        del url
        self.asked += 1
        sent_at = self.now() - began_at
        await asyncio.sleep(HOP_S)
        status, came = await self._endpoint.answer(shape)
        ended_at = self.now() - began_at
        arrivals = tuple(at - began_at for at in came) if body.get("stream") else ()
        if self._endpoint.buffers:
            arrivals = (ended_at,) * len(arrivals)
        return Stream(
            number=number,
            sent_at=sent_at,
            ended_at=ended_at,
            shape=shape,
            written_at=sent_at,
            first_at=arrivals[0] if arrivals else None,
            arrivals=arrivals,
            tokens=shape.output_tokens if came else 0,
            prompt_tokens=shape.prompt_tokens,
            status=status,
            error="" if status == 200 else "slow down",
        )


async def _carries(_: object, wanted: int) -> int:
    return wanted


def examined(make: Callable[[], Endpoint], *, max_concurrency: int = 16, **options: object) -> Report:
    """The report of a whole examination of what `make` makes."""

    async def run() -> Report:
        client = IdealClient(make())
        wanted = Options(base="http://ideal", max_concurrency=max_concurrency, **options)  # type: ignore[arg-type]
        examination = Examination(client, wanted, lambda _, __: None)  # type: ignore[arg-type]
        await examination.run()
        return Report(examination.findings)

    # No socket carries virtual time, and a loop that never stands still need not be asked so often.
    with (
        patch.object(examine, "carries_at_once", _carries),
        patch.object(rounds, "_LAG_EVERY_S", 10.0),
        asyncio.Runner(loop_factory=VirtualLoop) as runner,
    ):
        return runner.run(run())
