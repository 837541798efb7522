"""No engine gets more than it can run at once; what waits, waits in the gateway."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from fleet import KINDS, Answer, Json, Watch, ask, fleet, words
from harness import Running, chat, until

from gateway.sim.server import SimEngine

PROMPTS: dict[str, Callable[[int], str]] = {
    "equal": lambda _: words(2000, "same"),
    "different": lambda number: words(2000, f"number {number}"),
    "short": lambda number: f"Hello {number}",
}
SLOW = {"slots": 2, "prefill_rate": 2e5, "decode_rate": 25.0}


def deferred(engines: list[SimEngine]) -> list[int]:
    return [engine.stats.deferred_total for engine in engines]


def most_running(engines: list[SimEngine]) -> list[int]:
    return [engine.stats.max_running for engine in engines]


async def send_all(gateway: Running, bodies: list[Json], path: str) -> tuple[list[Answer], Watch, float]:
    """All at once; also what was seen meanwhile, and the deepest queue that /metrics showed."""
    async with Watch(gateway) as watch:
        asked = [asyncio.create_task(ask(gateway, body, path)) for body in bodies]
        depth = await until(lambda: at_least(gateway, 8))
        return await asyncio.gather(*asked), watch, depth


async def at_least(gateway: Running, depth: int) -> float:
    """The `queue_depth` metric, 0 below `depth`."""
    shown = await gateway.metric("queue_depth")
    return shown if shown >= depth else 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("prompts", PROMPTS)
async def test_of_twelve_at_once_four_run_and_eight_wait_in_the_gateway(
    tmp_path: Path, kind: str, prompts: str
):
    bodies = [chat(PROMPTS[prompts](n), max_tokens=10, stream=n % 2 == 0) for n in range(12)]
    async with fleet(tmp_path, 2, kind, **SLOW) as (gateway, engines):
        answers, watch, shown = await send_all(gateway, bodies, "/v1/chat/completions")
        assert [answer.status for answer in answers] == [200] * 12
        assert all(len(answer.text.split()) == 10 for answer in answers)
        assert (max(watch.depths), shown) == (8, 8)
        assert (most_running(engines), deferred(engines)) == ([2, 2], [0, 0])


@pytest.mark.parametrize("kind", KINDS)
async def test_a_request_for_two_answers_takes_two_slots(tmp_path: Path, kind: str):
    bodies = [chat(f"Hello {n}", max_tokens=10, n=2 if n % 3 == 2 else 1) for n in range(12)]
    async with fleet(tmp_path, 2, kind, **SLOW) as (gateway, engines):
        answers, watch, _ = await send_all(gateway, bodies, "/v1/chat/completions")
        assert [len(answer.json["choices"]) for answer in answers] == [1, 1, 2] * 4
        assert (most_running(engines), deferred(engines)) == ([2, 2], [0, 0])
        assert max(sum(seen.values()) for seen in watch.in_flight) == 4


@pytest.mark.parametrize("kind", KINDS)
async def test_a_list_of_prompts_takes_a_slot_for_each(tmp_path: Path, kind: str):
    bodies = [
        {
            "model": "sim-model",
            "prompt": [f"One {n}", f"Two {n}"] if n % 3 == 2 else f"One {n}",
            "max_tokens": 10,
        }
        for n in range(12)
    ]
    async with fleet(tmp_path, 2, kind, **SLOW) as (gateway, engines):
        answers, watch, _ = await send_all(gateway, bodies, "/v1/completions")
        assert [len(answer.json["choices"]) for answer in answers] == [1, 1, 2] * 4
        assert (most_running(engines), deferred(engines)) == ([2, 2], [0, 0])
        assert max(sum(seen.values()) for seen in watch.in_flight) == 4


async def test_a_request_wider_than_any_engine_takes_a_whole_one(tmp_path: Path):
    async with fleet(tmp_path, 2, **SLOW) as (gateway, engines):
        wide = asyncio.create_task(ask(gateway, chat("Hello", n=5, max_tokens=5)))
        rest = await asyncio.gather(*(ask(gateway, chat(f"Hello {n}", max_tokens=5)) for n in range(6)))
        assert len((await wide).json["choices"]) == 5
        assert [answer.status for answer in rest] == [200] * 6
        # It runs in turns inside its engine: one request deferred, and no other one beside it.
        assert sorted(deferred(engines)) == [0, 1]
        assert most_running(engines) == [2, 2]
