"""What a user installs and runs: the version, the dependencies, make's targets, the image."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import gateway

ROOT = Path(__file__).parent.parent


def run_make(*arguments: str, cwd: Path = ROOT, path: str | None = None) -> subprocess.CompletedProcess[str]:
    """make as a user starts it, also where the tests themselves run under make."""
    make = shutil.which("make")
    if make is None:
        pytest.skip("no make here")
    env = {"PATH": path or os.environ["PATH"], "LC_ALL": "C"}
    return subprocess.run([make, *arguments], cwd=cwd, env=env, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def dockerfile() -> list[str]:
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_there_is_one_version(pyproject: dict[str, Any]) -> None:
    assert "version" in pyproject["project"]["dynamic"]
    assert pyproject["tool"]["hatch"]["version"]["path"] == "gateway/__init__.py"
    assert version("prefix-gateway") == gateway.__version__


def test_the_changelog_tells_about_this_version() -> None:
    assert f"## [{gateway.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_every_dependency_has_an_upper_bound(pyproject: dict[str, Any]) -> None:
    project = pyproject["project"]
    listed = [*project["dependencies"], *pyproject["build-system"]["requires"]]
    for extra in project["optional-dependencies"].values():
        listed += extra

    unbounded = [entry for entry in listed if not re.search(r"<|==", entry.split(";")[0])]

    assert len(listed) > 10
    assert unbounded == []


@pytest.mark.parametrize("target", ["demo", "test", "soak", "lint", "clean", "setup"])
def test_make_knows_its_targets(target: str) -> None:
    shown = run_make("-n", target)
    assert shown.returncode == 0, shown.stderr


@pytest.mark.parametrize(("once", "expected"), [("1", True), ("", False), ("0", False)])
def test_make_demo_stops_by_itself_only_if_asked(once: str, expected: bool) -> None:
    last = run_make("-n", "demo", f"ONCE={once}").stdout.strip().splitlines()[-1]

    assert "prefix-gateway demo" in last
    assert ("--once" in last) is expected


def test_make_says_what_to_install_where_no_python_fits(tmp_path: Path) -> None:
    shell = shutil.which("sh")
    assert shell is not None
    (tmp_path / "sh").symlink_to(shell)
    shutil.copy(ROOT / "Makefile", tmp_path)

    ran = run_make(".venv/.made", cwd=tmp_path, path=str(tmp_path))

    assert ran.returncode != 0
    assert "no Python 3.11, 3.12 or 3.13" in ran.stderr


def test_the_image_runs_as_a_user_of_its_own(dockerfile: list[str]) -> None:
    last_stage = dockerfile[max(i for i, line in enumerate(dockerfile) if line.startswith("FROM")) :]

    users = [line.split()[1] for line in last_stage if line.startswith("USER")]

    assert users
    assert users[-1] not in ("root", "0")
    assert f"--uid {users[-1]} " in " ".join(last_stage)


def test_the_image_checks_that_the_process_lives(dockerfile: list[str]) -> None:
    (check,) = [line for line in dockerfile if line.startswith("HEALTHCHECK")]
    code = re.search(r'"-c", "(.*)"\]', check)

    assert code is not None
    assert "127.0.0.1:8900/healthz" in code[1]
    compile(code[1], "HEALTHCHECK", "exec")


def test_the_image_gets_every_file_it_copies(dockerfile: list[str]) -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    copies = [line.split()[1:-1] for line in dockerfile if line.startswith("COPY") and "--from" not in line]

    for name in [name for names in copies for name in names]:
        assert (ROOT / name).exists()
        assert f"!{name}" in ignored


def test_the_image_serves_its_mounted_configuration(dockerfile: list[str]) -> None:
    assert 'ENTRYPOINT ["prefix-gateway"]' in dockerfile
    assert 'CMD ["serve", "--config", "/etc/prefix-gateway/config.yaml"]' in dockerfile


def test_ci_is_a_script_that_bash_can_read() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)

    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash here")
    subprocess.run([bash, "-n", str(script)], check=True)


def test_this_python_is_one_that_is_supported(pyproject: dict[str, Any]) -> None:
    listed = [entry for entry in pyproject["project"]["classifiers"] if "Python :: 3." in entry]
    running = f"Programming Language :: Python :: {sys.version_info.major}.{sys.version_info.minor}"
    assert running in listed
