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
_STREAM = re.compile(rb'"stream": ?true')
_BACKLOG = 4096

_PROMPT_TOKENS = 500
_CACHED_TOKENS = 480
_CHUNK = {"id": "chatcmpl-x", "object": "chat.completion.chunk", "created": 1, "model": "m"}

EVENTS_BESIDE_CONTENT = 3
"""Each stream ends with the finish reason, the usage and `[DONE]`."""


class Manner(Struct, frozen=True, kw_only=True):
    """How streams are answered: `events` of content, `gap_s` apart (0: all in one write). With `hold`, one
    event and then nothing until the connection is closed."""

    events: int = 32
    gap_s: float = 0.0
    hold: bool = False

    @property
    def arguments(self) -> list[str]:
        """The options that make a process answer so."""
        words = ["--events", str(self.events), "--gap-ms", f"{self.gap_s * 1000:g}"]
        return [*words, "--hold"] if self.hold else words


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
    """One connection. Requests may come in any pieces, several in one piece, with a length or chunked."""

    _transport: asyncio.Transport

    def __init__(self, answers: Answers, manner: Manner) -> None:
        self._answers = answers
        self._manner = manner
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while size := _size(self._buffer):
            request = bytes(self._buffer[:size])
            del self._buffer[:size]
            self._answer(request)

    def _answer(self, request: bytes) -> None:
        answers = self._answers
        if not request.startswith(b"POST "):
            self._transport.write(answers.models if request.startswith(b"GET /v1/models") else answers.empty)
        elif _STREAM.search(request) is None:
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


def _size(buffer: bytearray) -> int:
    """Bytes of the first request in `buffer`; 0 while it is not whole."""
    end = buffer.find(_HEAD_END)
    if end < 0:
        return 0
    body = end + len(_HEAD_END)
    if (length := _LENGTH.search(buffer, 0, body)) is not None:
        size = body + int(length[1])
        return size if len(buffer) >= size else 0
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
def main(port: int, events: int, gap_ms: float, hold: bool) -> None:
    """Answer every POST at once: JSON, or events if it asks for a stream."""
    try:
        uvloop.run(_run(port, Manner(events=events, gap_s=gap_ms / 1000, hold=hold)))
    except OSError as error:
        sys.exit(f"cannot serve on port {port}: {error}")


if __name__ == "__main__":
    main()
