"""`prefix-gateway doctor` as a command."""

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from loopback import Api, a_sim, whole_answer

from gateway.doctor import doctor
from gateway.sim.server import SimEngine

KEY = "k-not-to-be-seen"
KEYS = {
    "concurrency_limit",
    "limit_kind",
    "confidence",
    "aggregate_tokens_per_second",
    "stream_tokens_per_second",
    "ttft_ms",
    "waiting_share",
    "advice",
}


def ran(*args: str) -> Result:
    return CliRunner().invoke(doctor, args)


async def started(*args: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gateway", "doctor", *args,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def ended(process: asyncio.subprocess.Process, within_s: float = 30.0) -> tuple[int | None, str, str]:
    async with asyncio.timeout(within_s):
        out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


def quick(engine: SimEngine, *more: str) -> list[str]:
    return [engine.url, "--max-concurrency", "4", "--output-tokens", "12", "--api-key", KEY, *more]


def prompts_of(bodies: list[dict[str, Any]]) -> list[str]:
    return [it["messages"][0]["content"] for it in bodies]


def test_help_names_every_option() -> None:
    result = ran("--help")

    assert result.exit_code == 0
    for option in (
        "--max-concurrency",
        "--engine-url",
        "--min-stream-rate",
        "--json",
        "--html",
        "--no-stream",
    ):
        assert option in result.output


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ([], "Missing argument 'URL'"),
        (["ftp://host"], "is no http or https URL"),
        (["http://"], "is no http or https URL"),
        (["http://[::1"], "is no http or https URL"),
        (["http://h:99999"], "is no http or https URL"),
        (["http://h?a=b"], "no ? and no #"),
        (["http://h", "--html", "/no/such/folder/x.html"], "cannot be written"),
        (["http://u:pw-secret@host"], "give the key with --api-key, not in the URL"),
        (["http://h", "--engine-url", "http://k-secret@host"], "give the key with --api-key"),
        (["http://h", "--max-concurrency", "0"], "--max-concurrency"),
        (["http://h", "--min-stream-rate", "0"], "--min-stream-rate"),
        (["http://h", "--output-tokens", "1"], "--output-tokens"),
        (["http://h", "--max-seconds", "1"], "--max-seconds"),
    ],
)
def test_bad_usage_is_2(args: list[str], told: str) -> None:
    result = ran(*args)

    assert result.exit_code == 2
    assert told in result.output
    assert "secret" not in result.output


def test_more_than_files_may_be_open_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (100, 100))

    result = ran("http://127.0.0.1:1", "--max-concurrency", "32")

    assert result.exit_code == 2
    assert "32 at once need 128 open files and 100 are allowed" in result.output


def test_so_many_files_as_it_needs_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = []
    monkeypatch.setattr("resource.getrlimit", lambda _: (100, 1000))
    monkeypatch.setattr("resource.setrlimit", lambda _, limits: allowed.append(limits))

    ran("http://127.0.0.1:1", "--max-concurrency", "32")

    assert allowed == [(128, 1000)]


def test_nobody_there_is_1_and_says_why() -> None:
    result = ran("127.0.0.1:1", "--api-key", KEY)

    assert result.exit_code == 1
    assert "http://127.0.0.1:1: " in result.stderr
    assert result.stdout == ""
    assert KEY not in result.output


async def test_json_is_all_of_stdout_and_has_what_is_promised(tmp_path: Path) -> None:
    html = tmp_path / "report.html"
    async with a_sim(slots=2) as engine:
        process = await started(*quick(engine, "--json", "--html", str(html), "--min-stream-rate", "5"))
        code, out, err = await ended(process)

    assert (code, err.count("wrote")) == (0, 1), err
    told = json.loads(out)
    assert told.keys() >= KEYS
    assert (told["concurrency_limit"], told["limit_kind"]) == (2, "slots")
    assert 0 <= told["confidence"] <= 1
    assert set(told["ttft_ms"]) == {"1", "2", "4"}
    assert set(told["ttft_ms"]["4"]) == {"p50", "max"}
    assert f"wrote {html}" in err
    assert html.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert KEY not in out + err + html.read_text(encoding="utf-8")


async def test_the_text_is_the_report_without_key_or_prompt() -> None:
    api = Api(lambda path, body: whole_answer(body["max_tokens"]))
    async with api as url:
        process = await started(url, "--max-concurrency", "2", "--output-tokens", "12", "--api-key", KEY)
        code, out, err = await ended(process)

    assert code == 0
    assert out.startswith("No limit found up to 2 requests at once")
    assert KEY not in out + err
    assert api.keys == {f"Bearer {KEY}"}
    assert len(api.bodies) > 3
    assert not any(it[:8] in out + err for it in prompts_of(api.bodies))


async def test_a_page_that_can_no_longer_be_written_is_1_and_takes_no_report_with_it(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    async with a_sim(slots=4) as engine:
        process = await started(*quick(engine, "--max-concurrency", "1", "--html", str(folder / "x")))
        async with asyncio.timeout(20):
            while engine.stats.running < 1:
                await asyncio.sleep(0.01)
        folder.rmdir()
        code, out, err = await ended(process)

    assert code == 1
    assert out.startswith("No limit found up to one request")
    assert "No such file or directory" in err


async def interrupted_at_four(number: signal.Signals) -> tuple[int | None, str]:
    async with a_sim(slots=4, decode_rate=60.0) as engine:
        process = await started(engine.url, "--json", "--max-concurrency", "64", "--output-tokens", "12")
        async with asyncio.timeout(20):
            while engine.stats.running < 4:
                await asyncio.sleep(0.01)
        process.send_signal(number)
        code, out, _ = await ended(process, 5.0)
    return code, out


async def test_a_signal_ends_it_with_what_is_known() -> None:
    for code, out in await asyncio.gather(*map(interrupted_at_four, (signal.SIGINT, signal.SIGTERM))):
        told = json.loads(out)
        assert code == 0
        assert told["interrupted"] == "interrupted"
        assert told["max_concurrency_tried"] == 2
        assert set(told["ttft_ms"]) == {"1", "2"}


async def test_a_signal_before_anything_was_measured_says_so() -> None:
    async with a_sim(faults=("stall",)) as engine:
        process = await started(engine.url)
        async with asyncio.timeout(20):
            while engine.stats.running < 1:
                await asyncio.sleep(0.01)
        process.send_signal(signal.SIGINT)
        code, out, _ = await ended(process, 5.0)

    assert code == 1
    assert out.startswith("Nothing was measured.\n")
