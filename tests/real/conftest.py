"""Two real llama-server processes with two slots each, and a gateway in front of them."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Running, running
from llama import MODEL, RealEngine

from gateway.demo.fleet import find_running


@pytest.fixture(scope="session")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RealEngine]]:
    recipe = find_running()
    if recipe.model != MODEL:
        pytest.skip(f"no real engine here: {recipe.what}")
    recipe.prepare()
    directory = tmp_path_factory.mktemp("engines")
    pair = [RealEngine(name, recipe, directory) for name in ("a", "b")]
    try:
        for engine in pair:
            engine.start()
        for engine in pair:
            engine.wait_until_ready()
        yield pair
    finally:
        for engine in pair:
            engine.kill()


@pytest.fixture
async def gateway(engines: list[RealEngine], tmp_path: Path) -> AsyncIterator[Running]:
    """A gateway of its own for each test, in front of both engines."""
    entries: list[dict[str, Any]] = [{"name": engine.name, "url": engine.url} for engine in engines]
    async with running(tmp_path, entries) as gateway:
        yield gateway
