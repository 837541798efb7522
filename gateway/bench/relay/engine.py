"""A mock OpenAI-compatible engine, fast enough never to be what a measurement of a proxy measures.

`python -m gateway.bench.relay.engine --port PORT` runs it. It looks at nothing of a request but its length
and whether it asks for a stream: a measuring stick, no model of an engine (that is `gateway.sim`).
"""

import asyncio
import re
import sys
from collections.abc import Mapping
from typing import Any, cast

import click
import msgspec
import uvloop
from msgspec import Struct

_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[ \t]*chunked", re.IGNORECASE)
_HEAD_END = b"\r\n\r\n"
_LAST_CHUNK = b"0\r\n\r\n"
_STREAM = b'"stream":'
_TRUE = b"true"
_END_BYTES = 4096
"""A request's head and the part of its body that says `stream` are within its first or last bytes: each proxy
here keeps the order of the fields or sorts them."""

_BACKLOG = 4096

_PROMPT_TOKENS = 500
_CACHED_TOKENS = 480
_CHUNK = {"id": "chatcmpl-x", "object": "chat.completion.chunk", "created": 1, "model": "m"}

EVENTS_BESIDE_CONTENT = 3
"""Each stream ends with the finish reason, the usage and `[DONE]`."""


class Manner(Struct, frozen=True, kw_only=True):
    """How streams are answered: `events` of content, `gap_s` apart (0: all in one write). With `hold`, one
    event and then nothing until the connection is closed. With `keep`, whole requests are kept in memory and
    searched to their end, which takes about a millisecond for 400 KB."""

    events: int = 32
    gap_s: float = 0.0
    hold: bool = False
    keep: bool = False

    @property
    def arguments(self) -> list[str]:
        """The options that make a process answer so."""
        words = ["--events", str(self.events), "--gap-ms", f"{self.gap_s * 1000:g}"]
        return words + ["--hold"] * self.hold + ["--keep"] * self.keep


