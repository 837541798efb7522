import asyncio

import pytest
from harness import until
from raw_engine import answers, raw_engine, seen, whole

from gateway.core.call import Prepared
from gateway.edge import upstream
from gateway.edge.upstream import Pool

POST = b"POST /v1/x HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n"
OK = b'{"ok":1}'


class Attempt:
    """One request, sent as soon as there is a connection."""

    def __init__(self, body: bytes = b"{}") -> None:
        self.body = body
        self.connection = None
        self.answer = b""
        self.error: BaseException | None = None
        self.over = asyncio.Event()
        self.all_written: bool | None = None

    def connected(self, connection) -> None:
        self.connection = connection
        head = POST.replace(b": 2", b": %d" % len(self.body))
        connection.send(self, head, self.body)

    def connect_failed(self, error) -> None:
        self.error = error
        self.over.set()

    def crashed(self, error) -> None:
        self.error = error
        self.over.set()

    def answered(self, connection) -> None:
        self.answer += connection.reader.take()
        if connection.reader.complete:
            connection.release()
            self.over.set()

    def lost(self, connection, error) -> None:
        self.all_written = connection.all_written
        self.error = error or ConnectionError("closed")
        self.over.set()

    async def end(self) -> "Attempt":
        async with asyncio.timeout(10):
            await self.over.wait()
        return self


@pytest.fixture
async def engine():
    async with raw_engine(answers(whole(OK))) as engine:
        yield engine


@pytest.fixture
async def pool(engine):
    it = Pool(engine.url, None, 5.0, asyncio.get_running_loop())
    yield it
    it.close()


async def sent(pool, body: bytes = b"{}") -> Attempt:
    """Over an idle connection if there is one."""
    attempt = Attempt(body)
    connection = pool.idle()
    if connection is None:
        pool.connect(attempt)
    else:
        attempt.connected(connection)
    return await attempt.end()


def test_a_url_is_taken_apart():
    loop = asyncio.new_event_loop()
    pool = Pool("http://[::1]:8000/team/", "secret", 1.0, loop)
    assert (pool.host, pool.port, pool.prefix) == ("::1", 8000, b"/team")
    assert (pool.host_header, pool.secret) == (b"[::1]:8000", b"secret")
    assert Pool("http://engine", None, 1.0, loop).port == 80
    loop.close()


def test_a_head_for_the_engine_is_the_same_however_many_others_were_made_before():
    loop = asyncio.new_event_loop()
    pool = Pool("http://e:1/team/", "secret", 1.0, loop)
    long = b"a" * 3000
    for _ in range(2):
        for number in range(200):
            headers = ((b"accept", b"x"), (b"x-n", b"%d" % number), (b"x-long", long[: number * 15]))
            prepared = Prepared(path="/v1/x", headers=headers, body=b"{}" * number)
            assert pool.request_head(prepared, "?q=1", f"r-{number}") == (
                b"POST /team/v1/x?q=1 HTTP/1.1\r\nhost: e:1\r\ncontent-length: %d\r\n"
                b"accept: x\r\nx-n: %d\r\nx-long: %b\r\nx-request-id: r-%d\r\n"
                b"authorization: Bearer secret\r\n\r\n"
            ) % (number * 2, number, long[: number * 15], number)
    loop.close()


async def test_a_connection_is_used_again_the_last_one_first(pool, engine):
    first = await sent(pool)
    second = await sent(pool)
    assert first.answer == second.answer == OK
    assert second.connection is first.connection
    assert engine.accepted == 1
    one, two = Attempt(), Attempt()
    pool.connect(one)
    pool.connect(two)
    await one.end()
    await two.end()
    assert engine.accepted == 3
    assert pool.idle() in (one.connection, two.connection)


async def test_a_connection_that_the_engine_closed_is_not_offered(pool, engine):
    await sent(pool)
    engine.calls[0].close()

    async def forgotten():
        return not pool._all

    await until(forgotten)
    assert pool.idle() is None


async def test_a_connection_that_has_been_idle_too_long_is_not_offered(pool, engine, monkeypatch):
    await sent(pool)
    monkeypatch.setattr(upstream, "IDLE_S", -1.0)
    assert pool.idle() is None
    await asyncio.wait_for(engine.calls[0].left.wait(), 5)


async def test_trim_closes_what_has_been_idle_too_long(pool, engine, monkeypatch):
    await sent(pool)
    pool.trim()
    assert len(pool._idle) == 1
    monkeypatch.setattr(upstream, "IDLE_S", -1.0)
    pool.trim()
    await asyncio.wait_for(engine.calls[0].left.wait(), 5)
    assert not pool._idle


