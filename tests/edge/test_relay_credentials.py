import hashlib
import json
import logging

import pytest
from harness import chat, running
from raw_client import connect, request
from raw_engine import DONE, END, answers, chunk, event, raw_engine, stream_head, whole

CANARY = "CANARY-4f1c"
ENGINE_KEY = "engine-key-77"
CARRIERS = [
    f"authorization: Bearer {CANARY}",
    f"Authorization: Basic {CANARY}",
    f"x-api-key: {CANARY}",
    f"api-key: {CANARY}",
    f"x-goog-api-key: {CANARY}",
    f"xi-api-key: {CANARY}",
    f"cookie: session={CANARY}",
    f"proxy-authorization: Bearer {CANARY}",
]


def key_of(name: str, value: str, **more) -> dict:
    return {"name": name, "sha256": hashlib.sha256(value.encode()).hexdigest(), **more}


@pytest.fixture
async def engine():
    async with raw_engine(answers(whole(b'{"ok":1}'))) as engine:
        yield engine


@pytest.mark.parametrize("keys", [[], [key_of("team-a", CANARY)]], ids=["open", "with keys"])
async def test_a_clients_credentials_end_at_the_gateway(tmp_path, engine, capsys, caplog, keys):
    caplog.set_level(logging.DEBUG)
    auth = {"keys": keys}
    async with running(tmp_path, [engine.entry(name="a")], auth=auth) as gateway:
        for carrier in CARRIERS:
            async with connect(gateway) as client:
                client.send(request(chat("hello", model="m"), carrier, "x-other: 1"))
                await client.answer()
                client.send(request(b"{", carrier))
                await client.answer()
        async with connect(gateway) as client:
            client.send(request(chat("hello", model="m"), *CARRIERS))
            assert (await client.answer()).status == 200
            client.send(request(chat("hello", model=CANARY), *CARRIERS[1:2]))
            await client.answer()
        assert len(engine.calls) >= 4
        for call in engine.calls:
            assert CANARY.encode() not in call.head + call.body
        records = await gateway.records()
        assert len(records) == 2 * len(CARRIERS) + 2
        assert CANARY not in json.dumps(records)
        for url in (f"{gateway.admin}/metrics", f"{gateway.admin}/api/state"):
            async with gateway.http.get(url) as response:
                assert CANARY not in await response.text()
    assert CANARY not in capsys.readouterr().err
    assert CANARY not in caplog.text


async def test_the_engine_gets_its_own_key_and_the_client_never_sees_it(tmp_path, engine, capsys, caplog):
    caplog.set_level(logging.DEBUG)
    engine.handler = answers(
        whole(b"{}", b"x-echo: Bearer " + ENGINE_KEY.encode(), b"set-cookie: k=" + ENGINE_KEY.encode())
    )
    async with (
        running(tmp_path, [engine.entry(name="a", api_key=ENGINE_KEY)]) as gateway,
        connect(gateway) as client,
    ):
        client.send(request(chat("hello", model="m"), CARRIERS[0]))
        answer = await client.answer()
        assert engine.calls[0].headers["authorization"] == f"Bearer {ENGINE_KEY}"
        assert engine.calls[0].head.lower().count(b"authorization") == 1
        assert answer.status == 200
        assert ENGINE_KEY not in str(answer.headers)
        state = json.dumps([await gateway.state(), await gateway.records()])
        assert ENGINE_KEY not in state
    assert ENGINE_KEY not in capsys.readouterr().err + caplog.text


KEYS = {"keys": [key_of("team-a", "key-a"), key_of("team-b", "key-b", priority="low")]}


@pytest.fixture
async def gateway(tmp_path, engine):
    async with running(tmp_path, [engine.entry(name="a")], auth=KEYS) as gateway:
        yield gateway


@pytest.mark.parametrize(
    "header",
    [
        None,
        "authorization: Bearer wrong",
        "authorization: Bearer ",
        "authorization: Bearer key-a key-b",
        "authorization: Basic key-a",
        "x-api-key: KEY-A",
        "x-other: key-a",
        "cookie: key-a",
    ],
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/anything", "/tokenize"])
async def test_without_a_valid_key_nothing_is_served(gateway, engine, header, path):
    async with connect(gateway) as client:
        client.send(request(chat("hello", model="m"), *([header] if header else []), path=path))
        answer = await client.answer()
        assert (answer.status, answer.error["code"]) == (401, "unauthorized")
        assert answer.error["type"] == "authentication_error"
        assert answer.headers["www-authenticate"] == "Bearer"
        client.send(request(chat("hello", model="m"), "authorization: Bearer key-a", path=path))
        assert (await client.answer()).status == 200
    assert len(engine.calls) == 1
    assert await gateway.metric("requests_total", outcome="invalid") == 1
    newest, refused = await gateway.records()
    assert (newest["key_name"], refused["key_name"], refused["status"]) == ("team-a", "", 401)


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("authorization: Bearer key-a", "team-a"),
        ("authorization: bearer key-b", "team-b"),
        ("Authorization: BEARER  key-b", "team-b"),
        ("authorization: key-a", "team-a"),
        ("x-api-key: key-b", "team-b"),
        ("api-key: key-a", "team-a"),
    ],
)
async def test_the_record_names_the_key(gateway, header, name):
    async with connect(gateway) as client:
        client.send(request(chat("hello", model="m"), header))
        assert (await client.answer()).status == 200
    [record] = await gateway.records()
    assert record["key_name"] == name


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/m"])
async def test_the_model_list_needs_a_key_and_health_needs_none(gateway, path):
    async with connect(gateway) as client:
        client.send(request(path=path, method="GET"))
        assert (await client.answer()).status == 401
        client.send(request(None, "x-api-key: key-a", path=path, method="GET").split(b"null")[0])
        assert (await client.answer()).status == 200
        for free in ("/", "/healthz", "/readyz"):
            client.send(request(path=free, method="GET"))
            assert (await client.answer()).status == 200


async def test_a_stream_needs_a_key_too(gateway, engine):
    engine.handler = answers(stream_head(), chunk(event("a", "stop") + DONE), END)
    async with connect(gateway) as client:
        client.send(request(chat("hello", model="m", stream=True)))
        assert (await client.answer()).status == 401
        client.send(request(chat("hello", model="m", stream=True), "x-api-key: key-a"))
        assert (await client.answer()).body == event("a", "stop") + DONE
