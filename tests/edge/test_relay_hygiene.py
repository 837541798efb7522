"""What a client can put into a head, and where it must not come out again."""

import hashlib
import json
import logging

import pytest
from harness import chat, running
from raw_client import connect, request
from raw_engine import DONE, END, answers, chunk, event, raw_engine, stream_head, whole
from test_relay_credentials import CANARY, CARRIERS

ANSWER = b'{"choices":[]}'
MORE_CARRIERS = [
    f"x-auth-token: {CANARY}",
    f"x-access-token: {CANARY}",
    f"x-litellm-api-key: Bearer {CANARY}",
    f"ocp-apim-subscription-key: {CANARY}",
    f"x-amz-security-token: {CANARY}",
    f"x-forwarded-access-token: {CANARY}",
    f"Cookie: a=1; token={CANARY}\r\nCookie: {CANARY}",
    f"x-gateway-priority: {CANARY}",
    f"x-gateway-max-wait-ms: {CANARY}",
    f"te: {CANARY}\r\nconnection: te",
    f"x-hidden: {CANARY}\r\nconnection: close, X-Hidden",
    f"expect: {CANARY}",
]
PATHS = [
    f"/v1/chat/completions?key={CANARY}",
    f"/v1/chat/completions?a=1&api_key={CANARY}&b=2",
    f"/v1/chat/completions?api%5Fkey={CANARY};access_token={CANARY}",
    f"http://user:{CANARY}@gateway/v1/chat/completions",
    f"http://{CANARY}@gateway/v1/anything?token={CANARY}",
    f"http://user:{CANARY}@gateway/nothing/here",
    f"HTTP://user:{CANARY}@gateway/nothing/here",
    f"ftp://user:a%2F{CANARY}@gateway/v1/chat/completions",
    f"/nothing?key={CANARY}",
]
KEYS = {"keys": [{"name": "team-a", "sha256": hashlib.sha256(CANARY.encode()).hexdigest()}]}


@pytest.fixture
async def engine():
    async with raw_engine(answers(whole(ANSWER))) as engine:
        yield engine


@pytest.fixture
async def gateway(tmp_path, engine):
    async with running(tmp_path, [engine.entry(name="a")]) as gateway:
        yield gateway


async def shown_by(gateway) -> str:
    """All that the admin port tells."""
    pages = []
    for path in ("/metrics", "/api/state", "/api/requests?limit=1000", "/"):
        async with gateway.http.get(gateway.admin + path) as response:
            pages.append(await response.text())
    return "".join(pages)


