import asyncio
import json
from contextlib import asynccontextmanager

import pytest
from harness import chat, running, until
from raw_client import connect, request
from raw_engine import DONE, END, chunk, event, raw_engine, seen, stream_head, whole

OK = b'{"ok":1}'


@pytest.fixture
async def engine():
    async def hold(call):
        await call.left.wait()

    async with raw_engine(hold) as engine:
        yield engine


@asynccontextmanager
async def stopping(tmp_path, engine, grace="20s", slots=1):
    """A gateway and a function that begins to stop it; it is awaited at the end."""
    gateway = running(tmp_path, [engine.entry(name="a", slots=slots)], limits={"shutdown_grace": grace})
    tasks = []
    async with gateway as it:

        async def begin():
            tasks.append(asyncio.create_task(it.gateway.stop()))

            async def draining():
                return it.gateway._relay.closing

            await until(draining)
            return tasks[0]

        stop = it.gateway.stop

        async def once():
            if tasks:
                await tasks[0]
            else:
                await stop()

        try:
            yield it, begin
        finally:
            it.gateway.stop = once


def ask(text="hello", stream=False, path="/v1/chat/completions"):
    return request(chat(text, model="m", stream=stream), path=path)


def outcomes(gateway):
    return [it.outcome.value for it in gateway.gateway.observation.records.latest(10)]


def clients(gateway):
    async def connected():
        return list(gateway.gateway._relay._clients)

    return connected


async def queued(gateway, count=1):
    async def are():
        return len(gateway.gateway.dispatcher.scheduler.queue) == count

    await until(are)


async def test_running_and_waiting_requests_are_finished(tmp_path, engine):
    async with (
        stopping(tmp_path, engine) as (gateway, begin),
        connect(gateway) as first,
        connect(gateway) as second,
        connect(gateway) as idle,
    ):
        first.send(ask("first", stream=True))
        call = await seen(engine)
        call.write(stream_head(), chunk(event("a")))
        assert (await first.head()).status == 200
        second.send(ask("second"))
        await queued(gateway)
        stop = await begin()
        assert await idle.until_closed() == b""
        assert not stop.done()
        call.write(chunk(event("b", "stop") + DONE), END)
        assert await first.until_closed() != b""
        (await seen(engine, 2)).write(whole(OK))
        answer = await second.answer()
        assert (answer.body, answer.headers["connection"]) == (OK, "close")
        assert await second.until_closed() == b""
        await stop
        assert outcomes(gateway) == ["ok", "ok"]


@pytest.mark.parametrize(("path", "status"), [("/v1/chat/completions", 503), ("/v1/messages", 529)])
async def test_a_request_on_its_way_when_it_stops_is_refused_with_an_answer(tmp_path, engine, path, status):
    async with (
        stopping(tmp_path, engine) as (gateway, begin),
        connect(gateway) as running_one,
        connect(gateway) as late,
    ):
        running_one.send(ask("first"))
        call = await seen(engine)
        data = ask("late", path=path)
        await late.send_all(data[:50])

        async def begun():
            return any(it._reader.reading for it in gateway.gateway._relay._clients if not it.exchange)

        await until(begun)
        await begin()
        await late.send_all(data[50:])
        answer = await late.answer()
        assert (answer.status, answer.error["code"]) == (status, "shutting_down")
        assert answer.headers["x-gateway-reject-reason"] == "shutting_down"
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.headers["connection"] == "close"
        assert await late.until_closed() == b""
        call.write(whole(OK))
        assert (await running_one.answer()).body == OK
        assert sorted(outcomes(gateway)) == ["ok", "rejected"]


async def test_it_is_not_ready_while_it_stops(tmp_path, engine):
    async with (
        stopping(tmp_path, engine) as (gateway, begin),
        connect(gateway) as running_one,
        connect(gateway) as probe,
    ):
        running_one.send(ask("first"))
        call = await seen(engine)
        data = request(path="/readyz", method="GET")
        await probe.send_all(data[:10])

        async def begun():
            return any(it._reader.reading for it in gateway.gateway._relay._clients if not it.exchange)

        await until(begun)
        await begin()
        await probe.send_all(data[10:])
        answer = await probe.answer()
        assert (answer.status, json.loads(answer.body)["status"]) == (503, "shutting_down")
        call.write(whole(OK))
        assert (await running_one.answer()).body == OK


