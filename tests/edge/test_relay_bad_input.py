import asyncio
import json
import re

import pytest
from harness import chat, running
from raw_client import connect, request
from raw_engine import answers, raw_engine, whole

ANSWER = b'{"id":"c","object":"chat.completion","choices":[]}'
DEEP = b'{"model":"m","messages":' + b"[" * 20_000 + b"]" * 20_000 + b"}"
HUGE = 40 * 1024 * 1024

BAD_BODIES = [
    pytest.param(b'{"model":"m",', "not valid JSON", id="broken JSON"),
    pytest.param(b'[{"model":"m"}]', "not an array", id="array"),
    pytest.param(b'"text"', "not a string", id="string"),
    pytest.param(b"null", "not null", id="null"),
    pytest.param(b"", "is empty", id="empty"),
    pytest.param(b" \n", "is empty", id="blank"),
    pytest.param(b'{"model":5}', "'model' must be a string, not 5", id="model is a number"),
    pytest.param(b'{"model":["m"]}', "'model' must be a string", id="model is an array"),
    pytest.param(DEEP, "nested too deeply", id="20000 deep"),
    pytest.param(b"\xff\xfe\x00{", "not valid JSON", id="no text at all"),
]


@pytest.fixture
async def engine():
    async with raw_engine(answers(whole(ANSWER))) as engine:
        yield engine


@pytest.fixture
async def gateway(tmp_path, engine):
    async with running(tmp_path, [engine.entry(name="a")]) as gateway:
        yield gateway


async def was_counted_once_as_invalid(gateway, status, code, api):
    """And nothing reached the engine or stayed behind."""
    [record] = await gateway.records()
    assert (record["outcome"], record["status"], record["code"], record["api"]) == (
        "invalid",
        status,
        code,
        api,
    )
    assert record["engine"] == ""
    assert await gateway.metric("requests_total") == 1
    assert await gateway.metric("requests_total", outcome="invalid", api=api) == 1
    state = await gateway.state()
    assert state["in_flight"] == [] if "in_flight" in state else True
    assert (await gateway.engine("a"))["in_flight"] == 0


@pytest.mark.parametrize(("body", "message"), BAD_BODIES)
async def test_a_body_that_cannot_be_read_is_a_400_and_the_connection_goes_on(gateway, engine, body, message):
    async with connect(gateway) as client:
        client.send(request(body))
        answer = await client.answer()
        assert answer.status == 400
        assert message in answer.error["message"]
        assert answer.error["code"] == "invalid_request"
        assert answer.error["type"] == "invalid_request_error"
        assert answer.headers["content-type"] == "application/json"
        await was_counted_once_as_invalid(gateway, 400, "invalid_request", "chat")
        assert engine.calls == []
        client.send(request(chat("hello", model="m")))
        assert (await client.answer()).body == ANSWER


async def test_an_unknown_model_is_a_404_that_names_those_served(gateway):
    status, _, body = await gateway.post("/v1/chat/completions", chat("hello", model="gpt-none"))
    error = json.loads(body)["error"]
    assert (status, error["code"], error["param"]) == (404, "unknown_model", "model")
    assert "'gpt-none'" in error["message"]
    assert "Served: m" in error["message"]
    await was_counted_once_as_invalid(gateway, 404, "unknown_model", "chat")


@pytest.mark.parametrize(
    ("method", "path", "status", "code", "api"),
    [
        ("GET", "/v1/chat/completions", 405, "method_not_allowed", "chat"),
        ("DELETE", "/v1/models/m", 405, "method_not_allowed", "models"),
        ("GET", "/v1/anything", 405, "method_not_allowed", "other"),
        ("GET", "/nothing/here", 404, "not_found", "other"),
        ("POST", "/nothing/here", 404, "not_found", "other"),
    ],
)
async def test_a_wrong_method_or_path_is_told_and_the_connection_goes_on(
    gateway, method, path, status, code, api
):
    async with connect(gateway) as client:
        client.send(request(path=path, method=method))
        answer = await client.answer()
        assert (answer.status, answer.error["code"]) == (status, code)
        await was_counted_once_as_invalid(gateway, status, code, api)
        client.send(request(path="/healthz", method="GET"))
        assert (await client.answer()).status == 200


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/chat/completions", "POST"),
        ("POST", "/v1/models", "GET, HEAD"),
        ("POST", "/readyz", "GET, HEAD"),
    ],
)
async def test_a_wrong_method_is_told_which_one_is_right(gateway, method, path, allowed):
    async with connect(gateway) as client:
        client.send(request(path=path, method=method))
        assert (await client.answer()).headers["allow"] == allowed


@pytest.mark.parametrize(
    "header", ["x-gateway-priority: urgent", "x-gateway-priority:", "x-gateway-max-wait-ms: 1.5"]
)
@pytest.mark.parametrize("prefix", ["", "x-other: 1"])
async def test_a_bad_gateway_header_is_a_400_that_names_it(gateway, engine, header, prefix):
    async with connect(gateway) as client:
        client.send(request(chat("hello", model="m"), *filter(None, (prefix, header))))
        answer = await client.answer()
        assert answer.status == 400
        assert answer.error["param"] == header.partition(":")[0]
        await was_counted_once_as_invalid(gateway, 400, "invalid_request", "chat")
        assert engine.calls == []
        client.send(request(chat("hello", model="m"), "x-gateway-priority: LOW", "x-gateway-max-wait-ms: 0"))
        assert (await client.answer()).status == 200


