"""Engines that are neither vLLM nor llama.cpp, written by hand: from their URL alone to a finished request.

Answers to probes are those of tests/engines/test_<kind>.py, shortened; streams are built from each engine's
serialisers, named where they stand.
"""

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fleet import ask, probe_often, simulated
from harness import chat, running, until
from raw_engine import DONE, END, Handler, RawCall, RawEngine, answers, chunk, event, stream_head, whole

LOADS = "/v1/loads?include=core"
RANK = {"num_running_reqs": 0, "num_waiting_reqs": 0, "token_usage": 0.25}
RANK |= {"max_running_requests": 2048, "max_total_num_tokens": 90_000}
HEALTHY = json.dumps({"status": "healthy", "message": ""})
TRTLLM_PAGE = """trtllm_max_num_active_requests{model_name="m"} 64
trtllm_kv_cache_max_blocks{model_name="m"} 100
trtllm_kv_cache_tokens_per_block{model_name="m"} 32
"""


def cards(*owners: str) -> str:
    """GET /v1/models with one model for each owner: m, m1, m2."""
    names = ["m", *(f"m{number}" for number in range(1, len(owners)))]
    data = [
        {"id": name, "object": "model", "owned_by": owner} for name, owner in zip(names, owners, strict=True)
    ]
    return json.dumps({"object": "list", "data": data})


PAGES = {
    "sglang": {
        "/v1/models": cards("sglang"),
        LOADS: json.dumps({"loads": [RANK]}),
        "/server_info": json.dumps({"page_size": 16}),
    },
    "ollama": {"/v1/models": cards("library"), "/": "Ollama is running"},
    "tgi": {
        "/v1/models": cards("m"),
        "/info": json.dumps({"max_concurrent_requests": 96, "max_total_tokens": 4096}),
        "/health": "",
        "/metrics": "tgi_batch_max_total_tokens 50000\ntgi_queue_size 2\ntgi_batch_current_size 0\n",
    },
    "lmdeploy": {
        "/v1/models": cards("lmdeploy"),
        "/health": HEALTHY,
        "/metrics": 'lmdeploy:gpu_cache_usage_perc{engine="0"} 0.5\n',
    },
    "trtllm": {
        "/v1/models": cards("tensorrt_llm"),
        "/health": "",
        "/prometheus/metrics": TRTLLM_PAGE,
        "/metrics": "[]",
    },
}


class Scripted(RawEngine):
    """Answers GETs from `pages` and everything else with 404. `asked` are the paths, in order."""

    def __init__(self, handler: Handler, pages: dict[str, str]) -> None:
        super().__init__(handler)
        self.pages = pages
        self.asked: list[str] = []

    def _probe(self, connection, head: bytes) -> None:
        path = head.split(b" ")[1].decode()
        self.asked.append(path)
        body = self.pages.get(path)
        status = b"404 Not Found" if body is None else b"200 OK"
        connection.transport.write(whole((body or "").encode(), status=status))


@contextlib.asynccontextmanager
async def scripted(kind: str, handler: Handler) -> AsyncIterator[Scripted]:
    engine = Scripted(handler, dict(PAGES[kind]))
    await engine.start()
    try:
        yield engine
        assert engine.failures == []
    finally:
        await engine.close()


async def silent(call: RawCall) -> None:
    raise AssertionError("no request was sent")


async def accepted(call: RawCall) -> None:
    call.write(stream_head(), chunk(event("a", "stop") + DONE), END)


def sse(*values: object) -> bytes:
    return b"".join(b"data: " + json.dumps(value).encode() + b"\n\n" for value in values)


@pytest.mark.parametrize(
    ("kind", "slots", "source", "kv_tokens", "block_tokens", "kv_usage"),
    [
        ("sglang", 2048, "discovered", 90_000, 16, 0.25),
        ("ollama", 1, "assumed", None, 1, None),
        ("tgi", 96, "discovered", 50_000, 1, None),
        ("lmdeploy", 128, "assumed", None, 64, 0.5),
        ("trtllm", 64, "discovered", 3200, 32, None),
    ],
)
@pytest.mark.parametrize("is_told", [False, True])
async def test_an_engine_is_known_from_its_url(
    tmp_path: Path,
    kind: str,
    slots: int,
    source: str,
    kv_tokens: int | None,
    block_tokens: int,
    kv_usage: float | None,
    is_told: bool,
):
    async with scripted(kind, silent) as engine:
        entry = {"url": engine.url, **({"kind": kind} if is_told else {})}
        async with running(tmp_path, [entry]) as gateway:
            (seen,) = (await gateway.state())["engines"]
            assert (seen["kind"], seen["models"], seen["health"]) == (kind, ["m"], "ready")
            assert (seen["slots"], seen["slots_source"]) == (slots, source)
            assert (seen["kv_tokens"], seen["block_tokens"]) == (kv_tokens, block_tokens)
            assert seen["kv_usage"] == kv_usage


