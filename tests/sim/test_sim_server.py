import asyncio
import json

import aiohttp
import pytest
from sim_client import KINDS, Json, Start, chat, get, post, until

from gateway.engines.base import Answer
from gateway.engines.registry import IDENTIFY_PATHS, identify
from gateway.sim.server import SimEngine
from gateway.sim.settings import SimSettings


@pytest.mark.parametrize("kind", KINDS)
async def test_usage_and_the_engines_own_counters_agree(
    start: Start, client: aiohttp.ClientSession, kind: str
):
    engine = await start(kind)
    messages: list[Json] = [{"role": "user", "content": "a long first question " * 20}]
    prompt_tokens, cached_tokens = [], []
    for _ in range(3):
        answer = await post(client, engine, "/v1/chat/completions", {"messages": messages})
        prompt_tokens.append(answer["usage"]["prompt_tokens"])
        cached_tokens.append(
            (answer["usage"]["prompt_tokens_details"] or {"cached_tokens": 0})["cached_tokens"]
        )
        messages += [answer["choices"][0]["message"], {"role": "user", "content": "and then?"}]
    stats = await get(client, engine, "/sim/stats")
    assert (stats["prompt_tokens"], stats["cached_tokens"]) == (sum(prompt_tokens), sum(cached_tokens))
    # Each turn finds all of the one before, but for a block or a token.
    assert cached_tokens[0] == 0
    assert cached_tokens[2] > prompt_tokens[1] > cached_tokens[1] > prompt_tokens[0] - 16


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (
            "vllm",
            ["vllm:num_requests_running{", "vllm:prefix_cache_hits_total{", "process_start_time_seconds "],
        ),
        ("sglang", ["sglang:num_running_reqs{", "sglang:cached_tokens_total{"]),
        ("llamacpp", ["llamacpp:requests_processing 0", "llamacpp:requests_deferred 0"]),
    ],
)
async def test_metrics_have_that_kinds_names(
    start: Start, client: aiohttp.ClientSession, kind: str, names: list[str]
):
    engine = await start(kind)
    async with client.get(engine.url + "/metrics") as answer:
        text = await answer.text()
        assert ("Process-Start-Time-Unix" in answer.headers) == (kind == "llamacpp")
    assert [name for name in names if name not in text] == []


async def test_vllm_tells_its_slots_in_dev_mode_only(start: Start, client: aiohttp.ClientSession):
    closed = await start("vllm", slots=3)
    async with client.get(closed.url + "/server_info") as answer:
        assert (answer.status, await answer.json()) == (404, {"detail": "Not Found"})
    opened = await start("vllm", slots=3, dev=True, kv_tokens=1600)
    info = await get(client, opened, "/server_info?config_format=json")
    assert info["vllm_config"]["scheduler_config"]["max_num_seqs"] == 3
    assert (await get(client, opened, "/version"))["version"]
    async with client.get(opened.url + "/metrics") as answer:
        text = await answer.text()
    assert 'kv_cache_size_tokens="1600",num_gpu_blocks="100"' in text
    assert 'block_size="16"' in text


async def test_llamacpp_tells_its_slots_and_which_are_busy(start: Start, client: aiohttp.ClientSession):
    engine = await start("llamacpp", slots=2, kv_tokens=8000, decode_rate=10)
    props = await get(client, engine, "/props")
    assert (props["total_slots"], props["default_generation_settings"]["n_ctx"]) == (2, 4000)
    asked = asyncio.create_task(post(client, engine, "/v1/chat/completions", chat(max_tokens=500)))
    await until(lambda: engine.stats.running)
    assert [slot["is_processing"] for slot in await get(client, engine, "/slots")] == [True, False]
    asked.cancel()


async def test_sglang_tells_its_load(start: Start, client: aiohttp.ClientSession):
    engine = await start("sglang", slots=5)
    [load] = (await get(client, engine, "/v1/loads?include=core"))["loads"]
    assert (load["num_running_reqs"], load["max_running_requests"]) == (0, 5)
    info = await get(client, engine, "/server_info")
    assert info["internal_states"][0]["effective_max_running_requests_per_dp"] == 5


