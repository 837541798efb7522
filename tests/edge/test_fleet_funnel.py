"""The account of prompt tokens in front of simulated engines: it adds up to the token, against the engines'
own counters, whatever evicts, spills, waits or comes in bursts."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from fleet import KINDS, Answer, Json, ask, entries, fleet, simulated, words
from harness import Running, chat, running

from gateway.core.funnel import REASONS
from gateway.sim.server import SimEngine

SYSTEM = words(1000, "You are one of many agents.")


class Talk:
    """A conversation whose turns each bring the history and some 300 tokens of their own, behind a system
    prompt that all have."""

    def __init__(self, name: str, **fields: Any) -> None:
        self._name = name
        self._fields = fields
        self._messages: list[Json] = [{"role": "system", "content": SYSTEM}]

    async def turn(self, gateway: Running) -> Answer:
        messages = self._messages
        messages.append({"role": "user", "content": words(300, f"{self._name} turn {len(messages)}")})
        body = {"model": "sim-model", "messages": messages, "max_tokens": 10, **self._fields}
        answer = await ask(gateway, body)
        messages.append({"role": "assistant", "content": answer.text})
        return answer


async def losses(gateway: Running) -> dict[str, float]:
    return {reason: await gateway.metric("prefix_loss_tokens_total", reason=reason) for reason in REASONS}


async def get(gateway: Running, path: str) -> Any:
    async with gateway.http.get(gateway.admin + path) as response:
        return await response.json()


async def check(gateway: Running, engines: list[SimEngine]) -> dict[str, float]:
    """Every place that tells of tokens tells the same as the engines. Returns the losses."""
    lost = await losses(gateway)
    prompt = await gateway.metric("prompt_tokens_total")
    delivered = await gateway.metric("cached_tokens_delivered_total")
    assert prompt == sum(engine.stats.prompt_tokens for engine in engines)
    assert delivered == sum(engine.stats.cached_tokens for engine in engines)
    assert sum(lost.values()) == prompt - delivered

    page = await get(gateway, "/api/funnel")
    everything = page["windows"]["all"]
    state = (await gateway.state())["funnel"]
    assert {name: state[name] for name in everything} == everything
    assert (everything["prompt"], everything["delivered"]) == (prompt, delivered)
    assert everything["lost"] == lost
    assert everything["infinite"] == await gateway.metric("cached_tokens_infinite_total")
    assert delivered <= everything["infinite"] <= prompt
    for by_name in page["by"].values():
        for column in ("requests", "prompt", "infinite", "best", "predicted", "delivered"):
            assert sum(it["all"][column] for it in by_name.values()) == everything[column]
        for reason in REASONS:
            assert sum(it["all"]["lost"][reason] for it in by_name.values()) == lost[reason]
    assert sum(step["prompt"] for step in page["series"]) == prompt

    records = [record for record in await gateway.records() if record["lost"] is not None]
    for record in records:
        assert sum(record["lost"].values()) == record["prompt_tokens"] - record["cached_tokens"]
    assert {reason: sum(record["lost"][reason] for record in records) for reason in REASONS} == lost
    return lost


@pytest.mark.parametrize("kind", KINDS)
async def test_conversations_on_engines_that_hold_fewer_than_is_believed(tmp_path: Path, kind: str):
    async with (
        simulated(2, kind, slots=2, kv_tokens=6000, prefill_rate=1e5, decode_rate=500.0) as engines,
        running(tmp_path, entries(engines, kv_tokens=200_000)) as gateway,
    ):
        talks = [Talk(f"talk {n}", stream=n % 2 == 0) for n in range(12)]
        for _ in range(4):
            answers = await asyncio.gather(*(talk.turn(gateway) for talk in talks))
            assert {answer.status for answer in answers} == {200}
        lost = await check(gateway, engines)
    assert lost["cold"] > 0
    if kind == "vllm":
        assert lost["evicted"] > 0


async def test_a_burst_of_siblings_loses_to_what_is_still_being_computed(tmp_path: Path):
    shared = words(4000, "A new task for eight.")
    async with fleet(tmp_path, 1, slots=8, prefill_rate=20_000.0) as (gateway, engines):
        bodies = [chat(words(50, f"Part {n}"), system=shared, max_tokens=2) for n in range(8)]
        await asyncio.gather(*(ask(gateway, body) for body in bodies))
        lost = await check(gateway, engines)
        everything = (await get(gateway, "/api/funnel"))["windows"]["all"]
    # The first one's prompt is new, and its siblings' own parts are.
    assert 4000 <= lost["cold"] < 5500
    assert lost["evicted"] == lost["engine_disagrees"] == lost["spilled"] == 0
    assert lost["pending"] == everything["prompt"] - everything["delivered"] - lost["cold"]
    assert everything["infinite"] >= 7 * 3900


async def test_prompts_whose_engine_is_full_lose_to_its_slots(tmp_path: Path):
    async with fleet(tmp_path, 2, slots=1, decode_rate=100.0) as (gateway, engines):
        # The rate that the first one shows is so high that the last one does not wait for its prefix long.
        first = await ask(gateway, chat("Hello", system=SYSTEM, max_tokens=2, stream=True))
        bodies = [chat(f"Question {n}", system=SYSTEM, max_tokens=100) for n in range(2)]
        answers = await asyncio.gather(*(ask(gateway, body) for body in bodies))
        assert {answer.engine for answer in answers} == {"a", "b"}
        lost = await check(gateway, engines)
    assert first.status == 200
    assert lost["queued_elsewhere"] > 900
    assert lost["spilled"] == 0


async def test_what_an_engine_forgot_is_the_capacity_s(tmp_path: Path):
    async with fleet(tmp_path, 1, slots=1, kv_tokens=4000) as (gateway, engines):
        for turn in range(3):
            for name in ("one", "two", "three"):
                await ask(gateway, chat(f"Turn {turn}", system=words(2500, name), max_tokens=1))
        lost = await check(gateway, engines)
        everything = (await get(gateway, "/api/funnel"))["windows"]["all"]
    assert everything["delivered"] < 1000
    # Six of nine prompts had been seen; the index knew that they were gone.
    assert everything["infinite"] > 6 * 2400
    assert lost["cold"] + lost["evicted"] > everything["prompt"] - 1000


async def test_the_session_of_a_record_is_a_hash(tmp_path: Path):
    async with fleet(tmp_path, 1) as (gateway, _):
        await ask(gateway, chat("Hello"), **{"x_session_id": "very secret"})
        await ask(gateway, chat("Hello"))
        newer, older = await gateway.records()
    assert newer["session"] == ""
    assert len(older["session"]) == 16
    assert "secret" not in str(older)


async def test_engines_that_do_not_report_are_unknown(tmp_path: Path):
    async with fleet(tmp_path, 1) as (gateway, _):
        # Several prompts in one request: what was cached of them is not told.
        body: Json = {"model": "sim-model", "prompt": [words(500, "x"), words(500, "y")], "max_tokens": 1}
        answer = await ask(gateway, body, "/v1/completions")
        assert answer.status == 200
        page = await get(gateway, "/api/funnel")
        assert await losses(gateway) == dict.fromkeys(REASONS, 0)
        assert (await gateway.records())[0]["lost"] is None
    assert page["windows"]["all"]["unknown_requests"] == 1
    assert page["windows"]["all"]["hit_rate"] is None
    assert page["unknown_engines"] == {"a": "start it with --enable-prompt-tokens-details"}
