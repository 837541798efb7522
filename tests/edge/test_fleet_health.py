"""Engines that come late, go, come back, answer slowly, load their model or are taken out of service."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from fleet import KINDS, ask, entries, fleet, probe_often, simulated, words
from harness import Running, chat, running, until

from gateway.core.engine import Health
from gateway.sim.faults import parse_faults
from gateway.sim.server import SimEngine


@pytest.fixture(autouse=True)
def _probe_often(monkeypatch: pytest.MonkeyPatch) -> None:
    probe_often(monkeypatch)


async def is_health(gateway: Running, name: str, health: str) -> bool:
    return (await gateway.engine(name))["health"] == health


async def is_ready(gateway: Running) -> bool:
    async with gateway.http.get(f"{gateway.api}/readyz") as answer:
        return answer.status == 200


async def order(gateway: Running, name: str, action: str) -> None:
    async with gateway.http.post(f"{gateway.admin}/api/engines/{name}/{action}") as answer:
        assert answer.status == 200


@pytest.mark.parametrize("kind", KINDS)
async def test_an_engine_that_starts_after_the_gateway_is_used(tmp_path: Path, kind: str):
    async with simulated(1, kind) as engines:
        await engines[0].close()
        async with running(tmp_path, entries(engines)) as gateway:
            early = await ask(gateway, chat("Hello"))
            assert (early.status, early.error_code) == (503, "no_ready_engine")
            assert 1 <= int(early.headers["retry-after"]) <= 60
            assert not await is_ready(gateway)
            await engines[0].start()
            await until(lambda: is_ready(gateway))
            assert (await ask(gateway, chat("Hello"))).status == 200
            assert (await gateway.engine("a"))["restarts"] == 0


@pytest.mark.parametrize("kind", KINDS)
async def test_an_engine_that_was_killed_and_is_back_is_empty_and_used_again(tmp_path: Path, kind: str):
    body = chat("Hello", system=words(2000, "Remember."), max_tokens=2)
    async with fleet(tmp_path, 1, kind) as (gateway, (engine,)):
        await ask(gateway, body)
        assert (await ask(gateway, body)).delivered > 1900
        assert (await gateway.engine("a"))["blocks"] > 0
        await engine.close()
        await until(lambda: is_health(gateway, "a", "down"))
        refused = await ask(gateway, body)
        assert (refused.status, refused.error_code) == (503, "no_ready_engine")
        await engine.start()
        await until(lambda: is_health(gateway, "a", "ready"))
        seen = await gateway.engine("a")
        assert (seen["restarts"], seen["blocks"], seen["in_flight"]) == (1, 0, 0)
        answer = await ask(gateway, body)
        assert (answer.status, answer.predicted, answer.delivered) == (200, 0, 0)
        assert (await ask(gateway, body)).predicted > 1900


@pytest.mark.parametrize("kind", KINDS)
async def test_a_restart_between_two_probes_is_seen(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("gateway.app._PROBE_S", dict.fromkeys(Health, 60.0))
    body = chat("Hello", system=words(2000, "Remember."), max_tokens=2)
    async with fleet(tmp_path, 1, kind) as (gateway, (engine,)):
        await ask(gateway, body)
        await engine.close()
        await engine.start()
        assert (await gateway.engine("a"))["blocks"] > 0
        gateway.gateway._prober.wake("a")
        await until(lambda: has_restarted(gateway, "a"))
        assert (await gateway.engine("a"))["blocks"] == 0
        assert (await ask(gateway, body)).status == 200


async def has_restarted(gateway: Running, name: str) -> bool:
    return (await gateway.engine(name))["restarts"] == 1


async def test_an_engine_that_works_is_not_down_however_slow_its_health_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    probe_often(monkeypatch, timeout_s=0.4)
    async with fleet(tmp_path, 2, decode_rate=20, sections={"routing": {"policy": "session"}}) as (
        gateway,
        engines,
    ):
        for name in "ab":
            await until(lambda name=name: is_health(gateway, name, "ready"))
        first = await ask(gateway, chat("Hello", max_tokens=1), x_session_id="s")
        for engine in engines:
            await engine.set_faults(parse_faults(["slow-health:60"]))
        idle = "b" if first.engine == "a" else "a"
        # Nobody vouches for the other one, so that it is given up: the probes do say something.
        await until(lambda: is_health(gateway, idle, "down"))
        assert await is_health(gateway, first.engine, "busy")
        assert await gateway.metric("engine_up", engine=first.engine) == 1
        answer = await ask(gateway, chat("Hello", max_tokens=20), x_session_id="s")
        assert (answer.status, answer.engine) == (200, first.engine)
        assert await is_health(gateway, first.engine, "busy")


@contextlib.asynccontextmanager
async def front(engine: SimEngine) -> AsyncIterator[tuple[str, asyncio.Event]]:
    """The URL of what passes everything on to `engine` while the event is set, and says until then what
    llama-server says on every path while it loads its model."""
    loaded = asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        if not loaded.is_set():
            error = {"message": "Loading model", "type": "unavailable_error", "code": 503}
            return web.json_response({"error": error}, status=503)
        async with http.request(
            request.method, engine.url + request.path_qs, data=await request.read()
        ) as got:
            return web.Response(status=got.status, body=await got.read(), content_type=got.content_type)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None)
    async with aiohttp.ClientSession() as http:
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            yield f"http://127.0.0.1:{runner.addresses[0][1]}", loaded
        finally:
            await runner.cleanup()


async def waiting(gateway: Running) -> int:
    return len((await gateway.state())["waiting"])


async def test_a_request_waits_for_a_llamacpp_engine_that_loads_its_model_again(tmp_path: Path):
    async with simulated(1, "llamacpp") as (engine,), front(engine) as (url, loaded):
        loaded.set()
        async with running(tmp_path, [{"name": "a", "url": url}]) as gateway:
            assert (await ask(gateway, chat("Hello"))).status == 200
            loaded.clear()
            await until(lambda: is_health(gateway, "a", "loading"))
            assert not await is_ready(gateway)
            asked = asyncio.create_task(ask(gateway, chat("Hello again")))
            await until(lambda: waiting(gateway))
            loaded.set()
            answer = await asked
            assert (answer.status, answer.engine) == (200, "a")
            assert (await gateway.engine("a"))["restarts"] == 1


async def test_a_request_waits_for_an_engine_that_loads_its_model_for_the_first_time(tmp_path: Path):
    async with (
        simulated(1, "llamacpp") as (engine,),
        front(engine) as (url, loaded),
        running(tmp_path, [{"name": "a", "url": url}]) as gateway,
    ):
        await until(lambda: is_health(gateway, "a", "loading"))
        assert (await gateway.engine("a"))["models"] == []
        async with gateway.http.post(f"{gateway.admin}/api/explain", json=chat("Hello")) as dry_run:
            not_considered = (await dry_run.json())["not_considered"]
        assert not_considered == {"a": "has not told its models, is loading"}
        asked = asyncio.create_task(ask(gateway, chat("Hello")))
        await until(lambda: waiting(gateway))
        assert await gateway.metric("queue_depth") == 1
        nameless = await ask(gateway, {"messages": []})
        assert (nameless.status, nameless.error_code) == (503, "no_ready_engine")
        loaded.set()
        answer = await asked
        assert (answer.status, answer.engine, answer.json["model"]) == (200, "a", "sim-model")
        assert await gateway.metric("queue_depth") == 0
        unknown = await ask(gateway, chat("Hello", model="none"))
        assert (unknown.status, unknown.error_code) == (404, "unknown_model")


async def test_an_unknown_model_is_not_denied_while_an_engine_was_never_seen(tmp_path: Path):
    async with simulated(2) as engines:
        await engines[1].close()
        async with running(tmp_path, entries(engines)) as gateway:
            await until(lambda: is_health(gateway, "b", "down"))
            refused = await ask(gateway, chat("Hello", model="none"))
            assert (refused.status, refused.error_code) == (503, "no_ready_engine")
            message = refused.json["error"]["message"]
            assert "'none'" in message
            assert "b is down" in message
            assert int(refused.headers["retry-after"]) >= 1
            assert (await ask(gateway, chat("Hello"))).engine == "a"


async def test_an_engine_that_drains_finishes_what_it_runs_and_gets_nothing_new(tmp_path: Path):
    async with fleet(tmp_path, 2, decode_rate=40) as (gateway, _):
        running_one = asyncio.create_task(
            ask(gateway, chat("Hold", system=words(500, "Hold"), max_tokens=20))
        )
        name = await until(lambda: busy(gateway))
        other = "b" if name == "a" else "a"
        await order(gateway, name, "drain")
        assert (await gateway.engine(name))["draining"]
        answers = await asyncio.gather(*(ask(gateway, chat(f"Hello {n}", max_tokens=1)) for n in range(6)))
        assert {answer.engine for answer in answers} == {other}
        held = await running_one
        assert (held.status, held.engine) == (200, name)
        await order(gateway, other, "drain")
        refused = await ask(gateway, chat("Hello"))
        assert (refused.status, refused.error_code) == (503, "no_ready_engine")
        await order(gateway, name, "undrain")
        assert (await ask(gateway, chat("Hello"))).engine == name


async def busy(gateway: Running) -> str:
    return next((it["name"] for it in (await gateway.state())["engines"] if it["in_flight"]), "")


async def test_with_all_engines_down_requests_are_told_when_to_retry(tmp_path: Path):
    async with fleet(tmp_path, 2) as (gateway, engines):
        assert (await ask(gateway, chat("Hello"))).status == 200
        for engine in engines:
            await engine.close()
        await until(lambda: is_health(gateway, "a", "down"))
        await until(lambda: is_health(gateway, "b", "down"))
        refused = await ask(gateway, chat("Hello"))
        assert (refused.status, refused.error_code) == (503, "no_ready_engine")
        assert refused.headers["x-gateway-reject-reason"] == "no_ready_engine"
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        assert "a is down, b is down" in refused.json["error"]["message"]
        assert await gateway.metric("rejected_total", reason="no_ready_engine") == 1
        assert await gateway.metric("engine_up") == 0


async def test_every_change_of_health_is_logged_once_with_what_it_costs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    probe_often(monkeypatch)
    async with fleet(tmp_path, 1, slots=2, decode_rate=10) as (gateway, (engine,)):
        caplog.set_level("INFO", "prefix_gateway")
        stuck = asyncio.create_task(ask(gateway, chat("Hello", max_tokens=100, stream=True)))
        await until(lambda: gateway.metric("in_flight"))
        await engine.set_faults(parse_faults(["refuse"]))
        await stuck
        await until(lambda: is_down(gateway))
        lines = [it for it in caplog.messages if it.startswith("engine a: down, was ready")]
        assert len(lines) == 1


async def is_down(gateway: Running) -> bool:
    return (await gateway.engine("a"))["health"] == "down"
