"""The engines that `docs/doctor.md` shows the doctor on, and how one is examined."""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gateway.doctor.client import Client
from gateway.doctor.examine import Examination, Options
from gateway.doctor.report import Report
from gateway.sim.ports import free_port
from gateway.sim.server import SimEngine
from gateway.sim.settings import SimSettings

MAX_CONCURRENCY = 64
PROMPT_TOKENS, OUTPUT_TOKENS = 64, 48
_KV_BLOCK_TOKENS = 16
# As the simulated engines count one of these requests: 86 prompt tokens and 48 of output, in whole blocks.
_REQUEST_KV_TOKENS = 144

_LOADS: dict[str, dict[str, Any]] = {
    "prefill-heavy": {"prefill_rate": 400.0, "decode_rate": 60.0},
    "decode-heavy": {"prefill_rate": 20_000.0, "decode_rate": 40.0},
}
_MUCH_KV = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Case:
    """`engine` as the table names it. `front`: so many connections at once through HAProxy."""

    engine: str
    load: str = "decode-heavy"
    jitter: float = 0.0
    stream: bool = True
    kind: str
    limit: int | None
    settings: dict[str, Any] = field(default_factory=dict)
    front: int | None = None
    asks_engine: bool = False
    max_concurrency: int = MAX_CONCURRENCY

    @property
    def name(self) -> str:
        """Of the row, without what was found."""
        answers = "streamed" if self.stream else "in one piece"
        return f"{self.engine} | {self.load} | {self.jitter:.0%} | {answers}"


_ENGINES: list[tuple[str, str, int | None, dict[str, Any]]] = [
    *((f"{slots} slots" if slots > 1 else "1 slot", "slots", slots, {"slots": slots})
      for slots in (1, 2, 3, 4, 7, 16, 40)),
    ("200 slots", "none", None, {"slots": 200}),
    ("static batches of 4", "batch", 4, {"slots": 4, "batching": "static"}),
    ("16 slots, KV for 5", "kv", 5, {"slots": 16, "kv_tokens": 5 * _REQUEST_KV_TOKENS + _KV_BLOCK_TOKENS}),
]  # fmt: skip


def cases() -> Iterator[Case]:
    for engine, kind, limit, settings in _ENGINES:
        for load in _LOADS:
            for jitter in (0.0, 0.05):
                for stream in (True, False):
                    yield Case(
                        engine=engine, load=load, jitter=jitter, stream=stream, kind=kind, limit=limit,
                        settings=settings,
                    )  # fmt: skip
    for stream in (True, False):
        limiter = Case(engine="", stream=stream, kind="rate", limit=None, settings={"slots": 200})
        for fault, what in (("rate:5", "refuses"), ("rate-delay:5", "delays")):
            yield replace(
                limiter,
                engine=f"200 slots, a limiter of 5/s that {what}",
                settings={"slots": 200, "faults": (fault,)},
            )
        front = Case(engine="", stream=stream, kind="front", limit=3, settings={"slots": 200}, front=3)
        yield replace(front, engine="200 slots behind HAProxy maxconn 3")
        yield replace(front, engine="the same, with --engine-url", asks_engine=True)


QUICK = [
    case
    for case in cases()
    if (case.engine, case.load, case.jitter, case.stream)
    in {
        ("1 slot", "decode-heavy", 0.05, True),
        ("3 slots", "decode-heavy", 0.05, False),
        ("4 slots", "decode-heavy", 0.05, True),
        ("static batches of 4", "decode-heavy", 0.05, True),
        ("static batches of 4", "decode-heavy", 0.05, False),
        ("16 slots, KV for 5", "decode-heavy", 0.05, True),
        ("200 slots, a limiter of 5/s that refuses", "decode-heavy", 0.0, True),
        ("200 slots, a limiter of 5/s that delays", "decode-heavy", 0.0, True),
        ("200 slots behind HAProxy maxconn 3", "decode-heavy", 0.0, True),
    }
]
"""Enough for every run of the suite: each kind once."""


async def examined(case: Case, directory: Path) -> Report:
    """The engine tells nothing of itself, so all is found from outside; with --engine-url it does."""
    settings = SimSettings(
        **{"kv_tokens": _MUCH_KV, **_LOADS[case.load], **case.settings},
        jitter=case.jitter,
        quiet=not case.asks_engine,
    )
    async with SimEngine(settings) as engine, _in_front(case, engine.url, directory) as url:
        options = Options(
            base=url,
            max_concurrency=case.max_concurrency,
            engine_base=engine.url if case.asks_engine else None,
            stream=case.stream,
            prompt_tokens=PROMPT_TOKENS,
            output_tokens=OUTPUT_TOKENS,
        )
        async with Client(None, 240) as client:
            examination = Examination(client, options, lambda what, share: None)
            await examination.run()
        return Report(examination.findings)


@contextlib.asynccontextmanager
async def _in_front(case: Case, url: str, directory: Path) -> AsyncIterator[str]:
    if case.front is None:
        yield url
        return
    haproxy, port = shutil.which("haproxy"), free_port()
    assert haproxy is not None
    config = directory / f"haproxy-{port}.cfg"
    config.write_text(
        "defaults\n  mode http\n  timeout connect 5s\n  timeout client 300s\n  timeout server 300s\n"
        f"  timeout queue 300s\nlisten it\n  bind 127.0.0.1:{port}\n"
        f"  server s {url.removeprefix('http://')} maxconn {case.front}\n"
    )
    process = await asyncio.create_subprocess_exec(
        haproxy, "-f", str(config), stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        await _listens(port)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        await process.wait()


async def _listens(port: int) -> None:
    async with asyncio.timeout(10):
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                return
            await asyncio.sleep(0.05)


def row(case: Case, report: Report, took_s: float) -> str:
    verdict = report.verdict
    limit = "none" if verdict.limit is None else str(verdict.limit)
    if verdict.rate_per_s:
        limit = f"{verdict.rate_per_s:.1f}/s"
    sent = sum(len(it.streams) for it in report.findings.rounds)
    return (
        f"| {case.name} | {limit} | {verdict.kind.value} | {verdict.confidence:.2f} | {sent} | {took_s:.0f} |"
    )
