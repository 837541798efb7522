"""An alias for two models, each on an engine of its own."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from fleet import BLOCK_TOKENS, Answer, Json, ask, words
from harness import Running, chat, running, until

from gateway.sim.server import SimEngine
from gateway.sim.settings import SimSettings

MODEL_OF = {"a": "small", "b": "large"}
FAST: Json = {"prefill_rate": 1e6, "decode_rate": 1e3, "dev": True}


@contextlib.asynccontextmanager
async def pool(
    tmp_path: Path,
    names: Sequence[str] = ("small", "large"),
    *,
    echo: bool = True,
    only_a: Json | None = None,
    **settings: object,
) -> AsyncIterator[Running]:
    """Engines a and b serve `small` and `large`; `pool` stands for `names`. `only_a` are settings of a's."""
    more = {"a": only_a or {}, "b": {}}
    aliases = {"pool": list(names)}
    async with contextlib.AsyncExitStack() as stack:
        entries = []
        for name, model in MODEL_OF.items():
            engine = SimEngine(SimSettings(model=model, **{**FAST, **settings, **more[name]}))
            await stack.enter_async_context(engine)
            entries.append({"name": name, "url": engine.url})
        models = {"aliases": aliases, "echo_alias": echo}
        yield await stack.enter_async_context(running(tmp_path, entries, models=models))


async def drain(gateway: Running, engine: str, word: str = "drain") -> None:
    async with gateway.http.post(f"{gateway.admin}/api/engines/{engine}/{word}") as response:
        assert response.status == 200


async def talk(gateway: Running, messages: list[Json], **headers: str) -> Answer:
    """One turn, of some 500 tokens, that makes `messages` longer."""
    messages.append({"role": "user", "content": words(500, f"turn {len(messages)}")})
    answer = await ask(gateway, {"model": "pool", "messages": messages, "max_tokens": 20}, **headers)
    messages.append({"role": "assistant", "content": answer.text})
    return answer


# Which names are seen where


@pytest.mark.parametrize("echo", [True, False])
@pytest.mark.parametrize("stream", [True, False])
async def test_each_engine_is_asked_for_its_own_model_and_the_client_sees_the_alias(
    tmp_path: Path, stream: bool, echo: bool
):
    async with pool(tmp_path, echo=echo, slots=2, decode_rate=50) as gateway:
        bodies = [chat(f"hello {n}", model="pool", stream=stream, max_tokens=5) for n in range(4)]
        answers = await asyncio.gather(*(ask(gateway, body) for body in bodies))
        assert sorted(answer.engine for answer in answers) == ["a", "a", "b", "b"]
        for answer in answers:
            named = {it["model"] for it in answer.chunks} if stream else {answer.json["model"]}
            assert (answer.status, named) == (200, {"pool" if echo else MODEL_OF[answer.engine]})
        assert {it["engine"]: it["model"] for it in await gateway.records()} == MODEL_OF
        for engine, model in MODEL_OF.items():
            assert await gateway.metric("requests_total", engine=engine, model=model, outcome="ok") == 2


async def test_an_engine_that_is_too_busy_is_replaced_by_one_of_another_model(tmp_path: Path):
    async with pool(tmp_path, only_a={"faults": ("overload",)}) as gateway:
        answers = [await ask(gateway, chat(f"hello {n}", model="pool", max_tokens=2)) for n in range(8)]
        assert {(it.status, it.engine, it.json["model"]) for it in answers} == {(200, "b", "pool")}
        assert "retry" in {answer.route for answer in answers}
        assert {it["model"] for it in await gateway.records()} == {"large"}


async def test_the_pool_is_listed_beside_its_models(tmp_path: Path):
    async with pool(tmp_path, ["gone", "small"]) as gateway:
        async with gateway.http.get(f"{gateway.api}/v1/models") as response:
            listed = {card["id"] for card in (await response.json())["data"]}
        async with gateway.http.get(f"{gateway.api}/v1/models/pool") as response:
            assert (response.status, (await response.json())["id"]) == (200, "pool")
        assert listed == {"small", "large", "pool"}


