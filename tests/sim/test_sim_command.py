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


def test_options_that_cannot_be_are_a_usage_error():
    for options in (["--fault", "nope"], ["--slots", "0"], ["--kind", "ollama"], []):
        assert (
            CliRunner().invoke(sim_engine, [*(["--port", "0"] if options else []), *options]).exit_code == 2
        )
