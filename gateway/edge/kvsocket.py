"""A ZMQ socket that reads on the event loop. The only user of pyzmq's sockets.

It reads when its file descriptor says so, for a bounded time in each turn of the loop, so that a flood of
messages holds up no request. A future for each message (`zmq.asyncio`) would cost more than reading it.
"""

import asyncio
from collections.abc import Callable

import zmq

Context = zmq.Context["zmq.Socket[bytes]"]

SocketError = zmq.ZMQError

SUBSCRIBER, ASKER = zmq.SUB, zmq.DEALER
"""Kinds of sockets: one gets what is published, one asks and gets many answers."""

TURN_S = 0.002
"""How long one turn may read."""

_MAX_MESSAGE_BYTES = 64 << 20
_MAX_UNREAD = 10_000
_RECONNECT_MS, _MOST_RECONNECT_MS = 100, 5_000
_HEARTBEAT_MS, _HEARTBEAT_TIMEOUT_MS = 5_000, 15_000


class KvSocket:
    """Connected to `endpoint`, again and again, until it is closed. `read` gets each message, in frames.

    Raises `SocketError` where there is nothing to connect to at such an address, or no socket to be had.
    """

    def __init__(
        self,
        context: Context,
        kind: int,
        endpoint: str,
        read: Callable[[list[bytes]], None],
        clock: Callable[[], float],
    ) -> None:
        self._read = read
        self._clock = clock
        self._goes_on = False
        self._loop = asyncio.get_running_loop()
        self._socket = context.socket(kind)
        try:
            self._connect(kind, endpoint)
        except SocketError:
            self._socket.close()
            raise
        self._loop.add_reader(self._socket.FD, self.drain)

    def send(self, *frames: bytes) -> None:
        self._socket.send_multipart(frames, zmq.NOBLOCK)
        self.drain()

    def drain(self) -> None:
        """Read what is there. The descriptor tells only of what comes once all has been read."""
        if not self._goes_on:
            self._turn()

    def close(self) -> None:
        if not self._socket.closed:
            self._loop.remove_reader(self._socket.FD)
            self._socket.close()

    def _connect(self, kind: int, endpoint: str) -> None:
        for option, value in (
            (zmq.LINGER, 0),
            (zmq.MAXMSGSIZE, _MAX_MESSAGE_BYTES),
            (zmq.RCVHWM, _MAX_UNREAD),
            (zmq.RECONNECT_IVL, _RECONNECT_MS),
            (zmq.RECONNECT_IVL_MAX, _MOST_RECONNECT_MS),
            (zmq.HEARTBEAT_IVL, _HEARTBEAT_MS),
            (zmq.HEARTBEAT_TIMEOUT, _HEARTBEAT_TIMEOUT_MS),
            (zmq.IPV6, 1),
        ):
            self._socket.setsockopt(option, value)
        self._socket.connect(endpoint)
        if kind == SUBSCRIBER:
            self._socket.setsockopt(zmq.SUBSCRIBE, b"")

    def _turn(self) -> None:
        self._goes_on = False
        until_s = self._clock() + TURN_S
        while not self._socket.closed:
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._read(frames)
            if self._clock() > until_s:
                self._goes_on = True
                self._loop.call_soon(self._turn)
                return
