"""A TCP proxy that cuts, stalls and trickles: put it before the gateway, or between it and an engine."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator
from typing import Literal

How = Literal["fin", "rst", "stall", "trickle"]
Direction = Literal["up", "down"]


class _Link:
    """One connection through the proxy. `busy` once a POST has come, so that probes are left alone."""

    def __init__(self, proxy: "ChaosProxy", near: asyncio.StreamWriter, far: asyncio.StreamWriter) -> None:
        self.busy = False
        self.how: How | None = None
        self._proxy = proxy
        self._ends = (near, far)
        self._passed = {"up": 0, "down": 0}

    async def pump(self, direction: Direction, reader: asyncio.StreamReader, writer) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            while data := await reader.read(65536):
                await self._pass_on(direction, data, writer)
            if self.how != "stall":
                writer.write_eof()

    async def _pass_on(self, direction: Direction, data: bytes, writer) -> None:
        if direction == "up" and data.startswith(b"POST"):
            self.busy = True
            self._passed = {"up": 0, "down": 0}
        plan = self._proxy.plan
        if plan is not None and self.busy and plan[0] == direction:
            room = plan[1] - self._passed[direction]
            if len(data) >= room:
                self._proxy.plan = None
                writer.write(data[:room])
                data = data[room:]
                self.act(plan[2])
        self._passed[direction] += len(data)
        if self.how == "stall":
            await asyncio.Event().wait()
        elif self.how == "trickle":
            for byte in data:
                writer.write(bytes([byte]))
                await asyncio.sleep(0)
        elif self.how is None:
            writer.write(data)
            await writer.drain()

    def act(self, how: How) -> None:
        self.how = how
        for end in self._ends:
            if how == "fin":
                end.close()
            elif how == "rst":
                sock = end.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.transport.abort()


class ChaosProxy:
    """`plan` (direction, bytes, how) strikes once, when so many bytes of a POST, or of its answer, have
    passed; `act` strikes at once on every connection that has carried a POST. "fin" and "rst" end both
    sides, "stall" passes nothing on from then, in either direction, "trickle" single bytes."""

    def __init__(self, host: str, port: int) -> None:
        self.plan: tuple[Direction, int, How] | None = None
        self._target = host, port
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = self._server.sockets[0].getsockname()[:2]
        self.url = f"http://127.0.0.1:{self.address[1]}"

    def act(self, how: How) -> None:
        links = [it for it in self._links if it.busy]
        assert links, "no POST has come"
        for link in links:
            link.act(how)

    async def close(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        far = None
        try:
            far_reader, far = await asyncio.open_connection(*self._target)
            link = _Link(self, writer, far)
            self._links.add(link)
            await asyncio.gather(link.pump("up", reader, far), link.pump("down", far_reader, writer))
            self._links.discard(link)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            for end in (writer, far):
                if end is not None:
                    end.transport.abort()


@contextlib.asynccontextmanager
async def chaos(host: str, port: int) -> AsyncIterator[ChaosProxy]:
    proxy = ChaosProxy(host, port)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.close()
