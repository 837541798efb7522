import asyncio

import pytest
from harness import chat, running, until
from raw_client import connect, request
from raw_engine import DONE, END, chunk, event, raw_engine, seen, stream_head, whole


async def hold(call):
    """Never answers."""
    await call.left.wait()


async def head_only(call):
    call.write(stream_head())
    await call.left.wait()


async def two_events(call):
    call.write(stream_head(), chunk(event("a")), chunk(event("b")))
    await call.left.wait()


async def half_json(call):
    call.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{")
    await call.left.wait()


async def complete(call):
    call.write(whole(b'{"ok":1}'))


@pytest.fixture
async def engine():
    async with raw_engine(hold) as engine:
        yield engine


@pytest.fixture
async def gateway(tmp_path, engine):
    # vLLM's slots are usable again soonest after a client has left.
    async with running(tmp_path, [engine.entry(name="a", kind="vllm", slots=1)]) as gateway:
        yield gateway


def ask(text: str = "hello", *headers: str, stream: bool = False) -> bytes:
    return request(chat(text, model="m", stream=stream), *headers)


async def nothing_is_left(gateway, engine, outcome="client_disconnect"):
    """The lease is over, and there is one record."""

    async def released():
        return (await gateway.engine("a"))["in_flight"] == 0

    await until(released)
    records = await gateway.records()
    assert [record["outcome"] for record in records] == [outcome]
    assert await gateway.metric("requests_total", outcome=outcome) == 1
    assert await gateway.metric("requests_total") == 1
    assert not gateway.gateway._relay._exchanges
    assert not gateway.gateway.dispatcher._applicants
    return records[0]


LEAVING = [
    pytest.param(lambda client: client.leave(), id="closes"),
    pytest.param(lambda client: client.reset(), id="resets"),
    pytest.param(lambda client: client.writer.write_eof(), id="half-closes"),
]
PHASES = [
    pytest.param(hold, False, 0, id="JSON, no answer yet"),
    pytest.param(half_json, False, 200, id="inside a JSON answer"),
    pytest.param(hold, True, 0, id="stream, no head yet"),
    pytest.param(head_only, True, 200, id="stream, no event yet"),
    pytest.param(two_events, True, 200, id="inside a stream"),
]


@pytest.mark.parametrize("leave", LEAVING)
@pytest.mark.parametrize(("handler", "stream", "status"), PHASES)
async def test_a_client_that_leaves_takes_its_request_along(gateway, engine, handler, stream, status, leave):
    engine.handler = handler
    async with connect(gateway) as client:
        client.send(ask(stream=stream))
        call = await seen(engine)
        if handler is half_json:
            await client.head()
        elif handler is two_events:
            await client.head()
            assert (await client.chunk()).startswith(event("a"))
        elif handler is head_only:

            async def held():
                return any(it.state.name == "HELD" for it in gateway.gateway._relay._exchanges)

            await until(held)
        leave(client)
        async with asyncio.timeout(1):
            await call.left.wait()
        record = await nothing_is_left(gateway, engine)
        assert (record["status"], record["engine"]) == (status, "a")


@pytest.mark.parametrize("leave", LEAVING)
async def test_a_client_that_leaves_the_queue_is_never_sent(gateway, engine, leave):
    async with connect(gateway) as first, connect(gateway) as second:
        first.send(ask("first"))
        call = await seen(engine)
        second.send(ask("second"))

        async def queued():
            return (await gateway.metric("queue_depth")) == 1

        await until(queued)
        leave(second)

        async def gone():
            return (await gateway.metric("queue_depth")) == 0

        await until(gone)
        [record] = await gateway.records()
        assert (record["outcome"], record["engine"], record["attempts"]) == ("client_disconnect", "", 0)
        await complete(call)
        assert (await first.answer()).status == 200
    assert len(engine.calls) == 1


@pytest.mark.parametrize(("handler", "stream"), [(hold, False), (two_events, True)])
async def test_the_slot_of_a_client_that_left_goes_to_the_next_in_line(gateway, engine, handler, stream):
    """After the engine's own time to notice."""
    engine.handler = handler
    async with connect(gateway) as first, connect(gateway) as second:
        first.send(ask("first", stream=stream))
        await seen(engine)
        second.send(ask("second"))

        async def queued():
            return (await gateway.metric("queue_depth")) == 1

        await until(queued)
        engine.handler = complete
        first.leave()
        assert (await second.answer()).body == b'{"ok":1}'
    assert b"second" in engine.calls[1].body
    assert [it["outcome"] for it in await gateway.records()] == ["ok", "client_disconnect"]


async def test_a_client_that_leaves_between_two_attempts_is_not_sent_again(tmp_path, engine):
    async with running(tmp_path, [engine.entry(name="a", slots=2)]) as gateway, connect(gateway) as client:
        client.send(ask("x", "x-request-id: r1"))
        call = await seen(engine)
        client.reset()
        call.reset()
        await nothing_is_left(gateway, engine)
    assert len(engine.calls) <= 2


async def test_a_client_that_leaves_while_the_engine_is_connected_to_never_reaches_it(gateway, engine):
    """And the next one gets the only slot."""
    for _ in range(5):
        async with connect(gateway) as client:
            client.send(ask())
            client.reset()
    engine.handler = complete
    async with connect(gateway) as client:
        client.send(ask())
        assert (await client.answer()).status == 200
    records = await gateway.records()
    assert records[0]["outcome"] == "ok"
    assert {it["outcome"] for it in records[1:]} <= {"client_disconnect"}


async def test_leaving_after_the_answer_costs_nothing(gateway, engine):
    async def streamed(call):
        call.write(stream_head(), chunk(event("a", "stop") + DONE), END)

    engine.handler = streamed
    async with connect(gateway) as client:
        client.send(ask(stream=True))
        assert (await client.answer()).ended
    await nothing_is_left(gateway, engine, outcome="ok")
