"""The gateway in front of real vLLM engines that run already; CONTRIBUTING.md says how to name them."""

import asyncio
import contextlib
import itertools
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from harness import Running, chat, running, until
from vllm_engine import Process, Vllm, events, story, told

URLS = [url for url in os.environ.get("PREFIX_GATEWAY_VLLM_URLS", "").split(",") if url]
COMMAND = os.environ.get("PREFIX_GATEWAY_VLLM_COMMAND", "")
SLOTS = 4

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(120),
    pytest.mark.skipif(not URLS, reason="PREFIX_GATEWAY_VLLM_URLS names no running vLLM engines"),
]

_numbers = itertools.count(1)


@pytest.fixture
async def engines() -> list[Vllm]:
    found = [Vllm(f"vllm-{at}", url) for at, url in enumerate(URLS)]
    for engine in found:
        await engine.look()
        await until(engine.is_idle)
    return found


@pytest.fixture
async def gateway(engines: list[Vllm], tmp_path: Path) -> AsyncIterator[Running]:
    """A gateway of its own for each test; it gives each engine four slots."""
    entries: list[dict[str, Any]] = [
        {"name": engine.name, "url": engine.url, "slots": SLOTS} for engine in engines
    ]
    async with running(tmp_path, entries) as gateway:
        await until(lambda: _all_ready(gateway))
        yield gateway


async def _all_ready(gateway: Running) -> bool:
    return all(it["health"] == "ready" for it in (await gateway.state())["engines"])


async def post(gateway: Running, path: str, body: Any) -> tuple[int, dict[str, str], bytes]:
    """vLLM takes nothing that does not call itself JSON."""
    return await gateway.post(path, body, headers={"content-type": "application/json"})


def chosen(engines: list[Vllm], headers: dict[str, str]) -> Vllm:
    return next(engine for engine in engines if engine.name == headers["x-gateway-engine"])


