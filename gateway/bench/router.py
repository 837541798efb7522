"""What a replay needs of a router, ours or a rival's, and what a router may see of the engines."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from gateway.bench.workload import Ask, EngineSpec


class Sent(NamedTuple):
    """Request `key` goes to engine number `engine` now; -1: it is refused."""

    key: int
    engine: int


REFUSED = -1


class Sight(Protocol):
    """One engine as routers see it. All figures are exact and of this moment, which is in favour of those
    that poll: theirs are up to seconds old in the field."""

    spec: EngineSpec

    @property
    def up(self) -> bool: ...

    @property
    def running(self) -> int:
        """Requests in a slot."""
        ...

    @property
    def waiting(self) -> int:
        """Requests in the engine's own queue."""
        ...

    @property
    def kv_usage(self) -> float:
        """The part of the cache that running requests hold, 0 to 1."""
        ...

    def cached_blocks(self, blocks: Sequence[int]) -> int:
        """How many leading blocks the engine holds: for routers that follow KV events."""
        ...


class Router(Protocol):
    """Every call returns what is to be sent now, of whichever requests. Calls come in order of time."""

    def arrived(self, ask: Ask, now: float) -> Sequence[Sent]: ...

    def first_token(self, key: int, now: float) -> None: ...

    def finished(self, key: int, cached_tokens: int, now: float) -> Sequence[Sent]:
        """The answer has ended; the engine reports how much of the prompt came from its cache."""
        ...

    def failed(self, key: int, now: float) -> Sequence[Sent]:
        """The engine died with the request, which is to be sent again."""
        ...

    def went_down(self, engine: int, now: float) -> Sequence[Sent]: ...

    def came_up(self, engine: int, now: float) -> Sequence[Sent]:
        """The engine is back, with an empty cache."""
        ...

    def due_s(self) -> float | None:
        """When `wake` wants to be called, at the latest."""
        ...

    def wake(self, now: float) -> Sequence[Sent]: ...
