"""`admission.keepalive`: in what form things reach a client whose stream has begun with a sign of life."""

import asyncio
import gzip
import json

import pytest
from failing import OK, STREAMED, complete, first_does, no_lease_is_left
from raw_client import connect
from raw_engine import DONE, END, chunk, event, raw_engine, seen, stream_head, whole
from silent import (
    MESSAGES,
    PING,
    RESPONSES,
    SIGN,
    Held,
    alive,
    ask,
    committed,
    hold,
    in_band,
    rest_of,
    the_record,
    writes,
)


async def test_waiting_too_long_in_the_queue_comes_in_band(tmp_path, engine):
    engine.handler = hold
    async with (
        alive(tmp_path, engine, admission={"max_wait": "1s"}) as gateway,
        connect(gateway) as first,
        connect(gateway) as second,
    ):
        first.send(ask())
        await seen(engine)
        second.send(ask())
        await committed(second)
        assert (await in_band(second))["error"]["code"] == "queue_timeout"
        assert await the_record(gateway) == ("rejected", 503, "queue_timeout")
        assert await gateway.metric("rejected_total", reason="queue_timeout") == 1


async def test_a_refusal_on_messages_comes_in_anthropics_event(tmp_path, engine):
    engine.handler = hold
    async with (
        alive(tmp_path, engine, admission={"max_wait": "1s"}) as gateway,
        connect(gateway) as first,
        connect(gateway) as second,
    ):
        first.send(ask())
        await seen(engine)
        second.send(ask(MESSAGES))
        await committed(second, PING)
        body = (await rest_of(second, PING)).removeprefix(b"event: error\ndata: ")
        error = json.loads(body)
        assert (error["type"], error["error"]["type"]) == ("error", "overloaded_error")
        assert await the_record(gateway) == ("rejected", 529, "queue_timeout")


async def test_an_engine_that_goes_away_while_a_stream_waits_is_told_in_band(tmp_path, engine):
    engine.handler = hold
    async with alive(tmp_path, engine) as gateway, connect(gateway) as first, connect(gateway) as second:
        first.send(ask())
        await seen(engine)
        second.send(ask())
        await committed(second)
        async with gateway.http.post(f"{gateway.admin}/api/engines/a/drain") as drained:
            assert drained.status == 200
        assert (await in_band(second))["error"]["code"] == "no_ready_engine"
        assert await the_record(gateway) == ("rejected", 503, "no_ready_engine")


async def test_the_end_of_the_grace_is_told_in_band(tmp_path, engine):
    engine.handler = hold
    async with (
        alive(tmp_path, engine, limits={"shutdown_grace": "10s"}) as gateway,
        connect(gateway) as client,
    ):
        client.send(ask())
        await committed(client)
        stopped = asyncio.create_task(gateway.gateway._relay.drain(10))
        assert await client.chunk() == SIGN
        gateway.gateway.hurry()
        assert (await in_band(client))["error"]["code"] == "shutting_down"
        await stopped
        assert await the_record(gateway) == ("shutdown", 503, "shutting_down")


async def test_an_engine_that_never_answers_is_told_in_band(tmp_path, engine):
    engine.handler = hold
    async with (
        alive(tmp_path, engine, limits={"first_byte_timeout": "1s"}) as gateway,
        connect(gateway) as client,
    ):
        client.send(ask())
        await committed(client)
        error = (await in_band(client))["error"]
        assert error["code"] == "engine_timeout"
        assert "limits.first_byte_timeout" in error["message"]
        assert await the_record(gateway) == ("engine_timeout", 504, "engine_timeout")
        await engine.calls[0].left.wait()


async def test_signs_do_not_keep_an_engine_from_its_idle_timeout(tmp_path, engine):
    engine.handler = Held(hold, stream_head() + chunk(event("a")))
    async with (
        alive(tmp_path, engine, limits={"idle_timeout": "1s"}) as gateway,
        connect(gateway) as client,
    ):
        client.send(ask())
        await client.head()
        assert await client.chunk() == event("a")
        assert await client.chunk() == SIGN
        assert (await in_band(client))["error"]["code"] == "engine_timeout"
        assert await the_record(gateway) == ("engine_timeout", 200, "engine_timeout")