@pytest.mark.parametrize(
    ("kind", "closed"),
    [
        ("vllm", ["/metrics", "/version", "/server_info"]),
        ("sglang", ["/metrics", "/v1/loads", "/server_info"]),
        ("llamacpp", ["/metrics", "/props", "/slots"]),
    ],
)
async def test_a_quiet_engine_tells_neither_its_load_nor_its_kind(
    start: Start, client: aiohttp.ClientSession, kind: str, closed: list[str]
):
    quiet = await start(kind, quiet=True, dev=True)
    open_engine = await start(kind, dev=True)
    told = {}
    for engine in (quiet, open_engine):
        answers = {path: await probe(client, engine, path) for path in {*IDENTIFY_PATHS, *closed}}
        told[engine] = (identify(answers), [answers[path].status for path in closed])
    assert told == {quiet: ("openai", [404] * 3), open_engine: (kind, [200] * 3)}
    assert (await post(client, quiet, "/v1/chat/completions", chat()))["choices"]
    assert (await get(client, quiet, "/sim/stats"))["requests"] == 1


async def probe(client: aiohttp.ClientSession, engine: SimEngine, path: str) -> Answer:
    async with client.get(engine.url + path) as got:
        headers = {name.lower(): value for name, value in got.headers.items()}
        return Answer(status=got.status, headers=headers, body=await got.read())


async def test_a_static_engine_lets_slots_stand_idle(start: Start, client: aiohttp.ClientSession):
    engine = await start(slots=4, batching="static", decode_rate=10)
    body = chat(max_tokens=5000)
    asked = [asyncio.create_task(post(client, engine, "/v1/chat/completions", body)) for _ in range(3)]
    await until(lambda: engine.stats.waiting == 2)
    assert engine.stats.running == 1
    for task in asked:
        task.cancel()


async def test_jitter_is_that_of_the_settings(start: Start, client: aiohttp.ClientSession):
    prompt_ms = []
    for settings in ({}, {"jitter": 0.5}, {"jitter": 0.5}, {"jitter": 0.5, "seed": 1}):
        engine = await start("llamacpp", prefill_rate=1000, **settings)
        answer = await post(client, engine, "/v1/completions", {"prompt": "x" * 40, "max_tokens": 1})
        # Simulated time: ten tokens of prompt.
        prompt_ms.append(round(answer["timings"]["prompt_ms"], 6))
    plain, jittered, again, other = prompt_ms
    assert plain == 10.0
    assert jittered == again
    assert len({plain, jittered, other}) == 3


@pytest.mark.parametrize("kind", KINDS)
async def test_tokenize_gives_the_tokens_that_a_chat_uses(
    start: Start, client: aiohttp.ClientSession, kind: str
):
    engine = await start(kind)
    body = chat("Some text to count")
    used = (await post(client, engine, "/v1/chat/completions", body))["usage"]["prompt_tokens"]
    if kind == "llamacpp":
        body = {"content": (await post(client, engine, "/apply-template", body))["prompt"]}
    tokens = (await post(client, engine, "/tokenize", body))["tokens"]
    assert len(tokens) == used
    text = await post(client, engine, "/detokenize", {"tokens": tokens})
    assert "Some text to count" in next(iter(text.values()))


@pytest.mark.parametrize(
    ("kind", "body", "status", "error"),
    [
        ("vllm", chat(model="nope"), 404, {"type": "NotFoundError", "param": "model", "code": 404}),
        ("vllm", chat("x" * 4000), 400, {"type": "BadRequestError", "param": "input_tokens"}),
        ("vllm", chat(max_tokens=-5), 400, {"param": "max_tokens"}),
        ("vllm", {}, 400, {"code": 400}),
        ("llamacpp", chat("x" * 4000), 400, {"type": "exceed_context_size_error", "n_ctx": 500}),
        ("llamacpp", chat(n=3), 400, {"type": "invalid_request_error"}),
        ("llamacpp", {}, 400, {"message": "'messages' is required"}),
    ],
)
async def test_a_bad_request_is_refused_in_that_kinds_shape(
    start: Start, client: aiohttp.ClientSession, kind: str, body: Json, status: int, error: Json
):
    engine = await start(kind, slots=2, max_model_len=500)
    async with client.post(engine.url + "/v1/chat/completions", json=body) as answer:
        assert answer.status == status
        told = (await answer.json())["error"]
    assert {name: told[name] for name in error} == error


@pytest.mark.parametrize("kind", ["sglang", "llamacpp"])
async def test_other_kinds_serve_any_model_name(start: Start, client: aiohttp.ClientSession, kind: str):
    answer = await post(client, await start(kind), "/v1/chat/completions", chat(model="nope"))
    assert answer["model"] == "nope"


async def test_a_body_that_is_no_object_is_refused(start: Start, client: aiohttp.ClientSession):
    engine = await start()
    async with client.post(engine.url + "/v1/chat/completions", data=b"[]") as answer:
        assert answer.status == 400


