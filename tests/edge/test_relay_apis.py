import json

import pytest
from harness import chat, running
from raw_client import connect, request
from raw_engine import DONE, END, answers, chunk, event, raw_engine, seen, stream_head, whole

from gateway.sim.server import SimEngine
from gateway.sim.settings import SimSettings

ANSWER = b'{"ok":1}'


@pytest.fixture
async def sim():
    async with SimEngine(SimSettings(decode_rate=10_000, prefill_rate=1e6)) as engine:
        yield engine


@pytest.fixture
async def gateway(tmp_path, sim):
    async with running(tmp_path, [{"name": "a", "url": sim.url, "slots": 8}]) as gateway:
        yield gateway


@pytest.fixture
async def engine():
    async with raw_engine(answers(whole(ANSWER)), models=("org/m:1", "m")) as engine:
        yield engine


@pytest.fixture
async def raw(tmp_path, engine):
    async with running(tmp_path, [engine.entry(name="a")]) as gateway:
        yield gateway


@pytest.mark.parametrize(
    ("prompt", "width"),
    [("one", 1), (["one", "two"], 2), ([1, 2, 3], 1), ([[1, 2], [3], [4]], 3), ("", 1)],
    ids=["text", "texts", "ids", "lists of ids", "empty text"],
)
async def test_a_completion_takes_as_many_slots_as_it_has_prompts(gateway, prompt, width):
    status, _, body = await gateway.post("/v1/completions", {"prompt": prompt, "max_tokens": 2})
    assert status == 200, body
    assert len(json.loads(body)["choices"]) == width
    [record] = await gateway.records()
    assert (record["api"], record["width"], record["outcome"]) == ("completions", width, "ok")
    assert record["prompt_tokens"] > 0


async def test_a_completion_with_no_prompts_is_for_the_engine_to_refuse(gateway, sim):
    status, _, body = await gateway.post("/v1/completions", {"prompt": []})
    assert (status, json.loads(body)["error"]["type"]) == (400, "BadRequestError")
    [record] = await gateway.records()
    assert (record["outcome"], record["engine"], record["code"]) == ("invalid", "a", "")


async def test_choices_multiply_the_width(gateway):
    await gateway.post("/v1/completions", {"prompt": ["one", "two"], "n": 3, "max_tokens": 2})
    [record] = await gateway.records()
    assert record["width"] == 6


@pytest.mark.parametrize(
    ("given", "width"), [("one", 1), (["one", "two", "three"], 3), ([1, 2], 1), ([[1], [2]], 2)]
)
async def test_embeddings_take_a_slot_for_each_input(gateway, given, width):
    status, _, body = await gateway.post("/v1/embeddings", {"model": "sim-model", "input": given})
    assert status == 200, body
    assert len(json.loads(body)["data"]) == width
    assert (await gateway.records())[0]["width"] == width


@pytest.mark.parametrize("path", ["/tokenize", "/v1/tokenize", "/v1/v1/tokenize/"])
async def test_tokenize_needs_no_slot(raw, engine, path):
    status, _, body = await raw.post(path, {"model": "m", "prompt": "one two"})
    assert (status, body) == (200, ANSWER)
    assert engine.calls[0].path == "/tokenize"
    [record] = await raw.records()
    assert (record["api"], record["width"], record["outcome"]) == ("tokenize", 0, "ok")


async def test_tokenize_and_detokenize_are_inverse_on_the_engine(gateway):
    _, _, body = await gateway.post("/tokenize", {"prompt": "one two"})
    status, _, body = await gateway.post("/detokenize", {"tokens": json.loads(body)["tokens"]})
    assert (status, json.loads(body)["prompt"]) == (200, "one two")


async def test_tokenize_is_served_while_every_slot_is_taken(tmp_path):
    async def handler(call):
        if call.path == "/tokenize":
            call.write(whole(ANSWER))

    async with (
        raw_engine(handler) as engine,
        running(tmp_path, [engine.entry(name="a", slots=1)]) as gateway,
        connect(gateway) as busy,
    ):
        busy.send(request(chat("hello", model="m")))
        await seen(engine)
        assert (await gateway.post("/tokenize", {"model": "m", "prompt": "x"}))[0] == 200
        assert (await gateway.engine("a"))["in_flight"] == 1


