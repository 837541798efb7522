import asyncio
import json

import pytest
from harness import chat, running, until
from raw_client import connect, request
from raw_engine import DONE, END, chunk, event, raw_engine, seen, stream_head, whole
from silent import Held

OK = b'{"ok":1}'
SHORT = "300ms"
JSON_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n"


async def hold(call):
    await call.left.wait()


async def complete(call):
    call.write(whole(OK))


def writes(*parts):
    async def handler(call):
        call.write(*parts)
        await call.left.wait()

    return handler


@pytest.fixture
async def engine():
    async with raw_engine(hold) as engine:
        yield engine


def limited(tmp_path, engine, slots=2, **limits):
    return running(tmp_path, [engine.entry(name="a", slots=slots)], limits=limits)


def ask(text="hello", *headers, stream=False, path="/v1/chat/completions"):
    return request(chat(text, model="m", stream=stream), *headers, path=path)


async def the_only_record(gateway):
    [record] = await gateway.records()
    assert (await gateway.engine("a"))["in_flight"] == 0
    assert await gateway.metric("requests_total") == 1
    return record["outcome"], record["status"], record["code"]


@pytest.mark.parametrize(
    ("limit", "stream", "handler"),
    [
        pytest.param("first_byte_timeout", True, hold, id="stream without a head"),
        pytest.param("first_byte_timeout", True, writes(stream_head()), id="stream without an event"),
        pytest.param(
            "first_byte_timeout", True, writes(stream_head(), chunk(event("a")[:9])), id="half an event"
        ),
        pytest.param("answer_timeout", False, hold, id="JSON"),
    ],
)
async def test_an_engine_that_does_not_answer_is_given_up(tmp_path, engine, limit, stream, handler):
    engine.handler = handler
    async with limited(tmp_path, engine, **{limit: SHORT}) as gateway, connect(gateway) as client:
        client.send(ask(stream=stream))
        answer = await client.answer()
        assert (answer.status, answer.error["code"]) == (504, "engine_timeout")
        assert f"limits.{limit}" in answer.error["message"]
        await engine.calls[0].left.wait()
        assert await the_only_record(gateway) == ("engine_timeout", 504, "engine_timeout")
        assert len(engine.calls) == 1
        engine.handler = complete
        client.send(ask())
        assert (await client.answer()).body == OK


async def test_silence_before_the_first_event_is_not_the_idle_timeouts_business(tmp_path, engine):
    """A long prefill comes after the head."""
    release = asyncio.Event()

    async def handler(call):
        call.write(stream_head())
        await release.wait()
        call.write(chunk(event("a", "stop") + DONE), END)

    engine.handler = handler
    async with limited(tmp_path, engine, idle_timeout="100ms") as gateway, connect(gateway) as client:
        client.send(ask(stream=True))
        await seen(engine)
        asyncio.get_running_loop().call_later(0.8, release.set)
        answer = await client.answer()
        assert (answer.status, answer.body) == (200, event("a", "stop") + DONE)


async def test_an_engine_that_falls_silent_in_a_stream_is_given_up(tmp_path, engine):
    engine.handler = writes(stream_head(), chunk(event("a")), chunk(event("b")[:20]))
    async with limited(tmp_path, engine, idle_timeout=SHORT) as gateway, connect(gateway) as client:
        client.send(ask(stream=True))
        answer = await client.answer()
        assert answer.body.startswith(event("a") + b'data: {"error"')
        assert json.loads(answer.body.split(b"data: ")[2])["error"]["code"] == "engine_timeout"
        assert b"limits.idle_timeout" in answer.body
        assert answer.ended
        assert await client.until_closed() == b""
        await engine.calls[0].left.wait()
        assert await the_only_record(gateway) == ("engine_timeout", 200, "engine_timeout")


async def test_an_engine_that_falls_silent_in_a_json_answer_is_given_up(tmp_path, engine):
    engine.handler = writes(JSON_HEAD, b"{")
    async with limited(tmp_path, engine, idle_timeout=SHORT) as gateway, connect(gateway) as client:
        client.send(ask())
        answer = await client.answer()
        assert (answer.status, answer.ended) == (200, False)
        assert await the_only_record(gateway) == ("engine_timeout", 200, "engine_timeout")


