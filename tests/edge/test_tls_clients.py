"""The API port with a certificate: what works over plain TCP works over TLS."""

import asyncio
import contextlib
import json
import socket

import aiohttp
import pytest
from certificates import client_context, server_files
from failing import OK, STREAMED
from harness import chat, running, until
from raw_client import RawClient, connect, request
from raw_engine import chunk, event, seen, stream_head, whole


@pytest.fixture
async def gateway(tmp_path, engine):
    limits = {"max_body": "64MiB"}
    async with running(
        tmp_path, [engine.entry(name="a")], tls=server_files(tmp_path), limits=limits
    ) as gateway:
        yield gateway


def over_tls(gateway, **options):
    return connect(gateway, ssl=client_context(), server_hostname="localhost", **options)


def ask(stream=False, text="hello", **more):
    return request(chat(text, model="m", stream=stream), **more)


def only(gateway, outcome):
    async def recorded():
        return [it["outcome"] for it in await gateway.records()] == [outcome]

    return recorded


@pytest.mark.parametrize(("stream", "body"), [(False, OK), (True, STREAMED)])
async def test_answers_and_keeps_the_connection(gateway, stream, body):
    async with over_tls(gateway) as client:
        tls = client.writer.get_extra_info("ssl_object")
        assert tls.version() in ("TLSv1.2", "TLSv1.3")
        for _ in range(3):
            client.send(ask(stream))
            answer = await client.answer()
            assert (answer.status, answer.body, answer.ended) == (200, body, True)


async def test_an_ordinary_client_gets_through_and_says_goodbye(gateway):
    assert gateway.api.startswith("https://")
    connector = aiohttp.TCPConnector(ssl=client_context())
    async with aiohttp.ClientSession(connector=connector) as http:
        async with http.post(f"{gateway.api}/v1/chat/completions", json=chat("hello", model="m")) as answer:
            assert (answer.status, await answer.read()) == (200, OK)
        async with http.get(f"{gateway.api}/healthz") as answer:
            assert answer.status == 200


async def test_http_1_1_is_agreed_on(gateway):
    context = client_context()
    context.set_alpn_protocols(["h2", "http/1.1"])
    async with connect(gateway, ssl=context, server_hostname="localhost") as client:
        assert client.writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"


async def test_large_bodies_pass_both_ways(gateway, engine):
    body = b'{"x":"' + b"y" * 8_000_000 + b'"}'

    async def handler(call):
        call.write(whole(body))

    engine.handler = handler
    async with over_tls(gateway) as client:
        await client.send_all(ask(text="z" * 20_000_000))
        assert (await client.answer()).body == body
    assert len(json.loads((await seen(engine)).body)["messages"][0]["content"]) == 20_000_000


async def test_a_client_that_reads_slowly_gets_all_of_it(gateway, engine):
    body = b"y" * 20_000_000

    async def handler(call):
        call.write(whole(body))

    engine.handler = handler
    async with over_tls(gateway, limit=1024) as client:
        client.send(ask())

        async def waits():
            return any(it.paused for it in gateway.gateway._relay._clients)

        await until(waits)
        assert (await client.answer()).body == body


async def streaming(call):
    call.write(stream_head(), chunk(event("a")))
    await call.left.wait()


@pytest.mark.parametrize("way", ["leave", "reset"])
async def test_a_client_that_leaves_frees_the_engine(gateway, engine, way):
    engine.handler = streaming
    async with over_tls(gateway) as client:
        client.send(ask(True))
        await client.head()
        getattr(client, way)()
        await asyncio.wait_for((await seen(engine)).left.wait(), 5)
    await until(only(gateway, "client_disconnect"))


async def test_a_client_whose_connection_ends_without_a_farewell_has_left(gateway, engine):
    engine.handler = streaming
    async with raw_tls(gateway) as (sock, tls):
        await asyncio.to_thread(tls.sendall, ask(True))
        call = await seen(engine)
        sock.shutdown(socket.SHUT_WR)
        await asyncio.wait_for(call.left.wait(), 5)
    await until(only(gateway, "client_disconnect"))


@contextlib.asynccontextmanager
async def raw_tls(gateway):
    """A blocking TLS socket, and the one below it."""

    def open_it():
        sock = socket.create_connection(gateway.address)
        sock.settimeout(10)
        keep = sock.dup()
        context = client_context()
        return keep, context.wrap_socket(sock, server_hostname="localhost", suppress_ragged_eofs=False)

    below, tls = await asyncio.to_thread(open_it)
    try:
        yield below, tls
    finally:
        tls.close()
        below.close()


