"""The client: plays sessions against one address and reads what two vLLM engines counted meanwhile."""

import asyncio
import json
import re
import time
from collections.abc import Sequence

import aiohttp
from miniswe_trace import Session, Turn
from msgspec import Struct

MODEL = "tiny"
REQUEST_LIMIT_S = 120.0
"""A request that fails counts as one whose first token took this long, so that failing cannot pay."""

IDLE_LIMIT_S = 60.0
SETTLE_S = 0.3
"""vLLM publishes a step's counters after the step's tokens."""

KEPT_BYTES = 2048
"""The end of a stream that is kept to find the usage chunk in."""


class Usage(Struct, frozen=True, kw_only=True):
    """Token counts as the engine gives them in an answer; None where it gives none."""

    prompt_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None


class Answer(Struct, frozen=True, kw_only=True):
    """One played request."""

    ttft_s: float
    usage: Usage | None = None
    error: str = ""


class Counters(Struct, frozen=True, kw_only=True):
    """vLLM's prefix cache counters, in tokens."""

    queries: int
    hits: int


class Played(Struct, frozen=True, kw_only=True):
    """One round through one system. `counters` are each engine's increase."""

    answers: tuple[Answer, ...]
    counters: tuple[Counters, ...]
    wall_s: float


class EngineTrouble(Exception):
    """An engine does not do what the measurement rests on."""


def play(base_url: str, engine_urls: Sequence[str], sessions: Sequence[Session]) -> Played:
    """From empty caches to the end of the last session. Raises EngineTrouble if the caches stay full."""
    return asyncio.run(_play(base_url, engine_urls, sessions))


def check_reset(engine_urls: Sequence[str], prompt: str) -> None:
    """Shows on each live engine that a reset empties the cache: a prompt that hit must miss after it.

    Raises EngineTrouble if it does not, or if the prompt never hit.
    """
    asyncio.run(_check_reset(engine_urls, prompt))


def read_counters(metrics: str) -> Counters:
    """Raises EngineTrouble if the text of `/metrics` lacks them."""
    return Counters(
        queries=_counter(metrics, "vllm:prefix_cache_queries_total"),
        hits=_counter(metrics, "vllm:prefix_cache_hits_total"),
    )


def read_funnel(metrics: str) -> dict[str, int]:
    """Tokens of the gateway's own funnel, over all engines: in the prompts, cached on any engine, expected
    on the chosen one, served from its cache. What lies between two of them was lost there."""
    steps = {"prompt": "prompt_tokens", "best": "cached_tokens_best"}
    steps |= {"predicted": "cached_tokens_predicted", "delivered": "cached_tokens_delivered"}
    return {step: _counter(metrics, f"prefix_gateway_{name}_total") for step, name in steps.items()}


def read_usage(tail: bytes) -> Usage | None:
    """From the end of a stream; None if it holds no whole usage chunk."""
    for event in reversed(tail.split(b"\n\n")):
        data = event.removeprefix(b"data: ")
        if b'"usage":{' not in data:
            continue
        try:
            usage = json.loads(data)["usage"]
        except ValueError:
            return None
        details = usage.get("prompt_tokens_details") or {}
        return Usage(
            prompt_tokens=usage.get("prompt_tokens"),
            cached_tokens=details.get("cached_tokens"),
            output_tokens=usage.get("completion_tokens"),
        )
    return None


def request_body(turn: Turn) -> bytes:
    """The length of an answer is fixed, or systems would be compared at unequal work."""
    return json.dumps(
        {
            "model": MODEL,
            "messages": [{"role": "user", "content": turn.prompt}],
            "max_tokens": turn.output_tokens,
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    ).encode()


def _counter(metrics: str, name: str) -> int:
    found = re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", metrics, re.MULTILINE)
    if not found:
        raise EngineTrouble(f"/metrics has no {name}")
    return int(sum(float(value) for value in found))


async def _play(base_url: str, engine_urls: Sequence[str], sessions: Sequence[Session]) -> Played:
    bodies = [[request_body(turn) for turn in session.turns] for session in sessions]
    async with _http() as http:
        await _empty(http, engine_urls)
        before = [await _counters(http, url) for url in engine_urls]
        started = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(_session(http, base_url, session, own))
                for session, own in zip(sessions, bodies, strict=True)
            ]
        wall_s = time.perf_counter() - started
        await _idle(http, engine_urls)
        after = [await _counters(http, url) for url in engine_urls]
    return Played(
        answers=tuple(answer for task in tasks for answer in task.result()),
        counters=tuple(
            Counters(queries=b.queries - a.queries, hits=b.hits - a.hits)
            for a, b in zip(before, after, strict=True)
        ),
        wall_s=wall_s,
    )