class Answers:
    """Everything the engine ever says, as bytes made once."""

    def __init__(self, manner: Manner) -> None:
        usage = {
            "prompt_tokens": _PROMPT_TOKENS,
            "completion_tokens": manner.events,
            "total_tokens": _PROMPT_TOKENS + manner.events,
            "prompt_tokens_details": {"cached_tokens": _CACHED_TOKENS},
        }
        said = {"message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}
        listed = {"id": "m", "object": "model", "created": 1, "owned_by": "vllm", "max_model_len": 1 << 20}
        self.chat = _json(
            {**_CHUNK, "object": "chat.completion", "usage": usage, "choices": [{"index": 0, **said}]}
        )
        self.models = _json({"object": "list", "data": [listed]})
        self.empty = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
        self.stream_head = (
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        self.event = _event({**_CHUNK, "choices": [_choice({"content": " hello"}, None)]})
        self.tail = (
            _event({**_CHUNK, "choices": [_choice({}, "stop")]})
            + _event({**_CHUNK, "choices": [], "usage": usage})
            + _chunk(b"data: [DONE]\n\n")
            + _LAST_CHUNK
        )
        self.burst = self.stream_head + self.event * manner.events + self.tail


def _choice(delta: Mapping[str, str], finish_reason: str | None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "finish_reason": finish_reason}


def _event(value: Mapping[str, Any]) -> bytes:
    return _chunk(b"data: %s\n\n" % msgspec.json.encode(value))


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _json(value: Mapping[str, Any]) -> bytes:
    body = msgspec.json.encode(value)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    return head + body


class Engine(asyncio.Protocol):
    """One connection. Requests may come in any pieces, several in one piece, with a length or chunked.

    A long body is counted, not kept, unless `Manner.keep`: its ends tell whether a stream is wanted.
    """

    _transport: asyncio.Transport

    def __init__(self, answers: Answers, manner: Manner) -> None:
        self._answers = answers
        self._manner = manner
        self._buffer = b""
        self._left = 0
        """Bytes still to come of a long request, with its beginning in `_buffer` and its end in `_last`."""
        self._last = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._left:
            data = self._count(data)
            if self._left:
                return
        self._buffer = self._buffer + data if self._buffer else data
        while size := _size(self._buffer):
            if size > len(self._buffer):
                self._begin_to_count(size)
                return
            request, self._buffer = self._buffer[:size], self._buffer[size:]
            self._answer(request)

    def _begin_to_count(self, size: int) -> None:
        if len(self._buffer) >= _END_BYTES and not self._manner.keep:
            self._left = size - len(self._buffer)
            self._last = self._buffer[-_END_BYTES:]
            self._buffer = self._buffer[:_END_BYTES]

    def _count(self, data: bytes) -> bytes:
        """What of `data` belongs to the next request."""
        rest, data = data[: self._left], data[self._left :]
        self._left -= len(rest)
        self._last = (self._last + rest[-_END_BYTES:])[-_END_BYTES:]
        if not self._left:
            request, self._buffer = self._buffer + self._last, b""
            self._answer(request)
        return data

    def _answer(self, request: bytes) -> None:
        answers = self._answers
        if not request.startswith(b"POST "):
            self._transport.write(answers.models if request.startswith(b"GET /v1/models") else answers.empty)
        elif not (_searched if self._manner.keep else _wants_stream)(request):
            self._transport.write(answers.chat)
        elif self._manner.hold:
            self._transport.write(answers.stream_head + answers.event)
        elif self._manner.gap_s:
            self._transport.write(answers.stream_head)
            self._next(self._manner.events)
        else:
            self._transport.write(answers.burst)

    def _next(self, left: int) -> None:
        if self._transport.is_closing():
            return
        self._transport.write(self._answers.event if left else self._answers.tail)
        if left:
            asyncio.get_running_loop().call_later(self._manner.gap_s, self._next, left - 1)


def _wants_stream(request: bytes) -> bool:
    """By the field's first occurrence: in a prompt its quotation marks would be escaped."""
    at = request.find(_STREAM, 0, _END_BYTES)
    if at < 0 and len(request) > _END_BYTES:
        at = request.find(_STREAM, len(request) - _END_BYTES)
    value = at + len(_STREAM)
    return at >= 0 and request[value : value + len(_TRUE) + 1].lstrip().startswith(_TRUE)


def _searched(request: bytes) -> bool:
    return b'"stream":true' in request or b'"stream": true' in request


def _size(buffer: bytes) -> int:
    """Bytes of the first request in `buffer`, which may not be whole; 0 while that cannot be told."""
    end = buffer.find(_HEAD_END)
    if end < 0:
        return 0
    body = end + len(_HEAD_END)
    if (length := _LENGTH.search(buffer, 0, body)) is not None:
        return body + int(length[1])
    if _CHUNKED.search(buffer, 0, body) is None:
        return body
    # No body here holds a raw line end, so this is the last chunk wherever it stands.
    last = buffer.find(_LAST_CHUNK, body)
    return last + len(_LAST_CHUNK) if last >= 0 else 0


async def serve(port: int, manner: Manner) -> asyncio.Server:
    """Port 0 takes any free one. Raises OSError."""
    answers = Answers(manner)
    loop = asyncio.get_running_loop()
    return await loop.create_server(lambda: Engine(answers, manner), "127.0.0.1", port, backlog=_BACKLOG)


async def _run(port: int, manner: Manner) -> None:
    async with await serve(port, manner) as server:
        await server.serve_forever()


@click.command()
@click.option("--port", type=click.IntRange(1, 65535), required=True)
@click.option("--events", type=click.IntRange(1), default=Manner().events, show_default=True)
@click.option("--gap-ms", type=click.FloatRange(0), default=0.0, help="Between events; 0: all at once.")
@click.option("--hold", is_flag=True, help="One event, then nothing until the connection is closed.")
@click.option("--keep", is_flag=True, help="Keep whole requests and search them to their end.")
def main(port: int, events: int, gap_ms: float, hold: bool, keep: bool) -> None:
    """Answer every POST at once: JSON, or events if it asks for a stream."""
    try:
        uvloop.run(_run(port, Manner(events=events, gap_s=gap_ms / 1000, hold=hold, keep=keep)))
    except OSError as error:
        sys.exit(f"cannot serve on port {port}: {error}")


if __name__ == "__main__":
    main()
