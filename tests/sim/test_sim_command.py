import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from click.testing import CliRunner

from gateway.sim.command import sim_engine

PROGRAM = "from gateway.sim.command import sim_engine; sim_engine()"


@asynccontextmanager
async def program(*options: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A running engine and its URL, read from the line it prints."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, "--port", "0", *options, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        line = (await asyncio.wait_for(process.stdout.readline(), 10)).decode()
        yield process, line.split()[-1]
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_serves_until_it_is_told_to_stop(number: signal.Signals):
    async with program("--kind", "llamacpp", "--slots", "3") as (process, url):
        async with aiohttp.ClientSession() as client, client.get(url + "/props") as answer:
            assert (await answer.json())["total_slots"] == 3
        process.send_signal(number)
        assert await asyncio.wait_for(process.wait(), 10) == 0


async def test_a_killing_body_ends_the_program_with_a_failure():
    async with program("--fault", "kill-on:poison") as (process, url), aiohttp.ClientSession() as client:
        with pytest.raises(aiohttp.ClientOSError):
            await client.post(url + "/v1/completions", json={"prompt": "poison"})
        assert await asyncio.wait_for(process.wait(), 10) == 1


async def test_it_can_be_another_kind_of_engine():
    options = ("--batching", "static", "--jitter", "0.2", "--quiet", "--fault", "rate:0.001")
    async with program(*options) as (_, url), aiohttp.ClientSession() as client:
        async with client.get(url + "/metrics") as answer:
            assert answer.status == 404
        statuses = []
        for _ in range(2):
            async with client.post(url + "/v1/completions", json={"prompt": "x", "max_tokens": 1}) as answer:
                statuses.append(answer.status)
        assert statuses == [200, 429]


def test_options_that_cannot_be_are_a_usage_error():
    wrong = (["--fault", "nope"], ["--slots", "0"], ["--kind", "ollama"], ["--jitter", "1"])
    for options in (*wrong, ["--batching", "x"], ["--fault", "rate:0"], []):
        assert (
            CliRunner().invoke(sim_engine, [*(["--port", "0"] if options else []), *options]).exit_code == 2
        )
