import asyncio
import json

import pytest
from failing import OK, STREAMED, ask, calls_of, complete, first_does, no_lease_is_left
from harness import chat, running, until
from raw_client import connect, request
from raw_engine import (
    DONE,
    END,
    answers,
    chunk,
    event,
    raw_engine,
    seen,
    stream_head,
    whole,
)


async def reset(call):
    call.reset()


async def close(call):
    call.close()


BEFORE_ANY_BYTE = [pytest.param(reset, id="reset"), pytest.param(close, id="close")]
BEFORE_ANY_EVENT = [
    pytest.param([stream_head()], id="head"),
    pytest.param([stream_head(), b"5\r\n: pin"], id="half a comment"),
    pytest.param([stream_head(), chunk(b": ping\n\n")], id="comment"),
    pytest.param([stream_head(), chunk(event("lost")[:40])], id="half an event"),
]
GARBAGE = [
    pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n", id="another protocol"),
    pytest.param(b"\x00\xff\x00\xff", id="bytes"),
    pytest.param(b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n", id="a bad length"),
    pytest.param(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n", id="101"),
    pytest.param(b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 300 + b"\r\n", id="300 headers"),
]


@pytest.mark.parametrize("stream", [False, True])
async def test_an_engine_that_refuses_is_replaced(gateway, pair, stream):
    pair["a"].refuse()
    for _ in range(3):
        answer = await ask(gateway, stream)
        assert (answer.status, answer.body) == (200, STREAMED if stream else OK)
        assert answer.headers["x-gateway-engine"] == "b"
    assert {it["outcome"] for it in await gateway.records()} == {"ok"}
    await no_lease_is_left(gateway)


async def test_the_only_engine_refusing_is_a_502(alone, engine):
    engine.refuse()
    answer = await ask(alone)
    assert (answer.status, answer.error["code"]) == (502, "engine_unreachable")
    assert "retry-after" not in answer.headers
    [record] = await alone.records()
    assert (record["outcome"], record["status"], record["code"]) == (
        "engine_error",
        502,
        "engine_unreachable",
    )
    await no_lease_is_left(alone)


@pytest.mark.parametrize("handler", BEFORE_ANY_BYTE)
@pytest.mark.parametrize("stream", [False, True])
async def test_an_engine_that_dies_before_any_byte_is_replaced_once(gateway, pair, handler, stream):
    first_does(pair, handler)
    answer = await ask(gateway, stream)
    assert (answer.status, answer.body) == (200, STREAMED if stream else OK)
    assert answer.headers["x-gateway-route"] == "retry"
    assert calls_of(pair) == 2
    [record] = await gateway.records()
    assert (record["outcome"], record["attempts"], record["route"]) == ("ok", 2, "retry")
    assert await gateway.metric("requests_total") == 1
    await no_lease_is_left(gateway)


@pytest.mark.parametrize("parts", BEFORE_ANY_EVENT)
async def test_a_stream_without_an_event_may_still_be_sent_elsewhere(gateway, pair, parts):
    async def handler(call):
        call.write(*parts)
        call.close()

    first_does(pair, handler)
    answer = await ask(gateway, True)
    assert (answer.status, answer.body) == (200, STREAMED)
    assert (await gateway.records())[0]["attempts"] == 2


async def test_a_stream_that_ends_well_without_an_event_is_sent_elsewhere_too(gateway, pair):
    first_does(pair, answers(stream_head(), END))
    answer = await ask(gateway, True)
    assert (answer.status, answer.body) == (200, STREAMED)
    assert (await gateway.records())[0]["attempts"] == 2


@pytest.mark.parametrize("data", GARBAGE)
async def test_an_engine_that_talks_nonsense_is_replaced(gateway, pair, data):
    first_does(pair, answers(data))
    assert (await ask(gateway)).body == OK
    assert (await gateway.records())[0]["attempts"] == 2


@pytest.mark.parametrize("handler", [*BEFORE_ANY_BYTE, pytest.param(answers(b"nonsense"), id="nonsense")])
async def test_the_second_death_is_a_502_and_the_request_goes_no_further(tmp_path, handler):
    async with raw_engine(handler) as a, raw_engine(handler) as b, raw_engine(handler) as c:
        engines = {"a": a, "b": b, "c": c}
        async with running(tmp_path, [it.entry(name=name) for name, it in engines.items()]) as gateway:
            answer = await ask(gateway)
            assert (answer.status, answer.error["code"]) == (502, "engine_unreachable")
            assert calls_of(engines) == 2
            [record] = await gateway.records()
            assert (record["outcome"], record["attempts"]) == ("engine_error", 2)
            await no_lease_is_left(gateway)


async def test_the_only_engine_gets_the_request_a_second_time(alone, engine):
    first_does({"a": engine}, reset)
    assert (await ask(alone)).body == OK
    assert len(engine.calls) == 2


async def test_an_engine_that_dies_before_it_has_read_the_request_does_not_count(tmp_path):
    """More than socket buffers hold: two engines that reset on the head, and a third one that answers."""
    async with raw_engine(complete) as a, raw_engine(complete) as b, raw_engine(complete) as c:
        a.reset_on_head = b.reset_on_head = True
        engines = [it.entry(name=name) for name, it in {"a": a, "b": b, "c": c}.items()]
        async with running(tmp_path, engines) as gateway:
            for _ in range(4):
                async with connect(gateway) as client:
                    await client.send_all(request(chat("x" * 20_000_000, model="m")))
                    answer = await client.answer()
                assert (answer.status, answer.body) == (200, OK)
                assert answer.headers["x-gateway-engine"] == "c"


@pytest.mark.parametrize("end", [reset, close], ids=["reset", "close"])
async def test_an_engine_that_dies_inside_a_stream_ends_it_with_one_error(gateway, pair, end):
    async def handler(call):
        call.write(stream_head(), chunk(event("a")), chunk(event("b") + event("lost")[:30]))
        await asyncio.sleep(0.05)
        await end(call)

    first_does(pair, handler)
    answer = await ask(gateway, True)
    events = answer.body.split(b"\n\n")
    assert answer.body.startswith(event("a") + event("b") + b'data: {"error"')
    assert len(events) == 4
    assert events[3] == b""
    error = json.loads(events[2].removeprefix(b"data: "))["error"]
    assert error["code"] == "engine_truncated"
    assert answer.ended
    assert calls_of(pair) == 1
    [record] = await gateway.records()
    assert (record["outcome"], record["status"]) == ("engine_truncated", 200)
    await no_lease_is_left(gateway)


async def test_after_an_in_band_error_the_connection_ends(alone, engine):
    engine.handler = answers(stream_head(), chunk(event("a")), END)
    async with connect(alone) as client:
        client.send(request(chat("hello", model="m", stream=True)))
        assert b"engine_truncated" in (await client.answer()).body
        assert await client.until_closed() == b""


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([chunk(event("a")), END], id="chunked"),
        pytest.param([chunk(event("a")), chunk(b"data: {}\n\n"), END], id="a last event without a reason"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_a_stream_that_ends_without_a_reason_is_truncated(alone, engine, parts, path):
    engine.handler = answers(stream_head(), *parts)
    async with connect(alone) as client:
        client.send(request(chat("hello", model="m", stream=True), path=path))
        answer = await client.answer()
    assert answer.body.count(b"engine_truncated") == 1
    assert (await alone.records())[0]["outcome"] == "engine_truncated"


@pytest.mark.parametrize("last", [event("b", "stop"), event("b") + DONE])
async def test_a_finish_reason_or_done_is_a_good_end(alone, engine, last):
    engine.handler = answers(stream_head(), chunk(event("a") + last), END)
    assert (await ask(alone, True)).body == event("a") + last
    assert (await alone.records())[0]["outcome"] == "ok"


@pytest.mark.parametrize(
    ("framing", "end"),
    [
        (b"content-length: 100", reset),
        (b"content-length: 100", close),
        (b"transfer-encoding: chunked", reset),
        (b"transfer-encoding: chunked", close),
        (b"connection: close", reset),
    ],
)
async def test_a_json_answer_that_breaks_off_is_cut(alone, engine, end, framing):
    """An answer that looks whole would be taken for one."""

    async def handler(call):
        body = chunk(b'{"half') if b"chunked" in framing else b'{"half'
        call.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n" + framing + b"\r\n\r\n" + body)
        await asyncio.sleep(0.05)
        await end(call)

    engine.handler = handler
    answer = await ask(alone)
    assert (answer.status, answer.ended) == (200, False)
    assert len(engine.calls) == 1
    [record] = await alone.records()
    assert (record["outcome"], record["code"]) == ("engine_truncated", "engine_truncated")
    await no_lease_is_left(alone)


@pytest.mark.parametrize("end", [reset, close], ids=["reset", "close"])
async def test_an_answer_that_would_end_with_the_connection_is_cut_by_a_reset(alone, engine, end):
    """A client of HTTP/1.0 takes a plain close for the answer's end."""

    async def handler(call):
        call.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", chunk(b'{"whole":1}'))
        await asyncio.sleep(0.05)
        await end(call)

    engine.handler = handler
    async with connect(alone) as client:
        client.send(request(chat("hello", model="m"), version="1.0"))
        head = await client.head()
        assert "content-length" not in head.headers
        with pytest.raises(ConnectionResetError):
            await client.until_closed()


TERMINAL = {
    "/v1/messages": ["message_stop"],
    "/v1/responses": ["response.completed", "response.incomplete", "response.failed"],
}
ENDS = [(path, last) for path, names in TERMINAL.items() for last in names]


def typed(kind: str) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), json.dumps({"type": kind}).encode())


@pytest.mark.parametrize(("path", "last"), ENDS)
async def test_the_last_event_of_the_api_is_a_good_end(alone, engine, path, last):
    engine.handler = answers(stream_head(), chunk(typed("x.delta") + typed(last)), END)
    async with connect(alone) as client:
        client.send(request(chat("hello", model="m", stream=True), path=path))
        assert (await client.answer()).body == typed("x.delta") + typed(last)
    assert (await alone.records())[0]["outcome"] == "ok"


@pytest.mark.parametrize("path", TERMINAL)
async def test_a_stream_without_the_last_event_of_its_api_is_truncated(alone, engine, path):
    engine.handler = answers(stream_head(), chunk(typed("x.delta")), END)
    async with connect(alone) as client:
        client.send(request(chat("hello", model="m", stream=True), path=path))
        answer = await client.answer()
    assert answer.body.startswith(typed("x.delta") + b"event: error\ndata: ")
    assert answer.body.count(b"engine_truncated") == 1
    assert (await alone.records())[0]["outcome"] == "engine_truncated"


async def test_an_engine_that_closes_kept_connections_is_not_noticed(alone, engine):
    """At once after its answer, without having said so: the close and the next request cross."""

    async def answer_and_close(call):
        call.write(whole(OK))
        call.close()

    engine.handler = answer_and_close
    async with connect(alone) as client:
        for _ in range(20):
            client.send(request(chat("hello", model="m")))
            assert (await client.answer()).body == OK
    assert {it["outcome"] for it in await alone.records()} == {"ok"}


async def test_a_retry_takes_no_kept_connection(alone, engine):
    """All of them may be as dead as the one that has just failed."""
    ready = asyncio.Event()

    async def together(call):
        await ready.wait()
        call.write(whole(OK))

    engine.handler = together
    async with connect(alone) as one, connect(alone) as two, connect(alone) as three:
        for client in (one, two, three):
            client.send(request(chat("hello", model="m")))
        await seen(engine, 3)
        ready.set()
        for client in (one, two, three):
            assert (await client.answer()).body == OK
    kept = {call.connection for call in engine.calls}

    async def dies_on_kept(call):
        call.reset() if call.connection in kept else call.write(whole(OK))

    engine.handler = dies_on_kept
    answer = await ask(alone)
    assert (answer.status, answer.body) == (200, OK)


async def test_bytes_that_nobody_asked_for_end_an_engines_connection(alone, engine):
    async def chatty(call):
        call.write(whole(OK))
        await asyncio.sleep(0.05)
        call.write(whole(b'{"not":"yours"}'))

    engine.handler = chatty
    assert (await ask(alone)).body == OK

    async def closed():
        return engine.calls[0].left.is_set()

    await until(closed)
    assert (await ask(alone)).body == OK


async def test_a_connection_that_the_engine_wants_closed_is_not_kept(alone, engine):
    engine.handler = answers(whole(OK, b"connection: close"))
    for count in (1, 2, 3):
        assert (await ask(alone)).body == OK
        assert len({call.connection for call in engine.calls}) == count
