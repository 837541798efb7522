"""Each routing policy does what its name says, through the whole gateway."""

import asyncio
from collections import Counter
from pathlib import Path

from fleet import Json, ask, fleet, words
from harness import chat, until

LONG = words(2000, "A prefix.")


def policy(name: str) -> Json:
    return {"routing": {"policy": name}}


async def test_round_robin_takes_turns_whatever_is_cached(tmp_path: Path):
    async with fleet(tmp_path, 2, sections=policy("round_robin")) as (gateway, _):
        answers = [await ask(gateway, chat(f"Question {n}", system=LONG)) for n in range(6)]
    engines = [answer.engine for answer in answers]
    assert engines[:2] * 3 == engines
    assert set(engines) == {"a", "b"}
    assert {answer.route for answer in answers} == {"policy"}


async def test_least_loaded_looks_at_what_runs_and_not_at_prefixes(tmp_path: Path):
    async with fleet(tmp_path, 2, sections=policy("least_loaded"), slots=4, decode_rate=20) as (gateway, _):
        held = asyncio.create_task(ask(gateway, chat("Hold", system=LONG, max_tokens=12)))
        state = await until(lambda: busy(gateway))
        answers = [await ask(gateway, chat("Next", system=LONG, max_tokens=1)) for _ in range(3)]
        assert {answer.engine for answer in answers} == {"a", "b"} - {state}
        assert {answer.route for answer in answers} == {"policy"}
        assert (await held).engine == state


async def busy(gateway) -> str:
    """The name of an engine that runs something."""
    return next((it["name"] for it in (await gateway.state())["engines"] if it["in_flight"]), "")


async def test_prefix_follows_the_longest_match_into_a_full_engine(tmp_path: Path):
    async with fleet(tmp_path, 2, sections=policy("prefix"), slots=1, decode_rate=60) as (gateway, engines):
        first = await ask(gateway, chat("Question", system=LONG, max_tokens=1))
        bodies = [chat(f"Question {n}", system=LONG, max_tokens=4) for n in range(4)]
        answers = await asyncio.gather(*(ask(gateway, body) for body in bodies))
        assert {answer.engine for answer in answers} == {first.engine}
        assert {answer.route for answer in answers} == {"policy"}
        assert [engine.stats.deferred_total for engine in engines] == [0, 0]


async def test_session_keeps_each_session_on_one_engine_and_spreads_them(tmp_path: Path):
    async with fleet(tmp_path, 3, sections=policy("session")) as (gateway, _):
        placed: dict[str, str] = {}
        for session in (f"session-{n}" for n in range(24)):
            answers = [await ask(gateway, chat(f"Turn {n}"), x_session_id=session) for n in range(3)]
            assert len({answer.engine for answer in answers}) == 1
            assert {answer.route for answer in answers} == {"session"}
            placed[session] = answers[0].engine
        assert set(placed.values()) == {"a", "b", "c"}
        assert max(Counter(placed.values()).values()) < 16
        # An engine that goes moves only its own sessions.
        await gateway.http.post(f"{gateway.admin}/api/engines/a/drain")
        for session, engine in placed.items():
            moved = (await ask(gateway, chat("Turn 4"), x_session_id=session)).engine
            assert moved != "a"
            assert engine in ("a", moved)


async def test_without_a_session_the_first_block_is_the_session(tmp_path: Path):
    async with fleet(tmp_path, 2, sections=policy("session")) as (gateway, _):
        answers = [await ask(gateway, chat(f"Question {n}", system=LONG)) for n in range(4)]
    assert len({answer.engine for answer in answers}) == 1
    assert {answer.route for answer in answers} == {"policy"}


async def test_one_engine_is_the_only_one(tmp_path: Path):
    async with fleet(tmp_path, 1) as (gateway, _):
        assert (await ask(gateway, chat("Hello"))).route == "only"
