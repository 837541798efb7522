"""Web pages of other origins. Off by default."""

import re
from hashlib import sha256
from pathlib import Path

import pytest
from failing import OK, STREAMED
from harness import chat, running
from raw_client import connect, request
from raw_engine import answers, whole

from gateway.edge.cors import EXPOSED

PAGE = "https://chat.example.org"
WANTED = "authorization,content-type,x-stainless-os"
KEYS = {"keys": [{"name": "a", "sha256": sha256(b"sk-1").hexdigest()}]}
REFERENCE = Path(__file__).parents[2] / "docs" / "reference.md"


@pytest.fixture(params=[[PAGE], ["*"]], ids=["exact", "any"])
def origins(request):
    return request.param


@pytest.fixture
async def gateway(tmp_path, engine, origins):
    async with running(tmp_path, [engine.entry(name="a")], cors={"origins": origins}, auth=KEYS) as it:
        yield it


async def answered(gateway, data, method="POST"):
    async with connect(gateway) as client:
        client.send(data)
        return await client.answer(method=method)


def preflight(path="/v1/chat/completions", origin=PAGE, **more):
    ask = ["access-control-request-method: POST", f"access-control-request-headers: {WANTED}"]
    return request(b"", f"origin: {origin}", *ask, path=path, method="OPTIONS", **more)


def post(*headers, key="sk-1", stream=False, path="/v1/chat/completions", version="1.1"):
    body = chat("hello", model="m", stream=stream)
    return request(body, f"authorization: Bearer {key}", *headers, path=path, version=version)


def allowed(answer, origins):
    headers = answer.headers
    assert headers["access-control-allow-origin"] == origins[0]
    assert headers.get("access-control-allow-credentials") == (None if origins == ["*"] else "true")
    assert "origin" in headers["vary"]


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/v1/models", "/v1/models/m", "/chat/completions", "/v1/anything", "/"]
)
async def test_a_preflight_is_answered_without_a_key(gateway, engine, origins, path):
    async with connect(gateway) as client:
        for _ in range(2):
            client.send(preflight(path))
            answer = await client.answer()
            assert (answer.status, answer.body) == (204, b"")
            assert "content-length" not in answer.headers
            assert "transfer-encoding" not in answer.headers
            allowed(answer, origins)
            assert answer.headers["access-control-allow-methods"] == "POST"
            assert answer.headers["access-control-allow-headers"] == WANTED
            assert int(answer.headers["access-control-max-age"]) > 0
        client.send(post())
        assert (await client.answer()).body == OK
    assert len(engine.calls) == 1
    assert [it["status"] for it in await gateway.records()] == [200]


async def test_a_preflight_without_headers_allows_none(gateway):
    data = request(
        b"", f"origin: {PAGE}", "access-control-request-method: GET", path="/v1/models", method="OPTIONS"
    )
    answer = await answered(gateway, data)
    assert answer.status == 204
    assert answer.headers["access-control-allow-methods"] == "GET"
    assert "access-control-allow-headers" not in answer.headers


@pytest.mark.parametrize(
    "data",
    [
        request(b"", f"origin: {PAGE}", method="OPTIONS"),
        request(b"", "access-control-request-method: POST", method="OPTIONS"),
    ],
    ids=["no method", "no origin"],
)
async def test_options_that_are_no_preflight_are_refused(gateway, data):
    assert (await answered(gateway, data)).status == 405


async def test_a_preflight_for_no_path_of_ours_is_a_404(gateway, origins):
    answer = await answered(gateway, preflight("/nothing"))
    assert answer.status == 404
    allowed(answer, origins)


@pytest.mark.parametrize(("stream", "body"), [(False, OK), (True, STREAMED)])
@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_an_answer_may_be_read_by_the_page(gateway, origins, stream, body, version):
    answer = await answered(gateway, post(f"origin: {PAGE}", stream=stream, version=version))
    assert (answer.status, answer.body) == (200, body)
    allowed(answer, origins)
    exposed = answer.headers["access-control-expose-headers"].split(", ")
    assert {"x-request-id", "x-gateway-engine", "server-timing", "retry-after"} <= set(exposed)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (post(f"origin: {PAGE}", key="wrong"), 401),
        (request(b"{", f"origin: {PAGE}", "authorization: Bearer sk-1"), 400),
        (request(b"", f"origin: {PAGE}", method="GET", path="/nothing"), 404),
        (request(b"", f"origin: {PAGE}", method="GET", path="/readyz"), 200),
        (request(b"", f"origin: {PAGE}", "content-length: 99999999999"), 413),
    ],
)
async def test_the_gateways_own_answers_and_errors_may_be_read_too(gateway, origins, data, status):
    if status == 413:
        data = data.replace(b"content-length: 0\r\n", b"")
    answer = await answered(gateway, data)
    assert answer.status == status
    allowed(answer, origins)


async def test_an_engines_own_headers_are_replaced(gateway, engine, origins):
    own = [
        b"access-control-allow-origin: https://elsewhere.example",
        b"Access-Control-Allow-Credentials: true",
        b"access-control-allow-methods: *",
        b"vary: accept-encoding",
    ]
    engine.handler = answers(whole(OK, *own, status=b"500 Internal Server Error"))
    async with connect(gateway) as client:
        client.send(post(f"origin: {PAGE}"))
        text = (await client.reader.readuntil(b"\r\n\r\n")).decode().lower()
    assert text.count("access-control-allow-origin") == 1
    assert f"access-control-allow-origin: {origins[0]}\r\n" in text
    assert text.count("access-control-allow-credentials") == (0 if origins == ["*"] else 1)
    assert "access-control-allow-methods" not in text
    assert "vary: accept-encoding\r\n" in text
    assert "vary: origin\r\n" in text


@pytest.mark.parametrize("origins", [[PAGE]], indirect=True, ids=["exact"])
@pytest.mark.parametrize("origin", ["https://evil.example", PAGE + ".evil.example", "null", PAGE + ":444"])
async def test_other_origins_get_no_leave(gateway, engine, origin):
    engine.handler = answers(whole(OK, b"access-control-allow-origin: *"))
    refused = await answered(gateway, preflight(origin=origin))
    answer = await answered(gateway, post(f"origin: {origin}"))
    assert (refused.status, answer.status) == (405, 200)
    for it in (refused, answer):
        assert not [name for name in it.headers if name.startswith("access-control-")]
        assert it.headers["vary"] == "origin"


async def test_a_program_gets_its_answer_without_leave(gateway):
    answer = await answered(gateway, post())
    assert (answer.status, answer.body) == (200, OK)
    assert "access-control-allow-origin" not in answer.headers
    assert answer.headers["vary"] == "origin"


async def test_without_origins_options_are_refused_and_the_engines_headers_pass(alone, engine):
    engine.handler = answers(whole(OK, b"access-control-allow-origin: *"))
    refused = await answered(alone, preflight())
    assert (refused.status, refused.headers["allow"]) == (405, "POST")
    assert "access-control-allow-origin" not in refused.headers
    answer = await answered(alone, post(f"origin: {PAGE}"))
    assert answer.headers["access-control-allow-origin"] == "*"
    assert "vary" not in answer.headers


def test_every_documented_response_header_is_exposed():
    table = re.search(r"^### Response headers\n(.*?)^#", REFERENCE.read_text(), re.MULTILINE | re.DOTALL)
    cells = [line.split("|")[1] for line in table[1].splitlines() if line.startswith("| `")]
    assert {name.decode() for name in EXPOSED} == {it for cell in cells for it in re.findall("`(.*?)`", cell)}
