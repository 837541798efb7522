import json

import aiohttp
import pytest
from sim_client import KINDS, Start, chat, post, stream, text_of


@pytest.mark.parametrize("kind", KINDS)
async def test_a_stream_and_a_json_answer_say_the_same(
    start: Start, client: aiohttp.ClientSession, kind: str
):
    engine = await start(kind)
    whole = await post(client, engine, "/v1/chat/completions", chat(max_tokens=5))
    events = await stream(client, engine, chat(max_tokens=5))
    assert events[-1] == "[DONE]"
    assert text_of(events) == whole["choices"][0]["message"]["content"]
    assert len(text_of(events)) == 5 * 4
    assert whole["choices"][0]["finish_reason"] == "length"
    assert whole["usage"]["completion_tokens"] == 5


async def test_vllm_streams_as_vllm(start: Start, client: aiohttp.ClientSession):
    engine = await start("vllm")
    events = await stream(client, engine, chat(max_tokens=2, stream_options={"include_usage": True}))
    role, first, last, usage, done = events
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert first["choices"][0]["finish_reason"] is None
    assert last["choices"][0]["finish_reason"] == "length"
    assert usage["choices"] == []
    assert usage["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
    assert done == "[DONE]"


async def test_llamacpp_streams_as_llamacpp(start: Start, client: aiohttp.ClientSession):
    engine = await start("llamacpp")
    role, first, _, end, done = await stream(client, engine, chat(max_tokens=2))
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": None}
    assert list(first["choices"][0]["delta"]) == ["content"]
    assert end["choices"][0] == {"finish_reason": "length", "index": 0, "delta": {}}
    assert end["timings"]["predicted_n"] == 2
    assert done == "[DONE]"
    events = await stream(client, engine, chat(max_tokens=2, stream_options={"include_usage": True}))
    assert "timings" not in events[-3]
    assert events[-2]["choices"] == []
    assert (
        events[-2]["timings"]["cache_n"] == events[-2]["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    )


async def test_sglang_says_nothing_of_zero_cached_tokens_unless_asked(
    start: Start, client: aiohttp.ClientSession
):
    engine = await start("sglang")
    body = chat(max_tokens=2, stream_options={"include_usage": True}, return_cached_tokens_details=True)
    cold = await stream(client, engine, body)
    assert cold[-2]["usage"]["prompt_tokens_details"] is None
    assert cold[-3]["sglext"]["cached_tokens_details"]["device"] == 0
    warm = await stream(client, engine, body)
    assert warm[-2]["usage"]["prompt_tokens_details"] == {
        "cached_tokens": warm[-3]["sglext"]["cached_tokens_details"]["device"]
    }


@pytest.mark.parametrize("kind", KINDS)
async def test_completions_take_texts_and_token_lists(start: Start, client: aiohttp.ClientSession, kind: str):
    engine = await start(kind)
    counts = []
    for prompt in ("abcdefgh", ["abcd", "efgh"], [1, 2, 3], [[1], [2, 3]]):
        answer = await post(client, engine, "/v1/completions", {"prompt": prompt, "max_tokens": 3})
        counts.append((len(answer["choices"]), answer["usage"]["prompt_tokens"]))
    assert counts == [(1, 2), (2, 2), (1, 3), (2, 3)]


@pytest.mark.parametrize("kind", KINDS)
async def test_streamed_completions_hold_every_choice(start: Start, client: aiohttp.ClientSession, kind: str):
    engine = await start(kind)
    body = {"prompt": ["abcd", "efgh"], "n": 2, "max_tokens": 3}
    whole = await post(client, engine, "/v1/completions", body)
    events = await stream(client, engine, body, api="")
    assert [text_of(events, i) for i in range(4)] == [choice["text"] for choice in whole["choices"]]
    assert engine.stats.max_running == 4


@pytest.mark.parametrize("kind", KINDS)
async def test_several_choices_each_end(start: Start, client: aiohttp.ClientSession, kind: str):
    engine = await start(kind)
    events = await stream(client, engine, chat(max_tokens=3, n=3))
    ends = [c["index"] for e in events[:-1] for c in e["choices"] if c["finish_reason"]]
    assert sorted(ends) == [0, 1, 2]
    assert len({text_of(events, index) for index in range(3)}) == 3


@pytest.mark.parametrize("kind", KINDS)
async def test_asked_for_the_weather_it_calls_the_first_tool(
    start: Start, client: aiohttp.ClientSession, kind: str
):
    engine = await start(kind)
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": {}}}]
    body = chat("what is the weather?", tools=tools)
    [choice] = (await post(client, engine, "/v1/chat/completions", body))["choices"]
    assert choice["finish_reason"] == "tool_calls"
    [call] = choice["message"]["tool_calls"]
    events = await stream(client, engine, body)
    deltas = [c["delta"] for e in events[:-1] for c in e["choices"]]
    calls = [d["tool_calls"][0] for d in deltas if "tool_calls" in d]
    assert calls[0]["function"]["name"] == call["function"]["name"] == "get_weather"
    arguments = "".join(c["function"]["arguments"] for c in calls)
    assert json.loads(arguments) == json.loads(call["function"]["arguments"]) == {"city": "Paris"}
    no_tools = await post(client, engine, "/v1/chat/completions", chat("what is the weather?"))
    assert no_tools["choices"][0]["message"]["content"]


async def test_embeddings_have_one_vector_for_each_input(start: Start, client: aiohttp.ClientSession):
    engine = await start()
    answer = await post(client, engine, "/v1/embeddings", {"input": ["abcd", "efghijkl"]})
    assert [item["index"] for item in answer["data"]] == [0, 1]
    assert answer["usage"] == {"prompt_tokens": 3, "total_tokens": 3}
