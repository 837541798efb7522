"""Usage that cannot be true: the request ends well, its slot is given back, and nothing fails later."""

import asyncio
import logging

import pytest
from harness import chat, running
from raw_client import connect, request
from raw_engine import DONE, END, answers, chunk, event, raw_engine, stream_head, whole

HUGE = "9" * 400
USAGE = '"usage":{"prompt_tokens":%s,"completion_tokens":%s,"prompt_tokens_details":{"cached_tokens":%s}}'
TIMINGS = '"timings":{"cache_n":%s,"prompt_n":%s,"prompt_ms":%s,"predicted_n":3,"predicted_ms":%s}'
ODD = {
    "a prompt of 400 digits": USAGE % (HUGE, 1, 1),
    "400 digits cached": USAGE % (10, 1, HUGE),
    "an answer of 400 digits": USAGE % (10, HUGE, 1),
    "more cached than there is": USAGE % (10, 1, 11),
    "nothing at all": USAGE % (0, 0, 0),
    "64 bits": USAGE % (2**63, 2**64 - 1, 5),
    "just believable": USAGE % (10**9, 10**9, 10**9),
    "fractions": USAGE % (1.5, 2.5, 0.5),
    "texts": USAGE % ('"1"', '"2"', '"3"'),
    "for ever": TIMINGS % (1, 10, 1e308, 1e308),
    "in no time": TIMINGS % (1, 1000, 5e-324, 5e-324),
    "backwards": TIMINGS % (-1, -10, -5.0, -1),
    "a prefill of 400 digits": TIMINGS % (HUGE, HUGE, 1, HUGE),
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD.keys())
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", ["openai", "vllm", "llamacpp"])
async def test_a_report_that_cannot_be_true_costs_no_slot(tmp_path, caplog, odd, stream, kind):
    unseen = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context))
    told = ('{"choices":[],' + odd + "}").encode()
    events = event("a") + event("b", "stop") + b"data: " + told + b"\n\n" + DONE
    parts = (stream_head(), chunk(events), END) if stream else (whole(told),)
    fields = {"stream": stream, "stream_options": {"include_usage": True}}
    async with (
        raw_engine(answers(*parts)) as engine,
        running(tmp_path, [engine.entry(name="a", kind=kind)]) as gateway,
        connect(gateway) as client,
    ):
        for number in range(3):
            client.send(request(chat("hello " * 2000 + str(number), model="m", **fields)))
            answer = await client.answer()
            assert (answer.body, answer.ended) == (events if stream else told, True)
        assert await gateway.metric("in_flight") == 0
        assert await gateway.metric("requests_total", outcome="ok") == 3
        assert len(await gateway.records()) == 3
        body = chat("hello " * 2000, model="m")
        async with gateway.http.post(f"{gateway.admin}/api/explain", json=body) as response:
            assert response.status == 200
    assert unseen == []
    assert [it for it in caplog.records if it.levelno >= logging.ERROR or it.exc_info] == []
