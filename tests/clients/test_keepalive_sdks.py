"""The `openai` and `anthropic` SDKs on streams with `admission.keepalive`: only the answer is seen."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from engines import recordings
from engines.recordings import VLLM
from harness import Running, chat, running, with_keepalive
from raw_client import connect, request
from raw_engine import END, RawCall, chunk, raw_engine, stream_head, whole

from gateway.wire import sse

HELLO: list[Any] = [{"role": "user", "content": "Hello there"}]
CLOCK = "this request only counts signs of life"
REFUSAL = b'{"error": {"message": "too long", "type": "invalid_request_error", "code": "too_long"}}'


class Engine:
    """Plays a recording with a long silence before its head, after it, and between its events."""

    def __init__(self) -> None:
        self.gateway: Running
        self.refuses = False

    async def __call__(self, call: RawCall) -> None:
        if CLOCK.encode() in call.body:
            await call.left.wait()
            return
        await self.silence()
        if self.refuses:
            call.write(whole(REFUSAL, status=b"400 Bad Request"))
            return
        call.write(stream_head())
        name = (
            "messages" if "/messages" in call.path else "responses" if "/responses" in call.path else "chat"
        )
        events = list(sse.events(recordings.answer(VLLM, f"{name}-stream").body))
        for number, event in enumerate(events):
            if number < 3:
                await self.silence()
            call.write(chunk(event))
        call.write(END)

    async def silence(self) -> None:
        """As long as it takes another client to get three signs."""
        async with connect(self.gateway) as client:
            client.send(request(chat(CLOCK, model="m", stream=True)))
            await client.head()
            for _ in range(3):
                assert await client.chunk() == b": keepalive\n\n"


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    handler = Engine()
    async with raw_engine(handler) as raw:
        entry = raw.entry(name="a", slots=4)
        async with running(tmp_path, [entry], change=with_keepalive(0.05)) as gateway:
            handler.gateway = gateway
            yield handler


@pytest.fixture
async def client(engine: Engine) -> AsyncIterator[openai.AsyncOpenAI]:
    url = f"{engine.gateway.api}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key="any", max_retries=0) as client:
        yield client


@pytest.fixture
async def claude(engine: Engine) -> AsyncIterator[anthropic.AsyncAnthropic]:
    url = engine.gateway.api
    async with anthropic.AsyncAnthropic(base_url=url, api_key="any", max_retries=0) as client:
        yield client


def began_with_a_sign(headers: Any) -> bool:
    return "x-gateway-engine" not in headers and bool(headers["x-request-id"])


async def test_openais_chat_sees_nothing_of_the_comments(client: openai.AsyncOpenAI):
    stream = await client.chat.completions.create(model="m", messages=HELLO, stream=True)
    assert began_with_a_sign(stream.response.headers)
    chunks = [it async for it in stream]
    assert all(it.choices for it in chunks)
    assert "".join(it.choices[0].delta.content or "" for it in chunks)
    assert chunks[-1].choices[0].finish_reason


async def test_openais_responses_see_nothing_of_the_comments(client: openai.AsyncOpenAI):
    stream = await client.responses.create(model="m", input="hello", stream=True)
    assert began_with_a_sign(stream.response.headers)
    types = [it.type async for it in stream]
    assert types[0] == "response.created"
    assert types[-1] == "response.completed"


async def test_anthropics_messages_see_nothing_of_the_pings(claude: anthropic.AsyncAnthropic):
    stream = await claude.messages.create(model="m", messages=HELLO, max_tokens=9, stream=True)
    assert began_with_a_sign(stream.response.headers)
    types = [it.type async for it in stream]
    assert types[0] == "message_start"
    assert types[-1] == "message_stop"
    assert "ping" not in types


async def test_anthropics_stream_helper_puts_the_message_together(claude: anthropic.AsyncAnthropic):
    async with claude.messages.stream(model="m", messages=HELLO, max_tokens=9) as stream:
        message = await stream.get_final_message()
    assert message.content
    assert message.stop_reason


@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_openais_client_raises_the_engines_error(client: openai.AsyncOpenAI, engine: Engine, api: str):
    engine.refuses = True
    stream: Any
    if api == "chat":
        stream = await client.chat.completions.create(model="m", messages=HELLO, stream=True)
    else:
        stream = await client.responses.create(model="m", input="hello", stream=True)
    with pytest.raises(openai.APIError, match="too long") as caught:
        await anext(aiter(stream))
    assert caught.value.code == "too_long"


async def test_anthropics_client_raises_the_engines_error(claude: anthropic.AsyncAnthropic, engine: Engine):
    engine.refuses = True
    stream = await claude.messages.create(model="m", messages=HELLO, max_tokens=9, stream=True)
    with pytest.raises(anthropic.APIStatusError, match="too long") as caught:
        await anext(aiter(stream))
    assert caught.value.body == {
        "error": {"message": "too long", "type": "invalid_request_error", "code": "too_long"}
    }
