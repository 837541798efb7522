"""The doctor's HTTP client: one connection for each request, timed from its first byte to its last token.

The doctor's only user of aiohttp. No connection is kept: idle ones would take places that a layer in front
counts, and none is shared, so that no limit of the client's own stands in the way.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from types import SimpleNamespace, TracebackType
from typing import Self

import aiohttp
import msgspec
from msgspec import Struct

from gateway.doctor.seen import Shape, Stream
from gateway.engines.base import Answer
from gateway.wire.sse import data_of, events, last_boundary
from gateway.wire.usage import present, usage_in

_MAX_ANSWER_BYTES, _MAX_ERROR_BYTES = 8 << 20, 1 << 14
_SHOWN_CHARS = 200
_READ_BYTES = 1 << 16


class _Delta(Struct, gc=False):
    content: str | list[msgspec.Raw] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _Choice(Struct, gc=False):
    delta: _Delta | None = None
    text: str | None = None


class _Usage(Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Event(Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: msgspec.Raw = msgspec.Raw()


class _Whole(Struct, gc=False):
    choices: list[msgspec.Raw] | None = None
    error: msgspec.Raw = msgspec.Raw()


_EVENT = msgspec.json.Decoder(_Event)
_WHOLE = msgspec.json.Decoder(_Whole)


class Client:
    """An async context manager. `timeout_s` bounds each request as a whole."""

    def __init__(self, api_key: str | None, timeout_s: float) -> None:
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self.now = time.perf_counter

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=self._timeout,
            trace_configs=[_noting_when_written()],
            trust_env=False,
            read_bufsize=_READ_BYTES,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    def _within(self, timeout_s: float | None) -> aiohttp.ClientTimeout:
        return aiohttp.ClientTimeout(total=timeout_s) if timeout_s else self._timeout

    async def get(self, url: str, timeout_s: float | None = None) -> Answer | None:
        """None where no answer came, for whatever reason. Redirects are not followed: the key stays here."""
        timeout = self._within(timeout_s)
        try:
            async with self._session.get(
                url, headers=self._headers, timeout=timeout, allow_redirects=False
            ) as response:
                body = await _body(response, _MAX_ANSWER_BYTES)
                lowered = {name.lower(): value for name, value in response.headers.items()}
                return Answer(status=response.status, headers=lowered, body=body)
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError):
            return None

    async def why_not(self, url: str, timeout_s: float | None = None) -> str:
        """Why a GET of `url` gets no answer, in words; empty if it gets one."""
        timeout = self._within(timeout_s)
        try:
            async with self._session.get(url, headers=self._headers, timeout=timeout, allow_redirects=False):
                return ""
        except TimeoutError:
            return "no answer in time"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return str(error) or type(error).__name__

    async def ask(
        self, url: str, body: Mapping[str, object], number: int, shape: Shape, began_at: float
    ) -> Stream:
        """Sends `body` and reads the answer to its end; never fails. Times are from `began_at`."""
        sent_at = self.now() - began_at
        reading = _Reading(self.now, began_at)
        status, error = 0, ""
        queue_s: float | None = None
        try:
            async with self._session.post(
                url, json=body, headers=self._headers, allow_redirects=False, trace_request_ctx=reading
            ) as response:
                status = response.status
                queue_s = _queue_s(response.headers.get("x-gateway-queue-ms"))
                if status != 200:
                    error = _refusal(response, await _body(response, _MAX_ERROR_BYTES))
                elif "event-stream" in response.headers.get("Content-Type", ""):
                    async for piece in response.content.iter_any():
                        reading.feed(piece)
                else:
                    reading.whole(await response.read())
        except TimeoutError:
            error = "no end within the time that was left"
        except (aiohttp.ClientError, OSError, ValueError) as problem:
            error = str(problem) or type(problem).__name__
        return reading.stream(number, sent_at, shape, status, error, queue_s)


class _Reading:
    """One answer on its way in."""

    def __init__(self, now: Callable[[], float], began_at: float) -> None:
        self._now = now
        self._began_at = began_at
        self._held = b""
        self._arrivals: list[float] = []
        self._usage = _Usage()
        self._is_stream = False
        self._error = ""
        self._written_at: float | None = None

    def written(self) -> None:
        self._written_at = self._at()

    def _at(self) -> float:
        return self._now() - self._began_at

    def feed(self, piece: bytes) -> None:
        self._is_stream = True
        data = self._held + piece
        end = last_boundary(data)
        self._held = data[end:]
        at = self._at()
        for event in events(data[:end]) if end else ():
            text = data_of(event)
            if text is not None and text != b"[DONE]":
                self._read(text, at)

    def _read(self, text: bytes, at: float) -> None:
        try:
            event = _EVENT.decode(text)
        except msgspec.DecodeError:
            return
        if event.usage is not None:
            self._usage = event.usage
        if (error := present(event.error)) is not None:
            self._error = shown(error)
        if event.choices and any(map(_says_something, event.choices)):
            self._arrivals.append(at)

    def whole(self, body: bytes) -> None:
        usage = usage_in(body)
        self._usage = _Usage(usage.prompt_tokens, usage.completion_tokens)
        try:
            told = _WHOLE.decode(body)
        except msgspec.DecodeError:
            told = _Whole()
        if (error := present(told.error)) is not None:
            self._error = shown(error)
        elif not told.choices:
            self._error = f"no completion: {shown(body)}"

    def stream(
        self, number: int, sent_at: float, shape: Shape, status: int, error: str, queue_s: float | None
    ) -> Stream:
        arrivals = tuple(self._arrivals)
        ended_at = arrivals[-1] if arrivals else self._at()
        if status == 200 and self._is_stream and not arrivals and not error:
            error = self._error or "the stream brought no text"
        return Stream(
            number=number,
            sent_at=sent_at,
            ended_at=ended_at,
            shape=shape,
            written_at=self._written_at,
            first_at=arrivals[0] if arrivals else None,
            arrivals=arrivals,
            tokens=self._usage.completion_tokens or len(arrivals) or shape.output_tokens,
            prompt_tokens=self._usage.prompt_tokens,
            status=status,
            error=error or self._error,
            gateway_queue_s=queue_s,
        )


def _noting_when_written() -> aiohttp.TraceConfig:
    config = aiohttp.TraceConfig()

    async def written(_session: object, context: SimpleNamespace, _params: object) -> None:
        if isinstance(context.trace_request_ctx, _Reading):
            context.trace_request_ctx.written()

    config.on_request_headers_sent.append(written)
    return config


def _says_something(choice: _Choice) -> bool:
    delta = choice.delta
    if delta is None:
        return bool(choice.text)
    return bool(delta.content or delta.reasoning_content or delta.reasoning or choice.text)


def _queue_s(header: str | None) -> float | None:
    try:
        return float(header) / 1000 if header is not None else None
    except ValueError:
        return None


async def _body(response: aiohttp.ClientResponse, most_bytes: int) -> bytes:
    """To its end, but at most `most_bytes`; aiohttp's `read(n)` ends with the first piece that is there."""
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) >= most_bytes:
            break
    return bytes(body[:most_bytes])


def _refusal(response: aiohttp.ClientResponse, body: bytes) -> str:
    to = response.headers.get("Location")
    return f"redirects to {to[:_SHOWN_CHARS]}" if to else shown(body)


def shown(body: bytes) -> str:
    """An error's message, short: endpoints repeat prompts in them, but these are the doctor's own."""
    try:
        data = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return " ".join(body.decode(errors="replace").split())[:_SHOWN_CHARS]
    inner = data.get("error", data) if isinstance(data, dict) else data
    message = inner.get("message", inner) if isinstance(inner, dict) else inner
    return " ".join(str(message).split())[:_SHOWN_CHARS]


async def longest_lag(now: Callable[[], float], every_s: float, seen: list[float]) -> None:
    """Until it is cancelled: how long the loop stood still at most, into `seen[0]`."""
    while True:
        before = now()
        await asyncio.sleep(every_s)
        seen[0] = max(seen[0], now() - before - every_s)
