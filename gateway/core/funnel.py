"""What could have come from cache, what did, and what became of the rest: token by token, for each request.

Of a prompt of T tokens some engine held or was computing K when the request was granted, some engine held R,
the chosen one held or was computing C and held P, and delivered D of it. Each is taken as at least the next
and at most T, so that the differences are never negative and add up to T - D exactly:

    cold                            T - K   nobody had it
    pending              (K - R) + (C - P)   it was still being computed, or lay in a busy slot
    spilled, queued_elsewhere       R - C   another engine had more, and a slot free, or none
    evicted, engine_disagrees       P - D   it was believed there; engine_disagrees if counting may explain it

K, R, C and P are what the index knew at the last grant, of the engines that could take the request then, in
tokens as it reckons them; T and D are the engine's own. What an engine delivered beyond what was known of it
lowers the levels above.
"""

from collections.abc import Iterable, Sequence
from operator import add

from msgspec import Struct

from gateway.core.request import Outcome, Record

REASONS = ("cold", "spilled", "queued_elsewhere", "pending", "evicted", "engine_disagrees")

WITHOUT = frozenset({"embeddings", "tokenize", "detokenize"})
"""APIs that never report cached tokens; to count them as unknown would hide engines that should."""

Row = Sequence[int]
"""One request, in the order of `COLUMNS`."""

Sums = list[int]
"""Of some requests, likewise."""

COLUMNS = ("requests", "prompt", "infinite", "best", "predicted", "delivered", *REASONS, "unknown", "slot_ms")
"""What is summed of each request: tokens, but for the first and the last two. All but `unknown`, the ok
requests whose engine did not report, is of requests whose engine did."""

_OK = Outcome.OK
_UNKNOWN = tuple(int(name == "unknown") for name in COLUMNS)


class Losses(Struct, frozen=True):
    """Tokens by reason; in the order of `REASONS`."""

    cold: int
    spilled: int
    queued_elsewhere: int
    pending: int
    evicted: int
    engine_disagrees: int


def losses(record: Record) -> Losses | None:
    """What a request lost; None where its engine did not report, and where nothing could be cached."""
    if not (record.engine and record.width) or record.api in WITHOUT:
        return None
    counted = row(record)
    return Losses(*counted[_FIRST : _FIRST + len(REASONS)]) if counted is not None and counted[0] else None


_FIRST = COLUMNS.index(REASONS[0])


def row(record: Record) -> Row | None:
    """One request in `COLUMNS`; None where it tells nothing: it failed and has no report."""
    prompt, delivered = record.prompt_tokens, record.cached_tokens
    if prompt is None or delivered is None:
        return _UNKNOWN if record.outcome is _OK else None
    if delivered > prompt:
        delivered = prompt
    predicted, best, known = record.predicted_cached_tokens, record.best_cached_tokens, record.known_tokens
    infinite = record.seen_tokens
    slot_ms = int(record.duration_ms - record.queue_ms) * record.width
    if delivered >= known and delivered >= best and delivered >= predicted:
        if not delivered <= infinite <= prompt:
            infinite = _within(infinite, delivered, prompt)
        return (
            1, prompt, infinite, best, predicted, delivered, prompt - delivered, 0, 0, 0, 0, 0, 0, slot_ms
        )  # fmt: skip
    # From the last level up, each at least the one below and at most the prompt.
    held = _within(predicted, delivered, prompt)
    evicted, miscounted = (0, held - delivered) if record.is_miscounted else (held - delivered, 0)
    spilled = queued = pending = 0
    most = held
    if known > predicted or best > predicted or record.pending_tokens:
        coming = _within(predicted + record.pending_tokens, held, prompt)
        held_elsewhere = _within(best, coming, prompt)
        most = _within(known, held_elsewhere, prompt)
        spilled, queued = held_elsewhere - coming, 0
        if record.holder_full:
            spilled, queued = queued, spilled
        pending = most - held_elsewhere + coming - held
    return (
        1, prompt, _within(infinite, most, prompt), best, predicted, delivered,
        prompt - most, spilled, queued, pending, evicted, miscounted, 0, slot_ms,
    )  # fmt: skip


def _within(tokens: int, least: int, most: int) -> int:
    return least if tokens < least else most if tokens > most else tokens


def summed(rows: Iterable[Sequence[int]]) -> Sums:
    """At least one row."""
    return list(map(sum, zip(*rows, strict=True)))


def plus(a: Sequence[int], b: Sequence[int]) -> Sums:
    return list(map(add, a, b))


NOTHING: Sums = [0] * len(COLUMNS)


class Figures(Struct, frozen=True, kw_only=True):
    """The funnel of some requests, in tokens. `infinite` is what a cache without bounds would have delivered,
    `best` and `predicted` what was expected: they may be above it. `hit_rate` is delivered / prompt.
    `unknown_requests` ended ok without a report and are in no other figure."""

    requests: int
    prompt: int
    infinite: int
    best: int
    predicted: int
    delivered: int
    hit_rate: float | None
    lost: Losses
    unknown_requests: int


def figures(sums: Sequence[int]) -> Figures:
    requests, prompt, infinite, best, predicted, delivered = sums[:_FIRST]
    return Figures(
        requests=requests,
        prompt=prompt,
        infinite=infinite,
        best=best,
        predicted=predicted,
        delivered=delivered,
        hit_rate=delivered / prompt if prompt else None,
        lost=Losses(*sums[_FIRST : _FIRST + len(REASONS)]),
        unknown_requests=sums[-2],
    )