def text(words: int) -> str:
    """At least as many tokens as `words`, never twice the same beginning, also not in another run."""
    number = f"{os.getpid()}-{next(_numbers)}"
    return " ".join(f"note {number}.{at} is open" for at in range(words // 8 + 1))


def ask(engine: Vllm, words: int, max_tokens: int = 8, **fields: Any) -> dict[str, Any]:
    """Random weights end an answer anywhere, so `max_tokens` is how long it gets to be."""
    extra = {"temperature": 0, "ignore_eos": True} | fields
    return chat(text(words), model=engine.model, max_tokens=max_tokens, **extra)


# Detection


async def test_what_an_engine_is_is_found_out_from_its_url(engines: list[Vllm], tmp_path: Path) -> None:
    entries = [{"name": engine.name, "url": engine.url} for engine in engines]
    async with running(tmp_path, entries) as gateway:
        await until(lambda: _all_ready(gateway))
        for engine in engines:
            seen = await gateway.engine(engine.name)
            assert (seen["kind"], seen["models"]) == ("vllm", [engine.model])
            assert seen["kv_tokens"] == await engine.cache_label("kv_cache_size_tokens")
            assert seen["block_tokens"] == await engine.cache_label("block_size")
            declared = engine.declared_slots
            assert seen["slots"] == (declared or 256)
            assert seen["slots_source"] == ("discovered" if declared else "assumed")
            assert seen["slots_declared"] == declared


# Answers


async def test_a_chat_answer_is_the_engines_own(gateway: Running, engines: list[Vllm]) -> None:
    body = ask(engines[0], 40)
    status, headers, answer = await post(gateway, "/v1/chat/completions", body)
    _, kind, direct = await chosen(engines, headers).send("POST", "/v1/chat/completions", body)
    assert (status, headers["content-type"]) == (200, kind)
    assert told(json.loads(answer)) == told(json.loads(direct))
    [record] = await gateway.records()
    usage = json.loads(answer)["usage"]
    assert (record["prompt_tokens"], record["completion_tokens"]) == (usage["prompt_tokens"], 8)
    assert record["cached_tokens"] == usage["prompt_tokens_details"]["cached_tokens"]


async def test_a_stream_has_no_usage_for_a_client_that_asked_for_none_and_the_record_has_it(
    gateway: Running, engines: list[Vllm]
) -> None:
    body = ask(engines[0], 400, stream=True)
    await post(gateway, "/v1/chat/completions", body | {"stream": False})
    status, headers, stream = await post(gateway, "/v1/chat/completions", body)
    _, kind, direct = await chosen(engines, headers).send("POST", "/v1/chat/completions", body)
    assert (status, headers["content-type"]) == (200, kind)
    assert b'"usage"' not in stream
    assert story(stream) == story(direct)
    assert stream.endswith(b"data: [DONE]\n\n")
    record, first = await gateway.records()
    assert (record["prompt_tokens"], record["completion_tokens"]) == (first["prompt_tokens"], 8)
    assert record["cached_tokens"] >= 256
    assert record["ttft_ms"] is not None


async def test_a_client_that_asks_for_usage_gets_its_chunk(gateway: Running, engines: list[Vllm]) -> None:
    body = ask(engines[0], 40, stream=True, stream_options={"include_usage": True})
    _, _, stream = await post(gateway, "/v1/chat/completions", body)
    *_, last = events(stream)
    assert last["choices"] == []
    [record] = await gateway.records()
    assert last["usage"]["prompt_tokens"] == record["prompt_tokens"]


async def test_a_client_that_refuses_usage_is_counted_as_unknown(
    gateway: Running, engines: list[Vllm]
) -> None:
    body = ask(engines[0], 40, stream=True, stream_options={"include_usage": False})
    _, _, stream = await post(gateway, "/v1/chat/completions", body)
    assert b'"usage"' not in stream
    [record] = await gateway.records()
    assert (record["outcome"], record["prompt_tokens"], record["cached_tokens"]) == ("ok", None, None)
    assert await gateway.metric("cached_tokens_unknown_requests_total") == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_completions_take_every_form_of_prompt(
    gateway: Running, engines: list[Vllm], stream: bool
) -> None:
    engine = engines[0]
    _, _, answer = await engine.send("POST", "/tokenize", {"model": engine.model, "prompt": text(40)})
    ids = json.loads(answer)["tokens"]
    prompts: list[Any] = [text(40), [text(40)], [text(40), text(40)], ids, [ids, ids[1:]]]
    for prompt, width in zip(prompts, (1, 1, 2, 1, 2), strict=True):
        body = {"model": engine.model, "prompt": prompt, "max_tokens": 4, "temperature": 0, "stream": stream}
        status, _, answer = await post(gateway, "/v1/completions", body | {"ignore_eos": True})
        assert status == 200, answer
        answers = events(answer) if stream else [json.loads(answer)]
        assert {it["index"] for answer in answers for it in answer["choices"]} == set(range(width))
        record = (await gateway.records())[0]
        assert (record["outcome"], record["width"], record["completion_tokens"]) == ("ok", width, 4 * width)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/responses", {"input": "Say what is open.", "max_output_tokens": 6}),
        ("/v1/messages", {"messages": [{"role": "user", "content": "Say what is open."}], "max_tokens": 6}),
    ],
)
async def test_the_other_client_apis_pass_through(
    gateway: Running, engines: list[Vllm], path: str, fields: dict[str, Any], stream: bool
) -> None:
    body = {"model": engines[0].model, "temperature": 0, "stream": stream, **fields}
    status, headers, answer = await post(gateway, path, body)
    _, kind, direct = await chosen(engines, headers).send("POST", path, body)
    assert (status, headers["content-type"]) == (200, kind)
    if stream:
        assert story(answer) == story(direct)
    else:
        assert told(json.loads(answer)) == told(json.loads(direct))
    [record] = await gateway.records()
    assert (record["outcome"], record["completion_tokens"]) == ("ok", 6)
    assert record["prompt_tokens"] > 0
    assert record["cached_tokens"] is not None


