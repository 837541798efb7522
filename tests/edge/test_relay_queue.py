import pytest
from harness import chat, running
from raw_client import connect, request
from raw_engine import raw_engine, seen, whole

OK = b'{"ok":1}'
SHORT = "300ms"


async def hold(call):
    await call.left.wait()


async def complete(call):
    call.write(whole(OK))


@pytest.fixture
async def engine():
    async with raw_engine(hold) as engine:
        yield engine


def ask(text, *headers, path="/v1/chat/completions"):
    return request(chat(text, model="m"), *headers, path=path)


async def busy(gateway, engine, client):
    """Takes the only slot."""
    client.send(ask("first", "x-request-id: first"))
    await seen(engine)


@pytest.mark.parametrize(
    ("admission", "headers"),
    [({"max_wait": SHORT}, []), ({}, ["x-gateway-max-wait-ms: 300"]), ({}, ["x-gateway-max-wait-ms: 0"])],
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
async def test_waiting_too_long_is_a_503_that_says_when_to_come_back(
    tmp_path, engine, admission, headers, path
):
    async with (
        running(tmp_path, [engine.entry(name="a", slots=1)], admission=admission) as gateway,
        connect(gateway) as first,
        connect(gateway) as second,
    ):
        await busy(gateway, engine, first)
        second.send(ask("second", *headers, path=path))
        answer = await second.answer()
        assert answer.status == (503 if path.endswith("completions") else 529)
        assert answer.error["code"] == "queue_timeout"
        assert answer.headers["x-gateway-reject-reason"] == "queue_timeout"
        assert 1 <= int(answer.headers["retry-after"]) <= 60
        assert 1000 <= int(answer.headers["retry-after-ms"]) <= 60_000
        [record] = await gateway.records()
        assert (record["outcome"], record["status"]) == ("rejected", answer.status)
        assert await gateway.metric("rejected_total", reason="queue_timeout") == 1
        await complete(engine.calls[0])
        assert (await first.answer()).body == OK
        second.send(request(path="/healthz", method="GET"))
        assert (await second.answer()).status == 200
    assert len(engine.calls) == 1


@pytest.mark.parametrize("admission", [{"max_queue": 0}, {"max_queue_bytes": "10B"}])
async def test_a_full_queue_is_a_503_at_once(tmp_path, engine, admission):
    async with (
        running(tmp_path, [engine.entry(name="a", slots=1)], admission=admission) as gateway,
        connect(gateway) as first,
        connect(gateway) as second,
    ):
        await busy(gateway, engine, first)
        second.send(ask("second"))
        answer = await second.answer()
        assert (answer.status, answer.error["code"]) == (503, "queue_full")
        assert answer.headers["x-gateway-reject-reason"] == "queue_full"
        assert int(answer.headers["retry-after"]) >= 1
        assert await gateway.metric("rejected_total", reason="queue_full") == 1
        engine.handler = complete
        await complete(engine.calls[0])
        assert (await first.answer()).body == OK
        second.send(ask("second"))
        assert (await second.answer()).body == OK