async def test_max_wait_below_zero_is_refused(gateway):
    async with connect(gateway) as client:
        client.send(request(chat("hello", model="m"), "x-gateway-max-wait-ms: -1"))
        assert (await client.answer()).error["param"] == "x-gateway-max-wait-ms"


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [(b"{", 400, "invalid_request_error"), (b'{"model":"none"}', 404, "not_found_error")],
)
async def test_on_messages_an_error_has_anthropics_shape(gateway, body, status, kind):
    got, _, answer = await gateway.post("/v1/messages", body)
    value = json.loads(answer)
    assert (got, value["type"], value["error"]["type"]) == (status, "error", kind)
    await was_counted_once_as_invalid(gateway, status, value["error"]["code"], "messages")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
async def test_a_body_over_the_limit_is_answered_while_the_client_still_writes(gateway, engine, path):
    """The client writes all of its 40 MB before it reads, as many do."""
    async with connect(gateway) as client:
        client.send(
            request(path=path)[:-4].replace(b"content-length: 0", b"content-length: %d" % HUGE) + b"\r\n\r\n"
        )
        for _ in range(40):
            await client.send_all(b" " * (HUGE // 40))
        answer = await client.answer()
        assert answer.status == 413
        assert "limits.max_body" in answer.error["message"]
        assert answer.headers["connection"] == "close"
        if path == "/v1/messages":
            assert answer.error["type"] == "request_too_large"
        assert await client.closed()
        await was_counted_once_as_invalid(
            gateway, 413, "body_too_large", "messages" if path == "/v1/messages" else "chat"
        )
        assert engine.calls == []


async def test_a_chunked_body_over_the_limit_is_answered_too(gateway, engine):
    block = b" " * (1024 * 1024)
    async with connect(gateway) as client:
        client.send(
            request(method="PUT").replace(b"PUT", b"POST")[:-2] + b"transfer-encoding: chunked\r\n\r\n"
        )
        for _ in range(40):
            await client.send_all(b"%x\r\n%b\r\n" % (len(block), block))
        await client.send_all(b"0\r\n\r\n")
        answer = await client.answer()
        assert (answer.status, answer.error["code"]) == (413, "body_too_large")
        await was_counted_once_as_invalid(gateway, 413, "body_too_large", "chat")
    async with connect(gateway) as client:
        client.send(request(chat("hello", model="m")))
        assert (await client.answer()).status == 200


async def test_a_client_that_waits_for_100_continue_is_refused_before_it_sends_the_body(gateway):
    async with connect(gateway) as client:
        head = request(method="PUT").replace(b"PUT", b"POST")[:-2]
        client.send(head + b"content-length: %d\r\nexpect: 100-continue\r\n\r\n" % HUGE)
        assert (await client.answer()).status == 413


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", id="TLS"),
        pytest.param(b"hello\r\n\r\n", id="no HTTP"),
        pytest.param(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n"
            b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            id="two lengths",
        ),
        pytest.param(b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 300 + b"\r\n", id="300 headers"),
        pytest.param(b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n", id="a long URL"),
    ],
)
async def test_what_is_no_http_gets_a_400_and_the_connection_ends(gateway, data):
    async with connect(gateway) as client:
        client.send(data)
        answer = await client.answer()
        assert (answer.status, answer.error["code"]) == (400, "invalid_request")
        assert await client.closed()
    assert await gateway.metric("requests_total", outcome="invalid") == 1


async def test_a_request_before_broken_bytes_is_answered_first(gateway, engine):
    async with connect(gateway) as client:
        client.send(request(chat("hello", model="m"), "x-request-id: mine") + b"no HTTP at all\r\n\r\n")
        assert (await client.answer()).body == ANSWER
        assert (await client.answer()).status == 400
        assert await client.closed()
    broken, good = await gateway.records()
    assert (good["id"], good["api"], good["outcome"]) == ("mine", "chat", "ok")
    assert (broken["id"] == "mine", broken["api"], broken["outcome"]) == (False, "other", "invalid")


async def test_a_path_cannot_carry_a_header_or_leave_v1(gateway, engine):
    async with connect(gateway) as client:
        client.send(request({"model": "m"}, path="/v1/audio%0d%0ax-evil:%201/speech"))
        assert (await client.answer()).status == 200
        assert engine.calls[0].path == "/v1/audio%0D%0Ax-evil:%201/speech"
        assert "x-evil" not in engine.calls[0].headers
        for path in ("/v1/../sleep", "/v1/%2e%2E/sleep", "/v1/./sleep"):
            client.send(request({"model": "m"}, path=path))
            assert (await client.answer()).status == 404
    assert len(engine.calls) == 1


@pytest.mark.parametrize("given", ["req-1", "a" * 128, "trace:7/x_y"])
async def test_a_clients_request_id_is_kept(gateway, engine, given):
    _, headers, _ = await gateway.post(
        "/v1/chat/completions", chat("hello", model="m"), headers={"x-request-id": given}
    )
    assert headers["x-request-id"] == given
    assert engine.calls[0].headers["x-request-id"] == given
    assert (await gateway.records())[0]["id"] == given


@pytest.mark.parametrize("given", [None, "a" * 129, "with blank", "caf\u00e9", ""])
async def test_a_request_id_that_is_missing_or_unsafe_is_minted(gateway, engine, given):
    headers = {} if given is None else {"x-request-id": given}
    async with asyncio.timeout(10):
        async with connect(gateway) as client:
            client.send(request(chat("hello", model="m"), *(f"{k}: {v}" for k, v in headers.items())))
            answer = await client.answer()
    minted = answer.headers["x-request-id"]
    assert re.fullmatch(r"[0-9a-f]{20}", minted)
    assert engine.calls[0].headers["x-request-id"] == minted


async def test_errors_carry_the_request_id_too(gateway):
    _, headers, _ = await gateway.post("/v1/chat/completions", b"{", headers={"x-request-id": "mine"})
    assert headers["x-request-id"] == "mine"
    assert (await gateway.records())[0]["id"] == "mine"
