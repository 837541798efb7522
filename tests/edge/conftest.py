"""The real gateway before one or two engines whose bytes a test writes by hand."""

import pytest
from failing import complete
from harness import running
from raw_engine import raw_engine


@pytest.fixture
async def pair():
    """Two engines of the same model."""
    async with raw_engine(complete) as a, raw_engine(complete) as b:
        yield {"a": a, "b": b}


@pytest.fixture
async def gateway(tmp_path, pair):
    async with running(tmp_path, [it.entry(name=name) for name, it in pair.items()]) as gateway:
        yield gateway


@pytest.fixture
async def engine():
    async with raw_engine(complete) as engine:
        yield engine


@pytest.fixture
async def alone(tmp_path, engine):
    async with running(tmp_path, [engine.entry(name="a")]) as gateway:
        yield gateway
