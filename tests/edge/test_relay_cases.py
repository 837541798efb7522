"""Cases that broke other proxies (docs/cases.md) and no other test shows on the real server."""

import asyncio
import gzip
import json

import pytest
from blockbuster import blockbuster_ctx
from harness import chat, running, until
from raw_client import connect, request
from raw_engine import DONE, END, answers, chunk, event, raw_engine, seen, stream_head, whole

from gateway.edge.intake import session_of

ANSWER = b'{"choices":[]}'


@pytest.fixture
async def engine():
    async with raw_engine(answers(whole(ANSWER))) as engine:
        yield engine


@pytest.fixture
async def gateway(tmp_path, engine):
    async with running(tmp_path, [engine.entry(name="a")]) as gateway:
        yield gateway


async def ask(gateway, body, *headers, **options):
    async with connect(gateway) as client:
        client.send(request(body, *headers, **options))
        return await client.answer()


@pytest.mark.parametrize("size", [140_000, 600_000, 3_000_000])
@pytest.mark.parametrize("piece", [1000, 65_536, 10_000_000])
async def test_a_line_of_any_length_passes(gateway, engine, size, piece):
    # open-webui#24928, TensorRT-LLM#13952, aiohttp#4453
    data = event("a" * size) + event("b", "stop") + DONE
    framed = b"".join(chunk(data[at : at + piece]) for at in range(0, len(data), piece))
    engine.handler = answers(stream_head(), framed, END)
    answer = await ask(gateway, chat("hello", model="m", stream=True))
    assert (answer.body, answer.ended) == (data, True)
    assert (await gateway.records())[0]["outcome"] == "ok"


@pytest.mark.parametrize("size", [1024 * 1024 - 1, 1024 * 1024 + 1, 1_049_648, 8_000_000])
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_of_megabytes_reaches_the_engine_unchanged(gateway, engine, size, chunked):
    # claude-tap#2, argo-proxy#56, aiohttp#4474
    body = json.dumps(chat("x" * size, model="m")).encode()
    async with connect(gateway) as client:
        if chunked:
            head = request(method="PUT").replace(b"PUT", b"POST", 1)[:-2]
            client.send(head + b"transfer-encoding: chunked\r\n\r\n")
            for at in range(0, len(body), 100_000):
                await client.send_all(chunk(body[at : at + 100_000]))
            client.send(END)
        else:
            await client.send_all(request(body))
        assert (await client.answer()).status == 200
    assert engine.calls[0].body == body


@pytest.mark.parametrize(
    "path", ["/v1/audio/speech", "/v1/responses", "/v1/messages", "/v1/images/edits", "/v1/x/y/z"]
)
async def test_a_path_without_a_handler_of_its_own_is_spread_and_counted_like_any_other(tmp_path, path):
    # vllm-project/router#179, production-stack#914, llama-swap#858
    everybody = asyncio.Event()

    async def hold(call):
        await everybody.wait()
        call.write(whole(ANSWER))

    async with raw_engine(hold) as one, raw_engine(hold) as other:
        engines = [it.entry(name=name) for name, it in (("a", one), ("b", other))]
        async with running(tmp_path, engines) as gateway:
            tasks = [asyncio.create_task(ask(gateway, {"model": "m"}, path=path)) for _ in range(12)]

            async def full():
                state = await gateway.state()
                return [it["in_flight"] for it in state["engines"]] == [4, 4] and len(state["waiting"]) == 4

            await until(full)
            everybody.set()
            assert {it.status for it in await asyncio.gather(*tasks)} == {200}
            assert len(one.calls) + len(other.calls) == 12
            assert await gateway.metric("requests_total", outcome="ok") == 12
            assert await gateway.metric("in_flight") == 0


