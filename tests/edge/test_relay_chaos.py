"""Both sides' connections cut, stalled and slowed in every state of a request."""

import asyncio
import contextlib
import logging
from urllib.parse import urlsplit

import pytest
from chaos import ChaosProxy, chaos
from failing import OK, STREAMED, complete
from harness import chat, running, until
from raw_client import RawClient, connect, request
from raw_engine import DONE, END, chunk, event, raw_engine, seen, stream_head, whole

from gateway.edge.state import State

SLOTS = 8
"""Some to spare, since one whose client left is not free at once (docs/architecture.md, Leaving)."""
HOWS = ["fin", "rst", "stall", "trickle"]
LIMITS = {
    "header_timeout": "600ms",
    "connect_timeout": "5s",
    "first_byte_timeout": "600ms",
    "answer_timeout": "600ms",
    "idle_timeout": "600ms",
    "write_timeout": "600ms",
}
ASK = chat("hello " * 50, model="m", stream=True)


class Scene:
    """One engine, its answer made step by step, and a proxy on one side or both."""

    def __init__(self, gateway, engine, before: ChaosProxy, behind: ChaosProxy) -> None:
        self.gateway = gateway
        self.engine = engine
        self.before = before
        self.behind = behind
        self.steps: asyncio.Queue[bytes] = asyncio.Queue()
        engine.handler = self._answer

    async def _answer(self, call) -> None:
        """The first request is answered as the test says, any other at once."""
        if len(self.engine.calls) > 1:
            await complete(call)
            return
        while data := await self.steps.get():
            if call.left.is_set():
                return
            call.write(data)

    @contextlib.asynccontextmanager
    async def client(self):
        reader, writer = await asyncio.open_connection(*self.before.address)
        try:
            yield RawClient(reader, writer)
        finally:
            writer.transport.abort()

    async def state_is(self, state: State) -> None:
        async def there():
            return any(it.state is state for it in self.gateway.gateway._relay._exchanges)

        await until(there)

    async def reach(self, state: State, client: RawClient) -> None:
        """The request is in `state`, with the engine where it matters."""
        client.send(request(ASK))
        await seen(self.engine)
        if state is State.SENT:
            await self.state_is(state)
            return
        self.steps.put_nowait(stream_head())
        if state is State.RELAYING:
            self.steps.put_nowait(chunk(event("a")))
        await self.state_is(state)

    def go_on(self, state: State) -> None:
        """The rest of the answer."""
        head = stream_head() if state is State.SENT else b""
        first = chunk(event("a")) if state is not State.RELAYING else b""
        self.steps.put_nowait(head + first + chunk(event("b", "stop") + DONE) + END)

    async def is_over(self, *outcomes: str) -> None:
        """One record for each outcome, nothing left behind, and the next client is served."""

        async def told():
            records = await self.gateway.records()
            return len(records) >= len(outcomes) and records

        records = await until(told) if outcomes else []
        assert sorted(it["outcome"] for it in records) == sorted(outcomes)

        async def idle():
            return (await self.gateway.engine("a"))["in_flight"] == 0

        await until(idle)
        assert not self.gateway.gateway._relay._exchanges
        assert await self.gateway.metric("requests_total") == len(outcomes)
        self.engine.handler = complete
        async with connect(self.gateway) as client:
            client.send(request(chat("hello", model="m")))
            assert (await client.answer()).body == OK
            client.send(request(path="/healthz", method="GET"))
            assert (await client.answer()).status == 200


@pytest.fixture
async def scene(tmp_path, caplog):
    seen_by_loop = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: seen_by_loop.append(context))
    async with raw_engine(complete) as engine:
        at = urlsplit(engine.url)
        async with chaos(at.hostname, at.port) as behind:
            entry = {"name": "a", "url": behind.url, "kind": "openai", "slots": SLOTS}
            async with (
                running(tmp_path, [entry], limits=LIMITS) as gateway,
                chaos(*gateway.address) as before,
            ):
                yield Scene(gateway, engine, before, behind)
    assert seen_by_loop == []
    assert [it for it in caplog.records if it.levelno >= logging.ERROR or it.exc_info] == []


