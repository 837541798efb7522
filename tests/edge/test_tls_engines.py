"""Engines behind https: verified, and otherwise like any other."""

import asyncio
import logging
from contextlib import AsyncExitStack

import pytest
import trustme
from certificates import ca_file, server_context, server_files
from failing import OK, STREAMED, ask, complete
from harness import running, until
from raw_client import connect, request
from raw_engine import answers, chunk, event, raw_engine, stream_head, whole
from test_upstream import Attempt, sent

from gateway.config import engine_context
from gateway.edge.upstream import Pool


@pytest.fixture
async def engine():
    async with raw_engine(complete, tls=server_context()) as engine:
        yield engine


@pytest.fixture
def ca(tmp_path):
    return ca_file(tmp_path)


@pytest.fixture
async def gateway(tmp_path, engine, ca):
    async with running(tmp_path, [engine.entry(name="a", ca=ca)]) as gateway:
        yield gateway


@pytest.fixture
async def pool(engine, ca):
    it = Pool(engine.url, None, 5.0, asyncio.get_running_loop(), engine_context(ca))
    yield it
    it.close()


def test_a_url_without_a_port_means_443():
    loop = asyncio.new_event_loop()
    pool = Pool("https://engine/team", None, 1.0, loop, engine_context())
    assert (pool.host, pool.port, pool.host_header) == ("engine", 443, b"engine")
    loop.close()


@pytest.mark.parametrize(("stream", "body"), [(False, OK), (True, STREAMED)])
async def test_it_answers_and_is_probed(gateway, engine, stream, body):
    assert engine.url.startswith("https://")
    for _ in range(3):
        answer = await ask(gateway, stream)
        assert (answer.status, answer.body, answer.ended) == (200, body, True)
    assert (await gateway.engine("a"))["health"] == "ready"
    assert engine.calls[0].headers["host"] == engine.url.removeprefix("https://")


async def test_its_name_is_asked_for(tmp_path, ca):
    names = []
    context = server_context("localhost")
    context.sni_callback = lambda _, name, __: names.append(name)
    async with raw_engine(complete, tls=context) as engine:
        url = engine.url.replace("127.0.0.1", "localhost")
        async with running(tmp_path, [engine.entry(name="a", ca=ca, url=url)]) as gateway:
            assert (await ask(gateway)).status == 200
    assert set(names) == {"localhost"}


async def test_connections_are_used_again(pool, engine):
    first = await sent(pool)
    second = await sent(pool)
    assert (first.answer, second.answer) == (OK, OK)
    assert first.connection is second.connection
    assert engine.accepted == 1


async def test_large_bodies_pass_both_ways(pool, engine):
    body = b"y" * 10_000_000

    async def handler(call):
        call.write(whole(body))

    engine.handler = handler
    attempt = await sent(pool, b"x" * 20_000_000)
    assert attempt.answer == body
    assert len(engine.calls[0].body) == 20_000_000


async def test_whether_all_was_written_is_known_after_the_connection_is_lost(pool, engine):
    async def reset(call):
        call.reset()

    engine.handler = reset
    assert (await sent(pool)).all_written is True
    engine.reset_on_head = True
    assert (await sent(pool, b"x" * 30_000_000)).all_written is False


async def test_a_connection_with_half_a_request_in_it_is_not_used_again(pool, engine):
    engine.answer_on_head = whole(OK)
    assert (await sent(pool, b"x" * 30_000_000)).answer == OK
    assert pool.idle() is None


async def test_a_long_request_that_is_read_counts_as_written(pool, engine):
    """Each pause ends with a resume, or no connection would ever be used again."""
    for _ in range(3):
        assert (await sent(pool, b"x" * 5_000_000)).answer == OK
    assert engine.accepted == 1


async def test_what_we_have_not_read_yet_is_not_lost_when_the_engine_closes(pool, engine):
    """A client that reads slowly makes us pause; some engines do not wait for our farewell meanwhile."""
    paused = asyncio.Event()

    async def handler(call):
        call.write(whole(b"y" * 50_000, b"connection: close")[:-20_000])
        await paused.wait()
        call.write(b"y" * 20_000)
        call.connection.transport.abort()

    class Paused(Attempt):
        def answered(self, connection):
            if not paused.is_set():
                paused.set()
                connection.pause_reading()
            super().answered(connection)

    engine.handler = handler
    attempt = Paused()
    pool.connect(attempt)
    await paused.wait()
    await engine.calls[0].left.wait()
    for _ in range(20):
        # Rounds of the loop in which we could see the end.
        await asyncio.sleep(0)
    attempt.connection.resume_reading()
    await attempt.end()
    assert attempt.error is None
    assert attempt.answer == b"y" * 50_000


EOF_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n"