@pytest.mark.parametrize("auth", [{}, KEYS], ids=["open", "with keys"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_credential_ends_at_the_gateway_wherever_it_is_put(
    tmp_path, engine, capsys, caplog, auth, stream
):
    # litellm#32202, llm-router#13, bifrost#3954, ai-gateway#2508
    caplog.set_level(logging.DEBUG)
    if stream:
        engine.handler = answers(stream_head(), chunk(event("a", "stop") + DONE), END)
    told = b""
    good = json.dumps(chat("hello", model="m", stream=stream)).encode()
    async with running(tmp_path, [engine.entry(name="a")], auth=auth) as gateway:
        for body in (good, b"{", json.dumps(chat("x", model="none")).encode()):
            for carrier in [*CARRIERS, *MORE_CARRIERS]:
                async with connect(gateway) as client:
                    client.send(request(body, carrier, "connection: close"))
                    told += await client.until_closed()
            for path in PATHS:
                for carrier in (CARRIERS[0], "x-other: 1"):
                    async with connect(gateway) as client:
                        client.send(request(body, carrier, "connection: close", path=path))
                        told += await client.until_closed()
        told = told.replace(b"must be high, normal or low, not '" + CANARY.encode(), b"")
        told = told.replace(b"whole number of milliseconds, not '" + CANARY.encode(), b"")
        assert CANARY.encode() not in told
        assert len(engine.calls) >= 9
        for call in engine.calls:
            assert CANARY.encode() not in call.head + call.body
        assert CANARY not in await shown_by(gateway)
        assert {call.path for call in engine.calls} == {
            "/v1/chat/completions",
            "/v1/chat/completions?a=1&b=2",
            "/v1/anything",
        }
    assert CANARY not in capsys.readouterr().err
    assert CANARY not in caplog.text


async def test_the_body_of_a_request_is_the_clients_own_and_stays(gateway, engine):
    body = json.dumps(chat(CANARY, model="m", api_key=CANARY)).encode()
    async with connect(gateway) as client:
        client.send(request(body))
        assert (await client.answer()).status == 200
    assert engine.calls[0].body == body
    assert CANARY not in await shown_by(gateway)


async def test_no_header_of_a_client_takes_the_place_of_the_gateways_own(gateway, engine):
    async with connect(gateway) as client:
        client.send(
            request(
                chat("hello", model="m"),
                "Host: evil",
                "host: evil-too",
                "X-Request-Id: first",
                "x-request-id: second",
                "connection: x-request-id, content-length, host",
            )
        )
        assert (await client.answer()).headers["x-request-id"] == "first"
    head = engine.calls[0].head.lower()
    assert [head.count(b"\n" + name + b":") for name in (b"host", b"x-request-id", b"content-length")] == [
        1,
        1,
        1,
    ]
    assert engine.calls[0].headers["host"] == engine.url.removeprefix("http://")
    assert engine.calls[0].headers["x-request-id"] == "first"
    assert b"evil" not in head


async def test_headers_that_come_twice_reach_the_engine_twice_and_in_order(gateway, engine):
    async with connect(gateway) as client:
        client.send(request(chat("hello", model="m"), "x-a: 1", "X-B: 2", "x-a: 3", "x-empty:"))
        assert (await client.answer()).status == 200
    lines = engine.calls[0].head.split(b"\r\n")
    assert [it for it in lines if it.startswith(b"x-")][:4] == [b"x-a: 1", b"x-b: 2", b"x-a: 3", b"x-empty: "]


@pytest.mark.parametrize("name", ["x-other", "x-session-id", "user-agent", "content-type", "x-request-id"])
@pytest.mark.parametrize("value", [b"caf\xe9", "日本".encode(), b"\xff\xfe", b"a\tb", b"'\"\\%0d%0a{}<>"])
async def test_bytes_beyond_ascii_in_a_header_harm_nobody(gateway, engine, name, value):
    async with connect(gateway) as client:
        head, body = request(chat("hello", model="m")).split(b"\r\n\r\n", 1)
        client.send(head + b"\r\n" + name.encode() + b": " + value + b"\r\n\r\n" + body)
        assert (await client.answer()).status == 200
    if name != "x-request-id":
        assert name.encode() + b": " + value + b"\r\n" in engine.calls[0].head + b"\r\n"
    assert (await gateway.records())[0]["outcome"] == "ok"
    assert "Exception" not in await shown_by(gateway)


INJECTIONS = [
    "m\r\nx-evil: 1",
    "m\nx-evil: 1",
    'm"}\nprefix_gateway_evil 1',
    "\u2028m\u0000\x1b[31m",
    "\ud800",
    "m" * 5000,
]


@pytest.mark.parametrize("model", INJECTIONS, ids=range(len(INJECTIONS)))
async def test_a_models_name_writes_no_header_line_or_series_of_its_own(tmp_path, engine, model):
    log = tmp_path / "access.log"
    aliases = {"aliases": {"*": "m"}, "echo_alias": True}
    with log.open("w") as stream:
        async with (
            running(tmp_path, [engine.entry(name="a")], access_log=stream, models=aliases) as gateway,
            connect(gateway) as client,
        ):
            client.send(request(chat("hello", model=model)))
            answer = await client.answer()
            assert "x-evil" not in answer.headers
            assert answer.status == 200
            client.send(request(path="/v1/models/%0d%0ax-evil:1", method="GET"))
            assert "x-evil" not in (await client.answer()).headers
            async with gateway.http.get(f"{gateway.admin}/metrics") as response:
                assert "evil" not in await response.text()
            assert [it["outcome"] for it in await gateway.records()] == ["ok"]
    assert b"evil" not in engine.calls[0].head
    lines = log.read_text().splitlines()
    assert len(lines) == 1
    assert all(line.startswith("time=") and line.isprintable() for line in lines)


@pytest.mark.parametrize("value", ["a\rb", "a\nb", "a\r\n b", "a\0b", "\x1b[31m"])
async def test_a_request_id_with_a_line_end_is_no_http_at_all(gateway, engine, value):
    async with connect(gateway) as client:
        client.send(request(chat("hello", model="m"), f"x-request-id: {value}"))
        assert (await client.answer()).status == 400
        assert await client.closed()
    assert engine.calls == []


async def test_any_byte_in_a_query_reaches_the_engine_as_it_is_or_is_refused(gateway, engine):
    kept = 0
    for byte in range(256):
        async with connect(gateway) as client:
            head, body = request(chat("hello", model="m"), path="/v1/anything?a=Q1").split(b"\r\n", 1)
            client.send(head.replace(b"Q", bytes([byte])) + b"\r\n" + body)
            answer = await client.answer()
        if answer.status == 200:
            kept += 1
            assert engine.calls[-1].line.encode("latin-1") == head.replace(b"Q", bytes([byte])), byte
            assert 0x21 <= byte < 0x7F
        else:
            assert answer.status == 400, byte
    assert kept == len(engine.calls)
    assert kept > 90