async def test_token_calls_need_no_slot_and_keep_their_bytes(gateway: Running, engines: list[Vllm]) -> None:
    engine = engines[0]
    question = {"model": engine.model, "messages": [{"role": "user", "content": text(20)}], "max_tokens": 9}
    for path, body in (
        ("/tokenize", {"model": engine.model, "prompt": text(20)}),
        ("/detokenize", {"model": engine.model, "tokens": [454, 273, 384]}),
        ("/v1/messages/count_tokens", question),
    ):
        status, headers, answer = await post(gateway, path, body)
        assert (status, headers["content-type"], answer) == await engine.send("POST", path, body)
        assert status == 200
        assert (await gateway.records())[0]["width"] == 0


# Errors


async def test_an_engines_error_keeps_its_bytes(gateway: Running, engines: list[Vllm]) -> None:
    engine = engines[0]
    for path, body, expected in (
        ("/v1/embeddings", {"model": engine.model, "input": "x"}, 404),
        ("/v1/chat/completions", ask(engine, 60_000), 400),
        ("/v1/chat/completions", ask(engine, 60_000, stream=True), 400),
        ("/v1/chat/completions", ask(engine, 20, max_tokens=-1), 400),
    ):
        status, headers, answer = await post(gateway, path, body)
        assert (status, headers["content-type"], answer) == await engine.send("POST", path, body)
        assert status == expected
        record = (await gateway.records())[0]
        assert (record["outcome"], record["code"], record["attempts"]) == ("invalid", "", 1)


async def test_an_unknown_model_never_reaches_an_engine(gateway: Running, engines: list[Vllm]) -> None:
    status, _, answer = await post(gateway, "/v1/chat/completions", chat("x", model="no-such-model"))
    assert (status, json.loads(answer)["error"]["code"]) == (404, "unknown_model")
    assert engines[0].model in json.loads(answer)["error"]["message"]
    assert (await gateway.records())[0]["engine"] == ""


# Cached tokens


@pytest.mark.parametrize("stream", [False, True])
async def test_an_equal_prompt_hits_and_the_prediction_is_within_a_block(
    gateway: Running, engines: list[Vllm], stream: bool
) -> None:
    body = ask(engines[0], 4000, stream=stream)
    await post(gateway, "/v1/chat/completions", body)
    _, headers, _ = await post(gateway, "/v1/chat/completions", body)
    record, first = await gateway.records()
    block = (await gateway.engine(record["engine"]))["block_tokens"]
    assert (headers["x-gateway-route"], first["engine"]) == ("prefix", record["engine"])
    assert record["cached_tokens"] > 4000
    assert abs(record["predicted_cached_tokens"] - record["cached_tokens"]) <= block


async def test_delivered_tokens_are_what_the_engines_count_themselves(
    gateway: Running, engines: list[Vllm]
) -> None:
    """One answer to one prompt each: of several, vLLM's usage has the cached tokens of one only."""

    async def hits() -> float:
        return sum([await engine.hits_tokens() for engine in engines])

    before = await hits()
    shared = text(600)
    bodies = [
        chat(text(60), system=shared, model=engines[0].model, max_tokens=4, temperature=0, stream=at % 2 == 1)
        for at in range(12)
    ]
    for body in bodies[:3]:
        await post(gateway, "/v1/chat/completions", body)
    await asyncio.gather(*(post(gateway, "/v1/chat/completions", body) for body in bodies[3:]))
    for stream in (False, True):
        prompt = {"model": engines[0].model, "prompt": shared, "max_tokens": 4, "stream": stream}
        await post(gateway, "/v1/completions", prompt)

    delivered = await gateway.metric("cached_tokens_delivered_total")
    assert delivered > 3000
    assert await gateway.metric("cached_tokens_unknown_requests_total") == 0

    async def agree() -> bool:
        return await hits() == before + delivered

    await until(agree)


# Slots


