"""What a long answer must not keep: prompts of megabytes."""

import sys

import pytest
from harness import chat, running, until
from raw_client import connect, request
from raw_engine import DONE, END, chunk, event, raw_engine, seen, stream_head

from gateway.edge.upstream import EngineConnection


async def hold(call):
    call.body = b""
    await call.left.wait()


@pytest.mark.parametrize("model", ["m", "fast"])
async def test_a_request_body_is_let_go_when_its_answer_begins(tmp_path, monkeypatch, model):
    bodies = []
    send = EngineConnection.send

    def sending(self, attempt, head, body):
        bodies.append(body)
        send(self, attempt, head, body)

    monkeypatch.setattr(EngineConnection, "send", sending)
    async with (
        raw_engine(hold) as engine,
        running(tmp_path, [engine.entry(name="a")], models={"aliases": {"fast": "m"}}) as gateway,
        connect(gateway) as client,
    ):
        serve = gateway.gateway._relay.serve

        def serving(connection, incoming):
            bodies.append(incoming.body)
            serve(connection, incoming)

        monkeypatch.setattr(gateway.gateway._relay, "serve", serving)
        await client.send_all(request(chat("x" * 3_000_000, model=model, stream=True)))
        call = await seen(engine)
        assert {len(body) > 3_000_000 for body in bodies} == {True}
        call.write(stream_head(), chunk(event("a")))
        assert (await client.head()).status == 200
        if bodies[0] is bodies[1]:
            bodies.pop()
        # The list's own reference and that of the call that counts.
        assert {sys.getrefcount(bodies[index]) for index in range(len(bodies))} == {2}
        call.write(chunk(event("b", "stop") + DONE), END)

        async def over():
            return not gateway.gateway._relay._exchanges

        await until(over)
