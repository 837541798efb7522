"""One engine's KV events: subscribed to, asked for again where some are missing, and handed on in order."""

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from gateway.core.events import BlockEvent
from gateway.edge.kvsocket import ASKER, SUBSCRIBER, Context, KvSocket, SocketError
from gateway.engines.kvevents import KvDecoder
from gateway.engines.kvorder import Numbered, Order, Orders

ANSWER_S = 2.0
"""How long a publisher may be silent that was asked for earlier batches; one that has none never speaks."""

LOST_S = 60.0
"""A loss is shown for so long."""

_NUMBER_BYTES = 8
_END = b"\xff" * _NUMBER_BYTES


class Endpoints(Struct, frozen=True):
    """Where an engine publishes its events, and where it answers for those before; None: nowhere."""

    events: str
    replay: str | None


class Hear(Protocol):
    """Gets events in order. `is_history`: they are from before the gateway followed the engine."""

    def __call__(self, events: Sequence[BlockEvent], *, is_history: bool) -> None: ...


class KvFeed:
    """From its making to `close`. `lose` says that what events told does not hold.

    `block_tokens`: tokens in a block of the engine's. Raises `SocketError` where events cannot be had at all.
    """

    def __init__(
        self,
        name: str,
        endpoints: Endpoints,
        block_tokens: int,
        *,
        context: Context,
        hear: Hear,
        lose: Callable[[], None],
        clock: Callable[[], float],
        log: logging.Logger,
    ) -> None:
        self.endpoints = endpoints
        self.block_tokens = block_tokens
        self.decoder = KvDecoder(block_tokens)
        self.batches = 0
        self.losses = 0
        self.is_silent = False
        self._is_heard = False
        self._name = name
        self._context = context
        self._hear = hear
        self._lose = lose
        self._clock = clock
        self._log = log
        self._order = Order(can_ask=endpoints.replay is not None)
        self._sent_s = float("-inf")
        self._lost_s: float | None = None
        self._asked_s = 0.0
        self._is_history = False
        self._replay: KvSocket | None = None
        self._events = KvSocket(context, SUBSCRIBER, endpoints.events, self._came, clock)
        self.restarted()

    @property
    def is_degraded(self) -> bool:
        """Whether events were lost a short time ago, or none come."""
        return self.is_silent or (self._lost_s is not None and self._clock() - self._lost_s < LOST_S)

    @property
    def is_replaying(self) -> bool:
        return self._order.asks

    @property
    def state(self) -> str:
        """`connecting` until this process of the engine has said anything: a socket does not tell whether
        there is somebody at its other end."""
        if self.is_silent:
            return "silent"
        if not self._is_heard:
            return "connecting"
        return "replaying" if self.is_replaying else "following"

    def close(self) -> None:
        self._end_replay()
        self._events.close()

    def restarted(self) -> None:
        """The engine is another process, or nothing is known of it yet: all that it has told is asked for."""
        self._is_heard = False
        orders = self._order.begin()
        self._is_history = orders.ask
        self._do(orders)

    def tick(self, *, is_silent: bool) -> None:
        """Now and then. `is_silent`: events must have come, and did not."""
        if self._order.asks and self._clock() - self._asked_s >= ANSWER_S:
            self._end_replay()
            self._log.info("engine %s: %s gives no earlier KV events", self._name, self.endpoints.replay)
            self._is_history = False
            self._do(self._order.answered(well=False))
        if is_silent:
            if not self.is_silent:
                self._log.warning("engine %s: no KV events come from %s", self._name, self.endpoints.events)
            self.is_silent = True
            self._lose()
        self._events.drain()

    def _came(self, frames: list[bytes]) -> None:
        """`[topic, number, batch]`."""
        batch = self._numbered(frames)
        if batch is not None:
            self.is_silent = False
            self._do(self._order.came(batch))

    def _replayed(self, frames: list[bytes]) -> None:
        """`[empty, topic, number, batch]`, from older engines without the topic; the last number is -1."""
        if len(frames) > 1 and frames[-2] == _END:
            self._was_read()
            self._end_replay()
            self._is_history = False
            self._do(self._order.answered())
            return
        batch = self._numbered(frames)
        if batch is not None:
            self._asked_s = self._clock()
            self._do(self._order.replayed(batch))

    def _numbered(self, frames: list[bytes]) -> Numbered | None:
        if len(frames) < 2 or len(frames[-2]) != _NUMBER_BYTES:
            self.decoder.errors += 1
            return None
        self.batches += 1
        self._was_read()
        batch = self.decoder.decode(frames[-1])
        if batch is not None:
            self._sent_s = batch.sent_s
        events = None if batch is None else batch.events
        return Numbered(int.from_bytes(frames[-2], "big"), self._sent_s, events)

    def _was_read(self) -> None:
        if not self._is_heard:
            self._is_heard = True
            self._log.info("engine %s: following KV events at %s", self._name, self.endpoints.events)

    def _do(self, orders: Orders) -> None:
        if orders.forget:
            self._lose()
        if orders.lost:
            self._tell_loss()
        for it in orders.use:
            if it.events is None:
                # It may have told of blocks that went.
                self._lose()
                self._tell_loss()
            else:
                self._hear(it.events, is_history=self._is_history)
        if orders.ask:
            self._ask()

    def _ask(self) -> None:
        self._end_replay()
        assert self.endpoints.replay is not None
        self._asked_s = self._clock()
        replay = self.endpoints.replay
        try:
            self._replay = KvSocket(self._context, ASKER, replay, self._replayed, self._clock)
            self._replay.send(b"", self._order.expected.to_bytes(_NUMBER_BYTES, "big"))
        except SocketError as error:
            # `tick` gives it up as it does one that is silent.
            self._end_replay()
            why = error.strerror
            self._log.warning(
                "engine %s: %s cannot be asked for earlier KV events: %s", self._name, replay, why
            )

    def _end_replay(self) -> None:
        if self._replay is not None:
            self._replay.close()
            self._replay = None

    def _tell_loss(self) -> None:
        self.losses += 1
        if not self.is_degraded:
            self._log.warning("engine %s: KV events were lost; what it holds is learned anew", self._name)
        self._lost_s = self._clock()