async def test_names_and_paths_that_clients_make_up_make_no_series(gateway):
    # litellm#39136, llm-d-router#1625, apisix#13637
    async def series() -> set[str]:
        async with gateway.http.get(f"{gateway.admin}/metrics") as response:
            lines = (await response.text()).splitlines()
        return {line.rpartition(" ")[0] for line in lines if line.startswith("prefix_gateway_")}

    async with connect(gateway) as client:

        async def one(number: int) -> None:
            client.send(request(chat("x", model=f"m-{number}"), f"x-session-id: s-{number}"))
            assert (await client.answer()).status == 404
            client.send(request(path=f"/{number}.php", method="GET"))
            assert (await client.answer()).status == 404
            client.send(request(chat("x", model="m"), f"x-session-id: {number}", path=f"/v1/p-{number}"))
            assert (await client.answer()).status == 200

        await one(0)
        before = await series()
        for number in range(1, 200):
            await one(number)
    assert await series() == before


TOOL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
ODD_BODIES = [
    {"messages": [{"role": "assistant", "content": None, "tool_calls": [TOOL]}]},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]},
    {"messages": [{"role": "user", "content": [{"type": "zzz"}, "bare", 5, None]}]},
    {"messages": [{"role": "developer", "content": "d"}, {"role": "user", "content": "x"}]},
    {"messages": [{"role": "system", "content": "a"}, {"role": "system", "content": "b"}]},
    {"messages": [{"role": "assistant", "reasoning_content": "r", "content": ""}], "logprobs": True},
    {"messages": "no list", "response_format": {"type": "json_schema", "json_schema": {}}, "n": 2},
    {"messages": None, "tools": None, "tool_choice": None, "stream_options": None, "stop": None},
    {"messages": [None, 1, [], {}], "n": None, "unknown_key": {"a": [1, 2.50, 1e3]}},
    {"input": [{"type": "zzz"}, {"type": "agent_message", "content": None}], "store": False},
    {},
]


@pytest.mark.parametrize("fields", ODD_BODIES, ids=range(len(ODD_BODIES)))
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages"])
async def test_whatever_an_engine_may_accept_reaches_it_byte_for_byte(gateway, engine, fields, path):
    # mistral-common#324, freellmapi#165, ai-gateway#2455, vllm#42407, llama.cpp#20079
    body = json.dumps({"model": "m", **fields}, indent=1).encode()
    assert (await ask(gateway, body, path=path)).status == 200
    assert engine.calls[0].body == body


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"m","temperature":NaN}',
        b'{"model":"m","logit_bias":{"1":-Infinity},"top_p":Infinity}',
        b'{"model":"m","seed":123456789012345678901234567890}',
        b'{"model":"m","messages":[{"role":"user","content":"\\ud800"}]}',
        b'\xef\xbb\xbf{"model":"m"}',
    ],
)
@pytest.mark.parametrize(
    "answer",
    [
        b'{"choices":[{"logprobs":{"logprob":-Infinity}}],"usage":{"prompt_tokens":3}}',
        b'{"choices":[{"logprobs":NaN}]}',
        b'{"text":"\\ud800"}',
        b"{",
        b"\xff\xfe",
    ],
)
async def test_what_strict_parsers_refuse_passes_both_ways(gateway, engine, body, answer):
    # vllm#10234, vllm#19661, sglang#20323, sonar#183
    engine.handler = answers(whole(answer))
    got = await ask(gateway, body)
    assert (got.status, got.body) == (200, answer)
    assert engine.calls[0].body == body
    assert (await gateway.records())[0]["outcome"] == "ok"


