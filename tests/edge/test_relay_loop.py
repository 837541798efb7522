import asyncio

import pytest
from blockbuster import BlockingError, blockbuster_ctx
from harness import chat, running, until
from raw_client import connect, request
from raw_engine import DONE, END, chunk, event, raw_engine, stream_head, whole

from gateway.edge import trace
from gateway.sim.server import SimEngine
from gateway.sim.settings import SimSettings

OK = b'{"ok":1}'


@pytest.fixture
def watched():
    """A context in which a blocking call below a frame of the gateway raises."""
    return lambda: blockbuster_ctx("gateway")


def block_inside_the_gateway() -> None:
    code = compile("import time\ntime.sleep(0.001)\n", trace.__file__, "exec")
    exec(code, {})


async def test_the_watch_sees_a_blocking_call(watched):
    """Or the next test would prove nothing."""
    block_inside_the_gateway()
    with watched(), pytest.raises(BlockingError):
        block_inside_the_gateway()


async def test_no_request_blocks_the_loop(tmp_path, watched):
    async with (
        SimEngine(SimSettings(decode_rate=10_000, prefill_rate=1e6)) as a,
        SimEngine(SimSettings(decode_rate=10_000, prefill_rate=1e6)) as b,
        running(
            tmp_path,
            [{"name": "a", "url": a.url, "slots": 2}, {"name": "b", "url": b.url, "slots": 2}],
            models={"aliases": {"fast": "sim-model"}},
        ) as gateway,
    ):
        asks = [
            ("/v1/chat/completions", chat("hello", stream=True)),
            ("/v1/chat/completions", chat("hello", model="fast")),
            ("/v1/completions", {"prompt": ["one", "two"]}),
            ("/v1/embeddings", {"model": "sim-model", "input": ["one", "two"]}),
            ("/tokenize", {"prompt": "one"}),
        ]
        with watched():
            answers = await asyncio.gather(*(gateway.post(path, body) for path, body in asks * 4))
            assert [status for status, _, _ in answers] == [200] * 20
            assert (await gateway.post("/v1/chat/completions", b"{"))[0] == 400
            assert (await gateway.post("/v1/chat/completions", chat("x", model="none")))[0] == 404
            a.kill()
            for _ in range(4):
                assert (await gateway.post("/v1/chat/completions", chat("hello")))[0] == 200
            records = await gateway.records()
        assert [it["outcome"] for it in records].count("ok") == 24


@pytest.mark.parametrize("stream", [False, True])
async def test_150_requests_reach_an_engine_with_200_slots_at_once(tmp_path, stream):
    """No limit of connections or tasks hides behind the slots (aiohttp's client has one of 100)."""
    everybody = asyncio.Event()

    async def together(call):
        await everybody.wait()
        if stream:
            call.write(stream_head(), chunk(event("a", "stop") + DONE), END)
        else:
            call.write(whole(OK))

    async with (
        raw_engine(together) as engine,
        running(tmp_path, [engine.entry(name="a", slots=200)]) as gateway,
    ):

        async def one():
            async with connect(gateway) as client:
                client.send(request(chat("hello", model="m", stream=stream)))
                return (await client.answer()).body

        tasks = [asyncio.create_task(one()) for _ in range(150)]

        async def all_there():
            return len(engine.calls) == 150

        await until(all_there)
        assert (await gateway.engine("a"))["in_flight"] == 150
        assert len({id(call.connection) for call in engine.calls}) == 150
        everybody.set()
        assert set(await asyncio.gather(*tasks)) == {event("a", "stop") + DONE if stream else OK}
        assert (await gateway.engine("a"))["in_flight"] == 0
        assert await gateway.metric("requests_total", outcome="ok") == 150
