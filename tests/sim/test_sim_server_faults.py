import asyncio
import json

import aiohttp
import pytest
from sim_client import KINDS, Start, chat, get, post, stream, text_of, until

from gateway.sim.faults import parse_faults
from gateway.sim.server import SimEngine


async def set_faults(client: aiohttp.ClientSession, engine: SimEngine, *faults: str) -> None:
    async with client.post(engine.url + "/sim/fault", json={"faults": faults}) as answer:
        assert answer.status == 200


async def test_an_engine_that_refuses_is_not_there_until_it_is_again(
    start: Start, client: aiohttp.ClientSession
):
    engine = await start(decode_rate=10)
    running = asyncio.create_task(post(client, engine, "/v1/chat/completions", chat(max_tokens=500)))
    await until(lambda: engine.stats.running)
    await set_faults(client, engine, "refuse")
    with pytest.raises(aiohttp.ClientError):
        await running
    with pytest.raises(aiohttp.ClientConnectorError):
        await get(client, engine, "/health")
    await engine.set_faults(parse_faults([]))
    assert (await get(client, engine, "/v1/models"))["data"]


async def test_a_refusal_can_end_by_itself(start: Start, client: aiohttp.ClientSession):
    engine = await start(faults=("refuse:0.05",))
    with pytest.raises(aiohttp.ClientConnectorError):
        await get(client, engine, "/v1/models")
    reached = False
    async with asyncio.timeout(5):
        while not reached:
            try:
                reached = bool(await get(client, engine, "/v1/models"))
            except aiohttp.ClientConnectorError:
                await asyncio.sleep(0.01)


async def test_a_resetting_engine_still_obeys_its_controls(start: Start, client: aiohttp.ClientSession):
    engine = await start(faults=("reset",))
    with pytest.raises(aiohttp.ClientOSError):
        await post(client, engine, "/v1/chat/completions", chat())
    await set_faults(client, engine)
    assert await post(client, engine, "/v1/chat/completions", chat())


@pytest.mark.parametrize("fault", ["die-after-chunks:3", "die-after-3-chunks"])
async def test_it_dies_after_so_many_events(start: Start, fault: str):
    engine = await start(faults=(fault,), decode_rate=20)
    body = json.dumps(chat(stream=True)).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", int(engine.url.rpartition(":")[2]))
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    )
    received = b""
    with pytest.raises(ConnectionResetError):  # noqa: PT012 - the reset comes at any of the reads
        while chunk := await reader.read(65536):
            received += chunk
    assert received.count(b"data: ") == 3
    writer.close()
    await until(lambda: engine.stats.cancelled)


@pytest.mark.parametrize("is_stream", [True, False])
async def test_it_can_die_before_any_byte(start: Start, client: aiohttp.ClientSession, is_stream: bool):
    engine = await start(faults=("die-after-chunks:0",))
    with pytest.raises(aiohttp.ClientOSError):
        await post(client, engine, "/v1/chat/completions", chat(stream=is_stream))


async def test_a_stalled_stream_sends_its_first_token_and_no_more(
    start: Start, client: aiohttp.ClientSession
):
    engine = await start(faults=("stall",))
    async with client.post(engine.url + "/v1/chat/completions", json=chat(stream=True)) as answer:
        first = await answer.content.readuntil(b"\n\n")
        assert b'"role":"assistant"' in first
        await answer.content.readuntil(b"\n\n")
        assert engine.stats.running == 1
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await answer.content.readuntil(b"\n\n")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_truncated_stream_ends_cleanly_without_saying_so(
    start: Start, client: aiohttp.ClientSession, kind: str
):
    engine = await start(kind, faults=("truncate",))
    events = await stream(client, engine, chat(max_tokens=3, stream_options={"include_usage": True}))
    assert "[DONE]" not in events
    assert [c for e in events for c in e["choices"] if c["finish_reason"]] == []
    assert len(text_of(events)) == 12


async def test_every_post_can_fail(start: Start, client: aiohttp.ClientSession):
    engine = await start(faults=("500",))
    for path in ("/v1/chat/completions", "/tokenize"):
        async with client.post(engine.url + path, json=chat()) as answer:
            assert (answer.status, answer.content_type) == (500, "application/json")
    assert await get(client, engine, "/v1/models")


@pytest.mark.parametrize("kind", KINDS)
async def test_an_overload_is_told_in_that_kinds_way(start: Start, client: aiohttp.ClientSession, kind: str):
    engine = await start(kind, faults=("overload",))
    async with client.post(engine.url + "/v1/chat/completions", json=chat()) as answer:
        assert answer.status == 503
        body = await answer.json()
        assert (body if kind == "sglang" else body["error"])["code"] == 503
    if kind == "sglang":
        event, done = await stream(client, engine, chat())
        assert (event["error"]["type"], done) == ("SERVICE_UNAVAILABLE", "[DONE]")


