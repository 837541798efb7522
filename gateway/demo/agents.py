"""The agents of the demo: six clients that each hold one conversation, in a closed loop."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
from msgspec import Struct

from gateway.demo import conversation

_PATIENCE_S = 300.0
"""For a whole answer, the wait in any queue included."""

_ENGINE = "x-gateway-engine"
_QUEUE_MS = "x-gateway-queue-ms"
_PREDICTED = "x-gateway-predicted-cached-tokens"


class Target(Struct, frozen=True):
    """Where one request goes. `engine` is empty where only the gateway's answer tells."""

    url: str
    engine: str = ""


class Played(Struct, frozen=True, kw_only=True):
    """One request as its agent saw it. `error` is empty if the answer came whole.

    `ttft_s` counts from the sending of the request to the first text. None: unknown, or, for the queue and
    the prediction, that no gateway was there to tell.
    """

    agent: int
    turn: int
    engine: str
    error: str = ""
    queue_ms: float | None = None
    predicted_tokens: int | None = None
    ttft_s: float | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None


class Size(Struct, frozen=True):
    agents: int = conversation.AGENTS
    turns: int = conversation.TURNS
    answer_tokens: int = conversation.ANSWER_TOKENS

    @property
    def requests(self) -> int:
        return self.agents * self.turns


async def play(
    size: Size, model: str, target: Callable[[], Target], show: Callable[[Played], None]
) -> list[Played]:
    """All agents at once, each sending its next turn when it has the answer to the last.

    An agent whose request failed has no answer to go on from and stops; the turns it did not send are in
    the result as failed. `show` gets each request as it ends.
    """
    timeout = aiohttp.ClientTimeout(total=_PATIENCE_S)
    # llama-server announces keep-alive with a stream and then closes, so no connection is used twice.
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with (
        aiohttp.ClientSession(timeout=timeout, connector=connector) as http,
        asyncio.TaskGroup() as group,
    ):
        tasks = [
            group.create_task(_Agent(number, http, model, target, show).converse(size))
            for number in range(1, size.agents + 1)
        ]
    return [played for task in tasks for played in task.result()]


class _Agent:
    def __init__(
        self,
        number: int,
        http: aiohttp.ClientSession,
        model: str,
        target: Callable[[], Target],
        show: Callable[[Played], None],
    ) -> None:
        self._number = number
        self._http = http
        self._model = model
        self._target = target
        self._show = show

    async def converse(self, size: Size) -> list[Played]:
        messages = conversation.opening()
        done: list[Played] = []
        for turn in range(1, size.turns + 1):
            messages.append({"role": "user", "content": conversation.user_text(self._number, turn)})
            played, answer = await self._ask(turn, messages, size.answer_tokens)
            self._show(played)
            done.append(played)
            if played.error:
                break
            messages.append({"role": "assistant", "content": answer})
        error = f"not sent, because turn {len(done)} failed"
        unsent = range(len(done) + 1, size.turns + 1)
        return done + [Played(agent=self._number, turn=turn, engine="", error=error) for turn in unsent]

    async def _ask(
        self, turn: int, messages: list[conversation.Message], max_tokens: int
    ) -> tuple[Played, str]:
        target = self._target()
        body = {
            "model": self._model,
            "messages": messages,
            "max_tokens": max_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        clock = asyncio.get_running_loop().time
        sent_at = clock()
        answer = _Answer()
        headers: Any = {}
        try:
            async with self._http.post(f"{target.url}/v1/chat/completions", json=body) as response:
                headers = response.headers
                if response.status != 200:
                    answer.error = f"HTTP {response.status}: {_message(await response.read())}"
                else:
                    async for event in _events(response):
                        answer.take(event, clock() - sent_at)
                    answer.end()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            answer.error = f"{type(error).__name__}: {error}".rstrip(": ")
        played = Played(
            agent=self._number,
            turn=turn,
            engine=target.engine or headers.get(_ENGINE, ""),
            error=answer.error,
            queue_ms=float(headers[_QUEUE_MS]) if _QUEUE_MS in headers else None,
            predicted_tokens=int(headers[_PREDICTED]) if _PREDICTED in headers else None,
            ttft_s=answer.ttft_s,
            prompt_tokens=answer.prompt_tokens,
            cached_tokens=answer.cached_tokens,
        )
        return played, answer.text


class _Answer:
    """One stream as it comes in."""

    def __init__(self) -> None:
        self.text = ""
        self.error = ""
        self.ttft_s: float | None = None
        self.prompt_tokens: int | None = None
        self.cached_tokens: int | None = None
        self._finished = False

    def take(self, event: dict[str, Any], at_s: float) -> None:
        if "error" in event:
            self.error = _error_text(event["error"])
            return
        for choice in event.get("choices") or ():
            text = (choice.get("delta") or {}).get("content")
            if text:
                self.text += text
            if text or choice.get("finish_reason"):
                self.ttft_s = at_s if self.ttft_s is None else self.ttft_s
            self._finished = self._finished or choice.get("finish_reason") is not None
        usage = event.get("usage") or {}
        self.prompt_tokens = usage.get("prompt_tokens", self.prompt_tokens)
        details = usage.get("prompt_tokens_details") or {}
        self.cached_tokens = details.get("cached_tokens", self.cached_tokens)

    def end(self) -> None:
        if not self._finished and not self.error:
            self.error = "the answer broke off"


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    async for line in response.content:
        data = line.strip().removeprefix(b"data:").strip() if line.startswith(b"data:") else b""
        if data and data != b"[DONE]":
            yield json.loads(data)


def _message(body: bytes) -> str:
    try:
        return _error_text(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        return body[:200].decode(errors="replace")


def _error_text(error: Any) -> str:
    return str(error.get("message", error)) if isinstance(error, dict) else str(error)