# The client's side


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("share", [0.01, 0.2, 0.5, 0.99])
async def test_half_a_request_is_none(scene, how, share):
    data = request(ASK)
    scene.before.plan = ("up", int(len(data) * share), how)
    scene.engine.handler = complete
    async with scene.client() as client:
        client.send(data)
        if how == "trickle":
            assert (await client.answer()).body == STREAMED
            await scene.is_over("ok")
        elif how == "stall":
            # What was half sent is refused once its time is up; nobody hears of it behind the stall.
            await scene.is_over("invalid")
            assert len(scene.engine.calls) == 1
        else:
            assert await client.closed()
            await scene.is_over()
            assert len(scene.engine.calls) == 1


@pytest.mark.parametrize("how", HOWS)
async def test_a_client_that_is_cut_off_in_the_queue_never_reaches_the_engine(scene, how):
    async with connect(scene.gateway) as first, scene.client() as client:
        first.send(request(chat("all slots", model="m", stream=True, n=SLOTS)))
        await seen(scene.engine)
        scene.steps.put_nowait(stream_head() + chunk(event("a")))
        client.send(request(ASK))
        await scene.state_is(State.WAITING)
        scene.before.act(how)
        if how in ("fin", "rst"):

            async def gone():
                return await scene.gateway.metric("requests_total", outcome="client_disconnect") == 1

            await until(gone)
        scene.steps.put_nowait(chunk(event("b", "stop") + DONE) + END)
        assert (await first.answer()).ended
        if how == "trickle":
            assert (await client.answer()).body == STREAMED
        await scene.is_over("ok", "client_disconnect" if how in ("fin", "rst") else "ok")
        assert len(scene.engine.calls) == (2 if how in ("fin", "rst") else 3)


@pytest.mark.parametrize("how", HOWS)
async def test_a_client_that_is_cut_off_while_the_engine_is_connected_to_costs_nothing(scene, how):
    relay = scene.gateway.gateway._relay
    gate = asyncio.Event()

    class Slow:
        """No local address swallows packets, so the connection waits for the test."""

        def __getattr__(self, name):
            return getattr(relay._loop, name)

        async def create_connection(self, *arguments, **options):
            await gate.wait()
            return await relay._loop.create_connection(*arguments, **options)

    relay.pools["a"]._loop = Slow()
    scene.engine.handler = complete
    async with scene.client() as client:
        client.send(request(ASK))
        await scene.state_is(State.CONNECTING)
        scene.before.act(how)
        if how in ("fin", "rst"):

            async def gone():
                return not relay._exchanges

            await until(gone)
        gate.set()
        if how == "trickle":
            assert (await client.answer()).body == STREAMED
        await scene.is_over("client_disconnect" if how in ("fin", "rst") else "ok")


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("state", [State.SENT, State.HELD, State.RELAYING])
async def test_a_client_that_is_cut_off_takes_its_request_along(scene, how, state):
    async with scene.client() as client:
        await scene.reach(state, client)
        scene.before.act(how)
        if how in ("fin", "rst"):
            await asyncio.wait_for(scene.engine.calls[0].left.wait(), 10)
            scene.steps.put_nowait(b"")
            await scene.is_over("client_disconnect")
            return
        scene.go_on(state)
        if how == "trickle":
            answer = await client.answer()
            assert (answer.body, answer.ended) == (event("a") + event("b", "stop") + DONE, True)
        await scene.is_over("ok")
        scene.steps.put_nowait(b"")


@pytest.mark.parametrize("how", HOWS)
async def test_a_client_that_is_cut_off_between_two_requests_costs_nothing(scene, how):
    scene.engine.handler = complete
    async with scene.client() as client:
        client.send(request(chat("hello", model="m")))
        assert (await client.answer()).body == OK
        scene.before.act(how)
        if how == "trickle":
            client.send(request(ASK))
            assert (await client.answer()).body == STREAMED
        await scene.is_over(*["ok"] * (2 if how == "trickle" else 1))