async def test_an_answer_that_ends_with_the_connection_ends_with_a_farewell(gateway, engine):
    engine.handler = answers(EOF_HEAD, OK, close=True)
    answer = await ask(gateway)
    assert (answer.status, answer.body, answer.ended) == (200, OK, True)
    assert (await gateway.records())[0]["outcome"] == "ok"


async def test_one_that_ends_without_it_is_cut(gateway, engine):
    """The engine died, or somebody between cut the answer off: that must not look complete."""

    async def handler(call):
        call.write(EOF_HEAD, b'{"whole":1}')
        await asyncio.sleep(0.05)
        call.connection.transport.abort()

    engine.handler = handler
    answer = await ask(gateway)
    assert (answer.status, answer.ended) == (200, False)
    assert (await gateway.records())[0]["outcome"] == "engine_truncated"


async def test_a_stream_that_breaks_off_ends_with_an_error(gateway, engine):
    async def handler(call):
        call.write(stream_head(), chunk(event("a")))
        await asyncio.sleep(0.05)
        call.connection.transport.abort()

    engine.handler = handler
    answer = await ask(gateway, True)
    assert answer.ended
    assert b"engine_truncated" in answer.body


async def test_a_client_that_leaves_ends_the_engines_work(gateway, engine):
    async def handler(call):
        call.write(stream_head(), chunk(event("a")))
        await call.left.wait()

    engine.handler = handler
    async with connect(gateway) as client:
        client.send(request({"model": "m", "messages": [], "stream": True}))
        await client.head()
        client.leave()
        await asyncio.wait_for(engine.calls[0].left.wait(), 5)


@pytest.fixture
async def distrusted(request):
    """An engine with something wrong."""
    if request.param == "no tls":

        async def no_hello(_, writer):
            writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
            writer.close()

        async with await asyncio.start_server(no_hello, "127.0.0.1", 0) as server, raw_engine(complete) as it:
            it.url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            yield it
        return
    trusted = request.param == "another name"
    context = server_context("example.org") if trusted else server_context(ca=trustme.CA())
    async with raw_engine(complete, tls=context) as engine:
        yield engine


TROUBLES = [
    ("self-signed", "its certificate is not trusted: unable to get local issuer certificate"),
    ("another name", "its certificate is not trusted: IP address mismatch"),
    ("no tls", "no TLS with it: wrong version number"),
]


@pytest.mark.parametrize(("distrusted", "why"), TROUBLES, indirect=["distrusted"])
async def test_an_engine_that_cannot_be_trusted_is_down_and_says_why(tmp_path, distrusted, ca, why, caplog):
    caplog.set_level(logging.INFO)
    async with running(tmp_path, [distrusted.entry(name="a", ca=ca)]) as gateway:

        async def down():
            return (await gateway.engine("a"))["health"] == "down"

        await until(down)
        answer = await ask(gateway)
        assert (answer.status, answer.error["code"]) == (502, "engine_unreachable")
        assert f"a is down: {why}" in answer.error["message"]
        assert distrusted.calls == []
    assert f"engine a: down, was unknown: {why}" in caplog.text


async def test_a_certificate_that_is_changed_for_a_bad_one_is_told_to_the_request(tmp_path, ca):
    async with AsyncExitStack() as stack:
        good = await stack.enter_async_context(raw_engine(complete, tls=server_context()))
        gateway = await stack.enter_async_context(running(tmp_path, [good.entry(name="a", ca=ca)]))
        trustme.CA().issue_cert("127.0.0.1").configure_cert(good.tls)
        for connection in list(good.connections):
            connection.reset()
        answer = await ask(gateway)
        assert (answer.status, answer.error["code"]) == (502, "engine_unreachable")
        assert "its certificate is not trusted" in answer.error["message"]


async def test_another_engine_takes_what_an_untrusted_one_cannot(tmp_path, engine, ca):
    async with raw_engine(complete, tls=server_context(ca=trustme.CA())) as bad:
        entries = [bad.entry(name="bad", ca=ca), engine.entry(name="good", ca=ca)]
        async with running(tmp_path, entries) as gateway:
            for _ in range(4):
                answer = await ask(gateway)
                assert (answer.status, answer.headers["x-gateway-engine"]) == (200, "good")


async def test_an_engine_whose_certificate_is_put_right_comes_back(tmp_path, ca):
    async with AsyncExitStack() as stack:
        bad = server_context(ca=trustme.CA())
        engine = await stack.enter_async_context(raw_engine(complete, tls=bad))
        gateway = await stack.enter_async_context(running(tmp_path, [engine.entry(name="a", ca=ca)]))
        assert (await ask(gateway)).status == 502
        files = server_files(tmp_path)
        engine.tls.load_cert_chain(files["cert"], files["key"])

        async def ready():
            return (await gateway.engine("a"))["health"] == "ready"

        await until(ready)
        assert (await ask(gateway)).body == OK
