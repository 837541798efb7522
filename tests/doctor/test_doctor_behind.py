"""What an engine says of itself while the doctor looks."""

import asyncio

import pytest
from loopback import Api, a_sim, whole_answer

from gateway.doctor.behind import Behind
from gateway.doctor.client import Client
from gateway.doctor.seen import Reading


@pytest.mark.parametrize(
    ("kind", "dev", "slots", "setting"),
    [
        ("vllm", True, 2, "--max-num-seqs"),
        ("vllm", False, None, "--max-num-seqs"),
        ("sglang", False, 2, "--max-running-requests"),
        ("llamacpp", False, 2, "--parallel"),
    ],
)
async def test_each_kind_is_known_with_its_setting_and_what_it_declares(
    kind: str, dev: bool, slots: int | None, setting: str
) -> None:
    async with a_sim(kind=kind, dev=dev) as engine, Client(None, 5.0) as client:
        told = await Behind(client, engine.url, direct=True).look()

    assert told is not None
    assert (told.kind, told.slots) == (kind, slots)
    assert setting in told.setting
    assert (told.direct, told.url) == (True, engine.url)


async def test_what_tells_nothing_is_openai() -> None:
    async with Api(lambda path, body: whole_answer(1)) as url, Client(None, 5.0) as client:
        behind = Behind(client, url, direct=False)
        told = await behind.look()
        readings: list[Reading] = []
        await behind.watch(lambda: 0.0, readings)

    assert told is not None
    assert (told.kind, told.slots, told.direct, told.url) == ("openai", None, False, "")
    assert readings == []


async def test_nobody_there_is_nobody() -> None:
    async with Client(None, 5.0) as client:
        assert await Behind(client, "http://127.0.0.1:1", direct=True).look() is None


async def test_nothing_is_read_before_it_is_known_who_is_there() -> None:
    async with Client(None, 5.0) as client:
        readings: list[Reading] = []
        await Behind(client, "http://127.0.0.1:1", direct=True).watch(lambda: 0.0, readings)

    assert readings == []


@pytest.mark.parametrize(("kind", "waiting"), [("vllm", 0), ("sglang", 0), ("llamacpp", None)])
async def test_its_counters_are_read_again_and_again(kind: str, waiting: int | None) -> None:
    readings: list[Reading] = []
    moments = iter([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    async with a_sim(kind=kind) as engine, Client(None, 5.0) as client:
        behind = Behind(client, engine.url, direct=True)
        await behind.look()
        watching = asyncio.create_task(behind.watch(lambda: next(moments), readings))
        async with asyncio.timeout(5):
            while len(readings) < 2:
                await asyncio.sleep(0.01)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

    assert [(it.at, it.running, it.waiting) for it in readings[:2]] == [(1.0, 0, waiting), (2.0, 0, waiting)]
