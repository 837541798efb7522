"""Slots that others use: clients that left while their engine goes on, and programs beside the gateway."""

import asyncio
from pathlib import Path

import aiohttp
import pytest
from fleet import Json, ask, fleet, probe_often, words
from harness import Running, chat, until

from gateway.sim.server import SimEngine


@pytest.fixture(autouse=True)
def _probe_often(monkeypatch: pytest.MonkeyPatch) -> None:
    probe_often(monkeypatch)


async def field(gateway: Running, name: str, value: int) -> bool:
    return (await gateway.engine("a"))[name] == value


async def leave_in_mid_prefill(gateway: Running, engine: SimEngine, body: Json) -> None:
    asked = asyncio.create_task(ask(gateway, body))
    await until(lambda: is_running(engine))
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)


async def is_running(engine: SimEngine) -> bool:
    return engine.stats.running > 0


@pytest.mark.parametrize(
    ("kind", "fault"),
    # llama.cpp's prefill goes on to its end, here 0.5 s; vLLM's slot is free when it notices.
    [("llamacpp", ()), ("llamacpp", ("slow-cancel:0.8",)), ("vllm", ("slow-cancel:2",))],
)
async def test_a_slot_whose_client_left_counts_until_the_engine_is_idle(
    tmp_path: Path, kind: str, fault: tuple[str, ...]
):
    slow: Json = {"slots": 1, "prefill_rate": 10_000, "faults": fault}
    async with fleet(tmp_path, 1, kind, **slow) as (gateway, (engine,)):
        await leave_in_mid_prefill(gateway, engine, chat(words(5000, "Long."), max_tokens=1))
        await until(lambda: field(gateway, "cooling", 1))
        assert await gateway.metric("slots_cooling", engine="a") == 1
        assert engine.stats.running == 1
        asked = asyncio.create_task(ask(gateway, chat("Next", max_tokens=1)))
        await until(lambda: is_waiting(gateway))
        answer = await asked
        assert answer.status == 200
        assert float(answer.headers["x-gateway-queue-ms"]) > 0
        stats = engine.stats
        assert (stats.max_running, stats.deferred_total, stats.cancelled) == (1, 0, 1)
        assert await gateway.metric("slots_cooling", engine="a") == 0
        assert await gateway.metric("requests_total", outcome="client_disconnect") == 1


async def is_waiting(gateway: Running) -> bool:
    return bool((await gateway.state())["waiting"])


async def test_many_clients_that_leave_never_put_an_engine_over_its_cap(tmp_path: Path):
    slow: Json = {"slots": 2, "prefill_rate": 20_000, "decode_rate": 100, "faults": ("slow-cancel:0.3",)}
    async with fleet(tmp_path, 1, **slow) as (gateway, (engine,)):
        leaving = [asyncio.create_task(ask(gateway, chat(words(2000, f"Leave {n}")))) for n in range(6)]
        staying = [asyncio.create_task(ask(gateway, chat(f"Stay {n}", max_tokens=3))) for n in range(6)]
        for task in leaving:
            await until(lambda: is_running(engine))
            task.cancel()
        assert [answer.status for answer in await asyncio.gather(*staying)] == [200] * 6
        await until(lambda: field(gateway, "cooling", 0))
        assert (engine.stats.max_running, engine.stats.deferred_total) == (2, 0)
        assert await gateway.metric("in_flight") == 0


@pytest.mark.parametrize("kind", ["vllm", "llamacpp"])
async def test_what_others_run_on_an_engine_is_shown_and_left_to_them(tmp_path: Path, kind: str):
    async with fleet(tmp_path, 1, kind, slots=4, decode_rate=100) as (gateway, (engine,)):
        async with aiohttp.ClientSession() as other:
            body = chat("Mine", max_tokens=1000, n=3)
            foreign = asyncio.create_task(other.post(f"{engine.url}/v1/chat/completions", json=body))
            await until(lambda: field(gateway, "foreign", 3))
            assert (await gateway.engine("a"))["usable"] == 1
            assert await gateway.metric("engine_foreign_running", engine="a") == 3
            bodies = [chat(f"Hello {n}", max_tokens=10) for n in range(4)]
            answers = await asyncio.gather(*(ask(gateway, body) for body in bodies))
            assert [answer.status for answer in answers] == [200] * 4
            assert (engine.stats.max_running, engine.stats.deferred_total) == (4, 0)
            assert await gateway.metric("engine_foreign_running", engine="a") == 3
            foreign.cancel()
            await asyncio.gather(foreign, return_exceptions=True)
        await until(lambda: field(gateway, "foreign", 0))
        assert (await gateway.engine("a"))["usable"] == 4
        assert await gateway.metric("engine_foreign_running", engine="a") == 0


async def test_the_gateways_own_load_is_never_taken_for_foreign(tmp_path: Path):
    async with fleet(tmp_path, 1, slots=4, decode_rate=60) as (gateway, _):
        asked = [asyncio.create_task(ask(gateway, chat(f"Hello {n}", max_tokens=4))) for n in range(40)]
        seen = set()
        while not all(task.done() for task in asked):
            seen.add((await gateway.engine("a"))["foreign"])
        assert seen == {0}
        assert [task.result().status for task in asked] == [200] * 40