async def test_a_refused_body_is_answered_while_it_still_comes(gateway):
    """A plain close would reset the connection, and with it the answer."""
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 100000000\r\n\r\n"
    async with raw_tls(gateway) as (_, tls):
        await asyncio.to_thread(tls.sendall, head + b"x" * 100)
        first = await asyncio.to_thread(tls.recv, 65536)
        assert b" 413 " in first
        for _ in range(50):
            await asyncio.to_thread(tls.sendall, b"x" * 100_000)
        rest = await asyncio.to_thread(tls.recv, 65536)
        while rest:
            first, rest = first + rest, await asyncio.to_thread(tls.recv, 65536)
        assert json.loads(first.partition(b"\r\n\r\n")[2])["error"]["code"] == "body_too_large"


async def test_a_complete_answer_to_http_1_0_ends_with_a_farewell(gateway, engine):
    async def handler(call):
        call.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", chunk(OK), b"0\r\n\r\n")

    engine.handler = handler
    async with raw_tls(gateway) as (_, tls):
        await asyncio.to_thread(tls.sendall, ask(version="1.0"))
        received = b""
        while data := await asyncio.to_thread(tls.recv, 65536):
            received += data
        assert received.endswith(OK)


@pytest.mark.parametrize("end", ["close", "reset"])
async def test_an_answer_to_http_1_0_that_breaks_off_is_cut(gateway, engine, end):
    async def handler(call):
        call.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", chunk(b'{"whole":1}'))
        await asyncio.sleep(0.05)
        getattr(call, end)()

    engine.handler = handler
    async with over_tls(gateway) as client:
        client.send(ask(version="1.0"))
        assert "content-length" not in (await client.head()).headers
        with pytest.raises(ConnectionResetError):
            await client.until_closed()
    await until(only(gateway, "engine_truncated"))


async def test_plain_http_gets_no_answer_and_harms_nobody(gateway):
    async with connect(gateway) as client:
        client.send(ask())
        with contextlib.suppress(ConnectionError):
            assert b"HTTP" not in await client.until_closed()
    async with over_tls(gateway) as client:
        client.send(ask())
        assert (await client.answer()).status == 200
    assert len(await gateway.records()) == 1


async def test_who_does_not_finish_the_handshake_is_let_go(tmp_path, engine):
    files, limits = server_files(tmp_path), {"header_timeout": "200ms"}
    async with (
        running(tmp_path, [engine.entry()], tls=files, limits=limits) as gateway,
        connect(gateway) as client,
    ):
        client.send(b"\x16\x03\x01")
        with contextlib.suppress(ConnectionError):
            assert await client.until_closed() == b""


async def test_a_stop_waits_for_the_last_bytes_of_an_answer(tmp_path, engine):
    """Also for those that the TLS transport counts as written."""
    body = b"y" * 10_000_000
    go_on = asyncio.Event()

    async def handler(call):
        await go_on.wait()
        call.write(whole(body))

    engine.handler = handler
    async with (
        running(
            tmp_path,
            [engine.entry()],
            tls=server_files(tmp_path),
            limits={"shutdown_grace": "20s"},
        ) as gateway,
        over_tls(gateway, limit=1024) as client,
    ):
        client.send(ask())
        await seen(engine)
        stop = asyncio.create_task(gateway.gateway.stop())
        go_on.set()
        answer = await read_slowly(client)
        assert answer.body == body
        await asyncio.wait_for(stop, 10)
        gateway.gateway.stop = stopped


async def read_slowly(client: RawClient):
    answer = await client.head()
    left = int(answer.headers["content-length"])
    while left > 0:
        data = await client.reader.read(200_000)
        assert data, f"{left} bytes are missing"
        answer.body += data
        left -= len(data)
        await asyncio.sleep(0)
    return answer


async def test_a_stop_does_not_wait_for_idle_clients_that_keep_silent(tmp_path, engine):
    async with running(
        tmp_path, [engine.entry()], tls=server_files(tmp_path), limits={"shutdown_grace": "30s"}
    ) as gateway:
        async with raw_tls(gateway) as (_, tls):
            await asyncio.to_thread(tls.sendall, ask())
            assert b" 200 " in await asyncio.to_thread(tls.recv, 65536)
            await asyncio.wait_for(gateway.gateway.stop(), 10)
        gateway.gateway.stop = stopped


async def stopped():
    """In the place of a second `stop`."""
