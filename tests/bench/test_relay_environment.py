"""The rivals' environment: made once, kept, and what happens when something does not install."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from gateway.bench.relay.environment import default_folder, ensure
from gateway.bench.relay.errors import RelayError

RIVALS = ("sglang-router", "vllm-router")


class Machine:
    """Runs `venv`, `pip` and the question for versions without doing any of it."""

    def __init__(self, folder: Path, *, refuses: Sequence[str] = (), venv_fails: bool = False) -> None:
        self.folder = folder
        self.installed: dict[str, str] = {}
        self.commands: list[str] = []
        self._refuses = refuses
        self._venv_fails = venv_fails

    def run(self, command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        out, error = "", ""
        if "venv" in command:
            self.commands.append("venv")
            error = "x\nensurepip is not available\n" if self._venv_fails else self._make()
        elif "install" in command:
            self.commands.append(f"install {command[-1]}")
            if command[-1] in self._refuses:
                error = "ERROR: looked\nERROR: No matching distribution found\n"
            else:
                self.installed[command[-1]] = "1.2"
        elif "import pip" not in command:
            out = json.dumps({name: it for name, it in self.installed.items() if name in command})
        return subprocess.CompletedProcess(command, int(bool(error)), out, error)

    def _make(self) -> str:
        (self.folder / "bin").mkdir(parents=True)
        (self.folder / "bin" / "python").touch()
        (self.folder / "pyvenv.cfg").touch()
        return ""


def test_an_environment_is_made_and_the_rivals_are_installed(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "rivals")
    told: list[str] = []

    there = ensure(machine.folder, RIVALS, tell=told.append, run=machine.run)

    assert machine.commands == ["venv", "install sglang-router", "install vllm-router"]
    assert there.versions == dict.fromkeys(RIVALS, "1.2")
    assert there.problems == {}
    assert there.program("vllm-router") == str(machine.folder / "bin" / "vllm-router")
    assert told == [
        f"making an environment for the rivals in {machine.folder}",
        "installing sglang-router from PyPI",
        "installing vllm-router from PyPI",
    ]


def test_what_is_there_is_kept(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "rivals")
    ensure(machine.folder, RIVALS[:1], tell=str, run=machine.run)
    machine.commands.clear()

    once_more = ensure(machine.folder, RIVALS[:1], tell=str, run=machine.run)
    commands = list(machine.commands)
    ensure(machine.folder, RIVALS, tell=str, run=machine.run)

    assert commands == []
    assert once_more.versions == {"sglang-router": "1.2"}
    assert machine.commands == ["install vllm-router"]


def test_a_rival_that_does_not_install_does_not_take_the_other_along(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "rivals", refuses=["sglang-router"])

    there = ensure(machine.folder, RIVALS, tell=str, run=machine.run)

    assert there.versions == {"vllm-router": "1.2"}
    assert there.problems == {
        "sglang-router": "pip install sglang-router failed: ERROR: No matching distribution found"
    }


def test_an_environment_that_cannot_be_made_says_what_helps(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "rivals", venv_fails=True)

    with pytest.raises(RelayError, match=r"ensurepip is not available .*apt-get install python3-venv"):
        ensure(machine.folder, RIVALS, tell=str, run=machine.run)


def test_a_directory_with_something_else_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    machine = Machine(tmp_path)

    with pytest.raises(RelayError, match="is no virtual environment and not empty"):
        ensure(tmp_path, RIVALS, tell=str, run=machine.run)

    assert machine.commands == []
    assert (tmp_path / "thesis.tex").exists()


def test_a_file_is_no_place_for_an_environment(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(RelayError, match="is a file: name a directory"):
        ensure(tmp_path / "file", RIVALS, tell=str, run=Machine(tmp_path).run)


def test_a_program_that_cannot_be_run_is_a_problem_like_any_other(tmp_path: Path) -> None:
    def run(_: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        raise subprocess.TimeoutExpired("python", 600)

    with pytest.raises(RelayError, match=r"cannot make a virtual environment .*timed out"):
        ensure(tmp_path / "rivals", RIVALS, tell=str, run=run)


def test_the_cache_is_where_the_user_wants_it() -> None:
    assert default_folder({"XDG_CACHE_HOME": "/c"}) == Path("/c/prefix-gateway/rivals")
    assert default_folder({}) == Path.home() / ".cache" / "prefix-gateway" / "rivals"
