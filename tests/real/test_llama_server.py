"""The gateway in front of real llama-server processes: slots, cancellation, death, cached tokens, clients."""

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from harness import Running, chat, until
from llama import MODEL, RealEngine

from gateway.demo.conversation import SYSTEM_PROMPT, user_text

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

_numbers = itertools.count(1)


def text(words: int) -> str:
    """About as many tokens as `words`, never twice the same beginning."""
    number = next(_numbers)
    return " ".join(f"note {number}.{at} is open" for at in range(words // 8 + 1))


def ask(words: int, max_tokens: int = 8, **fields: Any) -> dict[str, Any]:
    return chat(text(words), model=MODEL, max_tokens=max_tokens, temperature=0, **fields)


@contextlib.asynccontextmanager
async def streaming(gateway: Running, body: dict[str, Any]) -> AsyncIterator[asyncio.Task[Any]]:
    """A client that has sent `body` and may leave: cancel the task and its connection closes."""

    async def send() -> list[bytes]:
        data = json.dumps(body | {"stream": True})
        async with gateway.http.post(f"{gateway.api}/v1/chat/completions", data=data) as response:
            return [line async for line in response.content]

    task = asyncio.create_task(send())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Watch:
    """The most that was seen of each figure while the body ran."""

    def __init__(self, gateway: Running, engines: list[RealEngine]) -> None:
        self.queued = self.processing = self.deferred = self.in_flight = 0.0
        self._gateway = gateway
        self._engines = engines

    async def __aenter__(self) -> "Watch":
        self._task = asyncio.create_task(self._look())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _look(self) -> None:
        while True:
            self.queued = max(self.queued, await self._gateway.metric("queue_depth"))
            for engine in self._engines:
                self.processing = max(self.processing, await engine.processing())
                self.deferred = max(self.deferred, await engine.metric("requests_deferred"))
                in_flight = await self._gateway.metric("in_flight", engine=engine.name)
                self.in_flight = max(self.in_flight, in_flight)
            await asyncio.sleep(0.02)


async def idle(engines: list[RealEngine]) -> bool:
    return not sum([await engine.processing() for engine in engines])


# Slots


async def test_what_does_not_fit_into_the_slots_waits_in_the_gateway(
    gateway: Running, engines: list[RealEngine]
) -> None:
    async with Watch(gateway, engines) as most:
        sent = [gateway.post("/v1/chat/completions", ask(60)) for _ in range(12)]
        answers = await asyncio.gather(*sent)
    assert [status for status, _, _ in answers] == [200] * 12
    assert (most.queued, most.in_flight, most.deferred) == (8, 2, 0)
    assert most.processing == 2


async def test_several_answers_to_one_prompt_take_as_many_slots(
    gateway: Running, engines: list[RealEngine]
) -> None:
    bodies = [ask(60, n=2 if at % 4 == 0 else 1) for at in range(12)]
    async with Watch(gateway, engines) as most:
        answers = await asyncio.gather(*(gateway.post("/v1/chat/completions", body) for body in bodies))
    assert [len(json.loads(body)["choices"]) for _, _, body in answers] == [
        body.get("n", 1) for body in bodies
    ]
    assert (most.in_flight, most.processing, most.deferred) == (2, 2, 0)


# Clients that leave


async def test_a_slot_whose_client_left_in_a_prefill_counts_until_the_engine_is_done(
    gateway: Running, engines: list[RealEngine]
) -> None:
    await until(lambda: idle(engines))
    async with streaming(gateway, ask(1500)) as client:
        await until(lambda: busy_engine(engines))
        client.cancel()
        [record] = await until(gateway.records)
        assert record["outcome"] == "client_disconnect"
        engine = next(it for it in engines if it.name == record["engine"])
        assert await gateway.metric("slots_cooling", engine=engine.name) == 1
        assert await engine.processing() == 1

        async def cooled() -> bool:
            return await gateway.metric("slots_cooling") == 0

        await until(cooled, 60)
        assert await engine.processing() == 0


async def busy_engine(engines: list[RealEngine]) -> RealEngine | None:
    for engine in engines:
        if await engine.processing():
            return engine
    return None


async def test_an_engine_is_free_soon_after_a_client_left_in_the_middle_of_its_answer(
    gateway: Running, engines: list[RealEngine]
) -> None:
    async with streaming(gateway, ask(30, max_tokens=500)) as client:

        async def answering() -> bool:
            return any(it["producing"] for it in (await gateway.state())["running"])

        await until(answering)
        client.cancel()
        [record] = await until(gateway.records)
        assert record["outcome"] == "client_disconnect"
        await until(lambda: idle(engines))
        state = await gateway.state()
        assert [it["in_flight"] for it in state["engines"]] == [0, 0]

        async def cooled() -> bool:
            return await gateway.metric("slots_cooling") == 0

        await until(cooled)


# Engines that die


async def test_a_request_whose_engine_is_killed_in_its_prefill_is_answered_by_another(
    gateway: Running, engines: list[RealEngine]
) -> None:
    sent = asyncio.create_task(gateway.post("/v1/chat/completions", ask(600)))
    victim = await until(lambda: busy_engine(engines))
    try:
        victim.kill()
        status, headers, body = await sent
        assert status == 200, body
        assert headers["x-gateway-route"] == "retry"
        assert headers["x-gateway-engine"] != victim.name
    finally:
        victim.start()
    await asyncio.to_thread(victim.wait_until_ready)
    await until(lambda: is_ready(gateway, victim))
    answers = await asyncio.gather(*(gateway.post("/v1/chat/completions", ask(30)) for _ in range(4)))
    assert [status for status, _, _ in answers] == [200] * 4
    assert victim.name in {headers["x-gateway-engine"] for _, headers, _ in answers}


async def is_ready(gateway: Running, engine: RealEngine) -> bool:
    return (await gateway.engine(engine.name))["health"] == "ready"


# Cached tokens


async def test_a_second_turn_hits_and_the_prediction_is_close(gateway: Running) -> None:
    body = chat(user_text(1, 1), system=SYSTEM_PROMPT[:1200], model=MODEL, max_tokens=8, temperature=0)
    _, _, answer = await gateway.post("/v1/chat/completions", body)
    said = json.loads(answer)["choices"][0]["message"]["content"]
    body["messages"] += [{"role": "assistant", "content": said}, {"role": "user", "content": user_text(1, 2)}]

    _, headers, answer = await gateway.post("/v1/chat/completions", body)

    delivered = json.loads(answer)["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert delivered > 400
    assert headers["x-gateway-route"] == "prefix"
    assert abs(int(headers["x-gateway-predicted-cached-tokens"]) - delivered) <= 64


async def test_delivered_tokens_are_what_the_engines_count_themselves(
    gateway: Running, engines: list[RealEngine]
) -> None:
    async def counted() -> float:
        return sum([await engine.metric("prompt_tokens_cached_total") for engine in engines])

    await until(lambda: idle(engines))
    before = await counted()
    shared = text(200)
    bodies = [chat(text(30), system=shared, model=MODEL, max_tokens=4, stream=at % 2 == 1) for at in range(6)]
    for body in bodies[:2]:
        await gateway.post("/v1/chat/completions", body)
    await asyncio.gather(*(gateway.post("/v1/chat/completions", body) for body in bodies[2:]))

    delivered = await gateway.metric("cached_tokens_delivered_total")
    assert delivered > 200

    async def agree() -> bool:
        return await counted() - before == delivered

    await until(agree)


# Connections and clients


async def test_a_stream_that_takes_over_a_slot_reaches_the_engine_once(gateway: Running) -> None:
    """llama-server closes the connection after a stream, though it announces that it keeps it."""
    bodies = [ask(20, max_tokens=4, stream=True) for _ in range(12)]
    answers = await asyncio.gather(*(gateway.post("/v1/chat/completions", body) for body in bodies))
    assert all(body.rstrip().endswith(b"data: [DONE]") for _, _, body in answers)
    assert [it["attempts"] for it in await gateway.records()] == [1] * 12


async def test_the_openai_sdk_gets_a_plain_answer_and_a_stream(gateway: Running) -> None:
    async with openai.AsyncOpenAI(base_url=f"{gateway.api}/v1", api_key="none", max_retries=0) as client:
        assert [model.id async for model in client.models.list()] == [MODEL]
        question: Any = [{"role": "user", "content": text(20)}]
        plain = await client.chat.completions.create(model=MODEL, messages=question, max_tokens=6)
        assert plain.usage is not None
        assert plain.usage.completion_tokens == 6
        stream = await client.chat.completions.create(
            model=MODEL, messages=question, max_tokens=6, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "length"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 6
