"""The API port's listening sockets."""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from typing import Any

BACKLOG = 4096

_AT_ONCE = 256
"""Connections taken in one turn of the loop: more wait for the next, so that those that are open go on."""

_NOT_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
"""`localhost` is often ::1 too where there is no IPv6."""

_BREATH_S = 0.5
"""How long nothing is accepted after the process ran out of files."""


class Listener:
    """Accepts every connection that waits, and hands it to a protocol that `factory` makes.

    Not asyncio's server: on uvloop that accepts one connection in each turn of the loop. With 130 busy
    connections a turn took 60 ms, and of 512 clients that came at once the last was heard after 10 s.
    `options` are those of `connect_accepted_socket`, for TLS.
    """

    def __init__(
        self,
        factory: Callable[[], asyncio.BaseProtocol],
        loop: asyncio.AbstractEventLoop,
        log: logging.Logger,
        **options: Any,
    ) -> None:
        self._factory = factory
        self._loop = loop
        self._log = log
        self._options = options
        self._sockets: list[socket.socket] = []
        self._opening: set[asyncio.Task[None]] = set()

    async def open(self, host: str, port: int) -> None:
        """Listen on every address of `host` that this machine has. Raises `OSError` where there is none, or
        one is taken."""
        found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        missing: OSError | None = None
        for family, *_, address in dict.fromkeys(found):
            try:
                self._sockets.append(_listening(family, address))
            except OSError as error:
                missing = error
                if error.errno not in _NOT_HERE:
                    self.close()
                    break
        if missing is not None and not self._sockets:
            raise OSError(missing.errno, f"cannot listen on {host} port {port}: {missing.strerror}")
        for sock in self._sockets:
            self._loop.add_reader(sock.fileno(), self._accept, sock)

    @property
    def address(self) -> tuple[str, int]:
        """Of the first socket."""
        host, port = self._sockets[0].getsockname()[:2]
        return host, port

    def close(self) -> None:
        """Nobody who comes from now on is accepted."""
        for sock in self._sockets:
            self._loop.remove_reader(sock.fileno())
            sock.close()
        self._sockets.clear()
        for task in self._opening:
            task.cancel()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            try:
                sock, _ = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:
                # It has gone again.
                continue
            except OSError as error:
                self._log.warning("connections wait to be accepted: %s", error)
                self._loop.remove_reader(listening.fileno())
                self._loop.call_later(_BREATH_S, self._resume, listening)
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            task = self._loop.create_task(self._connect(sock))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def _connect(self, sock: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._factory, sock, **self._options)
        except OSError as error:
            # Mostly a handshake with somebody who wants no TLS, or another.
            self._log.debug("a connection could not be opened: %s", error)
            sock.close()

    def _resume(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            self._loop.add_reader(listening.fileno(), self._accept, listening)


def _listening(family: int, address: Any) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock
