import asyncio

import pytest
from failing import OK, STREAMED, ask, calls_of, first_does, no_lease_is_left
from harness import chat, running
from raw_client import connect, request
from raw_engine import DONE, END, answers, chunk, event, raw_engine, stream_head, whole

BUSY_JSON = b'{"error": {"message": "busy"}}'
BUSY = [
    pytest.param(
        answers(whole(BUSY_JSON, b"retry-after: 3", status=b"429 Too Many Requests")), 429, id="429"
    ),
    pytest.param(
        answers(whole(BUSY_JSON, b"retry-after: 3", status=b"503 Service Unavailable")), 503, id="503"
    ),
]


@pytest.mark.parametrize(("handler", "status"), BUSY)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_busy_engine_is_passed_over(gateway, pair, handler, status, stream):
    first_does(pair, handler)
    answer = await ask(gateway, stream)
    assert (answer.status, answer.body) == (200, STREAMED if stream else OK)
    [record] = await gateway.records()
    assert (record["outcome"], record["attempts"], record["status"]) == ("ok", 2, 200)
    assert [it["health"] for it in (await gateway.state())["engines"]] == ["ready", "ready"]
    await no_lease_is_left(gateway)


@pytest.mark.parametrize(("handler", "status"), BUSY)
async def test_when_all_are_busy_the_last_answer_is_passed_on(gateway, pair, handler, status):
    for engine in pair.values():
        engine.handler = handler
    answer = await ask(gateway)
    assert (answer.status, answer.body, answer.headers["retry-after"]) == (status, BUSY_JSON, "3")
    assert [len(it.calls) for it in pair.values()] == [1, 1]
    [record] = await gateway.records()
    assert (record["outcome"], record["code"], record["attempts"]) == ("engine_error", "", 2)
    await no_lease_is_left(gateway)


OVERLOAD = b'data: {"error": {"message": "The request queue is full.", "code": 503}}\n\n'


@pytest.mark.parametrize("size", [1, 1000])
async def test_an_overload_as_the_first_event_is_passed_over(gateway, pair, size):
    data = OVERLOAD + DONE
    pieces = [chunk(data[at : at + size]) for at in range(0, len(data), size)]
    first_does(pair, answers(stream_head(), *pieces, END))
    answer = await ask(gateway, True)
    assert (answer.status, answer.body) == (200, STREAMED)
    [record] = await gateway.records()
    assert (record["outcome"], record["attempts"]) == ("ok", 2)
    await no_lease_is_left(gateway)


async def test_the_overload_of_the_only_engine_is_passed_on(alone, engine):
    engine.handler = answers(stream_head(), chunk(OVERLOAD + DONE), END)
    answer = await ask(alone, True)
    assert (answer.status, answer.body, answer.ended) == (200, OVERLOAD + DONE, True)
    assert (await alone.records())[0]["outcome"] == "engine_error"


async def test_another_error_as_the_first_event_is_not_tried_elsewhere(gateway, pair):
    failure = b'data: {"error": {"message": "prompt too long", "code": 400}}\n\n'
    first_does(pair, answers(stream_head(), chunk(failure), END))
    answer = await ask(gateway, True)
    assert answer.body == failure
    assert calls_of(pair) == 1
    assert (await gateway.records())[0]["outcome"] == "engine_error"


async def test_an_overload_after_a_token_stays_where_it_is(gateway, pair):
    first_does(pair, answers(stream_head(), chunk(event("a")), chunk(OVERLOAD), END))
    assert (await ask(gateway, True)).body == event("a") + OVERLOAD
    assert calls_of(pair) == 1


BUSY_STREAM = stream_head().replace(b"200 OK", b"503 Service Unavailable")
BUSY_EVENT = b'data: {"error":{"message":"server busy","code":503}}\n\n'


async def test_a_busy_stream_that_nobody_else_can_take_is_passed_on(tmp_path):
    handler = answers(BUSY_STREAM, chunk(BUSY_EVENT), END)
    async with (
        raw_engine(handler) as engine,
        running(tmp_path, [engine.entry()]) as gateway,
        connect(gateway) as client,
    ):
        client.send(request(chat("hi", model="m", stream=True)))
        answer = await client.answer()
        assert (answer.status, answer.body, answer.ended) == (503, BUSY_EVENT, True)


async def test_a_busy_stream_that_is_lost_before_an_event_still_ends(tmp_path):
    async def handler(call):
        call.write(BUSY_STREAM)
        await asyncio.sleep(0)
        call.close()

    async with (
        raw_engine(handler) as engine,
        running(tmp_path, [engine.entry()]) as gateway,
        connect(gateway) as client,
    ):
        client.send(request(chat("hi", model="m", stream=True)))
        assert (await client.answer()).status == 503