@pytest.mark.parametrize("answer", [whole(OK, b"connection: close"), b"HTTP/1.0 200 OK\r\n\r\n" + OK])
async def test_a_connection_is_kept_only_if_the_engine_keeps_it(pool, engine, answer):
    engine.handler = answers(answer, close=answer.startswith(b"HTTP/1.0"))
    assert (await sent(pool)).answer == OK
    assert pool.idle() is None


async def test_a_refused_connection_is_a_failure_to_connect(pool, engine):
    engine.refuse()
    attempt = await sent(pool)
    assert isinstance(attempt.error, ConnectionRefusedError)
    assert attempt.connection is None


async def test_a_connection_that_takes_too_long_is_a_failure_to_connect(engine):
    class Loop:
        def __getattr__(self, name):
            return getattr(asyncio.get_running_loop(), name)

        async def create_connection(self, *_, **__):
            await asyncio.Event().wait()

    pool = Pool(engine.url, None, 0.05, Loop())
    attempt = await sent(pool)
    assert isinstance(attempt.error, OSError)
    assert "within 0.05 s" in str(attempt.error)


async def test_whatever_else_goes_wrong_ends_the_attempt_too(engine):
    told = []

    class Loop:
        def __getattr__(self, name):
            return getattr(asyncio.get_running_loop(), name)

        def call_exception_handler(self, context):
            told.append(context["exception"])

        async def create_connection(self, *_, **__):
            raise UnicodeError("label empty or too long")

    attempt = await sent(Pool(engine.url, None, 1.0, Loop()))
    assert isinstance(attempt.error, UnicodeError)
    assert told == [attempt.error]


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


async def test_not_even_a_few_bytes_left_to_write_count_as_written(pool, engine):
    """Fewer than what a transport keeps before it tells anybody."""
    connection = (await sent(pool)).connection
    engine.calls[0].connection.transport.pause_reading()
    assert connection.all_written
    while connection._transport.get_write_buffer_size() == 0:
        connection._transport.write(b"x" * 4096)
        await asyncio.sleep(0)
    assert not connection.all_written
    engine.calls[0].connection.transport.resume_reading()

    async def written():
        return connection.all_written

    await until(written)


async def test_bytes_that_nobody_asked_for_end_an_idle_connection(pool, engine):
    await sent(pool)
    engine.calls[0].write(b"x")
    await asyncio.wait_for(engine.calls[0].left.wait(), 5)
    assert pool.idle() is None


async def test_an_answer_that_is_none_is_lost(pool, engine):
    engine.handler = answers(b"nonsense\r\n\r\n")
    attempt = await sent(pool)
    assert isinstance(attempt.error, ValueError)
    assert pool.idle() is None


async def test_close_ends_every_connection_and_those_being_made(engine):
    pool = Pool(engine.url, None, 5.0, asyncio.get_running_loop())
    await sent(pool)
    late = Attempt()
    pool.connect(late)
    pool.close()
    await asyncio.wait_for((await seen(engine)).left.wait(), 5)

    async def none_left():
        return not pool._connecting and not pool._all

    await until(none_left)
    assert late.connection is None


STREAMED = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 2\r\n\r\n\n\n"


async def test_only_one_connection_is_kept_open_to_see_whether_streams_leave_it_so(pool, engine):
    """Or thousands of short streams in a second would hold a socket each for that second."""
    engine.handler = answers(STREAMED)
    await asyncio.gather(*(sent(pool) for _ in range(20)))

    async def one_left():
        return len(pool._all) == 1

    await until(one_left)
    assert pool.idle() is None


async def test_after_one_connection_outlived_its_stream_all_are_used_again(pool, engine, monkeypatch):
    monkeypatch.setattr(upstream, "SETTLE_S", 0.05)
    engine.handler = answers(STREAMED)
    first = await sent(pool)

    async def settled():
        return pool.idle()

    assert await until(settled) is first.connection
    one, two = await sent(pool), await sent(pool)
    assert one.connection is two.connection


async def test_a_connection_that_the_engine_closes_after_its_stream_makes_room_for_another_try(pool, engine):
    engine.handler = answers(STREAMED, close=True)
    await sent(pool)

    async def none_left():
        return not pool._all

    await until(none_left)
    engine.handler = answers(STREAMED)
    await sent(pool)
    await asyncio.sleep(0)
    assert len(pool._all) == 1
