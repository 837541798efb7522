"""What the tests say to a simulated engine."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

from gateway.sim.server import SimEngine

KINDS = ["vllm", "sglang", "llamacpp"]
Json = dict[str, Any]
Start = Callable[..., Awaitable[SimEngine]]


def chat(text: str = "Hello there", **more: object) -> Json:
    return {"messages": [{"role": "user", "content": text}], **more}


async def post(client: aiohttp.ClientSession, engine: SimEngine, path: str, body: Json) -> Json:
    async with client.post(engine.url + path, json=body) as answer:
        read: Json = await answer.json(content_type=None)
        return read


async def get(client: aiohttp.ClientSession, engine: SimEngine, path: str) -> Any:
    async with client.get(engine.url + path) as answer:
        return await answer.json()


async def stream(
    client: aiohttp.ClientSession, engine: SimEngine, body: Json, api: str = "chat/"
) -> list[Any]:
    """The decoded SSE events, `[DONE]` as it is."""
    async with client.post(f"{engine.url}/v1/{api}completions", json={**body, "stream": True}) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        text = (await answer.read()).decode()
    events = [part.removeprefix("data: ") for part in text.split("\n\n") if part]
    return [event if event == "[DONE]" else json.loads(event) for event in events]


async def until(state: Callable[[], object]) -> None:
    async with asyncio.timeout(5):
        while not state():
            await asyncio.sleep(0.005)


def text_of(events: list[Any], index: int = 0) -> str:
    chosen = [c for e in events if e != "[DONE]" for c in e["choices"] if c["index"] == index]
    return "".join(c.get("delta", {}).get("content") or c.get("text", "") for c in chosen)
