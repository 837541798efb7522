"""Publishes KV events as an engine does: over ZMQ, numbered, with the last batches kept for whoever asks."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import zmq

from gateway.sim.ports import free_port

BLOCK = 4
_POLL_S = 0.005


class Publisher:
    """`keeps` batches for whoever asks, None: it cannot be asked. `drops`: what it publishes is not sent."""

    def __init__(self, keeps: int | None = 1000, *, has_topic: bool = True) -> None:
        self.port, self.replay_port = free_port(), free_port()
        self.keeps = keeps
        self.drops = False
        self.answers = True
        self.asked: list[int] = []
        self._has_topic = has_topic
        self._task: asyncio.Task[None] | None = None

    @property
    def setting(self) -> str:
        """For `kv_events`."""
        replay = "off" if self.keeps is None else self.replay_port
        return f"tcp://127.0.0.1:{self.port}?replay={replay}"

    def start(self, sent_s: float = 1.0) -> None:
        """A new process: it counts from 0. What it sends is later than what the one before sent."""
        self._number, self._sent_s = 0, sent_s
        self._kept: list[tuple[int, bytes]] = []
        self._context = zmq.Context()
        self._events = self._context.socket(zmq.XPUB)
        self._events.setsockopt(zmq.LINGER, 0)
        self._events.setsockopt(zmq.XPUB_VERBOSE, 1)
        self._events.bind(f"tcp://127.0.0.1:{self.port}")
        self._router = self._context.socket(zmq.ROUTER)
        self._router.setsockopt(zmq.LINGER, 0)
        if self.keeps is not None:
            self._router.bind(f"tcp://127.0.0.1:{self.replay_port}")
        self._task = asyncio.create_task(self._answer())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
            self._events.close()
            self._router.close()
            # The port is free once this is over.
            self._context.term()

    async def subscribed(self) -> None:
        """Waits until somebody gets what is published."""
        async with asyncio.timeout(10):
            while not self._events.poll(0):
                await asyncio.sleep(_POLL_S)
        self._events.recv()

    def publish(self, *events: Any) -> None:
        self.publish_bytes(msgspec.msgpack.encode([self._sent_s + self._number, list(events), 0]))

    def publish_bytes(self, payload: bytes) -> None:
        number = self._number.to_bytes(8, "big")
        self._kept.append((self._number, payload))
        self._number += 1
        if not self.drops:
            self._events.send_multipart((b"kv", number, payload))

    def publish_frames(self, *frames: bytes) -> None:
        self._events.send_multipart(frames)

    async def _answer(self) -> None:
        while True:
            await asyncio.sleep(_POLL_S)
            if not self._router.poll(0):
                continue
            client, _, since = self._router.recv_multipart()
            self.asked.append(int.from_bytes(since, "big"))
            if not self.answers:
                continue
            topic = (b"kv",) if self._has_topic else ()
            kept = self._kept[-(self.keeps or 0) :] if self.keeps else []
            for number, payload in kept:
                if number >= self.asked[-1]:
                    self._router.send_multipart((client, b"", *topic, number.to_bytes(8, "big"), payload))
            self._router.send_multipart((client, b"", *topic, b"\xff" * 8, b""))


@contextlib.asynccontextmanager
async def publisher(keeps: int | None = 1000, **more: bool) -> AsyncIterator[Publisher]:
    it = Publisher(keeps, **more)
    it.start()
    try:
        yield it
    finally:
        await it.stop()


def stored(*hashes: int, after: int | None = None, block_tokens: int = BLOCK) -> dict[str, Any]:
    return {
        "type": "BlockStored",
        "block_hashes": list(hashes),
        "parent_block_hash": after,
        "token_ids": [0] * (len(hashes) * block_tokens),
        "block_size": block_tokens,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
    }


def removed(*hashes: int) -> dict[str, Any]:
    return {"type": "BlockRemoved", "block_hashes": list(hashes), "medium": "GPU"}