@pytest.mark.parametrize(
    ("path", "sent", "api"),
    [
        ("/v1/chat/completions", "/v1/chat/completions", "chat"),
        ("/chat/completions", "/v1/chat/completions", "chat"),
        ("/v1/v1/chat/completions", "/v1/chat/completions", "chat"),
        ("/v1/chat/completions/", "/v1/chat/completions", "chat"),
        ("//v1//chat/completions", "/v1/chat/completions", "chat"),
        ("/v1/rerank", "/v1/rerank", "rerank"),
        ("/v1/audio/transcriptions", "/v1/audio/transcriptions", "other"),
        ("/v1/x%2Fy%20z?q=%C3%A9&a=b%26c", "/v1/x/y%20z?q=%C3%A9&a=b%26c", "other"),
        ("/v1/embeddings?timeout=3&x", "/v1/embeddings?timeout=3&x", "embeddings"),
    ],
)
async def test_what_the_engine_is_asked(raw, engine, path, sent, api):
    async with connect(raw) as client:
        client.send(request({"model": "m"}, path=path))
        assert (await client.answer()).body == ANSWER
    assert engine.calls[0].line == f"POST {sent} HTTP/1.1"
    assert (await raw.records())[0]["api"] == api


async def test_models_are_listed_with_their_aliases(tmp_path, engine):
    aliases = {"fast": "m", "gone": "nowhere", "claude-*": "m"}
    async with (
        running(tmp_path, [engine.entry(name="a")], models={"aliases": aliases}) as gateway,
        gateway.http.get(f"{gateway.api}/v1/models") as response,
    ):
        listed = await response.json()
    assert listed["object"] == "list"
    assert {card["id"] for card in listed["data"]} == {"org/m:1", "m", "fast"}
    assert next(card for card in listed["data"] if card["id"] == "fast")["root"] == "m"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v1/models/m", "m"),
        ("/models/m", "m"),
        ("/v1/models/org/m:1", "org/m:1"),
        ("/v1/models/org%2Fm%3A1", "org/m:1"),
        ("/v1/models/claude%2Dopus", "claude-opus"),
    ],
)
async def test_a_model_is_found_by_its_name(tmp_path, engine, path, name):
    async with (
        running(tmp_path, [engine.entry(name="a")], models={"aliases": {"claude-*": "m"}}) as gateway,
        connect(gateway) as client,
    ):
        client.send(request(path=path, method="GET"))
        answer = await client.answer()
        assert (answer.status, json.loads(answer.body)["id"]) == (200, name)
        client.send(request(path="/v1/models/none%0d%0a", method="GET"))
        answer = await client.answer()
        assert (answer.status, answer.error["code"]) == (404, "unknown_model")


@pytest.mark.parametrize("path", ["/", "/healthz", "/readyz", "/v1/models", "/v1"])
async def test_head_is_get_without_its_body(raw, path):
    async with connect(raw) as client:
        client.send(request(path=path, method="GET"))
        whole_answer = await client.answer()
        client.send(request(path=path, method="HEAD"))
        head = await client.answer(method="HEAD")
        assert (whole_answer.status, head.status) == (200, 200)
        assert head.headers["content-length"] == str(len(whole_answer.body))
        client.send(request(path="/healthz", method="GET"))
        assert json.loads((await client.answer()).body) == {"status": "ok"}
    assert await raw.records() == []


async def test_without_an_engine_the_gateway_lives_but_is_not_ready(tmp_path):
    async with raw_engine(answers(whole(ANSWER))) as engine:
        engine.refuse()
        async with running(tmp_path, [engine.entry(name="a")]) as gateway:
            async with gateway.http.get(f"{gateway.api}/healthz") as response:
                assert response.status == 200
            async with gateway.http.get(f"{gateway.api}/readyz") as response:
                assert response.status == 503
                assert (await response.json()) == {"status": "no_ready_engine", "engines": {"a": "down"}}
            status, headers, body = await gateway.post("/v1/chat/completions", chat("hello", model="m"))
            assert (status, json.loads(body)["error"]["code"]) == (503, "no_ready_engine")
            assert headers["x-gateway-reject-reason"] == "no_ready_engine"
            assert 1 <= int(headers["retry-after"]) <= 60
            assert 1000 <= int(headers["retry-after-ms"]) <= 60_000
            status, _, body = await gateway.post("/v1/messages", {"model": "m", "messages": []})
            assert (status, json.loads(body)["error"]["type"]) == (529, "overloaded_error")
            assert await gateway.metric("requests_total", outcome="rejected") == 2
            assert await gateway.metric("rejected_total", reason="no_ready_engine") == 2