async def test_a_client_that_says_its_end_with_a_request_running_has_left(scene):
    async with scene.client() as client:
        await scene.reach(State.RELAYING, client)
        client.writer.write_eof()
        await asyncio.wait_for(scene.engine.calls[0].left.wait(), 10)
        scene.steps.put_nowait(b"")
        await scene.is_over("client_disconnect")


# The engine's side


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("at", [1, 60, 300])
async def test_an_engine_that_is_cut_off_inside_the_request_is_asked_again(scene, how, at):
    scene.engine.handler = complete
    scene.behind.plan = ("up", at, how)
    async with connect(scene.gateway) as client:
        client.send(request(ASK))
        answer = await client.answer()
    if how == "stall":
        assert (answer.status, answer.error["code"]) == (504, "engine_timeout")
        await scene.is_over("engine_timeout")
    else:
        assert answer.body == STREAMED
        await scene.is_over("ok")


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("at", [0, 1, 20, len(stream_head()), len(stream_head()) + 30])
async def test_an_engine_that_is_cut_off_before_its_first_event_is_asked_again(scene, how, at):
    scene.engine.handler = complete
    scene.behind.plan = ("down", at, how)
    async with connect(scene.gateway) as client:
        client.send(request(ASK))
        answer = await client.answer()
    if how == "stall":
        assert (answer.status, answer.error["code"]) == (504, "engine_timeout")
        await scene.is_over("engine_timeout")
    else:
        assert (answer.body, answer.ended) == (STREAMED, True)
        await scene.is_over("ok")
        assert len(scene.engine.calls) == (2 if how == "trickle" else 3)


@pytest.mark.parametrize("how", HOWS)
async def test_a_stream_that_is_cut_off_after_an_event_ends_with_one_error(scene, how):
    async with connect(scene.gateway) as client:
        await scene.reach(State.RELAYING, client)
        head = await client.head()
        assert (head.status, await client.chunk()) == (200, event("a"))
        scene.behind.act(how)
        if how == "trickle":
            scene.go_on(State.RELAYING)
            rest = b""
            while piece := await client.chunk():
                rest += piece
            assert rest == event("b", "stop") + DONE
            await scene.is_over("ok")
            return
        error = await client.chunk()
        assert error.startswith(b"data: {")
        assert error.count(b"data:") == 1
        code = "engine_timeout" if how == "stall" else "engine_truncated"
        assert b'"code":"%b"' % code.encode() in error
        assert await client.until_closed() == END
        scene.steps.put_nowait(b"")
        await scene.is_over(code)


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("left", [1, 5])
async def test_a_json_answer_that_is_cut_off_is_never_taken_for_a_whole_one(scene, how, left):
    answer = whole(b'{"text":"' + b"a" * 100 + b'"}')
    scene.steps.put_nowait(answer)
    scene.steps.put_nowait(b"")
    scene.behind.plan = ("down", len(answer) - left, how)
    async with connect(scene.gateway) as client:
        client.send(request(chat("hello", model="m")))
        got = await client.answer()
        assert got.status == 200
        if how == "trickle":
            assert got.ended
            await scene.is_over("ok")
        else:
            assert not got.ended
            await scene.is_over("engine_timeout" if how == "stall" else "engine_truncated")


@pytest.mark.parametrize("how", HOWS)
async def test_a_kept_connection_that_is_cut_off_is_not_noticed_by_the_next_client(scene, how):
    scene.engine.handler = complete
    async with connect(scene.gateway) as client:
        client.send(request(chat("hello", model="m")))
        assert (await client.answer()).body == OK
        scene.behind.act(how)
        client.send(request(chat("hello", model="m")))
        answer = await client.answer()
        if how == "stall":
            # An engine that is silent on an open connection cannot be told from one that computes.
            assert (answer.status, answer.error["code"]) == (504, "engine_timeout")
            await scene.is_over("ok", "engine_timeout")
        else:
            assert answer.body == OK
            await scene.is_over("ok", "ok")
