"""The last prompt of each conversation, so that the next one can be compared with it. Bounded: those used
last."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from msgspec import Struct

from gateway.core.blocks import BLOCK_BYTES
from gateway.core.prompts import Prompt
from gateway.core.shapes import Outline, Segment

MAX_CONVERSATIONS = 8_192
MAX_BYTES = 32 << 20
MAX_OF_SESSION = 8
"""Conversations of one session: agents begin others of their own, for sub-agents and titles."""

_LOOKED_AT = 128
_NO_TURNS = array("I")


class Conversation(Struct, eq=False):
    """`depth` full blocks, the last of them `last`, are its prompt's. What is behind them may have become
    another, so items from `tail_item` on, segments from `tail` on, are read again when it goes on. `keys`
    find it where the client names no session. `turns`: how many of its segments its earlier prompts had."""

    prompt: Prompt
    session: int
    keys: tuple[int, ...]
    depth: int = 0
    last: int = 0
    prompt_bytes: int = 0
    tail: int = 0
    tail_item: int = 0
    kept_bytes: int = 0
    end: int = 0
    turns: array[int] = _NO_TURNS

    def ends_at(self, blocks: Sequence[int], prompt_bytes: int) -> None:
        self.depth, self.last, self.prompt_bytes = len(blocks), blocks[-1] if blocks else 0, prompt_bytes

    def is_begun_by(self, blocks: Sequence[int]) -> bool:
        """Whether `blocks` begin with all full blocks of this one."""
        return 0 < self.depth <= len(blocks) and blocks[self.depth - 1] == self.last

    def is_followed_by(self, new: Outline) -> bool:
        """Whether its last segments are the first of `new`: what is behind the last full block."""
        last = self.prompt.body.digests[self.tail :]
        return last == new.digests[: len(last)]

    def read(self, segments: Sequence[Segment], new: Outline) -> None:
        """`segments` with the outline `new` follow on those before `tail`."""
        body, kept = self.prompt.body, self.tail
        if len(body.codes) not in self.turns[-1:]:
            self.turns = self.turns + array("I", [len(body.codes)])
        body.codes = body.codes[:kept] + new.codes
        del body.digests[kept:], body.sizes[kept:]
        body.digests.extend(new.digests)
        body.sizes.extend(new.sizes)
        body.total_bytes = sum(body.sizes)
        self.set_tail(segments)

    def set_tail(self, segments: Sequence[Segment]) -> None:
        """`segments` are the last ones. As many of them as surely fill a block may change unseen."""
        size, at = 0, len(segments)
        while at > 0 and size < BLOCK_BYTES:
            at -= 1
            size += len(segments[at].text)
        while at > 0 and segments[at - 1].item == segments[at].item:
            at -= 1
        self.tail = len(self.prompt.body.codes) - len(segments) + at
        if segments:
            self.tail_item = segments[at].item


class Conversations:
    def __init__(self, max_conversations: int = MAX_CONVERSATIONS, max_bytes: int = MAX_BYTES) -> None:
        self._max, self._max_bytes = max_conversations, max_bytes
        self._all: OrderedDict[int, Conversation] = OrderedDict()
        self._of: dict[tuple[str, int], list[Conversation]] = {}
        self._ends: dict[int, Conversation] = {}
        self.kept_bytes = 0

    def __len__(self) -> int:
        return len(self._all)

    def begun_by(self, session: int, blocks: Sequence[int]) -> Conversation | None:
        """That which a prompt of `blocks` goes on from, or repeats."""
        if not blocks:
            return None
        if session:
            its = self._of.get(("session", session), ())
            begun = [it for it in reversed(its) if it.is_begun_by(blocks)]
            return max(begun, key=lambda it: it.depth, default=None)
        ends = self._ends
        known = ends.get(blocks[-1])
        if known is None:
            near = filter(ends.__contains__, reversed(blocks[-_LOOKED_AT:]))
            known = next(map(ends.__getitem__, near), None)
        return known if known is not None and known.is_begun_by(blocks) else None

    def repeated_by(self, session: int, blocks: Sequence[int], prompt_bytes: int) -> Conversation | None:
        """That whose prompt is the same, as far as full blocks and its length tell. It is asked of every
        request; most that are no repetition are known as that by their last block."""
        if session or not blocks:
            known = self.begun_by(session, blocks)
        else:
            known = self._ends.get(blocks[-1])
        if known is None or known.depth != len(blocks) or known.prompt_bytes != prompt_bytes:
            return None
        return known if known.is_begun_by(blocks) else None

    def touch(self, conversation: Conversation) -> None:
        self._all.move_to_end(id(conversation))

    def candidates(self, session: int, keys: Iterable[int]) -> list[Conversation]:
        """Those that a prompt may be a later one of; the last used last."""
        if session:
            return list(self._of.get(("session", session), ()))
        found = {id(it): it for key in keys for it in self._of.get(("key", key), ())}
        return list(found.values())

    def put(self, conversation: Conversation) -> None:
        """New, or used again, with whatever it is now."""
        self.forget(conversation)
        self._all[id(conversation)] = conversation
        conversation.kept_bytes = 400 + conversation.prompt.body.kept_bytes + 4 * len(conversation.turns)
        self.kept_bytes += conversation.kept_bytes
        for place in _places(conversation):
            its = self._of.setdefault(place, [])
            its.append(conversation)
            if len(its) > MAX_OF_SESSION:
                self.forget(its[0])
        if conversation.depth and not conversation.session:
            conversation.end = conversation.last
            self._ends[conversation.end] = conversation
        while len(self._all) > self._max or self.kept_bytes > self._max_bytes:
            self.forget(next(iter(self._all.values())))

    def forget(self, conversation: Conversation) -> None:
        if self._all.pop(id(conversation), None) is None:
            return
        self.kept_bytes -= conversation.kept_bytes
        for place in _places(conversation):
            its = self._of[place]
            its.remove(conversation)
            if not its:
                del self._of[place]
        if self._ends.get(conversation.end) is conversation:
            del self._ends[conversation.end]


def _places(conversation: Conversation) -> list[tuple[str, int]]:
    if conversation.session:
        return [("session", conversation.session)]
    return [("key", key) for key in conversation.keys]
