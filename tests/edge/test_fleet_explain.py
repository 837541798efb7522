"""The dry run over the admin port, and what it must not pretend to know."""

import asyncio
from pathlib import Path

import pytest
from fleet import ask, fleet, words
from harness import Running, chat, running, until

from gateway.core.router import WAITING


async def explain(gateway: Running, body: dict, query: str = "") -> tuple[int, dict]:
    async with gateway.http.post(f"{gateway.admin}/api/explain{query}", json=body) as response:
        return response.status, await response.json()


async def test_it_names_the_winner_and_every_engines_figures_and_changes_nothing(tmp_path: Path):
    async with fleet(tmp_path, 2) as (gateway, engines):
        status, said = await explain(gateway, chat("hello " * 500))
        assert (status, said["engine"] in ("a", "b")) == (200, True)
        assert {it["engine"] for it in said["engines"]} == {"a", "b"}
        assert [it["chosen"] for it in said["engines"]].count(True) == 1
        assert sum(engine.stats.requests for engine in engines) == 0
        assert await gateway.records() == []


async def test_an_unknown_model_is_said_to_be_one(tmp_path: Path):
    async with fleet(tmp_path, 1) as (gateway, _):
        status, said = await explain(gateway, chat("hello", model="nope"))
        assert (status, said["error"]["code"]) == (404, "unknown_model")


@pytest.mark.parametrize(
    "body",
    [
        {"model": "sim-model", "system": "x" * 3000, "messages": [{"role": "user", "content": "hi"}]},
        {"model": "sim-model", "input": "hi", "instructions": "x" * 3000},
        {"model": "sim-model", "prompt": "x" * 3000},
    ],
)
async def test_bodies_of_every_api_get_figures(tmp_path: Path, body: dict):
    async with fleet(tmp_path, 1) as (gateway, _):
        status, said = await explain(gateway, body)
        assert (status, said["blocks"] >= 11, said["prompt_bytes"] >= 3000) == (200, True, True)


async def test_it_says_what_the_request_would_wait_for(tmp_path: Path):
    async with fleet(tmp_path, 1, slots=1, decode_rate=5) as (gateway, _):
        _, said = await explain(gateway, chat("hello"))
        assert said["waits_for"] == ""
        async with gateway.http.post(
            f"{gateway.api}/v1/chat/completions", json=chat("hello", stream=True, max_tokens=50)
        ) as answer:
            await answer.content.readany()
            _, said = await explain(gateway, chat("hello"))
            assert said["waits_for"] == "a slot on a"


async def test_the_sentence_says_where_it_goes_and_what_that_saves(tmp_path: Path):
    body = chat("What now?", system=words(3000, "A system prompt."))
    async with fleet(tmp_path, 2, prefill_rate=20_000.0) as (gateway, _):
        engine = (await ask(gateway, body)).engine
        _, said = await explain(gateway, body)
        by_name = {it["engine"]: it for it in said["engines"]}
        best, other = by_name[engine], by_name[{"a": "b", "b": "a"}[engine]]
        assert (said["engine"], said["route"], said["queued_before"]) == (engine, "prefix", 0)
        assert said["sentence"].startswith(f"goes to {engine}: holds {best['predicted_cached_tokens']:,} of ")
        assert said["sentence"].endswith(f" but would compute {other['uncached_tokens']:,} tokens")
        assert (
            best["predicted_s"]
            < other["predicted_s"]
            == pytest.approx(other["wait_s"] + other["prefill_ahead_s"] + other["own_prefill_s"])
        )
        assert best["why"].startswith("holds ")
        assert "; costs " in other["why"]
        assert best["again_s"] == 0.0 < other["again_s"]
        for it in said["engines"]:
            weighed = it["prefill_ahead_s"] + it["prefill_weight"] * it["own_prefill_s"] + it["again_s"]
            assert it["score"] == pytest.approx(WAITING * it["wait_s"] + weighed + it["crowding_s"])


