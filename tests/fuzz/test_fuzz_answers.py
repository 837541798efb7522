"""Mutated answers of an engine behind the real server."""

import asyncio
import contextlib
import time

import pytest
from corpus import ANSWERS
from harness import chat, running
from mutate import Mutator
from raw_client import connect, request
from raw_engine import RawCall, raw_engine
from watch import BUDGET_S, a_seed, all_is_over, no_exception

_AT_ONCE = 100
_PATHS = ("/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/completions", "/v1/anything")
_LIMITS = {"first_byte_timeout": "300ms", "answer_timeout": "300ms", "idle_timeout": "300ms"}


@pytest.mark.timeout(120 + BUDGET_S)
@pytest.mark.parametrize("alias", ["m", "another-name"])
async def test_whatever_an_engine_answers_each_request_ends_and_is_counted_once(tmp_path, caplog, alias):
    mutate = Mutator(a_seed())
    until_s = time.monotonic() + BUDGET_S * 0.25

    async def babble(call: RawCall) -> None:
        data = mutate(mutate.random.choice(ANSWERS), ANSWERS)
        for piece in mutate.pieces(data):
            if call.left.is_set():
                return
            call.write(piece)
            await asyncio.sleep(0)
        end = mutate.random.randrange(4)
        if call.left.is_set():
            return
        if end < 2:
            call.close()
        elif end == 2:
            call.reset()

    async def ask(gateway) -> None:
        fields = {"stream": mutate.random.random() < 0.6, "prompt": "x"}
        path, version = mutate.random.choice(_PATHS), mutate.random.choice(("1.0", "1.1"))
        body = chat("hello", model=alias, **fields)
        async with connect(gateway) as client:
            client.send(request(body, "connection: close", path=path, version=version))
            # One that breaks off may end with a reset, so that nobody takes it for a whole one.
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                assert (await client.answer()).status >= 200

    models = {"aliases": {"another-name": "m"}}
    async with no_exception(caplog), raw_engine(babble) as one, raw_engine(babble) as other:
        engines = [it.entry(name=name, slots=256) for name, it in (("a", one), ("b", other))]
        async with running(tmp_path, engines, limits=_LIMITS, models=models) as gateway:

            async def go_on() -> int:
                count = 0
                while time.monotonic() < until_s:
                    await ask(gateway)
                    count += 1
                return count

            sent = sum(await asyncio.gather(*(go_on() for _ in range(_AT_ONCE))))
            await all_is_over(gateway, sent)
            outcomes = {it["outcome"] for it in await gateway.records()}
    print(f"{sent} requests, {len(one.calls) + len(other.calls)} mutated answers, {sorted(outcomes)}")
    assert {"ok", "engine_error", "engine_truncated"} <= outcomes
