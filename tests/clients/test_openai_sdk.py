"""The `openai` SDK, unchanged, pointed at the gateway: what its users see of it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import openai
import pytest
from harness import Running, running

from gateway.sim.faults import parse_faults
from gateway.sim.server import SimEngine
from gateway.sim.settings import SimSettings

MODEL = "sim-model"
KINDS = ["vllm", "llamacpp"]
HELLO: list[Any] = [{"role": "user", "content": "Hello there"}]
WEATHER: list[Any] = [{"role": "user", "content": "What is the weather in Paris?"}]
TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather in a city.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
]


@pytest.fixture(params=KINDS)
async def engine(request: pytest.FixtureRequest) -> AsyncIterator[SimEngine]:
    settings = SimSettings(kind=request.param, prefill_rate=1e6, decode_rate=1e3, dev=True)
    async with SimEngine(settings) as engine:
        yield engine


@pytest.fixture
async def gateway(engine: SimEngine, tmp_path: Path) -> AsyncIterator[Running]:
    aliases = {"models": {"aliases": {"gpt-4o": MODEL}, "echo_alias": True}}
    async with running(tmp_path, [{"name": "a", "url": engine.url}], **aliases) as gateway:
        yield gateway


@pytest.fixture
async def client(gateway: Running) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{gateway.api}/v1", api_key="any", max_retries=0) as client:
        yield client


async def in_thread(gateway: Running, use: Callable[[openai.OpenAI], Any]) -> Any:
    """What `use` returns for a blocking client, run beside the gateway's loop."""

    def run() -> Any:
        with openai.OpenAI(base_url=f"{gateway.api}/v1", api_key="any", max_retries=0) as client:
            return use(client)

    return await asyncio.to_thread(run)


async def test_a_plain_answer(client: openai.AsyncOpenAI):
    answer = await client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=5)
    (choice,) = answer.choices
    assert (choice.message.role, choice.finish_reason) == ("assistant", "length")
    assert len(str(choice.message.content).split()) == 5
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 5
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 0


async def test_the_gateways_headers_can_be_read(client: openai.AsyncOpenAI):
    raw = await client.chat.completions.with_raw_response.create(model=MODEL, messages=HELLO)
    assert (raw.headers["x-gateway-engine"], raw.headers["x-gateway-route"]) == ("a", "only")
    assert raw.http_response.headers["x-request-id"]
    assert raw.parse().model == MODEL


async def test_an_alias_is_answered_under_its_own_name(client: openai.AsyncOpenAI):
    answer = await client.chat.completions.create(model="gpt-4o", messages=HELLO)
    assert answer.model == "gpt-4o"
    stream = await client.chat.completions.create(model="gpt-4o", messages=HELLO, stream=True)
    assert {chunk.model async for chunk in stream} == {"gpt-4o"}


async def test_a_stream_has_the_same_text_and_no_usage_that_was_not_asked_for(client: openai.AsyncOpenAI):
    plain = await client.chat.completions.create(model=MODEL, messages=HELLO)
    stream = await client.chat.completions.create(model=MODEL, messages=HELLO, stream=True)
    chunks = [chunk async for chunk in stream]
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text == plain.choices[0].message.content
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert not any(chunk.usage for chunk in chunks)


async def test_a_stream_with_usage_ends_with_it(client: openai.AsyncOpenAI):
    options: Any = {"include_usage": True}
    for _ in range(2):
        stream = await client.chat.completions.create(
            model=MODEL, messages=HELLO, max_tokens=5, stream=True, stream_options=options
        )
        chunks = [chunk async for chunk in stream]
    last = chunks[-1]
    assert last.choices == []
    assert last.usage is not None
    assert last.usage.completion_tokens == 5
    assert sum(chunk.usage is not None for chunk in chunks) == 1


async def test_several_choices(client: openai.AsyncOpenAI):
    answer = await client.chat.completions.create(model=MODEL, messages=HELLO, n=2, max_tokens=4)
    assert [choice.index for choice in answer.choices] == [0, 1]
    stream = await client.chat.completions.create(model=MODEL, messages=HELLO, n=2, max_tokens=4, stream=True)
    texts = {0: "", 1: ""}
    async for chunk in stream:
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert list(texts.values()) == [choice.message.content for choice in answer.choices]


async def test_a_tool_call(client: openai.AsyncOpenAI):
    answer = await client.chat.completions.create(model=MODEL, messages=WEATHER, tools=TOOLS)
    (choice,) = answer.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls is not None
    (call,) = choice.message.tool_calls
    assert call.type == "function"
    assert (call.function.name, call.function.arguments) == ("get_weather", '{"city":"Paris"}')
    history = [
        *WEATHER,
        choice.message,
        {"role": "tool", "tool_call_id": call.id, "content": "Sunny"},
    ]
    after = await client.chat.completions.create(model=MODEL, messages=history, tools=TOOLS)
    assert after.choices[0].finish_reason == "stop"


