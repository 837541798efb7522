"""Prefix breakers over real requests: what is told, what is counted, and that no text is."""

import logging
from pathlib import Path
from typing import Any

import pytest
from edge_values import a_record
from fleet import ask, fleet, words
from harness import Running, chat

from gateway.core.breakers import Row
from gateway.core.differ import KINDS
from gateway.core.facts import Billing
from gateway.core.index import Index
from gateway.core.request import Request
from gateway.edge.breaker_words import fix, sentence
from gateway.edge.breakers import (
    FLUSH_CHARS,
    MAX_FLUSHES,
    MAX_WAITING,
    SHARED_CHARS,
    PrefixWatch,
    client_of,
)
from gateway.edge.sessions import MAX_ENGINES, MAX_SESSIONS, Sessions

SECRET = "violet submarine"
RULES = words(600, f"Rules of the {SECRET}.\n")


async def got(gateway: Running, path: str) -> Any:
    async with gateway.http.get(f"{gateway.admin}{path}") as response:
        assert response.status == 200
        return await response.json()


def stamped(time: str, *turns: str) -> dict[str, Any]:
    body = chat(turns[0], system=f"Be kind to {SECRET}.\nNow: {time}\n{RULES}")
    for at, text in enumerate(turns[1:]):
        body["messages"].append({"role": ("assistant", "user")[at % 2], "content": text})
    return body


async def test_a_gateway_that_nobody_asked_has_no_breakers(tmp_path: Path):
    async with fleet(tmp_path, 1) as (gateway, _):
        told = await got(gateway, "/api/breakers")
        assert told["kinds"] == dict.fromkeys(KINDS, 0)
        assert (told["requests_checked"], told["breaks"], told["tokens_per_hour"]) == (0, 0, 0)
        assert (told["breakers"], told["skipped"]) == ([], 0)
        assert await got(gateway, "/api/sessions") == {"sessions": []}
        assert await gateway.metric("prefix_breaks_total", kind="timestamp") == 0


async def test_a_time_in_the_system_text_is_told_with_its_cost_and_a_way_out(tmp_path: Path):
    headers = {"x_session_id": "s-1", "user_agent": "opencode/1.2 bun"}
    async with fleet(tmp_path, 1) as (gateway, _):
        await ask(gateway, stamped("10:15:01", "hi"), **headers)
        await ask(gateway, stamped("10:15:09", "hi", "ho", "go on"), **headers)
        answer = await ask(gateway, stamped("10:16:30", "hi", "ho", "go on", "so", "and"), **headers)
        told = await got(gateway, "/api/breakers")
        assert (told["requests_checked"], told["breaks"], told["skipped"]) == (3, 2, 0)
        assert told["kinds"] == dict.fromkeys(KINDS, 0) | {"timestamp": 2}
        (row,) = told["breakers"]
        assert (row["kind"], row["part"], row["scope"]) == ("timestamp", "system[0]", "session")
        assert (row["client"], row["model"], row["count"]) == ("OpenCode", "sim-model", 2)
        assert (row["before"], row["after"]) == ("Now: ··:··:··", "Now: ··:··:··")
        # All but the first words was computed again, twice.
        computed = 2 * (answer.usage["prompt_tokens"] - 20)
        assert (
            0.8 * computed
            < row["tokens"]
            == row["tokens_per_hour"]
            == told["tokens_per_hour"]
            < 1.2 * computed
        )
        assert row["sentence"].startswith(
            "system[0] changes with a date or time, within a session, in 2 requests"
        )
        assert "normalize" in row["fix"]
        assert "text_before" not in row
        assert await gateway.metric("prefix_breaks_total", kind="timestamp") == 2
        assert await gateway.metric("prefix_breaks_total") == 2

        (session,) = (await got(gateway, "/api/sessions"))["sessions"]
        assert (session["client"], session["requests"], session["breaks"]) == ("OpenCode", 3, 2)
        assert (session["engine"], session["workload_class"]) == ("a", "chat")
        assert session["hit_rate"] == session["cached_tokens"] / session["prompt_tokens"]
        assert session["first_at"] < session["last_at"]
        assert SECRET not in str(told) + str(session)


