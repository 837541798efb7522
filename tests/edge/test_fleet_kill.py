"""Engines that die at work: what had no byte yet goes elsewhere once, the rest is told."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fleet import Json, ask, entries, fleet, probe_often, simulated, words
from harness import Running, chat, running, until

from gateway.sim.faults import parse_faults


@pytest.fixture(autouse=True)
def _probe_often(monkeypatch: pytest.MonkeyPatch) -> None:
    probe_often(monkeypatch)


class Program:
    """A `sim-engine` process that can be killed and started again on its port."""

    def __init__(self, *options: str) -> None:
        self.url = ""
        self._options = options
        self._port = "0"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        command = ["-m", "gateway", "sim-engine", "--port", self._port, *self._options]
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, *command, stdout=asyncio.subprocess.PIPE
        )
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), 20)
        self.url = line.decode().split()[-1]
        self._port = self.url.rpartition(":")[2]

    async def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            await self._process.wait()
            self._process = None


@contextlib.asynccontextmanager
async def program(*options: str) -> AsyncIterator[Program]:
    it = Program(*options)
    try:
        await it.start()
        yield it
    finally:
        await it.kill()


async def order(gateway: Running, name: str, action: str) -> None:
    async with gateway.http.post(f"{gateway.admin}/api/engines/{name}/{action}") as answer:
        assert answer.status == 200


async def runs(gateway: Running, name: str, count: int, producing: int) -> bool:
    running_now = [it for it in (await gateway.state())["running"] if it["engine"] == name]
    return len(running_now) == count and sum(it["producing"] for it in running_now) == producing


def pieces(chunks: list[Json]) -> list[str]:
    """The text of every event that brings some, in order."""
    deltas = [it["delta"].get("content") for chunk in chunks for it in chunk.get("choices", ())]
    return [piece for piece in deltas if piece]


async def whole_answer(gateway: Running, body: Json) -> list[str]:
    return pieces((await ask(gateway, {**body, "stream": True})).chunks)


async def test_kill_minus_nine_in_prefill_and_in_mid_stream(tmp_path: Path):
    """Engine a is a process, b is here. All requests start on a, which is killed under them."""
    options = ("--slots", "8", "--decode-rate", "25", "--prefill-rate", "4000", "--dev")
    async with program(*options) as a, simulated(1, slots=8) as (b,):
        config: list[Any] = [{"name": "a", "url": a.url}, *({**it, "name": "b"} for it in entries([b]))]
        async with running(tmp_path, config) as gateway:
            await order(gateway, "b", "drain")
            streaming = [chat(f"Tell {n}", max_tokens=60, stream=True) for n in range(2)]
            cut = [asyncio.create_task(ask(gateway, body)) for body in streaming]
            await until(lambda: runs(gateway, "a", 2, producing=2))
            long = words(40_000, "A prefill of ten seconds.")
            unanswered = [chat(long, max_tokens=6, stream=stream) for stream in (True, False)]
            resent = [asyncio.create_task(ask(gateway, body)) for body in unanswered]
            await until(lambda: runs(gateway, "a", 4, producing=2))
            await order(gateway, "b", "undrain")
            await a.kill()
            await until(lambda: is_health(gateway, "a", "down"))

            for body, answer in zip(streaming, await asyncio.gather(*cut), strict=True):
                assert (answer.status, answer.engine, answer.error_code) == (200, "a", "engine_truncated")
                assert "error" in answer.chunks[-1]
                assert b"[DONE]" not in answer.body
                got, full = pieces(answer.chunks), await whole_answer(gateway, body)
                assert 0 < len(got) < len(full) == 60
                assert got == full[: len(got)]
            for answer in await asyncio.gather(*resent):
                assert (answer.status, answer.engine, answer.route) == (200, "b", "retry")
                assert (answer.error_code, len(answer.text.split())) == ("", 6)

            records = await gateway.records()
            outcomes = sorted((it["outcome"], it["attempts"]) for it in records)
            assert outcomes == [("engine_truncated", 1)] * 2 + [("ok", 1)] * 2 + [("ok", 2)] * 2
            assert b.stats.requests == 4
            assert await gateway.metric("in_flight") == 0

            await a.start()
            await until(lambda: is_health(gateway, "a", "ready"))
            await order(gateway, "b", "drain")
            answer = await ask(gateway, chat("Hello", max_tokens=2))
            assert (answer.status, answer.engine) == (200, "a")
            assert (await gateway.engine("a"))["restarts"] == 1


async def is_health(gateway: Running, name: str, health: str) -> bool:
    return (await gateway.engine(name))["health"] == health


@pytest.mark.parametrize("stream", [True, False])
async def test_a_request_that_kills_engines_kills_two_and_not_all(tmp_path: Path, stream: bool):
    async with fleet(tmp_path, 3, faults=("kill-on:poison",)) as (gateway, engines):
        answer = await ask(gateway, chat("This is poison.", stream=stream))
        assert (answer.status, answer.error_code) == (502, "engine_unreachable")
        assert sorted(engine.killed.is_set() for engine in engines) == [False, True, True]
        (record,) = await gateway.records()
        assert (record["outcome"], record["attempts"]) == ("engine_error", 2)
        survivor = next(name for name, it in zip("abc", engines, strict=True) if not it.killed.is_set())
        for n in range(4):
            good = await ask(gateway, chat(f"Hello {n}"))
            assert (good.status, good.engine) == (200, survivor)


async def test_what_had_no_byte_is_sent_again_to_the_only_engine_once_it_is_back(tmp_path: Path):
    async with fleet(tmp_path, 1, faults=("die-after-chunks:0",)) as (gateway, (engine,)):
        answer = await ask(gateway, chat("Hello"))
        assert (answer.status, answer.error_code) == (502, "engine_unreachable")
        assert engine.stats.requests == 2
        await engine.set_faults(parse_faults([]))
        assert (await ask(gateway, chat("Hello"))).status == 200


async def test_a_stream_that_breaks_is_never_sent_again(tmp_path: Path):
    async with fleet(tmp_path, 2, faults=("die-after-chunks:4",)) as (gateway, engines):
        answer = await ask(gateway, chat("Hello", stream=True))
        assert (answer.status, answer.error_code) == (200, "engine_truncated")
        assert len(pieces(answer.chunks)) == 3
        assert sum(engine.stats.requests for engine in engines) == 1
        assert await gateway.metric("requests_total", outcome="engine_truncated") == 1


async def test_a_connection_that_is_refused_costs_no_resend(tmp_path: Path):
    async with fleet(tmp_path, 3) as (gateway, engines):
        for engine in engines[:2]:
            engine.kill()
        answers = await asyncio.gather(*(ask(gateway, chat(f"Hello {n}")) for n in range(9)))
        assert {(answer.status, answer.engine) for answer in answers} == {(200, "c")}


async def test_an_engine_that_says_it_is_overloaded_is_passed_over_without_a_mark(tmp_path: Path):
    async with fleet(tmp_path, 2) as (gateway, engines):
        await engines[0].set_faults(parse_faults(["overload"]))
        answers = [await ask(gateway, chat(f"Hello {n}", stream=n % 2 == 0)) for n in range(6)]
        assert {(answer.status, answer.engine) for answer in answers} == {(200, "b")}
        assert await is_health(gateway, "a", "ready")
        await engines[1].set_faults(parse_faults(["overload"]))
        refused = await ask(gateway, chat("Hello"))
        assert refused.status == 503
        assert refused.json["error"]["message"] == "The engine is overloaded."
