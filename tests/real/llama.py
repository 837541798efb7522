"""A real llama-server as a process that tests can kill, and what they read from it."""

import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import aiohttp

from gateway.demo import recipes
from gateway.sim.ports import free_port

MODEL = "gemma-3-270m"
START_S = 60.0


class RealEngine:
    """One llama-server that can die and come back on its port."""

    def __init__(self, name: str, recipe: recipes.Recipe, directory: Path) -> None:
        self.name = name
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._recipe = recipe
        self._log = directory / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._recipe.command(self.port),
                env=self._recipe.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait_until_ready(self) -> None:
        give_up_at = time.monotonic() + START_S
        while not self._answers():
            assert self._process is not None
            assert self._process.poll() is None, self._log.read_text(errors="replace")[-2000:]
            assert time.monotonic() < give_up_at, "llama-server did not become ready"
            time.sleep(0.1)

    def kill(self) -> None:
        if self._process is not None:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    async def processing(self) -> int:
        """How many of its slots work now."""
        async with aiohttp.request("GET", f"{self.url}/slots") as response:
            return sum(slot["is_processing"] for slot in await response.json())

    async def metric(self, name: str) -> float:
        async with aiohttp.request("GET", f"{self.url}/metrics") as response:
            for line in (await response.text()).splitlines():
                if line.startswith(f"llamacpp:{name} "):
                    return float(line.split()[1])
        raise AssertionError(f"llama-server has no metric {name}")

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=2) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):
            return False
