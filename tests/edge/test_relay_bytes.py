import json

import pytest
from harness import chat, running
from raw_client import connect, request
from raw_engine import DONE, END, answers, chunk, event, raw_engine, stream_head, whole

JSON_BODY = b'{ "id":"c",\n "choices" : [ {"message":{"content":"\\u00e9 \xc3\xa9 1.0 1e3"}} ], "n": 1.50 }\n'
EVENTS = event("a") + b": ping\r\n\r\n" + event("\u00e9", "stop").replace(b'": ', b'"  :') + DONE
USAGE = {"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
USAGE_EVENT = b"data: " + json.dumps({"model": "m", "choices": [], "usage": USAGE}).encode() + b"\n\n"
EOF_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n"


@pytest.fixture
async def engine():
    async with raw_engine(answers(whole(JSON_BODY))) as engine:
        yield engine


@pytest.fixture
async def gateway(tmp_path, engine):
    async with running(tmp_path, [engine.entry(name="a")]) as gateway:
        yield gateway


async def ask(gateway, body=None, *headers, **options):
    async with connect(gateway) as client:
        client.send(request(chat("hello", model="m") if body is None else body, *headers, **options))
        return await client.answer()


def in_chunks(head: bytes, body: bytes, size: int):
    return head, *(chunk(body[at : at + size]) for at in range(0, len(body), size)), END


@pytest.mark.parametrize(
    "handler",
    [
        pytest.param(answers(whole(JSON_BODY)), id="content-length"),
        pytest.param(answers(*(bytes([byte]) for byte in whole(JSON_BODY))), id="byte by byte"),
        pytest.param(
            answers(*in_chunks(EOF_HEAD[:-2] + b"transfer-encoding: chunked\r\n\r\n", JSON_BODY, 7)),
            id="chunked",
        ),
        pytest.param(answers(EOF_HEAD, JSON_BODY, close=True), id="end of the connection"),
    ],
)
async def test_a_json_answer_passes_byte_for_byte(gateway, engine, handler):
    engine.handler = handler
    for _ in range(2):
        answer = await ask(gateway)
        assert (answer.status, answer.body, answer.ended) == (200, JSON_BODY, True)
        assert answer.headers["content-type"] == "application/json"
    assert {record["outcome"] for record in await gateway.records()} == {"ok"}


@pytest.mark.parametrize("size", [1, 5, 64, 100_000])
async def test_a_stream_passes_byte_for_byte(gateway, engine, size):
    engine.handler = answers(*in_chunks(stream_head(b"cache-control: no-store"), EVENTS, size))
    answer = await ask(gateway, chat("hello", model="m", stream=True))
    assert (answer.body, answer.ended) == (EVENTS, True)
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-accel-buffering"] == "no"
    [record] = await gateway.records()
    assert (record["outcome"], record["stream"]) == ("ok", True)
    assert record["ttft_ms"] is not None


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
async def test_a_stream_up_to_the_end_of_the_connection_passes_too(gateway, engine, end):
    """The last blank line is missing or half there."""
    events = event("a", "stop") + b"data: [DONE]" + end
    engine.handler = answers(stream_head(chunked=False), events, close=True)
    answer = await ask(gateway, chat("hello", model="m", stream=True))
    assert (answer.body, answer.ended) == (events, True)
    assert (await gateway.records())[0]["outcome"] == "ok"


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (b"400 Bad Request", "invalid"),
        (b"404 Not Found", "invalid"),
        (b"422 Unprocessable Entity", "invalid"),
        (b"401 Unauthorized", "engine_error"),
        (b"429 Too Many Requests", "engine_error"),
        (b"500 Internal Server Error", "engine_error"),
        (b"503 Service Unavailable", "engine_error"),
        (b"529 Whatever", "engine_error"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_an_engines_error_passes_with_its_status_and_bytes(gateway, engine, status, outcome, stream):
    body = b'{"error" : {"message":"no","code":null}}'
    engine.handler = answers(whole(body, b"retry-after: 17", b"x-engine: 1", status=status))
    answer = await ask(gateway, chat("hello", model="m", stream=stream))
    assert (answer.status, answer.body) == (int(status[:3]), body)
    assert (answer.headers["retry-after"], answer.headers["x-engine"]) == ("17", "1")
    assert answer.headers["x-gateway-engine"] == "a"
    [record] = await gateway.records()
    assert (record["outcome"], record["status"], record["code"]) == (outcome, int(status[:3]), "")
    assert len(engine.calls) == 1
    assert (await gateway.engine("a"))["in_flight"] == 0


async def test_an_error_inside_a_stream_passes_and_is_counted(gateway, engine):
    failure = b'data: {"error": {"message": "CUDA", "code": 500}}\n\n'
    engine.handler = answers(stream_head(), chunk(event("a") + failure), END)
    answer = await ask(gateway, chat("hello", model="m", stream=True))
    assert (answer.body, answer.ended) == (event("a") + failure, True)
    assert (await gateway.records())[0]["outcome"] == "engine_error"


async def test_an_answer_without_a_body_has_none(gateway, engine):
    engine.handler = answers(b"HTTP/1.1 204 No Content\r\nx-engine: 1\r\n\r\n")
    async with connect(gateway) as client:
        for _ in range(2):
            client.send(request({"model": "m"}, path="/v1/anything"))
            answer = await client.answer()
            assert (answer.status, answer.headers["x-engine"]) == (204, "1")
            assert "transfer-encoding" not in answer.headers


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
@pytest.mark.parametrize("header", [b"x: y", b"content-length: 5", b"transfer-encoding: chunked"])
@pytest.mark.parametrize("alias", ["m", "other-name"])
async def test_nothing_follows_the_head_of_an_answer_that_has_no_body(
    tmp_path, engine, status, header, alias
):
    """Whatever its framing says: the next answer must begin where the client looks for it."""
    engine.handler = answers(b"HTTP/1.1 " + status + b"\r\n" + header + b"\r\n\r\n")
    aliases = {"aliases": {"other-name": "m"}}
    async with (
        running(tmp_path, [engine.entry(name="a")], models=aliases) as gateway,
        connect(gateway) as client,
    ):
        client.send(request({"model": alias}, path="/v1/anything"))
        answer = await client.head()
        assert answer.status == int(status[:3])
        assert {"content-length", "transfer-encoding"}.isdisjoint(answer.headers)
        client.send(request(path="/healthz", method="GET"))
        assert (await client.answer()).body == b'{"status":"ok"}'


async def test_an_empty_answer_is_empty(gateway, engine):
    engine.handler = answers(whole(b""))
    assert (await ask(gateway)).headers["content-length"] == "0"


async def test_interim_answers_stay_between_the_engine_and_the_gateway(gateway, engine):
    engine.handler = answers(b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n", whole(JSON_BODY))
    answer = await ask(gateway)
    assert (answer.status, answer.body) == (200, JSON_BODY)
    assert "link" not in answer.headers


async def test_headers_of_one_connection_stay_there(gateway, engine):
    engine.handler = answers(
        whole(b"{}", b"connection: keep-alive, x-hop", b"keep-alive: timeout=5", b"x-hop: 1", b"x-end: 1")
    )
    answer = await ask(gateway, None, "connection: x-mine", "x-mine: 1", "te: trailers", "x-other: 1")
    assert not {"connection", "keep-alive", "x-hop"} & answer.headers.keys()
    assert answer.headers["x-end"] == "1"
    assert not {"connection", "x-mine", "te"} & engine.calls[0].headers.keys()
    assert engine.calls[0].headers["x-other"] == "1"


async def test_the_gateways_own_headers_are_there(gateway):
    answer = await ask(gateway)
    assert answer.headers["x-gateway-engine"] == "a"
    assert answer.headers["x-gateway-route"] == "only"
    assert answer.headers["x-gateway-predicted-cached-tokens"] == "0"
    assert float(answer.headers["x-gateway-queue-ms"]) >= 0
    names = [part.partition(";dur=")[0].strip() for part in answer.headers["server-timing"].split(",")]
    assert names == ["queue", "connect", "ttfb"]


ODD_BODIES = [
    pytest.param(b'{"model":"m","messages":[]}', id="compact"),
    pytest.param(b'\n{ "messages" : [ ] ,\r\n\t"model" :\t"m" } \n', id="white space"),
    pytest.param(b'{"model":"m","x":1.0,"y":1e400,"z":123456789012345678901234567890}', id="numbers"),
    pytest.param(b'{"model":"m","x":NaN,"y":-Infinity}', id="NaN"),
    pytest.param(b'\xef\xbb\xbf{"model":"m"}', id="byte order mark"),
    pytest.param(b'{"model":"m","x":"\\ud800"}', id="half a surrogate pair"),
    pytest.param(b'{"x":1,"model":"n","x":2,"model":"m"}', id="keys twice"),
    pytest.param(b'{"mod\\u0065l":"m","stream_options":{"include_usage":false}}', id="escaped key"),
    pytest.param('{"model":"m","x":"\u4f60\u597d"}'.encode(), id="UTF-8"),
    pytest.param(b'{"model":"m","x":"' + b"y" * 3_000_000 + b'"}', id="3 MB"),
]


@pytest.mark.parametrize("body", ODD_BODIES)
async def test_a_request_body_passes_byte_for_byte(gateway, engine, body):
    assert (await ask(gateway, body)).status == 200
    assert engine.calls[0].body == body


@pytest.fixture
async def vllm(tmp_path, engine):
    async with running(tmp_path, [engine.entry(name="a", kind="vllm")]) as gateway:
        yield gateway


WITHOUT = event("a") + event("b", "stop")


@pytest.mark.parametrize("size", [1, 50, 100_000])
async def test_usage_is_asked_for_and_its_chunk_withheld(vllm, engine, size):
    engine.handler = answers(*in_chunks(stream_head(), WITHOUT + USAGE_EVENT + DONE, size))
    body = b'{ "model":"m", "messages":[], "stream" : true }'
    answer = await ask(vllm, body)
    assert answer.body == WITHOUT + DONE
    sent = engine.calls[0].body
    assert json.loads(sent)["stream_options"] == {"include_usage": True}
    assert sent.startswith(body.rstrip(b"} "))
    [record] = await vllm.records()
    assert (record["prompt_tokens"], record["cached_tokens"], record["completion_tokens"]) == (7, 4, 2)


@pytest.mark.parametrize("options", [{"include_usage": True}, {"include_usage": True, "x": 1}])
async def test_usage_that_the_client_asked_for_reaches_it(vllm, engine, options):
    engine.handler = answers(stream_head(), chunk(WITHOUT + USAGE_EVENT + DONE), END)
    body = json.dumps(chat("hello", model="m", stream=True, stream_options=options)).encode()
    assert (await ask(vllm, body)).body == WITHOUT + USAGE_EVENT + DONE
    assert engine.calls[0].body == body
    assert (await vllm.records())[0]["cached_tokens"] == 4


async def test_an_explicit_false_is_respected_and_usage_stays_unknown(vllm, engine):
    engine.handler = answers(stream_head(), chunk(WITHOUT + DONE), END)
    body = json.dumps(chat("hello", model="m", stream=True, stream_options={"include_usage": False})).encode()
    assert (await ask(vllm, body)).body == WITHOUT + DONE
    assert engine.calls[0].body == body
    [record] = await vllm.records()
    assert (record["outcome"], record["prompt_tokens"], record["cached_tokens"]) == ("ok", None, None)


async def test_a_json_request_is_not_asked_for_usage(vllm, engine):
    body = json.dumps(chat("hello", model="m")).encode()
    assert (await ask(vllm, body)).status == 200
    assert engine.calls[0].body == body


async def test_usage_is_not_asked_for_where_the_configuration_forbids_it(tmp_path, engine):
    engine.handler = answers(stream_head(), chunk(WITHOUT + DONE), END)
    body = json.dumps(chat("hello", model="m", stream=True)).encode()
    async with running(tmp_path, [engine.entry(name="a", kind="vllm")], usage={"inject": "off"}) as gateway:
        assert (await ask(gateway, body)).body == WITHOUT + DONE
    assert engine.calls[0].body == body


async def test_cached_tokens_of_several_prompts_are_unknown(tmp_path):
    # vLLM 0.32.0 sums their prompt tokens and reports the cached ones of one.
    usage = {"prompt_tokens": 40, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 16}}
    body = json.dumps({"choices": [], "usage": usage}).encode()
    async with (
        raw_engine(answers(whole(body))) as engine,
        running(tmp_path, [engine.entry()]) as gateway,
    ):
        for prompt, cached in (("one", 16), (["one", "two"], None)):
            status, _, _ = await gateway.post("/v1/completions", {"model": "m", "prompt": prompt})
            assert status == 200
            assert (await gateway.records())[0]["cached_tokens"] == cached