@pytest.mark.parametrize(
    ("body", "model", "status"),
    [
        (b'{"model":"none","model":"m"}', b"m", 200),
        (b'{"model":"m","model":"none"}', b"", 404),
        (b'{"model":"m","mod\\u0065l":"none"}', b"", 404),
        (b'{"model":"alias","x":{"model":"none"},"model":"alias"}', b"m", 200),
    ],
)
async def test_of_a_model_named_twice_gateway_and_engine_take_the_same(tmp_path, engine, body, model, status):
    # fgentic#1409: Python's and C++'s JSON parsers in the engines take the last
    aliases = {"aliases": {"alias": "m"}}
    async with running(tmp_path, [engine.entry(name="a")], models=aliases) as gateway:
        assert (await ask(gateway, body)).status == status
    if status == 200:
        assert json.loads(engine.calls[0].body)["model"].encode() == model
    else:
        assert engine.calls == []


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("asked", [False, True])
async def test_the_answers_own_type_says_whether_it_is_a_stream(gateway, engine, stream, asked):
    # fgentic#1409, production-stack#998
    streamed = event("a", "stop") + DONE
    parts = (stream_head(), chunk(streamed), END) if stream else (whole(ANSWER),)
    engine.handler = answers(*parts)
    answer = await ask(gateway, chat("hello", model="m", stream=asked))
    assert answer.body == (streamed if stream else ANSWER)
    assert answer.headers["content-type"] == ("text/event-stream" if stream else "application/json")
    [record] = await gateway.records()
    assert (record["outcome"], record["stream"]) == ("ok", stream)


async def test_what_claude_code_asks_at_its_start_is_answered_without_a_redirect(gateway, engine):
    # code.claude.com, gateway protocol
    async with connect(gateway) as client:
        client.send(request(path="/", method="HEAD"))
        assert (await client.answer(method="HEAD")).status == 200
        client.send(request(path="/v1/models?limit=1000", method="GET"))
        assert json.loads((await client.answer()).body)["data"][0]["id"] == "m"
        client.send(request({"model": "m", "messages": []}, path="/v1/messages?beta=true"))
        assert (await client.answer()).status == 200
        engine.handler = answers(whole(b'{"type":"error"}', status=b"404 Not Found"))
        client.send(request({"model": "m", "messages": []}, path="/v1/messages/count_tokens?beta=true"))
        answer = await client.answer()
        assert (answer.status, answer.body) == (404, b'{"type":"error"}')
    assert [call.path for call in engine.calls] == [
        "/v1/messages?beta=true",
        "/v1/messages/count_tokens?beta=true",
    ]