async def test_a_slow_health_answer_is_slow(start: Start, client: aiohttp.ClientSession):
    engine = await start(faults=("slow-health:60",))
    with pytest.raises(TimeoutError):
        async with client.get(engine.url + "/health", timeout=aiohttp.ClientTimeout(total=0.05)):
            pass
    await set_faults(client, engine)
    async with client.get(engine.url + "/health") as answer:
        assert answer.status == 200


async def test_a_body_can_kill_it(start: Start, client: aiohttp.ClientSession):
    engine = await start(faults=("kill-on:poison",))
    assert await post(client, engine, "/v1/chat/completions", chat("good"))
    with pytest.raises(aiohttp.ClientOSError):
        await post(client, engine, "/v1/chat/completions", chat("poison"))
    assert engine.killed.is_set()
    with pytest.raises(aiohttp.ClientConnectorError):
        await get(client, engine, "/v1/models")


async def test_idle_connections_are_closed(start: Start, client: aiohttp.ClientSession):
    engine = await start(faults=("close-idle:0.02",))
    await post(client, engine, "/v1/chat/completions", chat())
    assert engine.stats.connections_open == 1
    await until(lambda: engine.stats.connections_open == 0)


async def test_an_unknown_fault_is_refused_and_the_old_ones_stay(start: Start, client: aiohttp.ClientSession):
    engine = await start(faults=("500",))
    for body in ({"faults": ["nope"]}, {"no": 1}):
        async with client.post(engine.url + "/sim/fault", json=body) as answer:
            assert answer.status == 400
    async with client.post(engine.url + "/v1/chat/completions", json=chat()) as answer:
        assert answer.status == 500


async def test_a_buffered_stream_is_sent_when_it_is_complete(start: Start, client: aiohttp.ClientSession):
    engine = await start(faults=("buffer",), decode_rate=100)
    body = chat(max_tokens=50_000, stream=True)
    asked = asyncio.ensure_future(client.post(engine.url + "/v1/chat/completions", json=body))
    await until(lambda: engine.stats.generated_tokens > 2)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await asked
    await until(lambda: engine.stats.cancelled)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_buffered_stream_has_all_its_events(start: Start, client: aiohttp.ClientSession, kind: str):
    engine = await start(kind)
    body = chat(max_tokens=5, stream_options={"include_usage": True})
    plain = await stream(client, engine, body)
    await set_faults(client, engine, "buffer")
    buffered = await stream(client, engine, body)
    assert text_of(buffered) == text_of(plain)
    assert (len(buffered), buffered[-1]) == (len(plain), "[DONE]")


async def test_a_buffered_stream_that_breaks_off_sends_nothing(start: Start, client: aiohttp.ClientSession):
    engine = await start(faults=("buffer", "die-after-chunks:3"))
    with pytest.raises(aiohttp.ClientOSError):
        await client.post(engine.url + "/v1/chat/completions", json=chat(stream=True))


async def test_what_exceeds_a_rate_is_refused_and_never_reaches_the_engine(
    start: Start, client: aiohttp.ClientSession
):
    engine = await start(faults=("rate:0.001",))
    assert await post(client, engine, "/v1/chat/completions", chat())
    for path in ("/v1/chat/completions", "/v1/embeddings"):
        async with client.post(engine.url + path, json=chat()) as answer:
            assert (answer.status, answer.headers["retry-after"]) == (429, "1")
            assert (await answer.json())["error"]["code"] == 429
    assert engine.stats.requests == 1
    assert (await get(client, engine, "/v1/models"))["data"]
    assert (await post(client, engine, "/tokenize", chat()))["tokens"]
    await set_faults(client, engine)
    assert (await post(client, engine, "/v1/chat/completions", chat()))["choices"]


async def test_what_exceeds_a_rate_can_wait_for_its_turn(start: Start, client: aiohttp.ClientSession):
    engine = await start(faults=("rate-delay:1000",))
    asked = [post(client, engine, "/v1/chat/completions", chat(f"Hello {n}")) for n in range(8)]
    assert all("choices" in answer for answer in await asyncio.gather(*asked))
    await set_faults(client, engine, "rate-delay:0.001")
    await post(client, engine, "/v1/chat/completions", chat())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await post(client, engine, "/v1/chat/completions", chat())
    assert (engine.stats.requests, len(engine.stats.requests_seen)) == (9, 10)
    assert await get(client, engine, "/v1/models")
