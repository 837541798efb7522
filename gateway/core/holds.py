"""Keeping a freed slot a moment for the session that has just left it.

Where each slot keeps one prompt (llama.cpp), whoever takes a slot overwrites what the last one left. With
more agents than slots every turn then finds its history gone and takes somebody else's away
(ggml-org/llama.cpp#22083). An agent's next turn mostly comes at once; so the slot is kept for it, if that
costs less than the prefill it is likely to save, and only while nobody has waited long.
"""

from collections.abc import Sequence

from msgspec import Struct

from gateway.core.smoothing import smoothed

MIN_HOLD_S = 0.2
"""Enough for a client to read its answer and send the next turn."""

MAX_HOLD_S = 2.0
"""A turn that takes longer to come back, for a tool say, is not waited for."""

PATIENCE_S = 30.0
"""No slot is kept from somebody who has waited this long."""

_GAPS = 3.0
_WATCHED = 64


class Hold(Struct, frozen=True):
    """A slot kept until `until` for prompts that go on from `block`, the last of `depth`."""

    block: int
    depth: int
    width: int
    until: float

    def is_for(self, blocks: Sequence[int]) -> bool:
        return len(blocks) >= self.depth and blocks[self.depth - 1] == self.block


class Returns:
    """How often, and how soon, a prompt is continued after it has ended. Bounded: the last 64 are watched."""

    def __init__(self) -> None:
        self.share = 1.0
        self.gap_s = 0.0
        self.watched: dict[int, tuple[int, float]] = {}

    def ended(self, blocks: Sequence[int], now: float) -> None:
        for block, (_, at) in list(self.watched.items()):
            if now - at <= MAX_HOLD_S:
                break
            del self.watched[block]
            self.share = smoothed(self.share, 0.0)
        # Out first: the oldest must stay the first.
        self.watched.pop(blocks[-1], None)
        if len(self.watched) == _WATCHED:
            del self.watched[next(iter(self.watched))]
        self.watched[blocks[-1]] = (len(blocks), now)

    def arrived(self, blocks: Sequence[int], now: float) -> None:
        for block, (depth, at) in self.watched.items():
            if len(blocks) >= depth and blocks[depth - 1] == block:
                del self.watched[block]
                back = now - at <= MAX_HOLD_S
                self.share = smoothed(self.share, float(back))
                if back:
                    self.gap_s = smoothed(self.gap_s, now - at)
                return

    def worth_s(self, saved_s: float) -> float:
        """How long to keep a slot whose return saves `saved_s` of prefill: 0 where it does not pay."""
        hold_s = min(MAX_HOLD_S, max(MIN_HOLD_S, _GAPS * self.gap_s))
        return hold_s if self.share * saved_s >= hold_s else 0.0