async def test_a_streamed_tool_call_is_put_together_by_the_sdk(client: openai.AsyncOpenAI):
    async with client.chat.completions.stream(model=MODEL, messages=WEATHER, tools=TOOLS) as stream:
        completion = await stream.get_final_completion()
    (choice,) = completion.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls is not None
    (call,) = choice.message.tool_calls
    assert (call.function.name, call.function.arguments) == ("get_weather", '{"city":"Paris"}')


async def test_completions(client: openai.AsyncOpenAI):
    answer = await client.completions.create(model=MODEL, prompt=["One", "Two"], max_tokens=3)
    assert [choice.index for choice in answer.choices] == [0, 1]
    stream = await client.completions.create(model=MODEL, prompt="One", max_tokens=3, stream=True)
    assert "".join([c.text async for chunk in stream for c in chunk.choices]) == answer.choices[0].text


async def test_embeddings(client: openai.AsyncOpenAI):
    answer = await client.embeddings.create(model=MODEL, input=["One", "Two"], encoding_format="float")
    assert [item.index for item in answer.data] == [0, 1]
    assert all(len(item.embedding) == 8 for item in answer.data)
    assert answer.usage.prompt_tokens > 0


async def test_models(client: openai.AsyncOpenAI):
    assert [model.id async for model in client.models.list()] == [MODEL, "gpt-4o"]
    assert (await client.models.retrieve(MODEL)).object == "model"
    assert (await client.models.retrieve("gpt-4o")).id == "gpt-4o"
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve("nobody's")


async def test_a_model_that_nobody_serves_is_not_found(client: openai.AsyncOpenAI):
    with pytest.raises(openai.NotFoundError) as caught:
        await client.chat.completions.create(model="nobody's", messages=HELLO)
    assert (caught.value.code, caught.value.param) == ("unknown_model", "model")
    assert MODEL in caught.value.message


async def test_an_engines_refusal_is_a_bad_request(client: openai.AsyncOpenAI):
    with pytest.raises(openai.BadRequestError):
        await client.chat.completions.create(model=MODEL, messages=[])


async def test_an_engine_that_fails_is_an_internal_server_error(
    client: openai.AsyncOpenAI, engine: SimEngine
):
    await engine.set_faults(parse_faults(["500"]))
    with pytest.raises(openai.InternalServerError) as caught:
        await client.chat.completions.create(model=MODEL, messages=HELLO)
    assert caught.value.status_code == 500


async def test_an_overload_is_a_503_and_is_retried_when_retries_are_on(
    client: openai.AsyncOpenAI, engine: SimEngine
):
    await engine.set_faults(parse_faults(["overload"]))
    with pytest.raises(openai.InternalServerError) as caught:
        await client.chat.completions.create(model=MODEL, messages=HELLO)
    assert caught.value.status_code == 503
    seen = len(engine.stats.requests_seen)
    with pytest.raises(openai.InternalServerError):
        await client.with_options(max_retries=1).chat.completions.create(model=MODEL, messages=HELLO)
    assert len(engine.stats.requests_seen) == seen + 2


async def test_no_ready_engine_is_a_503_with_its_code(client: openai.AsyncOpenAI, gateway: Running):
    async with gateway.http.post(f"{gateway.admin}/api/engines/a/drain") as drained:
        assert drained.status == 200
    with pytest.raises(openai.InternalServerError) as caught:
        await client.chat.completions.create(model=MODEL, messages=HELLO)
    assert (caught.value.status_code, caught.value.code) == (503, "no_ready_engine")
    assert int(caught.value.response.headers["retry-after"]) >= 1


async def test_a_stream_that_breaks_raises_instead_of_ending_early(
    client: openai.AsyncOpenAI, engine: SimEngine
):
    await engine.set_faults(parse_faults(["die-after-chunks:4"]))
    stream = await client.chat.completions.create(model=MODEL, messages=HELLO, stream=True)
    seen = 0
    with pytest.raises(openai.APIError, match="not complete"):  # noqa: PT012 - it comes after the chunks
        async for _ in stream:
            seen += 1
    assert seen == 4


async def test_the_blocking_client(gateway: Running):
    def use(client: openai.OpenAI) -> tuple[str, str, list[str]]:
        plain = client.chat.completions.create(model=MODEL, messages=HELLO)
        stream = client.chat.completions.create(model=MODEL, messages=HELLO, stream=True)
        text = "".join(choice.delta.content or "" for chunk in stream for choice in chunk.choices)
        with pytest.raises(openai.NotFoundError):
            client.chat.completions.create(model="nobody's", messages=HELLO)
        return str(plain.choices[0].message.content), text, [model.id for model in client.models.list()]

    plain, streamed, models = await in_thread(gateway, use)
    assert plain == streamed
    assert models == [MODEL, "gpt-4o"]


async def test_leaving_a_stream_frees_its_slot(client: openai.AsyncOpenAI, gateway: Running):
    stream = await client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=10_000, stream=True)
    async for _ in stream:
        break
    await stream.close()
    async with asyncio.timeout(10):
        while await gateway.metric("in_flight") + await gateway.metric("slots_cooling"):
            await asyncio.sleep(0.01)
    assert await gateway.metric("requests_total", outcome="client_disconnect") == 1
