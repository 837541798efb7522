"""The figures agree with what was sent, with what was answered and with the engines' own counts."""

import asyncio
from pathlib import Path

import pytest
from fleet import KINDS, Answer, ask, fleet, words
from harness import chat

from gateway.sim.faults import parse_faults


def delivered(answers: list[Answer]) -> int:
    return sum(answer.delivered for answer in answers)


@pytest.mark.parametrize("kind", KINDS)
async def test_counts_and_tokens_are_what_clients_and_engines_saw(tmp_path: Path, kind: str):
    bodies = [
        chat(f"Question {n}", system=words(500 + 300 * (n % 3), f"System {n % 3}"), stream=n % 2 == 0)
        for n in range(24)
    ]
    for body in bodies[::2]:
        body["stream_options"] = {"include_usage": True}
    async with fleet(tmp_path, 2, kind, slots=3) as (gateway, engines):
        answers = list(await asyncio.gather(*(ask(gateway, body) for body in bodies)))
        answers += [await ask(gateway, body) for body in bodies]
        unknown = await ask(gateway, chat("Hello", model="nobody's"))
        broken = await ask(gateway, {"messages": "none", "model": "sim-model"})
        assert (unknown.status, broken.status) == (404, 400)

        assert await gateway.metric("requests_total") == 50
        assert await gateway.metric("requests_total", outcome="ok") == 48
        assert await gateway.metric("requests_total", outcome="invalid") == 2
        for name, engine in zip("ab", engines, strict=True):
            mine = [answer for answer in answers if answer.engine == name]
            assert mine
            assert await gateway.metric("requests_total", engine=name, outcome="ok") == len(mine)
            cached = await gateway.metric("cached_tokens_delivered_total", engine=name)
            assert cached == engine.stats.cached_tokens == delivered(mine) > 0
            prompt = await gateway.metric("prompt_tokens_total", engine=name)
            assert prompt == engine.stats.prompt_tokens == sum(a.usage["prompt_tokens"] for a in mine)
            predicted = await gateway.metric("cached_tokens_predicted_total", engine=name)
            assert predicted == sum(answer.predicted for answer in mine)
        assert await gateway.metric("cached_tokens_unknown_requests_total") == 0
        assert await gateway.metric("in_flight") == 0
        assert await gateway.metric("queue_depth") == 0

        funnel = (await gateway.state())["funnel"]
        assert funnel["delivered"] == delivered(answers)
        assert funnel["predicted"] <= funnel["best"] <= funnel["prompt"]
        assert len(await gateway.records()) == 50


async def test_cached_tokens_are_counted_also_where_the_client_did_not_ask_for_usage(tmp_path: Path):
    body = chat("Hello", system=words(1000, "System."), stream=True)
    async with fleet(tmp_path, 1) as (gateway, (engine,)):
        for _ in range(2):
            answer = await ask(gateway, body)
            assert not any(chunk.get("usage") for chunk in answer.chunks)
        cached = await gateway.metric("cached_tokens_delivered_total")
        assert cached == engine.stats.cached_tokens > 900
        assert await gateway.metric("cached_tokens_unknown_requests_total") == 0


async def test_every_way_out_gives_its_slot_back_and_is_counted_once(tmp_path: Path):
    async with fleet(tmp_path, 1, slots=2) as (gateway, (engine,)):
        for fault, outcome in (
            ("500", "engine_error"),
            ("die-after-chunks:3", "engine_truncated"),
            ("truncate", "engine_truncated"),
            ("overload", "engine_error"),
        ):
            before = await gateway.metric("requests_total", outcome=outcome)
            await engine.set_faults(parse_faults([fault]))
            await ask(gateway, chat("Hello", stream=True))
            assert await gateway.metric("requests_total", outcome=outcome) == before + 1
            assert await gateway.metric("in_flight") == 0
        await engine.set_faults(parse_faults([]))
        assert (await ask(gateway, chat("Hello"))).status == 200
        assert await gateway.metric("requests_total") == 5
