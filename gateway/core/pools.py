"""Which model of a pool a session is on: it stays there, since a change loses its cache and its manner."""

from itertools import islice

from msgspec import Struct

from gateway.core.request import Request

MAX_SESSIONS = 10_000
"""So many sessions that clients name are remembered, and as many conversations that they do not; those heard
of longest ago are forgotten."""

_ENDS = 2
"""Ends that are kept of each conversation: the last but one is for a turn that is asked for again."""

_SHARED = ""


class _End(Struct):
    """The last full block of a prompt of `depth` blocks that was answered. `next` is the block with which a
    prompt went on from it, `before` the end that it went on from itself. `model` is `_SHARED` once it is
    known to be what several conversations begin with."""

    model: str
    depth: int
    next: int | None = None
    before: int | None = None


class Affinity:
    """Remembers on which model each session of a pool was placed.

    A session is what the client names as one. Where it names none, a conversation is recognised because its
    prompt goes on, by a full block at least, from a prompt that was answered. An end from which different
    prompts go on, or that was placed on different models, is a system prompt with a short question, say,
    and binds nobody: else all who share it would crowd onto one model. That leaves the choice to the cost,
    which knows where a prefix lies.

    Prompts are told apart by their chain under the first model of their pool. Both methods take a look at
    every block of a prompt that goes on from nothing known, and only at the new ones of one that does.
    """

    def __init__(self, max_sessions: int = MAX_SESSIONS) -> None:
        self._max = max_sessions
        self._named: dict[int, tuple[str, ...]] = {}
        self._ends: dict[int, _End] = {}

    def model_of(self, request: Request) -> str | None:
        """The model that the request's session is on; None where it is on none of the request's pool."""
        if not request.pool:
            return None
        if request.session:
            known = self._named.get(request.session, ())
            return next((model for model in known if model in request.models), None)
        end = self._continued(request.blocks)
        if end is None or end.next not in (None, request.blocks[end.depth]):
            return None
        return end.model if end.model in request.models else None

    def placed(self, request: Request, model: str) -> None:
        """An engine is asked for `model`: the session is on it from now on."""
        if not request.pool:
            return
        if request.session:
            # A client may use several pools in one session; it is on one model of each.
            others = (it for it in self._named.pop(request.session, ()) if it not in request.models)
            self._named[request.session] = (model, *others)
            if len(self._named) > self._max:
                del self._named[next(iter(self._named))]
        elif request.blocks:
            self._ended(request.blocks, model)

    def _ended(self, blocks: tuple[int, ...], model: str) -> None:
        before = self._continue(blocks)
        end = self._ends.pop(blocks[-1], None)
        if end is None:
            end = _End(model, len(blocks), before=before)
        elif end.model != model:
            end.model = _SHARED
        self._ends[blocks[-1]] = end
        if len(self._ends) > _ENDS * self._max:
            del self._ends[next(iter(self._ends))]

    def _continue(self, blocks: tuple[int, ...]) -> int | None:
        """Note what `blocks` go on from: the end at the block that is returned."""
        end = self._continued(blocks)
        if end is None:
            return None
        following = blocks[end.depth]
        if end.next not in (None, following):
            end.model = _SHARED
        elif end.next is None:
            end.next = following
            if end.before in self._ends and self._ends[end.before].model != _SHARED:
                del self._ends[end.before]
        return blocks[end.depth - 1]

    def _continued(self, blocks: tuple[int, ...]) -> _End | None:
        """The last end that `blocks` go on from. Their very last block is none: nothing follows it."""
        known = filter(self._ends.__contains__, islice(reversed(blocks), 1, None))
        block = next(known, None)
        return None if block is None else self._ends[block]
