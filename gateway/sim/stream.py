"""Answers of the simulated engine as event streams, and the faults that show in them."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from aiohttp import web

from gateway.sim.answers import Writer
from gateway.sim.driver import Ticket
from gateway.sim.faults import Faults
from gateway.sim.work import Event


class _Sender:
    """One event stream. Its head goes out with the first event; where it is buffered, all with the end."""

    def __init__(self, request: web.Request, headers: Mapping[str, str], *, is_buffered: bool) -> None:
        self._request = request
        self._response = web.StreamResponse(headers=headers)
        self._is_buffered = is_buffered
        self._held = bytearray()
        self.event_count = 0

    async def send(self, data: bytes) -> None:
        self._held += b"data: " + data + b"\n\n"
        self.event_count += 1
        if not self._is_buffered:
            await self._flush()

    async def end(self) -> web.StreamResponse:
        await self._flush()
        await self._response.write_eof()
        return self._response

    async def _flush(self) -> None:
        if not self._response.prepared:
            await self._response.prepare(self._request)
        if self._held:
            data, self._held = bytes(self._held), bytearray()
            await self._response.write(data)


async def stream_answer(
    request: web.Request,
    headers: Mapping[str, str],
    ticket: Ticket,
    writer: Writer,
    faults: Faults,
    die: Callable[[], Awaitable[None]],
) -> web.StreamResponse:
    """Sends a request's tokens as they come. `die` ends the connection and does not return."""
    sender = _Sender(request, headers, is_buffered=faults.buffer)
    async for event in ticket.events():
        for chunk in _chunks(writer, event, truncate=faults.truncate):
            if sender.event_count == faults.die_after_chunks:
                await die()
            await sender.send(msgspec.json.encode(chunk))
    if sender.event_count == faults.die_after_chunks:
        await die()
    if not faults.truncate:
        for chunk in writer.tail():
            await sender.send(msgspec.json.encode(chunk))
        await sender.send(b"[DONE]")
    return await sender.end()


def _chunks(writer: Writer, event: Event, *, truncate: bool) -> list[dict[str, Any]]:
    if truncate:
        return writer.chunks(msgspec.structs.replace(event, is_last=False))
    return writer.chunks(event) + (writer.choice_end(event.choice) if event.is_last else [])