async def test_asking_changes_nothing(tmp_path: Path):
    """Neither what is counted, nor what is known of engines and prompts, nor what waits."""
    body = chat("What now?", system=words(3000, "A system prompt."))
    async with fleet(tmp_path, 2, slots=1, decode_rate=5.0) as (gateway, engines):
        running = [
            await gateway.http.post(f"{gateway.api}/v1/chat/completions", json=body | more)
            for more in ({"stream": True, "max_tokens": 50},) * 2
        ]
        for answer in running:
            await answer.content.readany()
        waiting = gateway.http.post(f"{gateway.api}/v1/chat/completions", json=body)
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(waiting.__aenter__())
            await until(lambda: is_queued(gateway))
            before = await everything(gateway, len(engines))
            for _ in range(3):
                await explain(gateway, body)
                await explain(gateway, chat("Another", system=words(2000, "Another one.")))
            assert await everything(gateway, len(engines)) == before
            for answer in running:
                answer.close()
            (await task).close()


async def is_queued(gateway: Running) -> bool:
    return len((await gateway.state())["waiting"]) == 1


async def everything(gateway: Running, engines: int) -> dict[str, object]:
    """But for what time alone changes."""
    scheduler = gateway.gateway.dispatcher.scheduler
    async with gateway.http.get(f"{gateway.admin}/metrics") as response:
        lines = (await response.text()).splitlines()
    timely = ("process_", "python_", "prefix_gateway_concurrency_seconds", "slot_idle", "engine_running")
    state = await gateway.state()
    return {
        "metrics": [it for it in lines if it and not any(word in it for word in timely)],
        "versions": {name: scheduler.index.version(name) for name in scheduler.engines},
        "sizes": {name: scheduler.index.size(name) for name in scheduler.engines},
        "lengths": list(scheduler.index._lengths._young.items()),
        "ratios": dict(scheduler.index._bytes_per_token),
        "turns": dict(scheduler._swaps._next_at),
        "queue": [it["id"] for it in state["waiting"]],
        "running": [it["id"] for it in state["running"]],
        "in_flight": [it["in_flight"] for it in state["engines"]],
        "pending": [it["pending_prefill_tokens"] for it in state["engines"]],
        "records": len(await gateway.records()),
        "due": scheduler.next_deadline() is not None,
        "engines": engines,
    }


@pytest.mark.parametrize(
    ("api", "status"), [("chat", 200), ("/v1/chat/completions", 200), ("messages", 200), ("completions", 400)]
)
async def test_the_api_may_be_named(tmp_path: Path, api: str, status: int):
    async with fleet(tmp_path, 1) as (gateway, _):
        assert (await explain(gateway, chat("hello"), f"?api={api}"))[0] == status


async def test_an_api_without_prompts_is_none_to_explain(tmp_path: Path):
    async with fleet(tmp_path, 1) as (gateway, _):
        status, said = await explain(gateway, chat("hello"), "?api=embeddings")
        assert status == 400
        assert said["error"]["message"].startswith(
            "api must be one of chat, completions, responses, messages"
        )


async def test_under_another_policy_seconds_are_told_all_the_same(tmp_path: Path):
    async with fleet(tmp_path, 2, sections={"routing": {"policy": "round_robin"}}) as (gateway, _):
        _, said = await explain(gateway, chat("hello", system=words(2000, "A system prompt.")))
        assert all(it["predicted_s"] > 0.5 for it in said["engines"])
        assert "by policy round_robin: holds 0 of " in said["sentence"]


async def test_nobody_who_serves_it_is_said_to_be_down(tmp_path: Path):
    async with running(tmp_path, [{"name": "a", "url": "http://127.0.0.1:1"}]) as gateway:
        status, said = await explain(gateway, chat("hello", model="m"))
        assert (status, said["engine"], said["engines"]) == (200, None, [])
        assert said["sentence"] == f"goes nowhere now: a {said['not_considered']['a']}"
