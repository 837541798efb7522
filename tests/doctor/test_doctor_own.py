"""What the doctor's own client carries at once."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from gateway.doctor import own
from gateway.doctor.client import Client
from gateway.doctor.own import carries_at_once
from gateway.doctor.seen import Shape, Stream


@pytest.mark.parametrize("wanted", [1, 8, 150])
async def test_the_client_carries_all_that_are_wanted(wanted: int) -> None:
    async with Client(None, 10.0) as client:
        assert await carries_at_once(client, wanted) == wanted


class Pooled(Client):
    """A client with a pool."""

    def __init__(self, size: int) -> None:
        super().__init__(None, 10.0)
        self._pool = asyncio.Semaphore(size)

    async def ask(
        self, url: str, body: Mapping[str, object], number: int, shape: Shape, began_at: float
    ) -> Stream:
        async with self._pool:
            return await super().ask(url, body, number, shape, began_at)


async def test_a_client_with_a_pool_is_seen_as_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own, "_TOGETHER_S", 0.2)
    async with Pooled(3) as client:
        assert await carries_at_once(client, 4) == 3


async def test_without_a_server_to_try_it_on_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    async def none(*_: Any, **__: Any) -> None:
        raise OSError

    monkeypatch.setattr(asyncio, "start_server", none)
    async with Client(None, 10.0) as client:
        assert await carries_at_once(client, 4) is None
