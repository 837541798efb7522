"""The dry run over the admin port, and what it must not pretend to know."""

from pathlib import Path

import pytest
from fleet import fleet
from harness import Running, chat


async def explain(gateway: Running, body: dict) -> tuple[int, dict]:
    async with gateway.http.post(f"{gateway.admin}/api/explain", json=body) as response:
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
        {"model": "sim-model", "input": "hi"},
    ],
)
async def test_a_body_whose_prompt_is_not_read_yet_gets_no_figures(tmp_path: Path, body: dict):
    async with fleet(tmp_path, 1) as (gateway, _):
        status, said = await explain(gateway, body)
        assert (status, said["error"]["code"]) == (400, "invalid_request")


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
