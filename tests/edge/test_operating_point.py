"""The operating point over real requests: the endpoint, the metric, and that they tell the same."""

import asyncio
from datetime import datetime
from pathlib import Path
from typing import Any

from fleet import ask, fleet, words
from harness import Running, chat

from gateway.core.operating import LABELS

SECRET = "violet submarine"


async def point(gateway: Running) -> dict[str, Any]:
    async with gateway.http.get(f"{gateway.admin}/api/operating-point") as response:
        assert response.status == 200
        return await response.json()


async def test_a_gateway_that_nobody_asked_says_so(tmp_path: Path):
    async with fleet(tmp_path, 2, slots=4) as (gateway, _):
        told = await point(gateway)
        assert told["sentence"].startswith("No request has been in flight yet, in ")
        assert told["sentence"].endswith(" Slots: 8.")
        assert (told["slots"], told["slots_assumed"], told["share_busy"], told["requests"]) == (8, 0, 0.0, 0)
        assert told["seconds_at"].keys() == {"0"}
        assert told["busy"] == {
            "seconds": 0,
            "at_most": {"p50": None, "p90": None, "p99": None, "max": None},
            "seconds_at": {},
        }
        assert told["classes"] == {}
        (*_, hour) = told["hours"]
        assert hour["classes"] == {}


async def test_requests_one_at_a_time_and_their_tokens_by_class(tmp_path: Path):
    body = chat(f"Tell me of the {SECRET}.", system=words(1000, "System."))
    async with fleet(tmp_path, 1, slots=4) as (gateway, _):
        answers = [await ask(gateway, body), await ask(gateway, body)]
        answers.append(await ask(gateway, body | {"response_format": {"type": "json_object"}}))
        assert (await ask(gateway, {"messages": "none", "model": "sim-model"})).status == 400
        assert (await ask(gateway, chat("Hello", model="nobody's"))).status == 404
        assert (await ask(gateway, {"model": "sim-model", "prompt": "x"}, "/tokenize")).status == 200
        told = await point(gateway)

        assert told["at_most"]["max"] == told["busy"]["at_most"]["p50"] == 1
        assert told["seconds_at"].keys() == {"0", "1"}
        assert told["busy"]["seconds_at"] == {"1": told["seconds_at"]["1"]}
        assert 0 < told["share_busy"] < 1
        assert SECRET not in str(told)

        assert {name: work["requests"] for name, work in told["classes"].items()} == {"chat": 3, "json": 1}
        prompt = sum(answer.usage["prompt_tokens"] for answer in answers)
        assert told["requests"] == 4
        assert told["prompt_tokens"] == prompt
        assert told["uncached_tokens"] == prompt - sum(answer.delivered for answer in answers) < prompt
        assert told["output_tokens"] == sum(answer.usage["completion_tokens"] for answer in answers)
        unknown = [told[f"{what}_tokens_unknown_requests"] for what in ("prompt", "cached", "output")]
        assert unknown == [1, 1, 1]

        # The test may run across an hour.
        hours = told["hours"]
        assert sum(hour["requests"] for hour in hours) == 4
        assert sum(hour["prompt_tokens"] for hour in hours) == prompt
        began = datetime.fromisoformat(told["since"])
        assert hours[0]["hour"] == f"{began:%Y-%m-%dT%H}:00Z"
        assert [record["workload_class"] for record in await gateway.records()] == [
            "other", "other", "chat", "json", "chat", "chat"
        ]  # fmt: skip


async def test_requests_side_by_side_and_one_that_waits(tmp_path: Path):
    body = chat("Hello", stream=True, max_tokens=40)
    async with fleet(tmp_path, 1, slots=2, decode_rate=200.0) as (gateway, _):
        await asyncio.gather(*(ask(gateway, body) for _ in range(3)))
        told = await point(gateway)
        assert told["at_most"]["max"] == 2
        assert told["wanted"]["at_most"]["max"] == 3
        assert told["seconds_at"]["2"] > told["wanted"]["seconds_at"]["2"]


async def test_the_metric_is_up_to_date_at_the_scrape_and_tells_the_same(tmp_path: Path):
    async with fleet(tmp_path, 1) as (gateway, _):
        await ask(gateway, chat("Hello"))
        before = await point(gateway)
        counted = {n: await gateway.metric("concurrency_seconds_total", n=n) for n in LABELS}
        after = await point(gateway)
        assert before["seconds_at"]["0"] < counted["0"] < after["seconds_at"]["0"]
        assert round(counted["1"], 6) == before["seconds_at"]["1"] == after["seconds_at"]["1"]
        assert sum(counted.values()) == counted["0"] + counted["1"]
        state = await gateway.state()
        assert state["concurrency_seconds"].keys() == set(LABELS)


async def test_a_client_that_leaves_is_in_flight_no_more(tmp_path: Path):
    async with fleet(tmp_path, 1, decode_rate=50.0) as (gateway, _):
        task = asyncio.create_task(ask(gateway, chat("Hello", stream=True, max_tokens=2000)))
        while not (await gateway.state())["running"]:
            await asyncio.sleep(0.01)
        task.cancel()
        while (await gateway.state())["running"]:
            await asyncio.sleep(0.01)
        first = await point(gateway)
        second = await point(gateway)
        assert first["seconds_at"]["1"] == second["seconds_at"]["1"]
        assert second["requests"] == second["cached_tokens_unknown_requests"] == 1