@pytest.mark.parametrize("last", ["response.completed", "response.incomplete", "response.failed"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
async def test_usage_is_recorded_however_a_response_ends(gateway, engine, last, end):
    # ai-gateway#2184
    usage = {"input_tokens": 9, "output_tokens": 4, "input_tokens_details": {"cached_tokens": 5}}
    body = {"type": last, "response": {"status": last.partition(".")[2], "usage": usage}}
    data = b'event: response.created\ndata: {"type":"response.created","response":{"usage":null}}\n\n'
    data += b"event: " + last.encode() + b"\ndata: " + json.dumps(body).encode() + b"\n\n"
    data = data.replace(b"\n", end)
    engine.handler = answers(stream_head(), chunk(data), END)
    answer = await ask(gateway, {"model": "m", "input": "x", "stream": True}, path="/v1/responses")
    assert (answer.body, answer.ended) == (data, True)
    [record] = await gateway.records()
    assert [record[it] for it in ("prompt_tokens", "cached_tokens", "completion_tokens")] == [9, 5, 4]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("packed", [b"", gzip.compress(b""), b"no gzip at all"])
async def test_a_compressed_answer_that_is_empty_or_broken_passes(gateway, engine, stream, packed):
    # ai-gateway#1927, CLIProxyAPI#1895
    kind = b"text/event-stream" if stream else b"application/json"
    head = b"HTTP/1.1 200 OK\r\ncontent-type: " + kind + b"\r\ncontent-encoding: gzip\r\n"
    engine.handler = answers(head + b"content-length: %d\r\n\r\n" % len(packed) + packed)
    answer = await ask(gateway, {"model": "m", "stream": stream}, path="/v1/anything")
    assert (answer.status, answer.body, answer.headers["content-encoding"]) == (200, packed, "gzip")
    assert (await gateway.records())[0]["outcome"] == "ok"


SESSION_HEADERS = [
    "x-claude-code-session-id", "session-id", "session_id", "x-session-id", "x-session-affinity",
    "conversation_id", "x-openwebui-chat-id",
]  # fmt: skip


@pytest.mark.parametrize("header", [*SESSION_HEADERS, "prompt_cache_key", "metadata.user_id"])
async def test_a_session_goes_back_to_its_engine_by_whatever_name_it_has(tmp_path, header):
    # opencode#31511, sub2api#1578, hermes-agent#65094
    async with raw_engine(answers(whole(ANSWER))) as one, raw_engine(answers(whole(ANSWER))) as other:
        engines = [it.entry(name=name) for name, it in (("a", one), ("b", other))]
        async with running(tmp_path, engines, routing={"policy": "session"}) as gateway:
            placed = set()
            for number in range(12):
                body = chat("same", model="m")
                headers = [f"{header}: s-{number}"] if header in SESSION_HEADERS else []
                if header == "prompt_cache_key":
                    body["prompt_cache_key"] = f"s-{number}"
                elif not headers:
                    body["metadata"] = {"user_id": f"s-{number}"}
                turns = [await ask(gateway, body, *headers) for _ in range(3)]
                [engine] = {it.headers["x-gateway-engine"] for it in turns}
                placed.add(engine)
            assert placed == {"a", "b"}
    if header in SESSION_HEADERS:
        call = (one.calls or other.calls)[0]
        assert call.headers[header].startswith("s-")


def test_of_several_session_names_the_agents_own_counts():
    by_agent = session_of({b"x-session-id": b"a", b"x-claude-code-session-id": b"b"}, "c")
    assert by_agent == session_of({b"x-claude-code-session-id": b"b"}, "")
    assert by_agent not in (session_of({b"x-session-id": b"b2"}, ""), session_of({}, "c"), 0)
    assert session_of({b"x-session-id": b""}, "") == 0


async def test_streams_of_megabytes_that_are_left_do_not_block_the_loop(tmp_path, engine):
    # litellm#36429
    async def endless(call):
        call.write(stream_head())
        piece = chunk(event("word " * 1000) * 10)
        for _ in range(100):
            if call.left.is_set():
                return
            call.write(piece)
            await asyncio.sleep(0)

    engine.handler = endless

    async def leave(gateway):
        async with connect(gateway) as client:
            client.send(request(chat("x" * 100_000, model="m", stream=True)))
            assert (await client.head()).status == 200
            await client.reader.read(100_000)

    async with running(tmp_path, [engine.entry(name="a", slots=64)]) as gateway:
        with blockbuster_ctx("gateway"):
            for _ in range(4):
                await asyncio.gather(*(leave(gateway) for _ in range(8)))
                assert (await ask(gateway, b"", path="/healthz", method="GET")).status == 200

        async def counted():
            return await gateway.metric("requests_total", outcome="client_disconnect") == 32

        await until(counted)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
async def test_each_event_leaves_at_once_and_untouched_comments_too(gateway, engine, end):
    # llama-swap#295, olla#41, llm-gateway#2053
    async with connect(gateway) as client:

        async def nothing(call):
            call.write(stream_head())

        engine.handler = nothing
        client.send(request(chat("hello", model="m", stream=True)))
        call = await seen(engine)
        events = [event("a"), b": OPENROUTER PROCESSING\n\n", event("\u65e5\u672c"), event("", "stop"), DONE]
        for number, one in enumerate(events):
            data = one.replace(b"\n", end)
            call.write(chunk(data))
            if number == 0:
                assert (await client.head()).headers["x-accel-buffering"] == "no"
            got = b""
            # A CR may be the first half of a CRLF, so its event may come in two pieces, but comes whole.
            while got != data:
                got += await client.chunk()
                assert data.startswith(got)
        call.write(END)
        assert await client.chunk() == b""