class Watch:
    """The most that was seen of each figure, of the engine where it was highest, while the body ran."""

    def __init__(self, gateway: Running, engines: list[Vllm]) -> None:
        self.running = self.waiting = self.in_flight = 0.0
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
            state = await self._gateway.state()
            self.in_flight = max(self.in_flight, *(it["in_flight"] for it in state["engines"]))
            for engine in self._engines:
                running, waiting = await engine.running_and_waiting()
                self.running, self.waiting = max(self.running, running), max(self.waiting, waiting)
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("n", [1, 2])
async def test_what_does_not_fit_into_the_slots_waits_in_the_gateway(
    gateway: Running, engines: list[Vllm], n: int
) -> None:
    bodies = [ask(engines[0], 60, max_tokens=120, n=n, temperature=0.5) for _ in range(12 * len(engines))]
    async with Watch(gateway, engines) as most:
        answers = await asyncio.gather(*(post(gateway, "/v1/chat/completions", body) for body in bodies))
    assert [len(json.loads(body)["choices"]) for _, _, body in answers] == [n] * len(bodies)
    waited = [it for it in await gateway.records() if it["queue_ms"] > 0]
    assert len(waited) == len(bodies) - len(engines) * SLOTS // n
    assert (most.in_flight, most.running, most.waiting) == (SLOTS, SLOTS, 0)


# Clients that leave


@contextlib.asynccontextmanager
async def streaming(gateway: Running, body: dict[str, Any]) -> AsyncIterator[asyncio.Task[Any]]:
    """A client that has sent `body` and may leave: cancel the task and its connection closes."""
    sent = asyncio.create_task(post(gateway, "/v1/chat/completions", body | {"stream": True}))
    try:
        yield sent
    finally:
        sent.cancel()
        await asyncio.gather(sent, return_exceptions=True)


@pytest.mark.parametrize("n", [1, 3])
async def test_an_engine_is_idle_soon_after_a_client_left_in_the_middle_of_its_answer(
    gateway: Running, engines: list[Vllm], n: int
) -> None:
    async with streaming(gateway, ask(engines[0], 30, max_tokens=8000, n=n, temperature=0.5)) as client:
        [busy] = await until(lambda: _producing(gateway))
        engine = next(it for it in engines if it.name == busy["engine"])

        async def all_run() -> bool:
            return await engine.running_and_waiting() == (n, 0)

        await until(all_run)
        client.cancel()
        await until(engine.is_idle, 2)
        await until(lambda: _has_nothing_open(gateway), 2)
    [record] = await gateway.records()
    assert record["outcome"] == "client_disconnect"


async def _producing(gateway: Running) -> list[dict[str, Any]]:
    return [it for it in (await gateway.state())["running"] if it["producing"]]


async def _has_nothing_open(gateway: Running) -> bool:
    state = await gateway.state()
    return not state["running"] and all(it["in_flight"] == it["cooling"] == 0 for it in state["engines"])


# Engines that die


@pytest.mark.skipif(not COMMAND, reason="PREFIX_GATEWAY_VLLM_COMMAND does not say how to start an engine")
@pytest.mark.timeout(400)
async def test_an_engine_that_was_killed_is_used_again_when_it_is_back(tmp_path: Path) -> None:
    process = Process(COMMAND, tmp_path / "engine.log")
    try:
        await process.start()
        url = f"http://127.0.0.1:{process.port}"
        async with running(tmp_path, [{"name": "mortal", "url": url}]) as gateway:
            await until(lambda: _all_ready(gateway), 150)
            engine = Vllm("mortal", url)
            await engine.look()
            body = ask(engine, 2000)
            assert (await post(gateway, "/v1/chat/completions", body))[0] == 200
            before = await gateway.engine("mortal")
            assert (before["restarts"], before["blocks"] > 0) == (0, True)

            async with streaming(gateway, ask(engine, 30, max_tokens=8000)) as client:
                await until(lambda: _producing(gateway))
                await process.kill()
                _, _, stream = await client
            assert events(stream)[-1]["error"]["code"] == "engine_truncated"
            status, _, answer = await post(gateway, "/v1/chat/completions", body)
            assert (status, json.loads(answer)["error"]["code"]) in (
                (502, "engine_unreachable"),
                (503, "no_ready_engine"),
            )
            await process.start()
            await until(lambda: _all_ready(gateway), 150)

            status, headers, answer = await post(gateway, "/v1/chat/completions", body)
            assert (status, headers["x-gateway-predicted-cached-tokens"]) == (200, "0")
            assert json.loads(answer)["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
            after = await gateway.engine("mortal")
            assert after["restarts"] == 1
            assert after["slots"] == before["slots"]
    finally:
        await process.kill()
