"""A cheap engine for load on a gateway: vLLM's surface, a prefix cache of its own, no model.

usage: python benchmarks/relay/engine.py PORT KV_TOKENS

Prompts are cached in pieces of 1 KB, 256 tokens each, the least recently used ones go first. A stream is 12
events 3 ms apart, a JSON answer takes 10 ms.
"""

import asyncio
import json
import sys
import time
from collections import OrderedDict

import uvloop

PIECE_BYTES, PIECE_TOKENS = 1024, 256
EVENTS, GAP_S, ANSWER_S = 12, 0.003, 0.010
STARTED_AT = time.time()  # noqa: TID251 - Unix time, as an engine tells it
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\n%b\r\n\r\n"


class Cache:
    def __init__(self, kv_tokens: int) -> None:
        self._room = max(1, kv_tokens // PIECE_TOKENS)
        self._pieces: OrderedDict[int, None] = OrderedDict()

    def cached_tokens(self, prompt: bytes) -> int:
        """Of `prompt`, which is held from now on."""
        found, key, all_so_far = 0, 0, True
        for at in range(0, len(prompt) - PIECE_BYTES, PIECE_BYTES):
            key = hash((key, prompt[at : at + PIECE_BYTES]))
            all_so_far = all_so_far and key in self._pieces
            found += all_so_far
            self._pieces[key] = None
            self._pieces.move_to_end(key)
        while len(self._pieces) > self._room:
            self._pieces.popitem(last=False)
        return found * PIECE_TOKENS


class Connection(asyncio.Protocol):
    running = 0

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._buffer = b""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._end()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self._buffer[:end].lower()
        length = int((head + b"\r\n").partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
        if len(self._buffer) < end + 4 + length:
            return
        body, self._buffer = self._buffer[end + 4 : end + 4 + length], self._buffer[end + 4 + length :]
        if head.startswith(b"post"):
            self._answer(body)
        else:
            self._probe(head)

    def _probe(self, head: bytes) -> None:
        path = head.split(b" ")[1]
        if path == b"/v1/models":
            card = {"id": "m", "object": "model", "owned_by": "vllm", "max_model_len": 32768}
            self._whole(json.dumps({"object": "list", "data": [card]}).encode())
        elif path == b"/metrics":
            text = (
                f'vllm:num_requests_running{{engine="0"}} {Connection.running}\n'
                f'vllm:num_requests_waiting{{engine="0"}} 0\nprocess_start_time_seconds {STARTED_AT}\n'
            )
            self._whole(text.encode(), b"text/plain")
        else:
            self._whole(b"{}")

    def _answer(self, body: bytes) -> None:
        Connection.running += 1
        tokens = len(body) // 4
        usage = {
            "prompt_tokens": tokens,
            "completion_tokens": EVENTS,
            "prompt_tokens_details": {"cached_tokens": min(tokens - 1, self._cache.cached_tokens(body))},
        }
        loop = asyncio.get_running_loop()
        if b'"stream": true' in body:
            self._write(_HEAD % (b"text/event-stream", b"transfer-encoding: chunked"))
            self._timer = loop.call_later(GAP_S, self._event, EVENTS, usage)
        else:
            answer = {"choices": [{"index": 0, "message": {"content": "x" * 100}}], "usage": usage}
            self._timer = loop.call_later(ANSWER_S, self._finish, json.dumps(answer).encode())

    def _event(self, left: int, usage: dict[str, object]) -> None:
        self._chunk({"choices": [{"index": 0, "delta": {"content": " word"}, "finish_reason": None}]})
        if left:
            self._timer = asyncio.get_running_loop().call_later(GAP_S, self._event, left - 1, usage)
            return
        self._chunk({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        self._chunk({"choices": [], "usage": usage})
        self._write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
        self._end()

    def _finish(self, answer: bytes) -> None:
        self._whole(answer)
        self._end()

    def _end(self) -> None:
        self._timer = None
        Connection.running -= 1

    def _chunk(self, value: object) -> None:
        event = b"data: " + json.dumps(value).encode() + b"\n\n"
        self._write(b"%x\r\n%b\r\n" % (len(event), event))

    def _whole(self, body: bytes, kind: bytes = b"application/json") -> None:
        self._write(_HEAD % (kind, b"content-length: %d" % len(body)) + body)

    def _write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)


async def main(port: int, kv_tokens: int) -> None:
    cache = Cache(kv_tokens)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(cache), "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), int(sys.argv[2])))