async def _session(
    http: aiohttp.ClientSession, base_url: str, session: Session, bodies: Sequence[bytes]
) -> list[Answer]:
    await asyncio.sleep(session.start_s)
    answers = []
    for turn, body in zip(session.turns, bodies, strict=True):
        await asyncio.sleep(turn.think_s)
        answers.append(await _ask(http, base_url, body))
    return answers


async def _ask(http: aiohttp.ClientSession, base_url: str, body: bytes) -> Answer:
    started = time.perf_counter()
    ttft_s, tail = 0.0, b""
    try:
        async with http.post(
            f"{base_url}/v1/chat/completions", data=body, headers={"content-type": "application/json"}
        ) as response:
            async for piece in response.content.iter_any():
                # vLLM sends the first event with the first token, not before it.
                ttft_s = ttft_s or time.perf_counter() - started
                tail = (tail + piece)[-KEPT_BYTES:]
    except (aiohttp.ClientError, TimeoutError) as error:
        return Answer(ttft_s=REQUEST_LIMIT_S, error=repr(error))
    if response.status != 200 or b"data: [DONE]" not in tail:
        text = tail[-300:].decode(errors="replace")
        return Answer(ttft_s=REQUEST_LIMIT_S, error=f"status {response.status}, ends with {text!r}")
    return Answer(ttft_s=ttft_s, usage=read_usage(tail))


async def _check_reset(engine_urls: Sequence[str], prompt: str) -> None:
    body = request_body(Turn(prompt=prompt, output_tokens=1, think_s=0.0))
    async with _http() as http:
        await _empty(http, engine_urls)
        for url in engine_urls:
            first, second = await _ask(http, url, body), await _ask(http, url, body)
            await _empty(http, engine_urls)
            third = await _ask(http, url, body)
            seen = [answer.usage and answer.usage.cached_tokens for answer in (first, second, third)]
            if seen[0] != 0 or not seen[1] or seen[2] != 0:
                raise EngineTrouble(
                    f"{url}: a prompt sent twice, then once more after a reset, hit {seen} tokens; expected "
                    f"0, some, 0. {first.error or second.error or third.error}"
                )


async def _empty(http: aiohttp.ClientSession, engine_urls: Sequence[str]) -> None:
    await _idle(http, engine_urls)
    for url in engine_urls:
        async with http.post(f"{url}/reset_prefix_cache") as response:
            text = await response.text()
        if response.status != 200 or '"success":false' in text:
            raise EngineTrouble(
                f"{url}/reset_prefix_cache answered {response.status} {text}: start vLLM with "
                "VLLM_SERVER_DEV_MODE=1"
            )


async def _idle(http: aiohttp.ClientSession, engine_urls: Sequence[str]) -> None:
    for url in engine_urls:
        until = time.monotonic() + IDLE_LIMIT_S
        while _running(await _metrics(http, url)):
            if time.monotonic() > until:
                raise EngineTrouble(f"{url} still runs requests {IDLE_LIMIT_S:.0f} s after the last answer")
            await asyncio.sleep(SETTLE_S)
    await asyncio.sleep(SETTLE_S)


def _running(metrics: str) -> int:
    return _counter(metrics, "vllm:num_requests_running") + _counter(metrics, "vllm:num_requests_waiting")


async def _counters(http: aiohttp.ClientSession, url: str) -> Counters:
    return read_counters(await _metrics(http, url))


async def _metrics(http: aiohttp.ClientSession, url: str) -> str:
    async with http.get(f"{url}/metrics") as response:
        return await response.text()


def _http() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=REQUEST_LIMIT_S)
    )
