from harness import chat, running

from gateway.sim.server import SimEngine
from gateway.sim.settings import SimSettings


async def test_a_chat_request_is_answered_by_the_engine_and_recorded(tmp_path):
    async with (
        SimEngine(SimSettings(kind="vllm", decode_rate=1000)) as engine,
        running(tmp_path, [{"name": "a", "url": engine.url, "slots": 2}]) as gateway,
    ):
        status, headers, body = await gateway.post("/v1/chat/completions", chat("hello"))
        assert status == 200, body
        assert headers["x-gateway-engine"] == "a"
        [record] = await gateway.records()
        assert record["outcome"] == "ok"
        assert record["prompt_tokens"] > 0
        assert (await gateway.engine("a"))["in_flight"] == 0
