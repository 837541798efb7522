"""What breaks prefixes: each new prompt against its conversation's previous one, and against what its
client's other conversations share. Counts and masked shapes; no text, unless the configuration says so.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence

from msgspec import Struct

from gateway.core.conversations import MAX_OF_SESSION, Conversation, Conversations
from gateway.core.differ import KINDS
from gateway.core.divergence import Break, session_break
from gateway.core.families import Families
from gateway.core.history import is_continued
from gateway.core.prompts import Pair, Prompt, common_bytes, unfolded
from gateway.core.shapes import Outline, Segment, Shape, Shapes, first_difference, outline

MAX_ROWS = 256
MAX_PROMPT_CHARS = 65_536
"""Of messages of one prompt whose shapes are not known yet, so much is looked at: the newest, and the
first."""

_FEW_SHOT, _MANY_SHOT = 5, 256
_BUCKET_S = 300.0
_BUCKETS = 12


class Arrival(Struct, frozen=True):
    """A request's prompt. `session` is 0 where the client names none. `shared` and `body` read its segments,
    the latter from an item on; `client` names who sends it. `now` is in seconds since the epoch."""

    session: int
    model: str
    blocks: Sequence[int]
    prompt_bytes: int
    shared: Callable[[], list[Segment]]
    body: Callable[[int], list[Segment]]
    client: Callable[[], str]
    bytes_per_token: float
    now: float


class Row(Struct):
    """One breaker: the same kind in the same place of the same client's prompts. `tokens` are estimates of
    what was computed again because of it."""

    kind: str
    part: str
    scope: str
    client: str
    model: str
    first_at: float
    last_at: float
    count: int = 0
    tokens: int = 0
    before: str = ""
    after: str = ""
    text: tuple[str, str] | None = None
    buckets: dict[int, int] = {}

    def add(self, broken: Break, tokens: int, now: float) -> None:
        self.count += 1
        self.tokens += tokens
        self.last_at, self.part = now, broken.part
        self.before, self.after, self.text = broken.before, broken.after, broken.text
        bucket = int(now / _BUCKET_S)
        self.buckets[bucket] = self.buckets.get(bucket, 0) + tokens
        for old in [it for it in self.buckets if it <= bucket - _BUCKETS]:
            del self.buckets[old]

    def tokens_per_hour(self, now: float) -> int:
        """Those of the last hour, in steps of five minutes; not more than that, if it began later."""
        since = int(now / _BUCKET_S) - _BUCKETS
        return sum(tokens for bucket, tokens in self.buckets.items() if bucket > since)


class Breakers:
    """`kinds` counts requests that broke a prefix, by kind; every kind is in it. `checked` are those whose
    prompts were looked at."""

    def __init__(self, *, keep_text: bool = False) -> None:
        self.kinds = dict.fromkeys(KINDS, 0)
        self.checked = 0
        self.shapes = Shapes(keep_text=keep_text)
        self.conversations = Conversations()
        self.families = Families()
        self._rows: OrderedDict[tuple[str, ...], Row] = OrderedDict()

    def keep_text(self, on: bool) -> None:
        """Whether texts are kept from now on; none that was, where they are not."""
        if self.shapes.keep_text and not on:
            self.shapes = Shapes()
            for row in self._rows.values():
                row.text = None
        self.shapes.keep_text = on

    def rows(self, now: float) -> list[Row]:
        """The worst first: by tokens in the last hour, then by all."""
        return sorted(self._rows.values(), key=lambda it: (-it.tokens_per_hour(now), -it.tokens))

    def repeats(self, session: int, blocks: Sequence[int], prompt_bytes: int) -> bool:
        """Whether the prompt is known to its last block, so that there is nothing to see."""
        known = self.conversations.repeated_by(session, blocks, prompt_bytes)
        if known is None:
            return False
        self.checked += 1
        self.conversations.touch(known)
        return True

    def see(self, arrival: Arrival) -> Break | None:
        """The next prompt in the order of arrival. Cheap if it goes on from a known one."""
        self.checked += 1
        blocks = arrival.blocks
        known = self.conversations.begun_by(arrival.session, blocks)
        # Where all messages are behind the last full block, it does not tell of the system text's end either.
        if known is None or known.tail == 0:
            return self._see_new(arrival)
        segments = arrival.body(known.tail_item)
        new = outline(segments)
        if not known.is_followed_by(new):
            return self._see_new(arrival)
        self._learn(segments, new)
        self.conversations.forget(known)
        known.read(segments, new)
        known.ends_at(blocks, arrival.prompt_bytes)
        self.conversations.put(known)
        return None

    def _see_new(self, arrival: Arrival) -> Break | None:
        segments, reader = arrival.body(0), _Once(arrival.shared)
        body = outline(segments)
        self._learn(segments, body)
        shared, is_known = self._shared(arrival, reader)
        new = Prompt(shared, body)
        keys = self._keys(arrival.model, body)
        before, broken = self._previous(arrival, keys, new, segments, reader)
        scope = "session"
        if not is_known:
            # A conversation that was known has paid for its change, or has none.
            compare = before is None
            found = self.families.add(arrival.model, shared, reader, self.shapes.get, compare=compare)
            if found is not None:
                broken, scope = found, "family"
        conversation = Conversation(
            new, arrival.session, keys, turns=self._turns(arrival.session, keys, body)
        )
        # What a shorter prompt was taken from may go on too: a run of its own.
        if before is not None and (broken is not None or len(before.prompt.body.codes) <= len(body.codes)):
            self.conversations.forget(before)
        conversation.set_tail(segments)
        conversation.ends_at(arrival.blocks, arrival.prompt_bytes)
        self.conversations.put(conversation)
        if broken is not None:
            self._count(broken, scope, arrival)
        return broken

    def _shared(self, arrival: Arrival, reader: _Once) -> tuple[Outline, bool]:
        """The shared part, and whether it was seen before."""
        segments = reader()
        shared = outline(segments)
        known = self.families.known(arrival.model, shared)
        if known is not None:
            return known, True
        for digest, segment in zip(shared.digests, segments, strict=True):
            self.shapes.put(digest, segment)
        return shared, False

    def _previous(
        self,
        arrival: Arrival,
        keys: tuple[int, ...],
        new: Prompt,
        segments: Sequence[Segment],
        reader: _Once,
    ) -> tuple[Conversation | None, Break | None]:
        """The conversation that the prompt is of, and where it breaks from that."""
        pairs = self._pairs(arrival.session, keys, new, segments, reader)
        continued = [it for it, pair in pairs if _is_continued(pair)]
        if continued:
            return max(continued, key=lambda it: len(it.prompt.body.codes)), None
        best: tuple[int, Conversation, Break] | None = None
        for it, pair in pairs:
            old = it.prompt
            found = session_break(pair)
            if found is not None:
                common = common_bytes(old.body, new.body) + common_bytes(old.shared, new.shared)
                if best is None or common > best[0]:
                    best = common, it, found
        return (None, None) if best is None else best[1:]

    def _pairs(
        self,
        session: int,
        keys: tuple[int, ...],
        new: Prompt,
        segments: Sequence[Segment],
        reader: _Once,
    ) -> list[tuple[Conversation, Pair]]:
        """With each conversation that it may be of; the last used first."""
        known = self.conversations.candidates(session, keys)[::-1]
        first = new.body.digests[:1]
        alike = {id(it) for it in known if it.prompt.body.digests[:1] == first}
        like = sum(it.prompt.shared.digests == new.shared.digests for it in known)
        return [
            (
                it,
                Pair(
                    it.prompt,
                    new,
                    reader,
                    segments,
                    self.shapes.get,
                    turns=it.turns,
                    is_named=bool(session),
                    has_others=bool(alike - {id(it)}),
                    is_crowded=like >= MAX_OF_SESSION,
                ),
            )
            for it in known
        ]

    def _turns(self, session: int, keys: tuple[int, ...], body: Outline) -> array[int]:
        """Where prompts ended that this one goes on from, also those of other runs."""
        turns: set[int] = set()
        for it in self.conversations.candidates(session, keys):
            at = first_difference(it.prompt.body.digests, body.digests)
            turns.update(turn for turn in (*it.turns, len(it.prompt.body.codes)) if turn <= at)
        return array("I", sorted(turns - {0, len(body.codes)}))

    def _keys(self, model: str, body: Outline) -> tuple[int, ...]:
        """By what a conversation is found again whose client names no session: how it began, but for what
        changes by itself."""
        first = self.shapes.get(body.digests[0]) if body.digests else None
        if first is None:
            return ()
        keys = hash((model, first.skeleton)), hash((model, first.bare or first.solid))
        if not _FEW_SHOT <= len(body.codes) <= _MANY_SHOT:
            return keys
        # Examples in any order, before a question.
        return *keys, hash((model, *sorted(body.digests[:-1])))

    def _learn(self, segments: Sequence[Segment], body: Outline) -> None:
        left = MAX_PROMPT_CHARS
        for digest, segment in zip(reversed(body.digests), reversed(segments), strict=True):
            if self.shapes.get(digest) is None:
                left -= len(segment.text)
                if left < 0 and segment is not segments[0]:
                    continue
                self.shapes.put(digest, unfolded(segment))

    def _count(self, broken: Break, scope: str, arrival: Arrival) -> None:
        self.kinds[broken.kind] += 1
        # Messages move on from turn to turn: where it was last stands for it.
        place = (
            broken.part if scope == "family" or not broken.part.endswith("]") else broken.part.split("[")[0]
        )
        client = arrival.client()
        key = (broken.kind, place, scope, client, arrival.model)
        row = self._rows.get(key)
        if row is None:
            row = Row(
                broken.kind, broken.part, scope, client, arrival.model, arrival.now, arrival.now, buckets={}
            )
            self._rows[key] = row
            if len(self._rows) > MAX_ROWS:
                self._rows.popitem(last=False)
        self._rows.move_to_end(key)
        row.add(broken, int(broken.lost_bytes / arrival.bytes_per_token), arrival.now)


class _Once:
    """Reads the shared segments when they are first wanted."""

    def __init__(self, read: Callable[[], list[Segment]]) -> None:
        self._read = read
        self._segments: list[Segment] | None = None

    def __call__(self) -> Sequence[Segment]:
        if self._segments is None:
            self._segments = self._read()
        return self._segments


def _is_continued(pair: Pair) -> bool:
    old, new = pair.old, pair.new
    at = first_difference(old.body.digests, new.body.digests)
    return old.shared.digests == new.shared.digests and is_continued(pair, at)


__all__ = ["KINDS", "Arrival", "Break", "Breakers", "Row", "Shape"]