async def test_an_engine_that_goes_away_takes_readiness_with_it(tmp_path, sim, gateway):
    async with gateway.http.get(f"{gateway.api}/readyz") as response:
        assert (response.status, (await response.json())["status"]) == (200, "ready")
    async with gateway.http.post(f"{gateway.admin}/api/engines/a/drain") as response:
        assert response.status == 200
    async with gateway.http.get(f"{gateway.api}/readyz") as response:
        assert (response.status, (await response.json())["engines"]) == (503, {"a": "draining"})


async def test_a_missing_model_is_the_only_one_served(gateway):
    body = chat("hello")
    del body["model"]
    assert (await gateway.post("/v1/chat/completions", body))[0] == 200
    assert (await gateway.records())[0]["model"] == "sim-model"


async def test_a_missing_model_is_refused_where_there_is_a_choice(tmp_path, engine):
    async with (
        raw_engine(answers(whole(ANSWER)), models=("other",)) as second,
        running(tmp_path, [engine.entry(name="a"), second.entry(name="b")]) as gateway,
    ):
        status, _, body = await gateway.post("/v1/chat/completions", {"messages": []})
        error = json.loads(body)["error"]
        assert (status, error["code"], error["param"]) == (400, "invalid_request", "model")
        assert "m, org/m:1, other" in error["message"]


ALIASES = {"fast": "m", "claude-*": "m"}
NAMED = b'{"id": "c", "model": "m", "choices": [{"message": {"content": "my \\"model\\": \\"m\\""}}]}'


@pytest.mark.parametrize("alias", ["fast", "claude-opus-4", 'claude-"x"\\', "claude-\u00e9"])
@pytest.mark.parametrize("echo", [True, False, None])
async def test_an_alias_reaches_the_engine_as_the_real_name(tmp_path, engine, alias, echo):
    engine.handler = answers(whole(NAMED))
    body = json.dumps({"messages": [], "model": alias, "x": '"model":"' + alias}).encode()
    models = {"aliases": ALIASES} | ({} if echo is None else {"echo_alias": echo})
    async with running(tmp_path, [engine.entry(name="a")], models=models) as gateway:
        status, _, answer = await gateway.post("/v1/chat/completions", body)
        assert status == 200
        assert engine.calls[0].body == body.replace(json.dumps(alias).encode(), b'"m"', 1)
        expected = json.loads(NAMED) | {"model": "m" if echo is False else alias}
        assert json.loads(answer) == expected
        if echo is False:
            assert answer == NAMED
        assert (await gateway.records())[0]["model"] == "m"


@pytest.mark.parametrize("echo", [True, False])
async def test_a_stream_is_renamed_event_by_event(tmp_path, engine, echo):
    engine.handler = answers(
        stream_head(), chunk(event("a") + event("b", "stop")[:30]), chunk(event("b", "stop")[30:] + DONE), END
    )
    async with (
        running(
            tmp_path, [engine.entry(name="a")], models={"aliases": ALIASES, "echo_alias": echo}
        ) as gateway,
        connect(gateway) as client,
    ):
        client.send(request(chat("hello", model="claude-x", stream=True)))
        name = "claude-x" if echo else "m"
        assert (await client.answer()).body == event("a", model=name) + event("b", "stop", model=name) + DONE


async def test_a_name_that_is_no_text_may_still_match_a_wildcard(tmp_path, engine):
    async with running(
        tmp_path, [engine.entry(name="a")], models={"aliases": ALIASES, "echo_alias": True}
    ) as gateway:
        status, _, answer = await gateway.post("/v1/chat/completions", b'{"model":"claude-\\ud800"}')
        assert (status, json.loads(answer)) == (200, json.loads(ANSWER))
        assert b'"model":"m"' in engine.calls[0].body


async def test_an_alias_of_a_model_that_nobody_serves_now_is_told_so(tmp_path, engine):
    async with running(
        tmp_path, [engine.entry(name="a")], models={"aliases": {"big": "qwen-27b"}}
    ) as gateway:
        status, _, body = await gateway.post("/v1/chat/completions", chat("hello", model="big"))
        assert (status, json.loads(body)["error"]["code"]) == (404, "unknown_model")
        assert "'big' stands for 'qwen-27b'" in json.loads(body)["error"]["message"]
