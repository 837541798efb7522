"""`mark`, `compare` and `explain` as commands, against a real gateway with simulated engines."""

import asyncio
import contextlib
import io
import json
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from click.testing import CliRunner, Result
from harness import Running, chat, running
from msgspec import to_builtins
from msgspec.structs import asdict
from rich.console import Console

from gateway import cli
from gateway.core.compare import compared
from gateway.core.samples import Kind, Sample, Untold
from gateway.remote.tables import comparison, decision
from gateway.sim.server import SimEngine
from gateway.sim.settings import SimSettings

DECISION: dict[str, Any] = {
    "sentence": "goes to a",
    "route": None,
    "queued_before": 3,
    "api": "chat",
    "model": "",
    "policy": "cost",
    "engines": [],
    "not_considered": {},
}
TOKEN = "t-not-to-be-seen"


@pytest.fixture(autouse=True)
def _keep_logging() -> Iterator[None]:
    """Commands set up the process's logging, to a stream that ends with them."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


def invoked(*args: str, stdin: bytes = b"", **env: str) -> Result:
    return CliRunner().invoke(cli.cli, args, input=stdin, env=env)


async def ran(gateway: Running, *args: str, stdin: bytes = b"", **env: str) -> Result:
    return await asyncio.to_thread(invoked, *args, "--admin", gateway.admin, stdin=stdin, **env)


@contextlib.asynccontextmanager
async def two_engines(tmp_path: Path, **sections: Any) -> AsyncIterator[Running]:
    engines = [SimEngine(SimSettings(kind="vllm", dev=True, prefill_rate=1e5, decode_rate=1e3)) for _ in "ab"]
    async with engines[0], engines[1]:
        entries = [{"name": name, "url": it.url} for name, it in zip("ab", engines, strict=True)]
        async with running(tmp_path, entries, **sections) as gateway:
            yield gateway


async def asked(gateway: Running, body: dict[str, Any], times: int = 1) -> None:
    for _ in range(times):
        assert (await gateway.post("/v1/chat/completions", body))[0] == 200


def body_file(tmp_path: Path, **fields: Any) -> Path:
    path = tmp_path / "body.json"
    path.write_text(json.dumps(chat("What now?", system="A system prompt. " * 400, **fields)))
    return path


# Bad usage, nobody there


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["mark"], "Missing argument 'TEXT...'"),
        (["explain"], "Missing argument 'FILE'"),
        (["explain", "/no/such/file"], "No such file"),
        (["explain", "/"], "Is a directory"),
        (["mark", "x", "--admin", "ftp://host"], "is no http or https URL"),
        (["mark", "x", "--admin", "http://"], "is no http or https URL"),
        (["mark", "x", "--admin", "http://h:99999"], "is no URL"),
        (["mark", "x", "--admin", "http://u:pw-secret@h"], "give the token with --admin-token"),
        (["mark", "x", "--admin", "http://h?a=b"], "no ? and no #"),
        (["compare", "--minutes", "0"], "--minutes"),
    ],
)
def test_bad_usage_is_2(args: list[str], told: str) -> None:
    result = invoked(*args)
    assert result.exit_code == 2
    assert told in result.output
    assert "secret" not in result.output


@pytest.mark.parametrize("args", [["mark", "x"], ["compare"], ["compare", "m1"], ["explain", "-"]])
def test_nobody_there_is_1_and_one_line_that_says_so(args: list[str]) -> None:
    result = invoked(*args, "--admin", "127.0.0.1:1", "--admin-token", TOKEN, stdin=b"{}")
    assert result.exit_code == 1
    assert result.stdout == ""
    line = "http://127.0.0.1:1: no connection (Connection refused); is a gateway's admin port there?\n"
    assert result.stderr == line


async def test_another_server_is_told_from_a_gateway(tmp_path: Path) -> None:
    async with two_engines(tmp_path) as gateway:
        result = await asyncio.to_thread(invoked, "compare", "--admin", f"{gateway.api}/healthz")
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        (200, "{}", "answered, but not as this version of the command expects"),
        (200, '{"marks": 3}', "answered, but not as this version"),
        (200, "[]", "its answer is not that of a gateway's admin port"),
        (200, "<html>", "its answer is not that of a gateway's admin port"),
        (302, "", "answered 302, not as a gateway's admin port does"),
        (500, '{"error": {"message": ""}}', "answered 500"),
        (500, '{"error": {"message": "It failed."}}', "It failed."),
    ],
)
async def test_answers_of_others_are_one_line(status: int, body: str, told: str) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, text=body, headers={"Location": "/elsewhere"})

    app = web.Application()
    app.router.add_get("/api/compare", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        result = await asyncio.to_thread(invoked, "compare", "--admin", url)
    finally:
        await runner.cleanup()
    assert (result.exit_code, result.stdout) == (1, "")
    assert told in result.stderr
    assert result.stderr.count("\n") == 1


async def test_who_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.remote.admin.TIMEOUT_S", 0.2)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        result = await asyncio.to_thread(invoked, "mark", "x", "--admin", url)
    assert (result.exit_code, result.stderr) == (1, f"{url}: no answer within 0.2 s\n")


def test_names_cannot_drive_a_terminal() -> None:
    console = Console(file=io.StringIO(), width=200)
    console.print(decision(DECISION))
    assert console.file.getvalue() == "goes to a\nchat, model -, policy cost, 3 wait already\n"  # type: ignore[attr-defined]
    console = Console(file=io.StringIO(), width=200)
    console.print(decision(DECISION | {"sentence": "goes to \x1b[31ma\x07"}))
    assert console.file.getvalue().splitlines()[0] == "goes to ?[31ma?"  # type: ignore[attr-defined]


# mark and compare


def test_what_lies_between_marks_of_one_change_is_said_to_be_there() -> None:
    figures = asdict(compared([], []))
    sides = {name: {**asdict(figures[name]), "seconds": 1} for name in ("before", "after")}
    told = to_builtins({**figures, **sides, "sentence": "It is so.", "across_requests": 24})
    one, other = ({"mark": name, "at": "then", "text": "one"} for name in ("m4", "m5"))
    assert "\n24 requests ran across it and are on neither side.\n" in printed(told | {"marks": [one]})
    both = printed(told | {"marks": [one, other]})
    assert "\n24 requests ran across it or between m4 and m5 and are on neither side.\n" in both
    single = printed(told | {"marks": [one], "across_requests": 1})
    assert "\n1 request ran across it and is on neither side.\n" in single


def test_tokens_that_nobody_told_are_unknown() -> None:
    nothing = Sample(Kind("a", "m", "chat"), 0, None, None, 5.0, Untold.UNKNOWN)
    of = compared([nothing], [nothing])
    sides = {name: {**asdict(getattr(of, name)), "seconds": 1} for name in ("before", "after")}
    told = {**asdict(of), **sides, "sentence": "", "across_requests": 0, "marks": []}
    lines = [line.split() for line in printed(to_builtins(told)).splitlines()]
    for row in (
        ["prompt", "tokens", "unknown", "unknown"],
        ["computed", "tokens", "unknown", "unknown"],
        ["not", "reported", "1", "1"],
        ["failed", "or", "left", "0", "0"],
    ):
        assert row in lines


def printed(told: dict[str, Any]) -> str:
    console = Console(file=io.StringIO(), width=300)
    console.print(comparison(told))
    return console.file.getvalue()  # type: ignore[attr-defined]


async def test_a_mark_and_a_comparison_as_text(tmp_path: Path) -> None:
    body = chat("What now?", system="A system prompt. " * 400)
    async with two_engines(tmp_path) as gateway:
        await asked(gateway, body, 6)
        marked = await ran(gateway, "mark", "slots", "doubled")
        assert (marked.exit_code, marked.stderr) == (0, "")
        assert marked.stdout.startswith("m1  20")
        assert marked.stdout.endswith("Z  slots doubled\n")
        await asked(gateway, body, 8)
        await asked(gateway, body | {"response_format": {"type": "json_object"}})
        for args in ([], ["m1"], ["slots doubled", "--minutes", "10", "--from", "start", "--until", "now"]):
            compared = await ran(gateway, "compare", *args)
            assert (compared.exit_code, compared.stderr) == (0, "")
            assert "Hit rate " in compared.stdout
            assert "6 requests in " in compared.stdout
            assert "9 requests in " in compared.stdout
        rows = {line.split("  ")[0]: line for line in compared.stdout.splitlines()}
        assert rows["hit rate"].count("%") >= 6
        assert rows["TTFT p50"].split()[2:] == ["unknown", "unknown"]
        assert rows["requests"].split() == ["requests", "6", "9"]
        assert rows["chat"].split()[1:4] == ["6", "->", "8"]
        assert rows["json"].split()[1:4] == ["0", "->", "1"]
        assert (
            await refused(gateway, "compare", "m7")
            == "No mark 'm7'. Marks, newest first: m1 (slots doubled).\n"
        )
        of_nobody = await refused(gateway, "compare", "--engine", "nope")
        assert of_nobody == "No engine 'nope'. Engines: a, b.\n"
        of_nothing = await refused(gateway, "compare", "--model", "nope")
        assert of_nothing == "No model 'nope'. Models: sim-model.\n"


async def refused(gateway: Running, *args: str, **more: Any) -> str:
    result = await ran(gateway, *args, **more)
    assert (result.exit_code, result.stdout) == (1, "")
    return result.stderr


async def test_json_is_all_of_stdout(tmp_path: Path) -> None:
    async with two_engines(tmp_path) as gateway:
        assert json.loads((await ran(gateway, "mark", "one", "--json")).stdout)["mark"] == "m1"
        assert json.loads((await ran(gateway, "compare", "--json")).stdout)["mark"]["text"] == "one"
        said = json.loads((await ran(gateway, "explain", str(body_file(tmp_path)), "--json")).stdout)
        assert {it["engine"] for it in said["engines"]} == {"a", "b"}


async def test_an_empty_text_is_no_mark(tmp_path: Path) -> None:
    async with two_engines(tmp_path) as gateway:
        assert await refused(gateway, "mark", " ") == "A mark needs a text that says what changed.\n"
        assert "No mark has been set yet" in await refused(gateway, "compare")


async def test_a_token_is_taken_from_the_option_or_the_environment(tmp_path: Path) -> None:
    async with two_engines(tmp_path, admin_token=TOKEN) as gateway:
        assert "--admin-token" in await refused(gateway, "mark", "x", ADMIN_TOKEN="")
        for token, told in (
            ("wrong", "the token was refused"),
            (f"{TOKEN}\n", "the token has a line end"),
            (f"{TOKEN}\r", "the token has a line end"),
            (f"{TOKEN}\udcff", "the token has a character that cannot be sent"),
        ):
            said = await refused(gateway, "mark", "x", "--admin-token", token)
            assert said.startswith(f"{gateway.admin}: {told}: ")
            assert (said.count("\n"), TOKEN in said) == (1, False)
        for args, env in (
            (["--admin-token", TOKEN], {}),
            ([], {"ADMIN_TOKEN": TOKEN}),
            ([], {"PREFIX_GATEWAY_ADMIN_TOKEN": TOKEN, "ADMIN_TOKEN": "wrong"}),
        ):
            result = await ran(gateway, "mark", "x", *args, **env)
            assert result.exit_code == 0
            assert TOKEN not in result.output


# explain


async def test_explain_prints_the_decision_and_a_row_for_each_engine(tmp_path: Path) -> None:
    path = body_file(tmp_path)
    async with two_engines(tmp_path) as gateway:
        await asked(gateway, json.loads(path.read_text()))
        engine = (await gateway.records())[0]["engine"]
        for args, stdin in (
            ([str(path)], b""),
            (["-"], path.read_bytes()),
            ([str(path), "--api", "chat"], b""),
        ):
            result = await ran(gateway, "explain", *args, stdin=stdin)
            assert (result.exit_code, result.stderr) == (0, "")
            lines = result.stdout.splitlines()
            assert lines[0].startswith(f"goes to {engine}: holds ")
            assert lines[1] == "chat, model sim-model, policy cost, route prefix"
            assert lines[3].split()[:6] == ["engine", "free", "holds", "pending", "to", "compute"]
            assert lines[4].split()[:2] == [">", engine]
        assert len(await gateway.records()) == 1


async def test_explain_says_who_is_not_considered(tmp_path: Path) -> None:
    async with two_engines(tmp_path) as gateway:
        gateway.gateway.dispatcher.drain("a", True)
        result = await ran(gateway, "explain", str(body_file(tmp_path)))
        assert "goes to b, the only engine that may have it" in result.stdout
        assert result.stdout.endswith("\nNot considered\na: draining\n")


async def test_explain_passes_on_what_the_gateway_says_of_a_body(tmp_path: Path) -> None:
    async with two_engines(tmp_path) as gateway:
        assert "JSON" in await refused(gateway, "explain", "-", stdin=b"no JSON")
        unknown = body_file(tmp_path, model="nope")
        assert "nope" in await refused(gateway, "explain", str(unknown))
        named = await refused(gateway, "explain", str(body_file(tmp_path)), "--api", "embeddings")
        assert named.startswith("api must be one of chat")
