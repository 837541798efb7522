"""Engines that run fewer or more requests at once than was thought: found out while they serve."""

import asyncio
import logging
from pathlib import Path

import pytest
from fleet import ask, entries, probe_often, simulated
from harness import Running, chat, running, until


@pytest.fixture(autouse=True)
def _probe_often(monkeypatch: pytest.MonkeyPatch) -> None:
    probe_often(monkeypatch)


async def keep_asking(gateway: Running, worker: int) -> None:
    for turn in range(1000):
        answer = await ask(gateway, chat(f"Worker {worker}, turn {turn}", max_tokens=20, stream=True))
        assert answer.status == 200


async def found(gateway: Running) -> int | None:
    return (await gateway.engine("a"))["inferred_cap"]


async def test_an_engine_that_runs_less_than_configured_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO, "prefix_gateway")
    async with (
        simulated(1, slots=2, dev=False, decode_rate=100) as engines,
        running(tmp_path, entries(engines, slots=8)) as gateway,
    ):
        workers = [asyncio.create_task(keep_asking(gateway, it)) for it in range(8)]
        await until(lambda: is_found(gateway, 2))
        engine = await gateway.engine("a")
        assert engine["cap_note"].startswith("configured 8, runs 2 at once")
        assert (engine["slots"], engine["slots_source"]) == (8, "configured")
        assert await gateway.metric("engine_inferred_cap", engine="a") == 2
        assert await gateway.metric("degraded", kind="cap_mismatch") == 1
        await until(lambda: is_logged(caplog, "engine a: configured 8, runs 2 at once"))
        await stop(workers)
        waits_ms = [it["engine_queue_ms"] for it in await gateway.records() if it["ttft_ms"]]
        assert max(it for it in waits_ms if it is not None) > 100.0


async def test_an_assumed_cap_becomes_what_the_engine_runs(tmp_path: Path):
    async with (
        simulated(1, slots=11, dev=False, quiet=True, decode_rate=40) as engines,
        running(tmp_path, entries(engines)) as gateway,
    ):
        assert (await gateway.engine("a"))["slots_source"] == "assumed"
        workers = [asyncio.create_task(keep_asking(gateway, it)) for it in range(24)]
        # A pause of this process can make one look held back: the next try comes after half a minute.
        await until(lambda: has_slots(gateway, 11), 45.0)
        await stop(workers)
        assert (await gateway.engine("a"))["slots_source"] == "inferred"
        assert await gateway.metric("degraded", kind="slots_assumed") == 0
        # One more than it runs may have waited in there, to see.
        assert engines[0].stats.max_running == 11


async def is_found(gateway: Running, cap: int) -> bool:
    return await found(gateway) == cap


async def is_logged(caplog: pytest.LogCaptureFixture, words: str) -> bool:
    return any(words in it.getMessage() for it in caplog.records)


async def has_slots(gateway: Running, slots: int) -> bool:
    return (await gateway.engine("a"))["slots"] == slots


async def stop(workers: list[asyncio.Task[None]]) -> None:
    for task in workers:
        task.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
