"""Where requests go: to their prefix while that pays, spread over the engines where it does not."""

import asyncio
from pathlib import Path

import pytest
from fleet import BLOCK_TOKENS, KINDS, Answer, Json, Watch, ask, fleet, words
from harness import Running, chat, until

SYSTEM = words(3000, "You are one of many.")


@pytest.mark.parametrize("slots", [8, 16])
async def test_a_burst_behind_one_system_prompt_spreads_over_idle_engines(tmp_path: Path, slots: int):
    bodies = [chat(f"Question {n}", system=SYSTEM, max_tokens=5) for n in range(16)]
    async with fleet(tmp_path, 2, slots=slots, prefill_rate=1e5, decode_rate=20) as (gateway, engines):
        async with Watch(gateway) as watch:
            answers = await asyncio.gather(*(ask(gateway, body) for body in bodies))
        assert [answer.status for answer in answers] == [200] * 16
        fullest = max(watch.in_flight, key=lambda seen: sum(seen.values()))
        assert sum(fullest.values()) == 16
        assert max(fullest.values()) / 8 <= 1.3
        assert all(engine.stats.requests for engine in engines)


async def test_one_after_another_they_find_the_system_prompt(tmp_path: Path):
    async with fleet(tmp_path, 2) as (gateway, _):
        answers = [await ask(gateway, chat(f"Question {n}", system=SYSTEM, max_tokens=2)) for n in range(6)]
    first, *later = answers
    assert (first.predicted, first.delivered) == (0, 0)
    for answer in later:
        assert (answer.engine, answer.route) == (first.engine, "prefix")
        assert answer.predicted > 2900
        assert answer.delivered > 2900


async def converse(gateway: Running, name: str, turns: int, **fields: object) -> list[Answer]:
    """Turns that each bring the history and some 500 tokens of their own."""
    messages: list[Json] = [{"role": "system", "content": words(1000, name)}]
    answers = []
    for turn in range(turns):
        messages.append({"role": "user", "content": words(500, f"{name} turn {turn}")})
        body = {"model": "sim-model", "messages": messages, "max_tokens": 20, **fields}
        answers.append(await ask(gateway, body))
        messages.append({"role": "assistant", "content": answers[-1].text})
    return answers


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_conversation_stays_where_it_is(tmp_path: Path, kind: str, stream: bool):
    fields: Json = {"stream": stream, "stream_options": {"include_usage": True}} if stream else {}
    async with fleet(tmp_path, 2, kind, slots=4, prefill_rate=1e5) as (gateway, engines):
        conversations = await asyncio.gather(*(converse(gateway, f"talk {n}", 4, **fields) for n in range(4)))
        assert all(engine.stats.requests for engine in engines)
    for first, *later in conversations:
        assert first.route == "load"
        for answer in later:
            assert (answer.engine, answer.route) == (first.engine, "prefix")
            assert 1000 < answer.predicted <= answer.delivered + BLOCK_TOKENS
    grown = [answer.predicted for answer in conversations[0]]
    assert grown == sorted(grown)


async def test_a_whole_prompt_sent_again_is_predicted_no_further_than_it_is_delivered(tmp_path: Path):
    async with fleet(tmp_path, 2) as (gateway, _):
        answers = [await ask(gateway, chat("Go on.", system=SYSTEM)) for _ in range(3)]
    for answer in answers[1:]:
        assert 2900 < answer.predicted <= answer.delivered < answer.usage["prompt_tokens"]


async def test_a_prefix_holds_requests_no_longer_than_it_saves_them(tmp_path: Path):
    short, long = words(60, "Short."), words(6000, "Long.")
    async with fleet(tmp_path, 2, slots=2, prefill_rate=1e5, decode_rate=20) as (gateway, engines):
        for system, used in ((short, {"a", "b"}), (long, set())):
            # A slot is held for some 0.4 s; at the rate that is assumed the prefixes save 0.03 s and 3 s.
            warm = await ask(gateway, chat("Question 0", system=system, max_tokens=8))
            bodies = [chat(f"Question {n}", system=system, max_tokens=8) for n in range(1, 5)]
            answers = await asyncio.gather(*(ask(gateway, body) for body in bodies))
            assert {answer.engine for answer in answers} == (used or {warm.engine})
        assert [engine.stats.deferred_total for engine in engines] == [0, 0]


@pytest.mark.parametrize("kind", KINDS)
async def test_nobody_waits_for_a_full_holder_beside_an_idle_engine_for_longer_than_it_saves(
    tmp_path: Path, kind: str
):
    system = words(1500, "shared")
    async with fleet(tmp_path, 2, kind, slots=2, decode_rate=40, prefill_rate=4000) as (gateway, _):
        for n in range(3):
            await ask(gateway, chat(f"Short {n}", system=system, max_tokens=2))
        long = [
            asyncio.create_task(ask(gateway, chat(f"Long {n}", system=system, max_tokens=400)))
            for n in range(2)
        ]
        await until(lambda: gateway.metric("in_flight"))
        one_more = await ask(gateway, chat("One more", system=system, max_tokens=2))
        assert one_more.status == 200
        assert not any(task.done() for task in long)
        for task in long:
            task.cancel()
        await asyncio.gather(*long, return_exceptions=True)