async def test_a_model_that_nobody_serves_is_left_out(tmp_path: Path):
    async with pool(tmp_path, ["gone", "large"]) as gateway:
        answers = [await ask(gateway, chat("hello", model="pool")) for _ in range(4)]
        assert {(it.status, it.engine, it.route) for it in answers} == {(200, "b", "only")}


async def test_a_pool_that_nobody_serves_is_refused_with_all_its_models(tmp_path: Path):
    async with pool(tmp_path, ["gone", "other"]) as gateway:
        answer = await ask(gateway, chat("hello", model="pool"))
        assert (answer.status, answer.error_code) == (404, "unknown_model")
        assert "'gone' or 'other'" in answer.json["error"]["message"]


# Which model it is


async def test_a_conversation_stays_on_its_model_and_finds_its_prefix_there(tmp_path: Path):
    messages: list[Json] = [{"role": "system", "content": words(1000, "You")}]
    async with pool(tmp_path, prefill_rate=1e5) as gateway:
        await drain(gateway, "a")
        first = await talk(gateway, messages)
        await drain(gateway, "a", "undrain")
        later = [await talk(gateway, messages) for _ in range(4)]
        assert first.engine == "b"
        for answer in later:
            assert (answer.status, answer.engine) == (200, "b")
            assert 1000 < answer.predicted <= answer.delivered + BLOCK_TOKENS


async def test_a_session_waits_for_its_model_beside_a_free_engine_of_another(tmp_path: Path):
    """Its prompt is too short for a prefix to hold it there."""
    async with pool(tmp_path, slots=1, decode_rate=50) as gateway:
        await drain(gateway, "a")
        assert (await ask(gateway, chat("hello", model="pool", max_tokens=2), x_session_id="s")).engine == "b"
        await drain(gateway, "a", "undrain")
        busy = asyncio.create_task(ask(gateway, chat("go on", model="large", max_tokens=40)))
        await until(lambda: is_busy(gateway, "b"))
        mine = asyncio.create_task(
            ask(gateway, chat("and now", model="pool", max_tokens=2), x_session_id="s")
        )
        other = await ask(gateway, chat("hello", model="pool", max_tokens=2), x_session_id="t")
        assert (other.engine, (await mine).engine, (await busy).engine) == ("a", "b", "b")


async def is_busy(gateway: Running, engine: str) -> bool:
    return (await gateway.engine(engine))["in_flight"] > 0


async def test_a_session_whose_model_is_gone_goes_on_with_another_and_stays_there(tmp_path: Path):
    async with pool(tmp_path) as gateway:
        messages: list[Json] = []
        first = await talk(gateway, messages, x_session_id="s")
        await drain(gateway, first.engine)
        moved = await talk(gateway, messages, x_session_id="s")
        await drain(gateway, first.engine, "undrain")
        later = [await talk(gateway, messages, x_session_id="s") for _ in range(4)]
        assert {first.engine, moved.engine} == {"a", "b"}
        assert {answer.engine for answer in later} == {moved.engine}


# The dry run


async def test_a_dry_run_shows_the_engines_of_all_its_models(tmp_path: Path):
    async with (
        pool(tmp_path) as gateway,
        gateway.http.post(f"{gateway.admin}/api/explain", json=chat("hi", model="pool")) as response,
    ):
        said = await response.json()
        assert said["models"] == ["small", "large"]
        assert {it["engine"]: it["model"] for it in said["engines"]} == MODEL_OF
        assert said["model"] == MODEL_OF[said["engine"]]


async def test_a_dry_run_of_a_session_says_that_it_stays(tmp_path: Path):
    messages: list[Json] = [{"role": "system", "content": words(1000, "You")}]
    async with pool(tmp_path) as gateway:
        first = await talk(gateway, messages)
        messages.append({"role": "user", "content": words(500, "and now")})
        body = {"model": "pool", "messages": messages}
        async with gateway.http.post(f"{gateway.admin}/api/explain", json=body) as response:
            said = await response.json()
        (other,) = MODEL_OF.keys() - {first.engine}
        assert (said["engine"], said["model"]) == (first.engine, MODEL_OF[first.engine])
        assert said["not_considered"] == {other: "the session is on another model of the pool"}
