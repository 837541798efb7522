"""One request between its offer and its finish: what engines hold of its prompt, and where it could go."""

from msgspec import Struct

from gateway.core.columns import Row
from gateway.core.engine import Engine
from gateway.core.index import Seen
from gateway.core.request import Grant, Request, Route


class Entry(Struct, eq=False, gc=False):
    """One request between its offer and its finish. `models` may answer it: the one that its session is on,
    else all of its pool. `engine` has the `grant`, even if another one has its name by now."""

    request: Request
    turn: int
    waits_since: float = 0.0
    models: tuple[str, ...] = ()
    grant: Grant | None = None
    engine: Engine | None = None
    attempts: int = 0
    resent: bool = False
    queued_s: float = 0.0
    excluded: frozenset[str] = frozenset()
    seen: dict[str, Seen] = {}
    row: Row | None = None


class Choice(Struct, frozen=True, gc=False):
    """An engine for a request, why, and what it holds of the prompt; `best_tokens` of it are held by the
    engine that holds most, and `holder_full` if none such has a slot free for the request. `known_tokens` are
    the most that any holds or is computing."""

    engine: Engine
    model: str
    seen: Seen
    route: Route
    best_tokens: int
    known_tokens: int
    holder_full: bool = False


class Look(Struct, frozen=True, gc=False):
    """Where a waiting request would go. `other` has a free slot where `engine` has none, and `saves_s` is
    the prefill, weighed for all it delays, that waiting for `engine` saves against it. What is ahead there
    and how crowded it is do not count: that passes while the request waits."""

    engine: Engine
    has_room: bool
    prefill_s: float
    other: Engine | None = None
    saves_s: float = 0.0