async def test_what_harms_nothing_is_not_told(tmp_path: Path):
    async with fleet(tmp_path, 1) as (gateway, _):
        for turns in (["hi"], ["hi"], ["hi", "ho", "go on"], ["hi"], ["another"]):
            await ask(gateway, stamped("10:15:01", *turns))
        await ask(gateway, {"model": "sim-model", "input": "x"}, "/v1/embeddings")
        told = await got(gateway, "/api/breakers")
        assert (told["requests_checked"], told["breaks"]) == (5, 0)


async def test_text_is_shown_only_where_the_configuration_says_so(tmp_path: Path):
    async with fleet(tmp_path, 1, sections={"show_prompt_text": True}) as (gateway, _):
        await ask(gateway, stamped("10:15:01", "hi"))
        await ask(gateway, stamped("10:15:09", "hi", "ho", "go on"))
        (row,) = (await got(gateway, "/api/breakers"))["breakers"]
        assert "Now: 10:15:01" in row["text_before"]
        assert "Now: 10:15:09" in row["text_after"]
        assert len(row["text_after"]) <= 200


# Without a gateway


def a_watch() -> PrefixWatch:
    return PrefixWatch(Index({}), lambda *_: Billing.KEPT, wall_s=lambda: 1_796_032_517.0)


def a_request(key: int = 1, **fields: Any) -> Request:
    return Request(key=key, id="x", api="chat", model="m", **fields)


BODY = {"messages": [{"role": "user", "content": "hi"}]}


def test_too_many_at_once_are_skipped_and_counted():
    watch = a_watch()
    for at in range(MAX_WAITING + 3):
        watch.came("chat", BODY, (), a_request(at))
    assert watch.skipped == 3
    for _ in range(MAX_FLUSHES + 1):
        watch.flush()
    assert watch.breakers.checked > MAX_WAITING / 2
    assert watch.breakers.checked + watch.skipped == MAX_WAITING + 3
    watch = a_watch()
    watch.came("chat", BODY, (), a_request(body_bytes=40 << 20))
    watch.came("chat", BODY, (), a_request())
    assert watch.skipped == 1


def test_of_much_new_text_some_waits_for_the_next_flush_and_not_for_long():
    watch = a_watch()
    for at in range(2 * MAX_FLUSHES + 4):
        long = {"messages": [{"role": "user", "content": f"{at}" + "word " * 20_000}]}
        watch.came("chat", long, (), a_request(at, body_bytes=100_000))
    for flushes in range(1, MAX_FLUSHES + 1):
        watch.flush()
        assert watch.breakers.checked == flushes
    watch.flush()
    watch.flush()
    assert watch.skipped + watch.breakers.checked == 2 * MAX_FLUSHES + 4
    assert watch.skipped > 0


def test_what_is_too_long_to_be_read_at_once_is_skipped_and_counted():
    watch = a_watch()
    many = {"messages": [{"role": "user", "content": "a"}] * 100_000}
    for at, (api, body) in enumerate(
        [("chat", many), ("completions", {"prompt": "line of text\n" * 400_000}), ("chat", BODY)]
    ):
        watch.came(api, body, (), a_request(at))
        watch.flush()
    assert (watch.skipped, watch.breakers.checked) == (2, 1)
    # Each counts for what it took until it was given up, so that not many of them are read in one flush.
    before = watch.done_chars
    watch.came("chat", many, (), a_request(5))
    watch.flush()
    assert watch.done_chars - before >= FLUSH_CHARS


def test_a_long_prompt_that_is_new_has_a_flush_of_its_own():
    watch = a_watch()
    watch.came("chat", BODY, (), a_request(1))
    watch.came("chat", BODY, (), a_request(2, body_bytes=100_000))
    watch.flush()
    assert watch.breakers.checked == 1
    watch.came("chat", BODY, (), a_request(3))
    watch.flush()
    assert watch.breakers.checked == 3


def test_of_one_prompt_no_more_is_looked_at_than_a_number_of_characters():
    watch = a_watch()
    tools = [{"name": f"t{n}", "description": f"{n} " + "word " * 10_000} for n in range(20)]
    watch.came("messages", {"tools": tools, "messages": BODY["messages"]}, (), a_request())
    watch.flush()
    shapes = watch.breakers.shapes
    assert 0 < shapes.made_chars < 2 * SHARED_CHARS
    assert shapes.passed_over > 15


