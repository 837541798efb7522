"""What an engine says of itself while the doctor looks: its kind, its slots, how many run and wait in it."""

import asyncio
from collections.abc import Callable

from gateway.core.facts import SlotSource
from gateway.doctor.client import Client
from gateway.doctor.seen import Engine, Reading
from gateway.engines.base import Answer, Dialect
from gateway.engines.registry import DIALECTS, IDENTIFY_PATHS, identify

_TIMEOUT_S = 5.0
_READ_EVERY_S = 0.15
_FACTS_TIMEOUT_S = 15.0
"""vLLM's first /server_info takes seconds (2.8 s seen on 0.32.0)."""


class Behind:
    """The engine at `base`, asked through its dialect. `direct`: nothing else is known to stand before it."""

    def __init__(self, client: Client, base: str, *, direct: bool) -> None:
        self._client = client
        self._base = base
        self._direct = direct
        self._dialect: Dialect | None = None
        self._readable = False

    async def look(self) -> Engine | None:
        """None where nobody answers there."""
        answers: dict[str, Answer] = {}
        for path in IDENTIFY_PATHS:
            answer = await self._client.get(self._base + path, _TIMEOUT_S)
            if answer is None:
                if not answers:
                    return None
                continue
            answers[path] = answer
            if identify(answers) != "openai":
                break
        dialect = self._dialect = DIALECTS[identify(answers)]
        for path in dialect.facts_paths:
            if path not in answers:
                answer = await self._client.get(self._base + path, _FACTS_TIMEOUT_S)
                if answer is not None:
                    answers[path] = answer
        facts = dialect.read_facts(answers)
        self._readable = (await self._read(0.0)) is not None
        declared = facts.slots if facts.slots_source is SlotSource.DISCOVERED else facts.slots_declared
        return Engine(
            kind=dialect.kind,
            setting=dialect.cap_setting,
            slots=declared,
            kv_tokens=facts.kv_tokens,
            direct=self._direct,
            url=self._base if self._direct else "",
        )

    async def watch(self, now: Callable[[], float], readings: list[Reading]) -> None:
        """Until it is cancelled: reads the engine's counters, one request at a time."""
        while self._readable:
            reading = await self._read(now())
            if reading is not None:
                readings.append(reading)
            await asyncio.sleep(_READ_EVERY_S)

    async def _read(self, at: float) -> Reading | None:
        dialect = self._dialect
        if dialect is None or dialect.load_path is None:
            return None
        answer = await self._client.get(self._base + dialect.load_path, _TIMEOUT_S)
        report = dialect.read_load(answer, at) if answer is not None else None
        if report is None or report.running is None:
            return None
        return Reading(at, report.running, report.waiting, report.kv_usage)
