import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import uvloop
from sim_client import Json, Start

from gateway.sim.server import SimEngine
from gateway.sim.settings import SimSettings


def pytest_asyncio_loop_factories(config, item):
    """Tests run the simulated engine on uvloop beside the gateway; the program runs it on asyncio's loop."""
    if item.path.name == "test_sim_command.py":
        return None
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    engines: list[SimEngine] = []

    async def start_one(kind: str = "vllm", **settings: Any) -> SimEngine:
        fast: Json = {"prefill_rate": 1e6, "decode_rate": 1e4}
        engine = SimEngine(SimSettings(kind=kind, **{**fast, **settings}))
        engines.append(engine)
        await engine.start()
        return engine

    yield start_one
    for engine in engines:
        await engine.close()


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session
