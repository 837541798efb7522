"""Real vLLM engines: what they say of themselves, how their answers compare, and one that can be killed."""

import asyncio
import contextlib
import json
import os
import re
import shlex
import signal
from itertools import groupby
from pathlib import Path
from typing import Any

import aiohttp

from gateway.sim.ports import free_port


class Vllm:
    """A running engine, asked without the gateway. `declared_slots` is None outside dev mode."""

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self.url = url.rstrip("/")
        self.model = ""
        self.declared_slots: int | None = None

    async def look(self) -> None:
        _, _, body = await self.send("GET", "/v1/models")
        self.model = json.loads(body)["data"][0]["id"]
        status, _, body = await self.send("GET", "/server_info?config_format=json")
        if status == 200:
            self.declared_slots = json.loads(body)["vllm_config"]["scheduler_config"]["max_num_seqs"]

    async def send(self, method: str, path: str, body: Any = None) -> tuple[int, str, bytes]:
        """Status, content type, body."""
        async with aiohttp.request(method, self.url + path, json=body) as response:
            return response.status, response.headers["content-type"], await response.read()

    async def running_and_waiting(self) -> tuple[float, float]:
        page = await self._page()
        return _figure(page, "num_requests_running"), _figure(page, "num_requests_waiting")

    async def is_idle(self) -> bool:
        return await self.running_and_waiting() == (0, 0)

    async def hits_tokens(self) -> float:
        return _figure(await self._page(), "prefix_cache_hits_total")

    async def cache_label(self, label: str) -> int:
        found = re.search(rf'vllm:cache_config_info{{.*\b{label}="(\d+)"', await self._page())
        assert found is not None, label
        return int(found[1])

    async def _page(self) -> str:
        return (await self.send("GET", "/metrics"))[2].decode()


def _figure(page: str, name: str) -> float:
    values = [line.rpartition(" ")[2] for line in page.splitlines() if line.startswith(f"vllm:{name}{{")]
    assert values, f"vLLM has no metric {name}"
    return sum(map(float, values))


class Process:
    """An engine that can be killed, with all of its processes, and come back on its port.

    `command` starts it in the foreground; `{port}` in it stands for the port.
    """

    def __init__(self, command: str, log: Path) -> None:
        self.port = free_port()
        self._command = shlex.split(command.replace("{port}", str(self.port)))
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    async def kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()


def events(stream: bytes) -> list[dict[str, Any]]:
    """The JSON of each event of a stream."""
    lines = [line for line in stream.splitlines() if line.startswith(b"data: ")]
    return [json.loads(line[6:]) for line in lines if line != b"data: [DONE]"]


def told(value: Any) -> Any:
    """`value` without what differs between two equal requests: ids, times and what the cache held.

    The fingerprint too: vLLM puts it into the usage chunk where there is one, else into the last chunk.
    """
    drop = {"id", "item_id", "created", "created_at", "completed_at", "usage", "system_fingerprint"}
    if isinstance(value, dict):
        return {name: told(item) for name, item in value.items() if name not in drop}
    return [told(item) for item in value] if isinstance(value, list) else value


def story(stream: bytes) -> tuple[list[str], str, Any]:
    """A stream without how its text was cut up: vLLM joins tokens that are ready before the last is sent.

    Kinds of events in order, the text, the last event.
    """
    seen = events(stream)
    kinds = [kind for kind, _ in groupby(event.get("type") or event["object"] for event in seen)]
    cut = ("sequence_number", "choices")
    last = {name: value for name, value in told(seen[-1]).items() if name not in cut}
    return kinds, "".join(map(_text, seen)), last


def _text(event: dict[str, Any]) -> str:
    delta = event.get("delta") or (event.get("choices") or [{}])[0].get("delta") or {}
    return delta if isinstance(delta, str) else delta.get("text") or delta.get("content") or ""