def test_a_body_that_cannot_be_read_is_skipped_and_its_text_not_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    watch = a_watch()

    def fail(*_: object) -> None:
        raise ValueError(SECRET)

    monkeypatch.setattr("gateway.edge.breakers.segments.body", fail)
    with caplog.at_level(logging.WARNING):
        watch.came("chat", BODY, (), a_request())
        watch.flush()
    assert watch.skipped == 1
    assert "ValueError" in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    ("agent", "client"),
    [
        (b"claude-cli/2.1.197 (external, sdk-cli)", "Claude Code"),
        (b"codex_cli_rs/0.1", "Codex"),
        (b"OpenAI/Python 2.1", "OpenAI"),
        (b"(odd)", "a client without a name"),
        (b"x" * 99, "x" * 40),
    ],
)
def test_a_client_is_named_by_its_user_agent(agent: bytes, client: str):
    assert client_of([(b"accept", b"*/*"), (b"user-agent", agent)]) == client


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("part", ["system[0]", "tools[3].description", "messages[5]", "input[0]"])
def test_every_kind_has_a_sentence_and_a_fix(kind: str, part: str):
    row = Row(kind, part, "family", "Claude Code", "m", 0.0, 0.0, count=1)
    assert sentence(row, 41_000).endswith("41,000 tokens were computed again in the last hour.")
    assert "from session to session, in one request of Claude Code" in sentence(row, 1)
    assert fix(row).endswith(".")


def test_a_fix_names_the_rule_that_fits():
    def of(kind: str, part: str, client: str = "c") -> str:
        return fix(Row(kind, part, "session", client, "m", 0.0, 0.0))

    assert "strip_billing_header" in of("random_id", "system[0]", "Claude Code")
    assert "in: system" in of("random_id", "system[0]")
    assert "in: tools" in of("timestamp", "tools[3].description")
    assert "in: messages" in of("counter", "messages[5]")
    assert "sort_tools}" in of("tool_order", "tools[1]")
    assert "sort_tool_keys" in of("key_order", "tools[1].parameters")
    assert "normalize" not in of("key_order", "system[0]")
    assert "normalize" not in of("compaction", "messages[1]")


def test_sessions_are_bounded_and_those_without_tokens_have_no_hit_rate():
    sessions = Sessions()
    for at in range(MAX_SESSIONS + 1):
        sessions.ended(a_record(session=f"{at:016x}", engine="a", prompt_tokens=None, cached_tokens=None))
    sessions.ended(a_record(session="", engine="a"))
    sessions.ended(a_record(session="f" * 16, engine=""))
    sessions.flush()
    latest = sessions.latest()
    assert len(latest) == 200
    assert latest[0].session == f"{MAX_SESSIONS:016x}"
    assert latest[0].hit_rate is None
    assert (latest[0].requests, latest[0].reported_requests) == (1, 0)
    assert latest[0].prompt_tokens is latest[0].cached_tokens is None
    assert "0" * 16 not in {it.session for it in latest}


def test_a_session_tells_its_engines_and_how_many_of_its_requests_were_reported():
    sessions = Sessions()
    for engine, cached in (("a", 500), ("b", None), ("a", 100), ("c", 0)):
        sessions.ended(a_record(session="5" * 16, engine=engine, prompt_tokens=1000, cached_tokens=cached))
    sessions.flush()
    (row,) = sessions.latest()
    assert (row.engine, row.engines) == ("c", ["b", "a", "c"])
    assert (row.requests, row.reported_requests) == (4, 3)
    assert (row.prompt_tokens, row.cached_tokens, row.hit_rate) == (3000, 600, 0.2)


def test_of_a_session_s_engines_the_last_used_are_kept():
    sessions = Sessions()
    for at in range(MAX_ENGINES + 3):
        sessions.ended(a_record(session="5" * 16, engine=f"e{at}"))
    sessions.flush()
    (row,) = sessions.latest()
    assert row.engines == [f"e{at}" for at in range(3, MAX_ENGINES + 3)]
