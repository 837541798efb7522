"""Programs of the system: found, installed where that is allowed, and asked for their version."""

import subprocess
from collections.abc import Sequence

import pytest

from gateway.bench.relay import programs


class Machine:
    """A PATH, and an apt-get that adds to it."""

    def __init__(self, *on_path: str, has: Sequence[str] = ()) -> None:
        self.on_path = set(on_path)
        self.commands: list[list[str]] = []
        self._has = has

    def which(self, name: str) -> str | None:
        return f"/bin/{name}" if name in self.on_path else None

    def run(self, command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        self.commands.append(list(command))
        if "install" in command and command[-1] in self._has:
            self.on_path.add(command[-1])
        return subprocess.CompletedProcess(command, 0, "", "")

    def find(self, name: str, *, is_root: bool) -> str | None:
        return programs.find(name, run=self.run, which=self.which, is_root=is_root)


def test_a_program_that_is_there_is_taken() -> None:
    machine = Machine("wrk", "apt-get")

    assert machine.find("wrk", is_root=True) == "/bin/wrk"
    assert machine.commands == []


def test_root_gets_a_missing_program_from_apt() -> None:
    machine = Machine("apt-get", has=["haproxy"])

    assert machine.find("haproxy", is_root=True) == "/bin/haproxy"
    assert [command[2] for command in machine.commands] == ["update", "-y"]


@pytest.mark.parametrize(
    ("machine", "is_root"), [(Machine("apt-get", has=["wrk"]), False), (Machine(has=["wrk"]), True)]
)
def test_without_root_or_apt_nothing_is_installed(machine: Machine, is_root: bool) -> None:
    assert machine.find("wrk", is_root=is_root) is None
    assert machine.commands == []


def test_a_program_that_apt_does_not_have_stays_missing() -> None:
    assert Machine("apt-get").find("wrk", is_root=True) is None
    assert programs.missing("wrk").endswith(": sudo apt-get install wrk")


def test_an_apt_that_hangs_is_given_up() -> None:
    def run(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        raise subprocess.TimeoutExpired(command, 600)

    assert programs.find("wrk", run=run, which=Machine("apt-get").which, is_root=True) is None


@pytest.mark.parametrize(
    ("out", "error", "version"),
    [
        ("HAProxy version 2.6.12-1+deb12u4 2026/10/17 - https://haproxy.org/\n", "", "2.6.12-1+deb12u4"),
        ("", "wrk debian/4.1.0-3+b2 [epoll] Copyright (C) 2012 Will Glozer\n", "4.1.0-3+b2"),
        ("", "", "unknown"),
    ],
)
def test_a_version_is_read_from_either_stream(out: str, error: str, version: str) -> None:
    told = subprocess.CompletedProcess(["x"], 1, out, error)

    assert programs.version("x", run=lambda _: told) == version