@pytest.mark.parametrize(
    ("kind", "asked"),
    [
        ("sglang", ["/v1/models", LOADS, "/server_info", LOADS]),
        ("ollama", ["/v1/models"]),
        ("tgi", ["/v1/models", "/props", "/info", "/metrics", "/metrics"]),
        ("lmdeploy", ["/v1/models", "/metrics"]),
        ("trtllm", ["/v1/models", "/prometheus/metrics", "/prometheus/metrics"]),
    ],
)
async def test_no_more_is_asked_than_needed_until_it_is_ready(tmp_path: Path, kind: str, asked: list[str]):
    async with scripted(kind, silent) as engine, running(tmp_path, [{"url": engine.url}]):
        assert engine.asked[: len(asked)] == asked


async def test_a_load_that_is_switched_off_is_not_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    probe_often(monkeypatch)
    async with scripted("trtllm", silent) as engine:
        del engine.pages["/prometheus/metrics"]
        async with running(tmp_path, [{"url": engine.url}]):

            async def is_probed() -> bool:
                return engine.asked.count("/health") >= 3

            await until(is_probed)
            # For the facts, and once for the load.
            assert engine.asked.count("/prometheus/metrics") == 2
            assert "/metrics" not in engine.asked


async def test_an_ollama_with_models_from_elsewhere_is_known_by_its_greeting(tmp_path: Path):
    async with scripted("ollama", silent) as engine:
        engine.pages["/v1/models"] = cards("library", "unsloth")
        async with running(tmp_path, [{"url": engine.url}]) as gateway:
            (seen,) = (await gateway.state())["engines"]
            assert (seen["kind"], seen["models"]) == ("ollama", ["m", "m1"])
            assert "/metrics" not in engine.asked


async def test_a_simulated_sglang_is_known_and_its_silence_at_zero_is_unknown(tmp_path: Path):
    async with (
        simulated(1, "sglang", slots=3, kv_tokens=9000) as (engine,),
        running(tmp_path, [{"url": engine.url}]) as gateway,
    ):
        (seen,) = (await gateway.state())["engines"]
        assert (seen["kind"], seen["slots"], seen["slots_source"]) == ("sglang", 3, "discovered")
        assert (seen["kv_tokens"], seen["block_tokens"]) == (9000, 1)
        body = chat("over the deep blue sea " * 80, stream=True)
        for _ in range(2):
            answer = await ask(gateway, body)
            assert (answer.status, any(it.get("usage") for it in answer.chunks)) == (200, False)
        later, first = await gateway.records()
        assert first["cached_tokens"] is None
        assert later["cached_tokens"] > 0


# G entrypoints/openai/sse_utils.py, serving_chat.py:1640: reports nothing at zero; the details come in a
# chunk of their own to a client that asked for them.
SGLANG_HEAD = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
SGLANG_TEXT = sse(
    {**SGLANG_HEAD, "choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": None}]},
    {**SGLANG_HEAD, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    {**SGLANG_HEAD, "choices": [], "usage": None, "sglext": {"cached_tokens_details": {"device": 0}}},
)
SGLANG_COUNTS = {"prompt_tokens": 40, "total_tokens": 42, "completion_tokens": 2, "reasoning_tokens": 0}
SGLANG_USAGE = sse({**SGLANG_HEAD, "choices": [], "usage": {**SGLANG_COUNTS, "prompt_tokens_details": None}})


async def test_sglang_is_asked_for_usage_and_only_that_is_withheld(tmp_path: Path):
    handler = answers(stream_head(), chunk(SGLANG_TEXT + SGLANG_USAGE + DONE), END)
    async with (
        scripted("sglang", handler) as engine,
        running(tmp_path, [{"url": engine.url}]) as gateway,
    ):
        _, _, body = await gateway.post(
            "/v1/chat/completions", chat("hello", model="m", stream=True, return_cached_tokens_details=True)
        )
        assert body == SGLANG_TEXT + DONE
        assert json.loads(engine.calls[0].body)["stream_options"] == {"include_usage": True}
        (record,) = await gateway.records()
        assert (record["prompt_tokens"], record["cached_tokens"]) == (40, None)