@pytest.mark.parametrize("is_stream", [True, False])
async def test_a_client_that_leaves_gives_its_slot_to_the_next(
    start: Start, client: aiohttp.ClientSession, is_stream: bool
):
    engine = await start(slots=1, decode_rate=10)
    body = chat(max_tokens=5000, stream=is_stream)
    leaving = asyncio.create_task(post(client, engine, "/v1/chat/completions", body))
    await until(lambda: engine.stats.running)
    waiting = asyncio.create_task(post(client, engine, "/v1/chat/completions", chat("next", max_tokens=1)))
    await until(lambda: engine.stats.waiting)
    leaving.cancel()
    assert (await waiting)["usage"]["completion_tokens"] == 1
    stats = engine.stats
    assert (stats.cancelled, stats.max_running, stats.deferred_total) == (1, 1, 1)


async def test_a_client_that_leaves_the_queue_never_runs(start: Start, client: aiohttp.ClientSession):
    engine = await start(slots=1, decode_rate=10)
    first = asyncio.create_task(post(client, engine, "/v1/chat/completions", chat(max_tokens=5000)))
    await until(lambda: engine.stats.running)
    queued = asyncio.create_task(post(client, engine, "/v1/chat/completions", chat()))
    await until(lambda: engine.stats.waiting)
    queued.cancel()
    await until(lambda: engine.stats.cancelled)
    assert (engine.stats.waiting, engine.stats.running) == (0, 1)
    first.cancel()


async def test_stats_name_the_requests_and_the_headers_seen(start: Start, client: aiohttp.ClientSession):
    engine = await start()
    headers = {"x-request-id": "r1", "Authorization": "Bearer engine-key"}
    async with client.post(engine.url + "/v1/chat/completions", json=chat(), headers=headers) as answer:
        await answer.read()
    stats = await get(client, engine, "/sim/stats")
    assert stats["requests_seen"] == ["r1"]
    assert stats["headers"]["authorization"] == "Bearer engine-key"
    assert (stats["requests"], stats["connections_open"]) == (1, 1)
    assert engine.last_body == json.dumps(chat()).encode()


async def test_a_reset_clears_the_own_counts_and_not_the_metrics(start: Start, client: aiohttp.ClientSession):
    engine = await start()
    await post(client, engine, "/v1/chat/completions", chat())
    before = engine.stats
    await post(client, engine, "/sim/reset", {})
    after = engine.stats
    assert (after.requests, after.prompt_tokens, after.max_running, after.requests_seen) == (0, 0, 0, ())
    async with client.get(engine.url + "/metrics") as answer:
        assert f'prompt_tokens_total{{engine="0",model_name="sim-model"}} {before.prompt_tokens}' in (
            await answer.text()
        )


async def test_a_restart_is_a_new_process_on_the_same_address(start: Start, client: aiohttp.ClientSession):
    engine = await start("sglang")
    url = engine.url
    await post(client, engine, "/v1/chat/completions", chat())
    await engine.close()
    await engine.start()
    assert engine.url == url
    await post(client, engine, "/v1/chat/completions", chat())
    assert (engine.stats.requests, engine.stats.cached_tokens) == (1, 0)


async def test_simulated_time_can_run_faster(start: Start, client: aiohttp.ClientSession):
    # 1000 s of simulated decode.
    engine = await start(decode_rate=1, speed=1e5)
    async with asyncio.timeout(5):
        answer = await post(client, engine, "/v1/chat/completions", chat(max_tokens=1000))
    assert answer["usage"]["completion_tokens"] == 1000


def test_settings_that_no_engine_could_have_are_refused():
    with pytest.raises(ValueError, match="kind"):
        SimSettings(kind="ollama")
    with pytest.raises(ValueError, match="slots"):
        SimSettings(slots=0)
    with pytest.raises(ValueError, match="batching"):
        SimSettings(batching="dynamic")
    with pytest.raises(ValueError, match="jitter"):
        SimSettings(jitter=1.0)


async def test_each_llamacpp_process_has_a_media_marker_of_its_own(
    start: Start, client: aiohttp.ClientSession
):
    engine = await start("llamacpp")
    first = (await get(client, engine, "/props"))["media_marker"]
    assert (await get(client, engine, "/props"))["media_marker"] == first
    await engine.close()
    await engine.start()
    assert (await get(client, engine, "/props"))["media_marker"] != first