async def test_while_it_drains_new_connections_are_told_so(tmp_path, engine):
    """A load balancer must see the 503 of `/readyz`, and a client a refusal that it retries."""
    async with stopping(tmp_path, engine) as (gateway, begin), connect(gateway) as stream:
        stream.send(ask("long", stream=True))
        call = await seen(engine)
        call.write(stream_head(), chunk(event("a")))
        assert (await stream.head()).status == 200
        stop = await begin()
        for path, status, word in [("/healthz", 200, "ok"), ("/readyz", 503, "shutting_down")]:
            async with connect(gateway) as probe:
                probe.send(request(path=path, method="GET"))
                answer = await probe.answer()
                assert (answer.status, json.loads(answer.body)["status"]) == (status, word)
                assert answer.headers["connection"] == "close"
                assert await probe.until_closed() == b""
        for path, status in [("/v1/chat/completions", 503), ("/v1/messages", 529)]:
            async with connect(gateway) as late:
                late.send(ask("late", path=path))
                answer = await late.answer()
                assert (answer.status, answer.error["code"]) == (status, "shutting_down")
                assert int(answer.headers["retry-after"]) >= 1
                assert await late.until_closed() == b""
        assert not stop.done()
        call.write(chunk(event("b", "stop") + DONE), END)
        rest = await stream.until_closed()
        assert (b"[DONE]" in rest, b"shutting_down" in rest) == (True, False)
        await stop
        assert outcomes(gateway) == ["ok", "rejected", "rejected"]
        with pytest.raises(ConnectionRefusedError):
            async with connect(gateway):
                pass


async def test_after_the_grace_what_runs_is_cut_off_and_told_so(tmp_path, engine):
    async with (
        stopping(tmp_path, engine, grace="200ms") as (gateway, begin),
        connect(gateway) as stream,
        connect(gateway) as waiting,
    ):
        stream.send(ask("first", stream=True))
        call = await seen(engine)
        call.write(stream_head(), chunk(event("a")))
        assert (await stream.head()).status == 200
        waiting.send(ask("second"))
        await queued(gateway)
        await begin()
        rest = await stream.until_closed()
        assert rest.count(b"shutting_down") == 1
        answer = await waiting.answer()
        assert (answer.status, answer.error["code"]) == (503, "shutting_down")
        await call.left.wait()
        assert outcomes(gateway) == ["shutdown", "shutdown"]


async def test_a_slow_reader_gets_its_whole_answer_before_the_end(tmp_path, engine):
    body = b'"' + b"x" * 8_000_000 + b'"'
    async with (
        stopping(tmp_path, engine) as (gateway, begin),
        connect(gateway) as client,
    ):
        client.reader._transport.pause_reading()
        client.send(ask())
        (await seen(engine)).write(whole(body))

        async def paused():
            return any(it.paused for it in gateway.gateway._relay._clients)

        await until(paused)
        stop = await begin()
        client.reader._transport.resume_reading()
        answer = await client.answer()
        assert (len(answer.body), answer.ended) == (len(body), True)
        await stop
        assert outcomes(gateway) == ["ok"]


async def test_answers_that_are_done_but_not_read_yet_are_not_cut_off(tmp_path, engine):
    """Nothing runs any more, and the gateway still waits for its own buffers to be read."""
    ask_list = request(path="/v1/models", method="GET") * 20
    async with stopping(tmp_path, engine) as (gateway, begin), connect(gateway) as client:
        client.reader._transport.pause_reading()
        [it] = await until(clients(gateway))
        while it._transport.get_write_buffer_size() == 0:
            client.send(ask_list)
            await asyncio.sleep(0.001)
        stop = await begin()
        await asyncio.wait([stop], timeout=0.1)
        assert not stop.done()
        client.reader._transport.resume_reading()
        # The last one says that it is the last.
        received = (await client.until_closed()).replace(b"connection: close\r\n", b"")
        *answers, last = received.split(b"HTTP/1.1 ")[1:]
        lengths = {len(answer) for answer in answers}
        assert lengths == {len(last)}
        await stop


async def test_an_idle_gateway_stops_at_once(tmp_path, engine):
    async with (
        stopping(tmp_path, engine) as (gateway, begin),
        connect(gateway) as client,
    ):
        client.send(request(path="/healthz", method="GET"))
        assert (await client.answer()).status == 200
        stop = await begin()
        assert await client.until_closed() == b""
        async with asyncio.timeout(5):
            await stop
        with pytest.raises(ConnectionRefusedError):
            async with connect(gateway):
                pass


async def test_a_second_signal_ends_the_waiting(tmp_path, engine):
    async with stopping(tmp_path, engine, grace="1h") as (gateway, begin), connect(gateway) as client:
        client.send(ask())
        await seen(engine, 1)
        stop = await begin()
        gateway.gateway.hurry()
        answer = await client.answer()
        assert (answer.status, json.loads(answer.body)["error"]["code"]) == (503, "shutting_down")
        await stop
        assert outcomes(gateway) == ["shutdown"]
