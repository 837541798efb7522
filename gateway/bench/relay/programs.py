"""The programs that come from the system: wrk, which is the load, and HAProxy."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence

Run = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]
"""Runs a command to its end and gives what it wrote. Raises OSError and subprocess.TimeoutExpired."""

_LIMIT_S = 600.0
_VERSION = re.compile(r"\d+\.\d+\S*")


def run(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    # Without RUNLEVEL=1 Debian starts HAProxy as a service when it is installed.
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    return subprocess.run(
        command,
        capture_output=True,
        check=False,
        env=env,
        errors="replace",
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=_LIMIT_S,
    )


def find(
    name: str,
    *,
    run: Run = run,
    which: Callable[[str], str | None] = shutil.which,
    is_root: bool | None = None,
) -> str | None:
    """The program's path; installed with apt-get where that is there and allowed, else None."""
    found = which(name)
    apt_get = which("apt-get")
    if found is not None or apt_get is None or not (os.geteuid() == 0 if is_root is None else is_root):
        return found
    try:
        run([apt_get, "-qq", "update"])
        run([apt_get, "-qq", "-y", "--no-install-recommends", "install", name])
    except (OSError, subprocess.TimeoutExpired):
        return None
    return which(name)


def missing(name: str) -> str:
    """What to type to have it."""
    return f"{name} is not on PATH and could not be installed: sudo apt-get install {name}"


def version(program: str, *, run: Run = run) -> str:
    """What `-v` prints, wherever and with whatever exit code: wrk's is 1."""
    try:
        told = run([program, "-v"])
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    found = _VERSION.search(told.stdout + told.stderr)
    return found[0] if found else "unknown"
