import asyncio

import pytest
from harness import chat, running, until
from raw_client import connect, request
from raw_engine import DONE, END, chunk, event, raw_engine, seen, stream_head, whole

OK = b'{"ok":1}'
SHORT = "300ms"


async def complete(call):
    call.write(whole(OK))


@pytest.fixture
async def engine():
    async with raw_engine(complete) as engine:
        yield engine


def limited(tmp_path, engine, slots=2, **limits):
    return running(tmp_path, [engine.entry(name="a", slots=slots)], limits=limits)


def ask(stream=False):
    return request(chat("hello", model="m", stream=stream))


async def the_only_record(gateway):
    [record] = await gateway.records()
    assert (await gateway.engine("a"))["in_flight"] == 0
    assert await gateway.metric("requests_total") == 1
    return record["outcome"], record["status"], record["code"]


BIG = event("x" * 20_000)
EVENTS = 2000
MOST_HELD_BYTES = 16 * 1024 * 1024


async def write_all(call):
    """Reports in `call.written` how many events the gateway has taken."""
    call.written = 0
    call.write(stream_head())
    for _ in range(EVENTS):
        while call.connection.transport.get_write_buffer_size() > 0 and not call.left.is_set():
            await asyncio.sleep(0.005)
        if call.left.is_set():
            return
        call.write(chunk(BIG))
        call.written += 1
    call.write(chunk(DONE), END)


async def settled(call):
    """The engine can write no more."""
    before = -1
    while before != call.written:
        before = call.written
        await asyncio.sleep(0.1)


async def test_a_client_that_reads_slowly_slows_its_engine_down(tmp_path, engine):
    """And gets every byte; what lies between is bounded: socket buffers, no more."""
    engine.handler = write_all
    async with limited(tmp_path, engine, write_timeout="30s") as gateway, connect(gateway) as client:
        client.reader._transport.pause_reading()
        client.send(ask(stream=True))
        call = await seen(engine)
        await settled(call)
        assert call.written * len(BIG) < MOST_HELD_BYTES
        held = [it._transport.get_write_buffer_size() for it in gateway.gateway._relay._clients]
        assert max(held) < 512 * 1024
        client.reader._transport.resume_reading()
        assert (await client.answer()).body == BIG * EVENTS + DONE


async def test_a_client_that_does_not_read_is_given_up(tmp_path, engine):
    engine.handler = write_all
    async with limited(tmp_path, engine, write_timeout="500ms") as gateway, connect(gateway) as client:
        client.reader._transport.pause_reading()
        client.send(ask(stream=True))
        call = await seen(engine)
        await call.left.wait()
        assert call.written < EVENTS
        assert await the_only_record(gateway) == ("client_timeout", 200, "")
        assert not gateway.gateway._relay._clients


LIST = request(path="/v1/models", method="GET")


async def fill(gateway, client, data, full):
    """Sends `data` and reads nothing, until the gateway's connection is `full`; how often it was sent."""
    client.reader._transport.pause_reading()
    for count in range(1, 5000):
        client.send(data)
        await asyncio.sleep(0.001 if count % 20 == 0 else 0)
        if any(full(it) for it in gateway.gateway._relay._clients):
            return count
    raise AssertionError("the gateway took it all")


def paused(client):
    return client.paused


def holding(client):
    return client._transport.get_write_buffer_size() > 0


async def no_client_is_left(gateway):
    async def none_left():
        return not gateway.gateway._relay._clients

    await until(none_left)


async def test_a_client_that_only_writes_cannot_fill_the_memory(tmp_path, engine):
    """No answer of the gateway's own is made for one that reads none."""
    async with limited(tmp_path, engine, write_timeout="500ms") as gateway, connect(gateway) as client:
        await fill(gateway, client, LIST * 20, holding)
        await fill(gateway, client, LIST * 3000, paused)
        for _ in range(200):
            client.send(LIST * 2000)
            await asyncio.sleep(0)
        [it] = gateway.gateway._relay._clients
        assert it._transport.get_write_buffer_size() < 128 * 1024
        assert len(it._ahead) <= 64 * 1024
        assert len(it._reader.ready) < 20_000
        await no_client_is_left(gateway)


async def test_a_client_that_never_reads_the_end_of_its_last_answer_is_dropped(tmp_path, engine):
    """Nothing runs for it any more; its connection must not stay for ever."""
    async with limited(tmp_path, engine, write_timeout=SHORT) as gateway, connect(gateway) as client:
        await fill(gateway, client, LIST * 20, holding)
        client.send(request("", "connection: close", path="/healthz", method="GET")[:-2])
        await no_client_is_left(gateway)


@pytest.mark.parametrize("leave", ["half-closes", "closes"])
async def test_a_client_that_leaves_with_half_an_answer_unread_is_noticed_at_once(tmp_path, engine, leave):
    """Not when all has been written that nobody reads."""
    engine.handler = write_all
    async with limited(tmp_path, engine) as gateway, connect(gateway) as client:
        client.reader._transport.pause_reading()
        client.send(ask(stream=True))
        call = await seen(engine)
        await settled(call)
        client.writer.write_eof() if leave == "half-closes" else client.leave()
        async with asyncio.timeout(1):
            await call.left.wait()
        await no_client_is_left(gateway)
        assert (await the_only_record(gateway))[0] == "client_disconnect"


async def test_what_was_sent_ahead_is_answered_once_the_client_reads(tmp_path, engine):
    async with limited(tmp_path, engine) as gateway, connect(gateway) as client:
        sent = 50 * await fill(gateway, client, LIST * 50, paused)
        client.send(ask())
        client.reader._transport.resume_reading()
        for _ in range(sent):
            assert (await client.answer()).status == 200
        assert (await client.answer()).body == OK
