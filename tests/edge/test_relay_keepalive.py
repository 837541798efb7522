"""`admission.keepalive`: who gets signs of life, when, and where not."""

import asyncio
import gzip

import pytest
from failing import OK, STREAMED, complete, no_lease_is_left
from harness import running
from raw_client import connect, request
from raw_engine import DONE, END, chunk, event, seen, stream_head, whole
from silent import (
    CHAT,
    COMPLETIONS,
    MESSAGES,
    PING,
    RESPONSES,
    SIGN,
    Held,
    alive,
    ask,
    committed,
    hold,
    rest_of,
    the_record,
    writes,
)


async def test_a_stream_that_waits_in_the_queue_gets_comments_and_then_its_answer(tmp_path, engine):
    engine.handler = Held(complete)
    async with alive(tmp_path, engine) as gateway, connect(gateway) as first, connect(gateway) as second:
        first.send(ask(stream=False))
        await seen(engine)
        second.send(ask(CHAT, "x-request-id: second"))
        head = await committed(second)
        assert head.headers == {
            "x-request-id": "second",
            "content-type": "text/event-stream",
            "cache-control": "no-cache, no-transform",
            "x-accel-buffering": "no",
            "transfer-encoding": "chunked",
        }
        assert await second.chunk() == SIGN
        assert len(engine.calls) == 1
        engine.handler.release.set()
        assert (await first.answer()).body == OK
        assert await rest_of(second) == STREAMED
        assert await the_record(gateway) == ("ok", 200, "")
        second.send(request(path="/healthz", method="GET"))
        await second.reader.readexactly(2)
        assert (await second.answer()).status == 200


@pytest.mark.parametrize(
    "before",
    [
        b"",
        stream_head(),
        stream_head() + chunk(b": hello\n\n"),
        stream_head() + chunk(event("a")[:30]),
    ],
    ids=["nothing", "the head", "a comment", "half an event"],
)
async def test_a_silent_prefill_is_bridged(tmp_path, engine, before):
    whole_answer = stream_head() + chunk(b": hello\n\n" * (b"hello" in before) + STREAMED) + END
    if before.endswith(chunk(event("a")[:30])):
        whole_answer = before + chunk(STREAMED[30:]) + END
    engine.handler = Held(writes(whole_answer[len(before) :]), before)
    if b": hello" in before:
        engine.handler = Held(writes(chunk(STREAMED), END), before)
    async with alive(tmp_path, engine) as gateway, connect(gateway) as client:
        client.send(ask())
        head = await committed(client)
        assert "x-gateway-engine" not in head.headers
        assert await client.chunk() == SIGN
        engine.handler.release.set()
        assert await rest_of(client) == b": hello\n\n" * (b"hello" in before) + STREAMED
        assert await the_record(gateway) == ("ok", 200, "")
        await no_lease_is_left(gateway)


@pytest.mark.parametrize(
    ("path", "sign", "last"),
    [
        (CHAT, SIGN, DONE),
        (COMPLETIONS, SIGN, DONE),
        (RESPONSES, SIGN, b'event: response.completed\ndata: {"type":"response.completed"}\n\n'),
        (MESSAGES, PING, b'event: message_stop\ndata: {"type":"message_stop"}\n\n'),
    ],
)
async def test_each_api_has_the_sign_that_its_clients_count(tmp_path, engine, path, sign, last):
    engine.handler = Held(writes(stream_head(), chunk(last), END))
    async with alive(tmp_path, engine) as gateway, connect(gateway) as client:
        client.send(ask(path))
        await committed(client, sign)
        engine.handler.release.set()
        assert await rest_of(client, sign) == last
        assert await the_record(gateway) == ("ok", 200, "")


async def test_silence_in_the_middle_of_a_stream_is_bridged_under_the_engines_own_head(tmp_path, engine):
    engine.handler = Held(writes(chunk(event("b", "stop") + DONE), END), stream_head() + chunk(event("a")))
    async with alive(tmp_path, engine) as gateway, connect(gateway) as client:
        client.send(ask())
        head = await client.head()
        assert head.headers["x-gateway-engine"] == "a"
        assert await client.chunk() == event("a")
        assert await client.chunk() == SIGN
        assert await client.chunk() == SIGN
        engine.handler.release.set()
        assert await rest_of(client) == event("b", "stop") + DONE


async def test_a_stream_that_flows_gets_none(tmp_path, engine):
    enough = asyncio.Event()

    async def flow(call):
        call.write(stream_head())
        while not enough.is_set():
            call.write(chunk(event("a")))
            await asyncio.sleep(0.05)
        call.write(chunk(DONE), END)

    engine.handler = flow
    async with (
        alive(tmp_path, engine, slots=2, after_s=0.6) as gateway,
        connect(gateway) as client,
        connect(gateway) as other,
    ):
        client.send(ask())
        await client.head()
        engine.handler = hold
        other.send(ask())
        await committed(other)
        assert await other.chunk() == SIGN
        enough.set()
        body = await rest_of(client, sign=DONE)
        assert body == event("a") * body.count(b"data: ")


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n"])
async def test_a_sign_never_stands_inside_an_event(tmp_path, engine, end):
    first, second = (event(text).replace(b"\n\n", end) for text in "ab")
    half = stream_head() + chunk(first + second[:20])
    engine.handler = Held(writes(chunk(second[20:] + DONE), END), half)
    async with alive(tmp_path, engine) as gateway, connect(gateway) as client:
        client.send(ask())
        await client.head()
        assert await client.chunk() == first
        assert await client.chunk() == SIGN
        engine.handler.release.set()
        assert await rest_of(client) == second + DONE