ENGINES_OWN = b'{"error": {"message": "too long", "code": 400}}'


@pytest.mark.parametrize(
    ("status", "body", "outcome"),
    [
        (b"400 Bad Request", ENGINES_OWN, "invalid"),
        (b"500 Internal Server Error", ENGINES_OWN, "engine_error"),
        (b"503 Service Unavailable", ENGINES_OWN, "engine_error"),
        (b"200 OK", ENGINES_OWN, "ok"),
        (b"400 Bad Request", ENGINES_OWN.replace(b", ", b",\r\n  "), "invalid"),
    ],
)
async def test_an_engines_own_error_comes_in_band_as_it_is(tmp_path, engine, status, body, outcome):
    engine.handler = Held(writes(whole(body, status=status)))
    async with alive(tmp_path, engine) as gateway, connect(gateway) as client:
        client.send(ask())
        await committed(client)
        engine.handler.release.set()
        assert await in_band(client) == json.loads(ENGINES_OWN)
        assert await the_record(gateway) == (outcome, int(status[:3]), "")
        await no_lease_is_left(gateway)


@pytest.mark.parametrize("path", [MESSAGES, RESPONSES])
async def test_an_engines_own_error_has_its_apis_event(tmp_path, engine, path):
    engine.handler = Held(writes(whole(ENGINES_OWN, status=b"400 Bad Request")))
    async with alive(tmp_path, engine) as gateway, connect(gateway) as client:
        client.send(ask(path))
        sign = PING if path == MESSAGES else SIGN
        await committed(client, sign)
        engine.handler.release.set()
        assert await rest_of(client, sign) == b"event: error\ndata: " + ENGINES_OWN + b"\n\n"


@pytest.mark.parametrize("body", [b"<html>no</html>", b"", b'{"detail": "Not Found"}', b"[1]"])
async def test_an_engines_error_in_another_form_is_wrapped(tmp_path, engine, body):
    engine.handler = Held(writes(whole(body, status=b"404 Not Found")))
    async with alive(tmp_path, engine) as gateway, connect(gateway) as client:
        client.send(ask())
        await committed(client)
        engine.handler.release.set()
        error = (await in_band(client))["error"]
        assert error["code"] == "engine_error"
        assert error["message"].startswith("Engine a answered 404: ")
        assert body.decode() in error["message"]
        assert await the_record(gateway) == ("invalid", 404, "")


async def test_engines_that_die_are_told_in_band(tmp_path):
    async def die(call):
        call.reset()

    async with raw_engine(complete) as a, raw_engine(complete) as b:
        a.handler = b.handler = Held(die)
        async with alive(tmp_path, a, b) as gateway, connect(gateway) as client:
            client.send(ask())
            await committed(client)
            a.handler.release.set()
            assert (await in_band(client))["error"]["code"] == "engine_unreachable"
            assert await the_record(gateway) == ("engine_error", 502, "engine_unreachable")
            await no_lease_is_left(gateway)


async def die(call):
    call.reset()


@pytest.mark.parametrize(
    "failure",
    [
        die,
        writes(whole(ENGINES_OWN, status=b"503 Service Unavailable")),
        writes(stream_head(), chunk(b'data: {"error": {"message": "queue is full", "code": 503}}\n\n')),
        writes(stream_head(), chunk(b'data: {"choices": [], "half'), close=True),
    ],
    ids=["reset", "overload", "overload in a stream", "a stream without an event"],
)
async def test_another_engine_may_still_answer(tmp_path, failure):
    async with raw_engine(complete) as a, raw_engine(complete) as b:
        held = Held(failure)
        first_does({"a": a, "b": b}, held)
        async with alive(tmp_path, a, b) as gateway, connect(gateway) as client:
            client.send(ask())
            await committed(client)
            held.release.set()
            assert await rest_of(client) == STREAMED
            assert (len(a.calls), len(b.calls)) == (1, 1)
            assert await the_record(gateway) == ("ok", 200, "")