async def test_a_stream_that_goes_on_is_never_given_up(tmp_path, engine):
    async def slow(call):
        call.write(stream_head())
        for _ in range(12):
            call.write(chunk(event("a")))
            await asyncio.sleep(0.1)
        call.write(chunk(DONE), END)

    engine.handler = slow
    async with (
        (
            limited(
                tmp_path, engine, idle_timeout="800ms", first_byte_timeout="800ms", answer_timeout="800ms"
            )
        ) as gateway,
        connect(gateway) as client,
    ):
        client.send(ask(stream=True))
        assert (await client.answer()).body == event("a") * 12 + DONE


@pytest.mark.parametrize("sent", [b"P", b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n", ask()[:-3]])
async def test_a_request_that_does_not_arrive_is_refused(tmp_path, engine, sent):
    async with limited(tmp_path, engine, header_timeout=SHORT) as gateway, connect(gateway) as client:
        client.send(sent)
        answer = await client.answer()
        assert (answer.status, answer.error["code"]) == (400, "invalid_request")
        assert "limits.header_timeout" in answer.error["message"]
        assert await client.closed()
        outcome, status, _ = await the_only_record(gateway)
        assert (outcome, status) == ("invalid", 400)


@pytest.mark.parametrize("more", [b"", b"v1/chat/completions HTTP/1.1\r\nhost: gat"])
async def test_half_a_request_behind_one_that_is_served_is_not_waited_for_either(tmp_path, engine, more):
    engine.handler = held = Held(complete)
    async with limited(tmp_path, engine, header_timeout=SHORT) as gateway, connect(gateway) as client:
        await client.send_all(ask("first") + b"POST /")
        await seen(engine)
        await client.send_all(more)
        held.release.set()
        assert (await client.answer()).status == 200
        answer = await client.answer()
        assert (answer.status, answer.error["code"]) == (400, "invalid_request")
        assert "limits.header_timeout" in answer.error["message"]
        assert await client.closed()


async def test_a_body_that_keeps_coming_is_waited_for(tmp_path, engine):
    engine.handler = complete
    async with limited(tmp_path, engine, header_timeout="600ms") as gateway, connect(gateway) as client:
        data = ask("x" * 100)
        head = data.index(b"\r\n\r\n") + 4
        await client.send_all(data[:head])
        for at in range(head, len(data), 16):
            await asyncio.sleep(0.1)
            await client.send_all(data[at : at + 16])
        assert (await client.answer()).body == OK


async def test_a_head_that_trickles_in_is_not_waited_for_again_and_again(tmp_path, engine):
    async with limited(tmp_path, engine, header_timeout="500ms") as gateway, connect(gateway) as client:
        client.send(b"POST /v1/chat/completions HTTP/1.1\r\n")

        async def refused():
            client.send(b"x: y\r\n")
            await asyncio.sleep(0.04)
            return await gateway.records()

        await until(refused)
        assert (await client.answer()).status == 400


async def test_a_connection_without_a_request_is_closed(tmp_path, engine):
    engine.handler = complete
    async with limited(tmp_path, engine, header_timeout=SHORT, keepalive_timeout=SHORT) as gateway:
        async with connect(gateway) as client:
            assert await client.until_closed() == b""
        async with connect(gateway) as client:
            client.send(ask())
            assert (await client.answer()).body == OK
            assert await client.until_closed() == b""
        assert [it["outcome"] for it in await gateway.records()] == ["ok"]


async def test_a_waiting_request_has_no_deadline_of_its_connection(tmp_path, engine):
    """Neither the header's nor the idle connection's timeout ends it."""
    release = asyncio.Event()

    async def handler(call):
        await release.wait()
        call.write(whole(OK))

    engine.handler = handler
    async with (
        limited(tmp_path, engine, header_timeout="100ms", keepalive_timeout="100ms") as gateway,
        connect(gateway) as client,
    ):
        client.send(ask())
        await seen(engine)
        asyncio.get_running_loop().call_later(0.8, release.set)
        assert (await client.answer()).body == OK


async def test_an_engine_that_cannot_be_connected_to_in_time_is_a_502(tmp_path, engine):
    async with limited(tmp_path, engine, connect_timeout=SHORT) as gateway, connect(gateway) as client:
        loop = gateway.gateway._relay._loop
        pool = gateway.gateway._relay.pools["a"]

        class Unreachable:
            """No local address swallows packets, so the connection attempt is one that never ends."""

            def __getattr__(self, name):
                return getattr(loop, name)

            async def create_connection(self, *_):
                await asyncio.Event().wait()

        pool._loop = Unreachable()
        client.send(ask())
        answer = await client.answer()
        assert (answer.status, answer.error["code"]) == (502, "engine_unreachable")
        assert await the_only_record(gateway) == ("engine_error", 502, "engine_unreachable")
