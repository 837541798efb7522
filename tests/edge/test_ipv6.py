"""The gateway and its engine on ::1: addresses in brackets wherever they are shown."""

import asyncio
import io
import logging
import os
import signal
import socket

import pytest
from certificates import ca_file, client_context, server_context, server_files
from failing import OK, STREAMED, ask, complete
from harness import running, until
from raw_client import connect, request
from raw_engine import raw_engine

from gateway import app, config


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True


pytestmark = pytest.mark.skipif(not has_ipv6(), reason="this machine has no ::1")
ON_V6 = {"listen": "[::1]:0", "admin": "[::1]:0"}


@pytest.fixture
async def engine():
    async with raw_engine(complete, host="::1") as engine:
        yield engine


@pytest.fixture
def access_log():
    return io.StringIO()


@pytest.fixture
async def gateway(tmp_path, engine, access_log):
    async with running(tmp_path, [engine.entry()], access_log=access_log, **ON_V6) as gateway:
        yield gateway


@pytest.mark.parametrize(("stream", "body"), [(False, OK), (True, STREAMED)])
async def test_it_is_served(gateway, engine, stream, body):
    assert gateway.gateway.listen.startswith("[::1]:")
    assert gateway.gateway.admin.startswith("[::1]:")
    answer = await ask(gateway, stream)
    assert (answer.status, answer.body) == (200, body)


async def test_the_engine_is_named_by_its_address(gateway, engine, access_log):
    name = engine.url.removeprefix("http://")
    assert name.startswith("[::1]:")
    answer = await ask(gateway)
    assert answer.headers["x-gateway-engine"] == name
    assert engine.calls[0].headers["host"] == name
    assert (await gateway.engine(name))["health"] == "ready"
    assert await gateway.metric("engine_up", engine=name) == 1
    assert (await gateway.records())[0]["engine"] == name

    async def logged():
        return f"engine={name} " in access_log.getvalue()

    await until(logged)


async def test_it_can_be_drained_by_that_name(gateway, engine):
    name = engine.url.removeprefix("http://")
    async with gateway.http.post(f"{gateway.admin}/api/engines/{name}/drain") as response:
        assert response.status == 200
    assert (await gateway.engine(name))["draining"] is True


async def test_an_engine_that_is_gone_is_named_in_the_log(gateway, engine, caplog):
    engine.refuse()
    assert (await ask(gateway)).status in (502, 503)
    assert f"engine {engine.url.removeprefix('http://')}: " in caplog.text


async def test_tls_works_on_both_sides(tmp_path):
    files, ca = server_files(tmp_path), ca_file(tmp_path)
    async with (
        raw_engine(complete, host="::1", tls=server_context("::1")) as engine,
        running(tmp_path, [engine.entry(ca=ca)], tls=files, **ON_V6) as gateway,
        connect(gateway, ssl=client_context(), server_hostname="::1") as client,
    ):
        assert gateway.api.startswith("https://[::1]:")
        client.send(request({"model": "m", "messages": []}))
        assert (await client.answer()).body == OK


async def test_the_start_names_where_it_serves(tmp_path, engine, caplog):
    """The line that people copy."""
    caplog.set_level(logging.INFO)
    settings = config.from_args([engine.url], listen="[::1]:0", admin="[::1]:0")
    task = asyncio.create_task(app.run(settings, logging.getLogger("prefix_gateway"), "text"))

    async def serving():
        return "serving on http://[::1]:" in caplog.text

    await until(serving)
    assert "dashboard on http://[::1]:" in caplog.text
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(task, 10)
