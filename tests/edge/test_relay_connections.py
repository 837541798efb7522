import asyncio
import json

import pytest
from harness import chat, running, until
from raw_client import connect, request
from raw_engine import DONE, END, answers, chunk, event, raw_engine, seen, stream_head, whole


async def echo(call):
    """Answers with the user's text."""
    call.write(whole(json.dumps({"text": json.loads(call.body)["messages"][-1]["content"]}).encode()))


STREAM = (stream_head(), chunk(event("a") + event("b", "stop") + DONE), END)


@pytest.fixture
async def engine():
    async with raw_engine(echo) as engine:
        yield engine


@pytest.fixture
async def gateway(tmp_path, engine):
    async with running(tmp_path, [engine.entry(name="a")]) as gateway:
        yield gateway


def ask(text: str, *headers: str, **options) -> bytes:
    return request(chat(text, model="m"), *headers, **options)


def text_of(answer) -> str:
    return json.loads(answer.body)["text"]


async def test_one_connection_carries_many_requests(gateway, engine):
    async with connect(gateway) as client:
        for text in "abcdef":
            client.send(ask(text))
            answer = await client.answer()
            assert text_of(answer) == text
            assert "connection" not in answer.headers
    probes = 1
    assert engine.accepted <= 1 + probes


@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_connection_close_is_honoured(gateway, version):
    async with connect(gateway) as client:
        client.send(ask("a", "connection: close", version=version))
        answer = await client.answer()
        assert text_of(answer) == "a"
        assert answer.headers["connection"] == "close"
        assert await client.until_closed() == b""


@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_what_a_client_sends_behind_its_last_request_costs_it_no_answer(gateway, version):
    """Its answer must not be lost to a reset: some clients send a line end behind their body."""

    async def answered():
        return await gateway.records()

    async with connect(gateway) as client:
        client.reader._transport.pause_reading()
        client.send(ask("a", "connection: close", version=version))
        await until(answered)
        for _ in range(3):
            client.send(b"\r\n")
            await gateway.state()
        client.reader._transport.resume_reading()
        assert text_of(await client.answer()) == "a"
        assert await client.until_closed() == b""


@pytest.mark.parametrize("headers", [(), ("connection: keep-alive",)])
async def test_an_http_1_0_client_gets_its_json_and_the_end(gateway, headers):
    async with connect(gateway) as client:
        client.send(ask("a", *headers, version="1.0"))
        answer = await client.answer()
        assert text_of(answer) == "a"
        assert "transfer-encoding" not in answer.headers
        assert await client.until_closed() == b""


async def test_an_http_1_0_client_gets_a_stream_that_ends_with_the_connection(gateway, engine):
    engine.handler = answers(*STREAM)
    async with connect(gateway) as client:
        client.send(request(chat("a", model="m", stream=True), version="1.0"))
        head = await client.head()
        assert "transfer-encoding" not in head.headers
        assert "content-length" not in head.headers
        assert await client.until_closed() == event("a") + event("b", "stop") + DONE


async def test_pipelined_requests_are_answered_in_order(gateway, engine):
    async with connect(gateway) as client:
        client.send(ask("a") + request(path="/healthz", method="GET") + ask("b") + ask("c")[:40])
        assert text_of(await client.answer()) == "a"
        assert json.loads((await client.answer()).body) == {"status": "ok"}
        assert text_of(await client.answer()) == "b"
        client.send(ask("c")[40:])
        assert text_of(await client.answer()) == "c"
    assert [record["outcome"] for record in await gateway.records()] == ["ok"] * 3


async def test_pipelined_requests_run_one_at_a_time_and_need_one_slot(tmp_path):
    async with (
        raw_engine(echo) as engine,
        running(tmp_path, [engine.entry(name="a", slots=1)], admission={"max_queue": 0}) as gateway,
        connect(gateway) as client,
    ):
        client.send(b"".join(map(ask, "abcde")))
        assert [text_of(await client.answer()) for _ in "abcde"] == list("abcde")


async def test_what_comes_while_a_request_runs_is_kept(gateway, engine):
    release = asyncio.Event()

    async def slow(call):
        await release.wait()
        await echo(call)

    engine.handler = slow
    async with connect(gateway) as client:
        client.send(ask("a"))
        await seen(engine)
        await client.send_all(ask("b") + ask("c")[:-5])
        await client.send_all(ask("c")[-5:])
        release.set()
        assert [text_of(await client.answer()) for _ in "abc"] == list("abc")


