"""`admission.keepalive`: what a silent stream's client gets, and in what form things reach it afterwards.

Nothing here waits by the clock: an engine goes on once its client has had a sign of life.
"""

import asyncio
import gzip
import json

import pytest
from failing import OK, STREAMED, complete, first_does, no_lease_is_left
from harness import chat, running, with_keepalive
from raw_client import connect, request
from raw_engine import DONE, END, chunk, event, raw_engine, seen, stream_head, whole

SIGN = b": keepalive\n\n"
PING = b'event: ping\ndata: {"type":"ping"}\n\n'
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
MESSAGES = "/v1/messages"
RESPONSES = "/v1/responses"


def alive(tmp_path, *engines, after_s=0.05, **sections):
    slots = sections.pop("slots", 1)
    entries = [it.entry(name=name, slots=slots) for name, it in zip("ab", engines, strict=False)]
    return running(tmp_path, entries, change=with_keepalive(after_s), **sections)


def ask(path=CHAT, *headers, version="1.1", stream=True):
    body = chat("hello", model="m", stream=stream)
    if path in (COMPLETIONS, RESPONSES):
        body = {"model": "m", "prompt": "hello", "input": "hello", "stream": stream}
    return request(body, *headers, path=path, version=version)


class Held:
    """A handler that writes `before`, then waits for `release`, then does `after`."""

    def __init__(self, after, before=b""):
        self.release = asyncio.Event()
        self._before = before
        self._after = after

    async def __call__(self, call):
        if self._before:
            call.write(self._before)
        await self.release.wait()
        await self._after(call)


def writes(*parts, close=False):
    async def handler(call):
        call.write(*parts)
        if close:
            call.close()

    return handler


async def hold(call):
    await call.left.wait()


async def committed(client, sign=SIGN):
    """The head that the first sign of life brings."""
    head = await client.head()
    assert await client.chunk() == sign
    assert head.status == 200
    return head


async def rest_of(client, sign=SIGN):
    """What comes up to the answer's end, without further signs."""
    body = b""
    while piece := await client.chunk():
        body += piece
    return body.replace(sign, b"")


async def in_band(client, api_prefix=b""):
    """The one event that ends the stream, and with it the connection."""
    body = await rest_of(client)
    assert body.startswith(api_prefix + b"data: ")
    assert body.endswith(b"\n\n")
    assert body.count(b"\n\n") == 1
    assert await client.until_closed() == b""
    return json.loads(body.removeprefix(api_prefix).removeprefix(b"data: "))


async def the_record(gateway):
    """Newest first: the request that ended last."""
    record = (await gateway.records())[0]
    return record["outcome"], record["status"], record["code"]


@pytest.fixture
async def engine():
    async with raw_engine(complete) as engine:
        yield engine


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
