"""The listening side of a simulated engine: connections that can be refused, reset or closed while idle."""

import asyncio
import socket
import struct
from typing import Any, cast

from aiohttp import web


def reset(transport: asyncio.BaseTransport | None) -> None:
    """Ends a connection with a RST."""
    if transport is None or transport.is_closing():
        return
    sock = transport.get_extra_info("socket")
    if sock is not None:
        # Lingering for 0 s turns the close into a reset.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    # uvloop's transports are no subclass of asyncio's, so no isinstance can tell what this one is.
    cast(asyncio.Transport, transport).abort()


class Listener:
    """One address whose listening can stop and start again while the application stays."""

    def __init__(self, app: web.Application, host: str) -> None:
        self.host = host
        self.port = 0
        # Without handler_cancellation aiohttp runs a handler to its end after the client has left.
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=1.0)
        self._server: asyncio.Server | None = None
        self._idle_timers: dict[asyncio.BaseTransport, asyncio.TimerHandle] = {}

    @property
    def connections(self) -> int:
        return len(self._transports())

    async def start(self, port: int) -> None:
        await self._runner.setup()
        self.port = port
        await self.listen()

    async def listen(self) -> None:
        """Accepts connections, again or for the first time. Raises OSError."""
        if self._server is not None or self._runner.server is None:
            return
        loop = asyncio.get_running_loop()
        factory: Any = self._runner.server
        self._server = await loop.create_server(factory, self.host, self.port, backlog=1024)
        self.port = self._server.sockets[0].getsockname()[1]

    def refuse(self) -> None:
        """Stops listening and resets every connection."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for transport in self._transports():
            reset(transport)

    async def close(self) -> None:
        self.refuse()
        for timer in self._idle_timers.values():
            timer.cancel()
        self._idle_timers.clear()
        await self._runner.cleanup()

    def note_busy(self, transport: asyncio.BaseTransport | None) -> None:
        if transport in self._idle_timers:
            self._idle_timers.pop(transport).cancel()

    def note_idle(self, transport: asyncio.BaseTransport | None, close_after_s: float) -> None:
        if transport is not None and not transport.is_closing():
            loop = asyncio.get_running_loop()
            self._idle_timers[transport] = loop.call_later(close_after_s, self._close_idle, transport)

    def _close_idle(self, transport: asyncio.BaseTransport) -> None:
        self._idle_timers.pop(transport, None)
        transport.close()

    def _transports(self) -> list[asyncio.BaseTransport]:
        server = self._runner.server
        handlers = server.connections if server is not None else []
        return [handler.transport for handler in handlers if handler.transport is not None]