async def test_too_much_sent_ahead_ends_the_connection_after_the_answer(gateway, engine):
    release = asyncio.Event()

    async def slow(call):
        await release.wait()
        await echo(call)

    engine.handler = slow
    async with connect(gateway) as client:
        client.send(ask("a"))
        await seen(engine)
        await client.send_all(ask("b" * 100_000))
        await client.send_all(request(path="/healthz", method="GET"))

        async def cut_off():
            return all(it._deaf for it in gateway.gateway._relay._clients)

        await until(cut_off)
        release.set()
        answer = await client.answer()
        assert text_of(answer) == "a"
        assert answer.headers["connection"] == "close"
        assert await client.until_closed() == b""
    assert len(engine.calls) == 1


async def test_a_client_that_waits_for_100_continue_gets_it(gateway):
    whole_request = ask("a", "expect: 100-continue")
    head, _, body = whole_request.partition(b"\r\n\r\n")
    async with connect(gateway) as client:
        client.send(head + b"\r\n\r\n")
        assert (await client.answer()).status == 100
        client.send(body)
        assert text_of(await client.answer()) == "a"
        client.send(whole_request)
        assert (await client.answer()).status == 200


@pytest.mark.parametrize("size", [1, 7, 10_000])
async def test_a_chunked_request_body_is_put_together(gateway, engine, size):
    body = json.dumps(chat("x" * 200, model="m")).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
    async with connect(gateway) as client:
        client.send(head + b"".join(chunk(body[at : at + size]) for at in range(0, len(body), size)) + END)
        assert text_of(await client.answer()) == "x" * 200
    assert engine.calls[0].body == body
    assert engine.calls[0].headers["content-length"] == str(len(body))
    assert "transfer-encoding" not in engine.calls[0].headers


async def test_a_request_that_comes_byte_by_byte_is_one_request(gateway):
    data = ask("a")
    async with connect(gateway) as client:
        for at in range(len(data)):
            await client.send_all(data[at : at + 1])
            await asyncio.sleep(0)
        assert text_of(await client.answer()) == "a"


async def test_a_client_that_offers_http_2_is_served_all_the_same(gateway):
    """Java's HTTP client offers it with every first request."""
    async with connect(gateway) as client:
        client.send(
            ask("a", "connection: Upgrade, HTTP2-Settings", "upgrade: h2c", "http2-settings: AAMAAABkAAQ")
        )
        assert text_of(await client.answer()) == "a"
        client.send(ask("b"))
        assert text_of(await client.answer()) == "b"


async def test_connections_beyond_the_limit_are_refused_and_counted(tmp_path, engine):
    async with running(tmp_path, [engine.entry(name="a")], limits={"max_connections": 2}) as gateway:
        async with connect(gateway) as first, connect(gateway) as second:
            for client in (first, second):
                client.send(ask("a"))
                assert text_of(await client.answer()) == "a"
            async with connect(gateway) as third:
                assert await third.closed()
            assert await gateway.metric("degraded", kind="connections_refused") == 1
            first.send(ask("b"))
            assert text_of(await first.answer()) == "b"

        async def again():
            async with connect(gateway) as client:
                client.send(request(path="/healthz", method="GET"))
                try:
                    return (await client.answer()).status == 200
                except (ConnectionError, asyncio.IncompleteReadError):
                    return False

        await until(again)


async def test_streams_and_answers_that_share_a_connection_to_the_engine_are_each_whole(
    tmp_path, engine, monkeypatch
):
    monkeypatch.setattr("gateway.edge.upstream.SETTLE_S", 0.0)
    chunks = [chunk(event(text)) for text in "abcd"] + [chunk(event("e", "stop") + DONE)]

    async def paced(call):
        if b'"stream": true' not in call.body:
            await echo(call)
            return
        call.write(stream_head())
        for part in (*chunks, END):
            # Each on its own, as tokens come.
            await asyncio.sleep(0.01)
            call.write(part)

    engine.handler = paced
    wanted = b"".join(event(text) for text in "abcd") + event("e", "stop") + DONE
    async with running(tmp_path, [engine.entry(name="a")]) as gateway, connect(gateway) as client:
        before = engine.accepted
        for stream in (True, True, False, True, True, False, False, True):
            client.send(request(chat("x", model="m", stream=stream)))
            answer = await client.answer()
            assert answer.ended
            assert answer.headers["x-gateway-engine"] == "a"
            assert (answer.body == wanted) if stream else (text_of(answer) == "x")
        # The first stream's connection is kept to see whether the engine keeps it.
        assert engine.accepted - before <= 3
