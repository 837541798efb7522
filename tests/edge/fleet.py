"""A gateway in front of simulated engines, and what the fleet tests ask of them."""

import asyncio
import contextlib
import functools
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from harness import Running, running

from gateway.core.engine import Health
from gateway.edge.prober import TIMEOUT_S, Prober
from gateway.sim.server import SimEngine
from gateway.sim.settings import SimSettings

KINDS = ["vllm", "llamacpp"]
BLOCK_TOKENS = 64
"""The index's 256 bytes in tokens of the simulated engines, which have four bytes each."""

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One answer. `chunks` are a stream's events without `[DONE]`; `text` is that of choice 0."""

    status: int
    headers: dict[str, str]
    body: bytes
    chunks: list[Json] = field(default_factory=list)

    @property
    def engine(self) -> str:
        return self.headers.get("x-gateway-engine", "")

    @property
    def route(self) -> str:
        return self.headers.get("x-gateway-route", "")

    @property
    def predicted(self) -> int:
        return int(self.headers["x-gateway-predicted-cached-tokens"])

    @property
    def json(self) -> Json:
        return json.loads(self.body)

    @property
    def error_code(self) -> str:
        """Of the gateway's or the engine's error, as an answer of its own or in a stream; empty: none."""
        errors = [chunk["error"] for chunk in self.chunks if "error" in chunk]
        if not self.chunks and self.status >= 400:
            errors = [self.json["error"]]
        assert len(errors) < 2
        return str(errors[0]["code"]) if errors else ""

    @property
    def usage(self) -> Json:
        if not self.chunks:
            return self.json["usage"]
        return next(chunk["usage"] for chunk in reversed(self.chunks) if chunk.get("usage"))

    @property
    def delivered(self) -> int:
        return self.usage["prompt_tokens_details"]["cached_tokens"]

    @property
    def text(self) -> str:
        if not self.chunks:
            return self.json["choices"][0]["message"]["content"]
        deltas = [it["delta"] for chunk in self.chunks for it in chunk.get("choices", ()) if it["index"] == 0]
        return "".join(delta.get("content") or "" for delta in deltas)


async def ask(gateway: Running, body: Json, path: str = "/v1/chat/completions", **headers: str) -> Answer:
    """`headers` with `_` for `-`."""
    status, got, raw = await gateway.post(
        path, body, headers={k.replace("_", "-"): v for k, v in headers.items()}
    )
    if not got["content-type"].startswith("text/event-stream"):
        return Answer(status=status, headers=got, body=raw)
    return Answer(status=status, headers=got, body=raw, chunks=events(raw))


def events(raw: bytes) -> list[Json]:
    parts = [part.removeprefix(b"data: ") for part in raw.split(b"\n\n") if part.startswith(b"data: ")]
    return [json.loads(part) for part in parts if part != b"[DONE]"]


@contextlib.asynccontextmanager
async def simulated(count: int, kind: str = "vllm", **settings: Any) -> AsyncIterator[list[SimEngine]]:
    """Engines that tell their slots (vLLM in its development mode). Fast unless `settings` say otherwise."""
    fast: Json = {"prefill_rate": 1e6, "decode_rate": 1e3, "dev": True}
    engines = [SimEngine(SimSettings(kind=kind, **{**fast, **settings})) for _ in range(count)]
    async with contextlib.AsyncExitStack() as stack:
        for engine in engines:
            await stack.enter_async_context(engine)
        yield engines


def entries(engines: Sequence[SimEngine], **more: Any) -> list[Json]:
    """Their configuration, as engines a, b, c."""
    return [{"name": name, "url": it.url, **more} for name, it in zip("abc", engines, strict=False)]


@contextlib.asynccontextmanager
async def fleet(
    tmp_path: Path, count: int, kind: str = "vllm", sections: Json | None = None, **settings: Any
) -> AsyncIterator[tuple[Running, list[SimEngine]]]:
    async with (
        simulated(count, kind, **settings) as engines,
        running(tmp_path, entries(engines), **(sections or {})) as gateway,
    ):
        yield gateway, engines


def probe_often(monkeypatch: pytest.MonkeyPatch, timeout_s: float = TIMEOUT_S) -> None:
    """Probes every 50 ms, so that tests of health take no minutes."""
    monkeypatch.setattr("gateway.app.Prober", functools.partial(Prober, timeout_s=timeout_s))
    monkeypatch.setattr("gateway.app._PROBE_S", dict.fromkeys(Health, 0.05))


def words(count_tokens: int, seed: str) -> str:
    """A text of about so many simulated tokens, different from its start for each seed."""
    line = f"{seed} {'the fleet sails on and on over the deep blue sea '}"
    return (line * (4 * count_tokens // len(line) + 1))[: 4 * count_tokens]


class Watch:
    """Samples a gateway's queue and engines until it is left; `depths` and `in_flight` are what it saw."""

    def __init__(self, gateway: Running) -> None:
        self.depths: list[int] = []
        self.in_flight: list[dict[str, int]] = []
        self._gateway = gateway

    async def __aenter__(self) -> "Watch":
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            state = self._gateway.gateway.dispatcher.snapshot()
            self.depths.append(len(state.waiting))
            self.in_flight.append({engine.name: engine.in_flight for engine in state.engines})
            await asyncio.sleep(0.002)
