"""Who of those that wait goes first, and how long anybody may wait."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fleet import Json, ask, fleet
from harness import Running, chat, until

KEYS = {"urgent": "high", "usual": "normal", "batch": "low"}
AUTH: Json = {
    "auth": {
        "keys": [
            {"name": name, "sha256": hashlib.sha256(name.encode()).hexdigest(), "priority": priority}
            for name, priority in KEYS.items()
        ]
    }
}


class Line:
    """Requests behind one slow request on an engine with one slot; `served` are their names in order."""

    def __init__(self, gateway: Running) -> None:
        self.served: list[str] = []
        self._gateway = gateway
        self._tasks: list[asyncio.Task[None]] = []

    async def join(self, name: str, key: str = "usual", **headers: str) -> None:
        """Returns when the request stands in the queue."""
        before = len(self._tasks)
        self._tasks.append(asyncio.create_task(self._ask(name, key, headers)))
        await until(lambda: self._waits(before + 1))

    async def done(self) -> list[str]:
        await asyncio.gather(*self._tasks)
        return self.served

    async def _waits(self, count: int) -> bool:
        return len((await self._gateway.state())["waiting"]) == count

    async def _ask(self, name: str, key: str, headers: dict[str, str]) -> None:
        answer = await ask(self._gateway, chat(name, max_tokens=1), authorization=f"Bearer {key}", **headers)
        assert answer.status == 200
        self.served.append(name)


@asynccontextmanager
async def line(tmp_path: Path) -> AsyncIterator[tuple[Running, Line]]:
    async with fleet(tmp_path, 1, slots=1, decode_rate=20, sections=AUTH) as (gateway, _):
        first = asyncio.create_task(ask(gateway, chat("First", max_tokens=30), authorization="Bearer usual"))
        await until(lambda: gateway.metric("in_flight"))
        yield gateway, Line(gateway)
        assert (await first).status == 200


async def test_higher_keys_go_first_and_equals_in_the_order_of_their_arrival(tmp_path: Path):
    async with line(tmp_path) as (gateway, queue):
        for name, key in (
            ("l1", "batch"),
            ("n1", "usual"),
            ("l2", "batch"),
            ("h1", "urgent"),
            ("n2", "usual"),
        ):
            await queue.join(name, key)
        await queue.join("h2", "urgent")
        assert [it["priority"] for it in (await gateway.state())["waiting"]] == (
            ["high"] * 2 + ["normal"] * 2 + ["low"] * 2
        )
        assert await gateway.metric("queue_depth", priority="low") == 2
        assert await queue.done() == ["h1", "h2", "n1", "n2", "l1", "l2"]


async def test_the_header_lowers_a_priority_and_never_raises_it(tmp_path: Path):
    async with line(tmp_path) as (_, queue):
        await queue.join("lowered", "urgent", x_gateway_priority="low")
        await queue.join("low", "batch")
        await queue.join("normal", "usual", x_gateway_priority="normal")
        await queue.join("not raised", "usual", x_gateway_priority="high")
        await queue.join("nor this", "batch", x_gateway_priority="high")
        await queue.join("high", "urgent", x_gateway_priority="high")
        assert await queue.done() == ["high", "normal", "not raised", "lowered", "low", "nor this"]


async def test_without_keys_everybody_is_normal_and_may_step_back(tmp_path: Path):
    async with fleet(tmp_path, 1, slots=1, decode_rate=15) as (gateway, _):
        first = asyncio.create_task(ask(gateway, chat("First", max_tokens=20)))
        await until(lambda: gateway.metric("in_flight"))
        queue = Line(gateway)
        await queue.join("low", x_gateway_priority="low")
        await queue.join("would be high", x_gateway_priority="high")
        await queue.join("normal")
        assert await queue.done() == ["would be high", "normal", "low"]
        await first


async def test_a_full_queue_and_a_wait_that_is_too_long_are_told(tmp_path: Path):
    one = {"admission": {"max_queue": 1}}
    async with fleet(tmp_path, 1, slots=1, decode_rate=10, sections=one) as (gateway, (engine,)):
        first = asyncio.create_task(ask(gateway, chat("First", max_tokens=30)))
        await until(lambda: gateway.metric("in_flight"))
        impatient = asyncio.create_task(ask(gateway, chat("Impatient"), x_gateway_max_wait_ms="1000"))
        await until(lambda: gateway.metric("queue_depth"))
        full = await ask(gateway, chat("One too many"))
        assert (full.status, full.error_code) == (503, "queue_full")
        timed_out = await impatient
        assert (timed_out.status, timed_out.error_code) == (503, "queue_timeout")
        for refused in (full, timed_out):
            assert refused.headers["x-gateway-reject-reason"] == refused.error_code
            assert 1 <= int(refused.headers["retry-after"]) <= 60
            assert await gateway.metric("rejected_total", reason=refused.error_code) == 1
        assert (await first).status == 200
        assert engine.stats.requests == 1


async def test_a_client_that_leaves_the_queue_never_reaches_an_engine(tmp_path: Path):
    async with fleet(tmp_path, 1, slots=1, decode_rate=20) as (gateway, (engine,)):
        first = asyncio.create_task(ask(gateway, chat("First", max_tokens=20)))
        await until(lambda: gateway.metric("in_flight"))
        leaver = asyncio.create_task(ask(gateway, chat("Leaver")))
        await until(lambda: gateway.metric("queue_depth"))
        leaver.cancel()
        await until(lambda: is_empty(gateway))
        assert (await first).status == 200
        assert engine.stats.requests == 1
        assert await gateway.metric("requests_total", outcome="client_disconnect") == 1


async def is_empty(gateway: Running) -> bool:
    return await gateway.metric("queue_depth") == 0