async def test_half_of_an_event_too_large_to_be_held_is_left_alone_until_its_end(tmp_path, engine):
    large = event("x" * 1_200_000)
    half = stream_head() + chunk(large[:1_100_000])
    ending = Held(writes(chunk(DONE), END), chunk(large[1_100_000:]))
    beginning = engine.handler = Held(ending, half)
    async with (
        alive(tmp_path, engine, slots=2) as gateway,
        connect(gateway) as client,
        connect(gateway) as other,
    ):
        client.send(ask())
        await client.head()
        body = b""
        while len(body) < 1_100_000:
            body += await client.chunk()
        engine.handler = hold
        other.send(ask())
        await committed(other)
        for _ in range(2):
            assert await other.chunk() == SIGN
        beginning.release.set()
        while len(body) < len(large):
            body += await client.chunk()
        assert body == large
        assert await client.chunk() == SIGN
        ending.release.set()
        assert await rest_of(client) == DONE


async def test_signs_do_not_pile_up_before_a_client_that_does_not_read(tmp_path, engine):
    async def flood(call):
        call.write(stream_head(), *[chunk(event("x" * 20_000))] * 400)
        await call.left.wait()

    engine.handler = flood
    async with (
        alive(tmp_path, engine, slots=2) as gateway,
        connect(gateway) as client,
        connect(gateway) as other,
    ):
        client.reader._transport.pause_reading()
        client.send(ask())
        await seen(engine)
        engine.handler = hold
        other.send(ask())
        await committed(other)
        [full] = [it for it in gateway.gateway._relay._clients if it.paused]
        unwritten = full._transport.get_write_buffer_size()
        for _ in range(3):
            assert await other.chunk() == SIGN
        assert full.paused
        assert full._transport.get_write_buffer_size() == unwritten


async def test_a_compressed_stream_of_its_own_head_passes_untouched(tmp_path, engine):
    data = gzip.compress(STREAMED)
    head = stream_head(b"content-encoding: gzip")
    engine.handler = Held(writes(chunk(data[20:]), END), head + chunk(data[:20]))
    async with (
        alive(tmp_path, engine, slots=2) as gateway,
        connect(gateway) as client,
        connect(gateway) as other,
    ):
        client.send(ask())
        await client.head()
        assert await client.chunk() == data[:20]
        engine.handler, held = hold, engine.handler
        other.send(ask())
        await committed(other)
        for _ in range(2):
            assert await other.chunk() == SIGN
        held.release.set()
        assert await client.chunk() == data[20:]


async def test_an_http_1_0_client_gets_them_up_to_the_end_of_its_connection(tmp_path, engine):
    engine.handler = Held(complete)
    async with alive(tmp_path, engine) as gateway, connect(gateway) as client:
        client.send(ask(version="1.0"))
        head = await client.head()
        assert head.headers["connection"] == "close"
        assert "transfer-encoding" not in head.headers
        assert await client.reader.readexactly(len(SIGN)) == SIGN
        engine.handler.release.set()
        assert (await client.until_closed()).replace(SIGN, b"") == STREAMED


async def test_a_client_that_leaves_after_a_sign_is_counted_as_one_that_left(tmp_path, engine):
    engine.handler = hold
    async with alive(tmp_path, engine) as gateway, connect(gateway) as client:
        client.send(ask())
        await committed(client)
        client.leave()
        await engine.calls[0].left.wait()
        assert (await the_record(gateway))[0] == "client_disconnect"
        assert not gateway.gateway._relay._keepalives


@pytest.mark.parametrize(
    ("path", "stream"), [(CHAT, False), ("/v1/embeddings", True), ("/v1/audio/speech", True)]
)
async def test_only_streams_of_events_get_them(tmp_path, engine, path, stream):
    engine.handler = hold
    limits = {"answer_timeout": "1s", "first_byte_timeout": "1s"}
    async with alive(tmp_path, engine, limits=limits) as gateway, connect(gateway) as client:
        client.send(request({"model": "m", "messages": [], "input": "x", "stream": stream}, path=path))
        assert (await client.answer()).status == 504


async def test_a_json_answer_with_a_head_of_its_own_gets_none(tmp_path, engine):
    answer = whole(OK)
    engine.handler = Held(writes(answer[-2:]), answer[:-2])
    async with (
        alive(tmp_path, engine, slots=2) as gateway,
        connect(gateway) as client,
        connect(gateway) as other,
    ):
        client.send(ask())
        head = await client.head()
        engine.handler, held = hold, engine.handler
        other.send(ask())
        await committed(other)
        for _ in range(2):
            assert await other.chunk() == SIGN
        held.release.set()
        assert head.headers["content-type"] == "application/json"
        assert await client.reader.readexactly(len(OK)) == OK


async def test_they_are_off_by_default(tmp_path, engine):
    engine.handler = hold
    limits = {"first_byte_timeout": "1s"}
    async with (
        running(tmp_path, [engine.entry(name="a")], limits=limits) as gateway,
        connect(gateway) as client,
    ):
        client.send(ask())
        answer = await client.answer()
        assert (answer.status, answer.error["code"]) == (504, "engine_timeout")
