"""A virtual environment with the rivals that come from PyPI, made once and kept."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from gateway.bench.relay import programs
from gateway.bench.relay.errors import RelayError
from gateway.bench.relay.programs import Run

_VERSIONS = """\
import json, sys
from importlib import metadata
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""


class Environment(Struct, frozen=True, kw_only=True):
    """`versions` of what is installed; `problems`: why a rival is not."""

    folder: Path
    versions: Mapping[str, str]
    problems: Mapping[str, str]

    def program(self, name: str) -> str:
        return str(self.folder / "bin" / name)


def default_folder(environ: Mapping[str, str] = os.environ) -> Path:
    cache = environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "prefix-gateway" / "rivals"


def ensure(
    folder: Path, rivals: Sequence[str], *, tell: Callable[[str], None], run: Run = programs.run
) -> Environment:
    """What is there is kept. Each missing rival is installed by itself, so that one without a wheel for this
    machine does not take the others with it. Raises RelayError if there can be no environment in `folder`."""
    here = Environment(folder=folder, versions={}, problems={})
    if not _works(here, run):
        tell(f"making an environment for the rivals in {folder}")
        _make(here, run)
    versions = _versions(here, rivals, run)
    problems = {}
    for rival in [name for name in rivals if name not in versions]:
        tell(f"installing {rival} from PyPI")
        pip = [here.program("python"), "-m", "pip", "--disable-pip-version-check", "install", "-q", rival]
        installed = _run(pip, run)
        if installed.returncode:
            problems[rival] = f"pip install {rival} failed: {_last_line(installed)}"
    versions = _versions(here, rivals, run)
    for rival in rivals:
        if rival not in versions:
            problems.setdefault(rival, f"{rival} is not in {folder} after its installation")
    return Environment(folder=folder, versions=versions, problems=problems)


def _works(here: Environment, run: Run) -> bool:
    python = here.program("python")
    return Path(python).exists() and _run([python, "-c", "import pip"], run).returncode == 0


def _make(here: Environment, run: Run) -> None:
    folder = here.folder
    if folder.exists() and not folder.is_dir():
        raise RelayError(f"--env {folder} is a file: name a directory")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / "pyvenv.cfg").exists():
        raise RelayError(f"--env {folder} is no virtual environment and not empty: name another directory")
    made = _run([sys.executable, "-m", "venv", "--clear", str(folder)], run)
    if made.returncode:
        raise RelayError(
            f"cannot make a virtual environment in {folder}: {_last_line(made)}"
            " (on Debian and Ubuntu: apt-get install python3-venv)"
        )


def _versions(here: Environment, rivals: Sequence[str], run: Run) -> dict[str, str]:
    told = _run([here.program("python"), "-c", _VERSIONS, *rivals], run)
    try:
        return msgspec.json.decode(told.stdout, type=dict[str, str])
    except msgspec.MsgspecError:
        raise RelayError(
            f"the environment in {here.folder} does not work: {_last_line(told)};"
            " delete it to have it made anew"
        ) from None


def _run(command: Sequence[str], run: Run) -> "subprocess.CompletedProcess[str]":
    try:
        return run(command)
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))


def _last_line(ran: "subprocess.CompletedProcess[str]") -> str:
    lines = (ran.stderr.strip() or ran.stdout.strip()).splitlines()
    return lines[-1].strip() if lines else f"exit code {ran.returncode}"