# Each is the first event of an answer whose status is 200.
# SGLang: G managers/scheduler.py:2842, 2845, 2882 and entrypoints/openai/serving_base.py; usage follows when
# it was asked for (serving_chat.py:1770). TGI: T router/src/infer/mod.rs:444.
FULL = {"object": "error", "type": "SERVICE_UNAVAILABLE", "param": None, "code": 503}
REFUSALS = {
    "sglang-full": (
        "sglang",
        sse({"error": {**FULL, "message": "The request queue is full."}}) + SGLANG_USAGE,
    ),
    "sglang-priority": (
        "sglang",
        sse({"error": {**FULL, "message": "The request is aborted by a higher priority request."}}),
    ),
    "sglang-waiting": ("sglang", sse({"error": {**FULL, "message": "Request waiting timeout reached."}})),
    "tgi": ("tgi", sse({"error": {"message": "Model is overloaded", "http_status_code": 422}})),
}


@pytest.mark.parametrize(("kind", "refusal"), REFUSALS.values(), ids=REFUSALS)
async def test_a_refusal_inside_a_stream_is_tried_elsewhere(tmp_path: Path, kind: str, refusal: bytes):
    asked: list[RawCall] = []

    async def first_refuses(call: RawCall) -> None:
        asked.append(call)
        if len(asked) == 1:
            call.write(stream_head(), chunk(refusal + DONE), END)
        else:
            await accepted(call)

    async with (
        scripted(kind, first_refuses) as a,
        scripted(kind, first_refuses) as b,
        running(tmp_path, [{"url": a.url}, {"url": b.url}]) as gateway,
    ):
        answer = await ask(gateway, chat("hello", model="m", stream=True))
        assert (answer.status, answer.route, answer.text) == (200, "retry", "a")
        (record,) = await gateway.records()
        assert (record["outcome"], record["attempts"]) == ("ok", 2)
        assert [it["health"] for it in (await gateway.state())["engines"]] == ["ready", "ready"]


async def test_an_ollama_that_fails_in_a_stream_says_nothing_and_the_gateway_says_it(tmp_path: Path):
    # O middleware/openai.go writeResponse: its error becomes an empty chunk, and the stream just ends.
    empty = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "", "choices": []}
    handler = answers(stream_head(), chunk(event("Hi")), chunk(sse(empty)), END)
    async with (
        scripted("ollama", handler) as engine,
        running(tmp_path, [{"url": engine.url}]) as gateway,
    ):
        answer = await ask(gateway, chat("hello", model="m", stream=True))
        assert (answer.status, answer.error_code) == (200, "engine_truncated")
        assert b"stream_options" not in engine.calls[0].body
        assert (await gateway.records())[0]["outcome"] == "engine_truncated"


async def test_trtllm_with_a_space_behind_its_first_event_is_read(tmp_path: Path):
    # R serve/postprocess_handlers.py: some first chunks end in "} \n\n".
    usage = {"prompt_tokens": 40, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 32}}
    first = event("Hi").removesuffix(b"\n\n") + b" \n\n"
    handler = answers(
        stream_head(), chunk(first + event("!", "stop") + sse({"choices": [], "usage": usage}) + DONE), END
    )
    async with (
        scripted("trtllm", handler) as engine,
        running(tmp_path, [{"url": engine.url}]) as gateway,
    ):
        answer = await ask(gateway, chat("hello", model="m", stream=True))
        assert answer.body == first + event("!", "stop") + DONE
        (record,) = await gateway.records()
        assert (record["outcome"], record["prompt_tokens"], record["cached_tokens"]) == ("ok", 40, 32)


async def test_an_lmdeploy_that_sleeps_gets_no_requests_and_awake_its_cache_is_a_new_one(tmp_path: Path):
    async with (
        scripted("lmdeploy", accepted) as engine,
        running(tmp_path, [{"url": engine.url}]) as gateway,
    ):
        name = engine.url.removeprefix("http://")

        async def health() -> str:
            return (await gateway.engine(name))["health"]

        async def is_loading() -> bool:
            return await health() == "loading"

        engine.pages["/health"] = json.dumps({"status": "sleeping", "message": ""})
        await until(is_loading)
        engine.pages["/health"] = HEALTHY
        answer = await ask(gateway, chat("hello", model="m", stream=True))
        assert answer.status == 200
        assert (await gateway.engine(name))["restarts"] == 1


async def test_cached_tokens_that_ollama_fills_in_are_unknown(tmp_path: Path):
    # O openai/responses.go: /v1/responses says 0 whatever was cached.
    told = {"input_tokens": 40, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 0}}
    handler = answers(whole(json.dumps({"object": "response", "output": [], "usage": told}).encode()))
    async with scripted("ollama", handler) as engine, running(tmp_path, [{"url": engine.url}]) as gateway:
        status, _, _ = await gateway.post("/v1/responses", {"model": "m", "input": "hello"})
        assert status == 200
        (record,) = await gateway.records()
        assert (record["prompt_tokens"], record["cached_tokens"]) == (40, None)