async def test_signs_go_on_while_another_engine_is_tried(tmp_path):
    """The first engine's half event was dropped with it."""
    async with raw_engine(complete) as a, raw_engine(complete) as b:
        held = Held(complete)
        handlers = iter((writes(stream_head(), chunk(b'data: {"choices": []}'), END), held))

        async def handle(call):
            await next(handlers)(call)

        a.handler = b.handler = handle
        async with alive(tmp_path, a, b) as gateway, connect(gateway) as client:
            client.send(ask())
            await committed(client)
            assert (len(a.calls), len(b.calls)) == (1, 1)
            held.release.set()
            assert await rest_of(client) == STREAMED


async def test_a_stream_that_breaks_off_ends_as_it_does_without_signs(tmp_path, engine):
    engine.handler = Held(writes(stream_head(), chunk(event("a")), close=True))
    async with alive(tmp_path, engine) as gateway, connect(gateway) as client:
        client.send(ask())
        await committed(client)
        engine.handler.release.set()
        body = await rest_of(client)
        assert body.startswith(event("a"))
        assert json.loads(body[len(event("a")) :].removeprefix(b"data: "))["error"]["code"] == (
            "engine_truncated"
        )
        assert await the_record(gateway) == ("engine_truncated", 200, "engine_truncated")


async def test_a_json_answer_that_breaks_off_is_told_in_band(tmp_path, engine):
    engine.handler = Held(writes(whole(OK)[:-2], close=True))
    async with alive(tmp_path, engine) as gateway, connect(gateway) as client:
        client.send(ask())
        await committed(client)
        engine.handler.release.set()
        assert (await in_band(client))["error"]["code"] == "engine_truncated"
        assert await the_record(gateway) == ("engine_truncated", 200, "engine_truncated")


async def test_a_chat_answer_that_is_no_stream_becomes_its_one_chunk(tmp_path, engine):
    message = {"role": "assistant", "content": "hi"}
    answer = {"id": "c", "object": "chat.completion", "choices": [{"index": 0, "message": message}]}
    engine.handler = Held(writes(whole(json.dumps(answer).encode())))
    async with alive(tmp_path, engine) as gateway, connect(gateway) as client:
        client.send(ask())
        await committed(client)
        engine.handler.release.set()
        body = await rest_of(client)
        assert body.endswith(b"\n\n" + DONE)
        assert json.loads(body.removesuffix(DONE).removeprefix(b"data: ")) == {
            "id": "c",
            "object": "chat.completion.chunk",
            "choices": [{"index": 0, "delta": message}],
        }
        assert await client.until_closed() == b""
        assert await the_record(gateway) == ("ok", 200, "")


async def test_a_json_answer_that_no_event_can_hold_is_an_error(tmp_path, engine):
    engine.handler = Held(writes(whole(OK)))
    async with alive(tmp_path, engine) as gateway, connect(gateway) as client:
        client.send(ask(RESPONSES))
        await committed(client)
        engine.handler.release.set()
        error = (await in_band(client, b"event: error\n"))["error"]
        assert error["code"] == "engine_error"
        assert "admission.keepalive" in error["message"]
        assert await the_record(gateway) == ("ok", 200, "")


@pytest.mark.parametrize("cut", [None, 40])
async def test_a_compressed_stream_is_inflated_for_a_head_that_did_not_announce_it(tmp_path, engine, cut):
    data = gzip.compress(STREAMED)
    parts = [chunk(data)] if cut is None else [chunk(data[:cut]), chunk(data[cut:])]
    engine.handler = Held(writes(stream_head(b"content-encoding: gzip"), *parts, END))
    async with alive(tmp_path, engine) as gateway, connect(gateway) as client:
        client.send(ask())
        await committed(client)
        engine.handler.release.set()
        assert await rest_of(client) == STREAMED
        assert await the_record(gateway) == ("ok", 200, "")


async def test_a_compression_that_cannot_be_undone_is_an_error(tmp_path, engine):
    engine.handler = Held(writes(stream_head(b"content-encoding: br"), chunk(b"\x0b\x02\x80"), END))
    async with alive(tmp_path, engine) as gateway, connect(gateway) as client:
        client.send(ask())
        await committed(client)
        engine.handler.release.set()
        assert (await in_band(client))["error"]["code"] == "engine_error"
