"""Silent engines, and what tests of `admission.keepalive` read from their clients.

Nothing here waits by the clock: an engine goes on once its client has had a sign of life.
"""

import asyncio
import json

from harness import chat, running, with_keepalive
from raw_client import request

SIGN = b": keepalive\n\n"
PING = b'event: ping\ndata: {"type":"ping"}\n\n'
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
MESSAGES = "/v1/messages"
RESPONSES = "/v1/responses"


def alive(tmp_path, *engines, after_s=0.05, **sections):
    slots = sections.pop("slots", 1)
    entries = [it.entry(name=name, slots=slots) for name, it in zip("ab", engines, strict=False)]
    return running(tmp_path, entries, change=with_keepalive(after_s), **sections)


def ask(path=CHAT, *headers, version="1.1", stream=True):
    body = chat("hello", model="m", stream=stream)
    if path in (COMPLETIONS, RESPONSES):
        body = {"model": "m", "prompt": "hello", "input": "hello", "stream": stream}
    return request(body, *headers, path=path, version=version)


class Held:
    """A handler that writes `before`, then waits for `release`, then does `after`."""

    def __init__(self, after, before=b""):
        self.release = asyncio.Event()
        self._before = before
        self._after = after

    async def __call__(self, call):
        if self._before:
            call.write(self._before)
        await self.release.wait()
        await self._after(call)


def writes(*parts, close=False):
    async def handler(call):
        call.write(*parts)
        if close:
            call.close()

    return handler


async def hold(call):
    await call.left.wait()


async def committed(client, sign=SIGN):
    """The head that the first sign of life brings."""
    head = await client.head()
    assert await client.chunk() == sign
    assert head.status == 200
    return head


async def rest_of(client, sign=SIGN):
    """What comes up to the answer's end, without further signs."""
    body = b""
    while piece := await client.chunk():
        body += piece
    return body.replace(sign, b"")


async def in_band(client, api_prefix=b""):
    """The one event that ends the stream, and with it the connection."""
    body = await rest_of(client)
    assert body.startswith(api_prefix + b"data: ")
    assert body.endswith(b"\n\n")
    assert body.count(b"\n\n") == 1
    assert await client.until_closed() == b""
    return json.loads(body.removeprefix(api_prefix).removeprefix(b"data: "))


async def the_record(gateway):
    """Newest first: the request that ended last."""
    record = (await gateway.records())[0]
    return record["outcome"], record["status"], record["code"]
