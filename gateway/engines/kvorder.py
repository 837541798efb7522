"""In which order an engine's batches of KV events count, and whether some are missing.

Each has a number, from 0 in each process of the engine. A publisher drops what it cannot send, so a gap is
the only sign of a loss. It may keep the last batches for whoever asks (vLLM and SGLang `replay_endpoint`).
"""

from collections import deque
from collections.abc import Sequence

from msgspec import Struct

from gateway.core.events import BlockEvent

MAX_KEPT = 10_000
"""Batches kept while earlier ones are asked for: as many as an engine keeps by default (`buffer_steps`)."""


class Numbered(Struct, frozen=True, gc=False):
    """A batch as it came. `sent_s`: the engine's wall clock; `events` are None where it could not be read."""

    number: int
    sent_s: float
    events: Sequence[BlockEvent] | None


class Orders(Struct):
    """What is to be done, in this order: `forget` all that was told before, since it does not hold any more,
    `use` these, `ask` for all from the number that is expected. `lost`: some cannot be had any more."""

    forget: bool = False
    use: list[Numbered] = []
    ask: bool = False
    lost: bool = False


class Order:
    """The batches of one publisher. `can_ask`: whether earlier ones may be had; not if asking was in vain."""

    def __init__(self, *, can_ask: bool) -> None:
        self._may_ask = can_ask
        self._kept: deque[Numbered] = deque(maxlen=MAX_KEPT)
        self.begin()

    def begin(self) -> Orders:
        """A publisher of which nothing is known: at the start, and when the engine is another process."""
        self.can_ask = self.asks = self._may_ask
        self.expected = 0
        self._met = False
        self._sent_s = float("-inf")
        self._kept.clear()
        return Orders(forget=True, ask=self.asks)

    def came(self, batch: Numbered) -> Orders:
        """A batch as it is published."""
        if self.asks:
            self._kept.append(batch)
            return Orders()
        orders = Orders()
        self._take(batch, orders)
        return orders

    def replayed(self, batch: Numbered) -> Orders:
        """One of those that were asked for."""
        orders = Orders()
        if self.asks and batch.number >= self.expected:
            self._use(batch, orders)
        return orders

    def answered(self, *, well: bool = True) -> Orders:
        """What was asked for has come to its end, or, not `well`, nobody answers."""
        orders = Orders()
        if not self.asks:
            return orders
        self.asks, self.can_ask = False, self.can_ask and well
        kept = list(self._kept)
        self._kept.clear()
        if kept and kept[0].number > self.expected:
            # What is missing before it has just been asked for.
            self._use(kept.pop(0), orders)
        for batch in kept:
            if self.asks:
                self._kept.append(batch)
            else:
                self._take(batch, orders)
        return orders

    def _take(self, batch: Numbered, orders: Orders) -> None:
        number = batch.number
        if number == self.expected or not (self._met or self.can_ask):
            self._use(batch, orders)
        elif number > self.expected:
            self._ask_or_use(batch, orders)
        elif batch.sent_s > self._sent_s:
            # Another process of the engine counts from 0 again.
            self._restart(orders)
            if number:
                self._ask_or_use(batch, orders)
            else:
                self._use(batch, orders)

    def _restart(self, orders: Orders) -> None:
        orders.forget, orders.use = True, []
        self.expected, self._met = 0, False

    def _ask_or_use(self, batch: Numbered, orders: Orders) -> None:
        if self.can_ask:
            self.asks = orders.ask = True
            self._kept.append(batch)
        else:
            self._use(batch, orders)

    def _use(self, batch: Numbered, orders: Orders) -> None:
        if batch.number > self.expected and self._met:
            orders.forget, orders.use, orders.lost = True, [], True
        orders.use.append(batch)
        self.expected, self._sent_s, self._met = batch.number + 1, batch.sent_s, True
