"""How likely a conversation is to go on, by how long ago its last answer ended.

Evicting what is about to be used again gains nothing: the room that a new prompt takes is paid with the
prefill of the one that comes back. So the scheduler asks how old what would be evicted is, and this tells
how often anything so old was still continued.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

HORIZON_S = 300.0
"""A conversation that has not gone on by then counts as over. Of the recorded agents' gaps 9 in 10 are
shorter (Claude Code sessions, callanjfox/kv-cache-tester: median 10 s, p90 174 s)."""

_WATCHED = 4096
_LOOKED_AT = 512
_EDGES_S = tuple(0.5 * 2.0**power for power in range(10))
_ENOUGH = 32
_REMEMBERED = 1024.0
_REFRESH_S = 1.0


class Turns:
    """Bounded: the last 4,096 answers are watched. Times never go back."""

    def __init__(self) -> None:
        self._ended: dict[int, tuple[int, float]] = {}
        self._all_since = float("-inf")
        """Nothing that is watched ended before."""
        self._gaps = [0.0] * (len(_EDGES_S) + 1)
        self._never = 0.0
        self._room = int(_REMEMBERED)
        self._shares: list[float | None] = [None] * len(self._gaps)
        self._refreshed_at = float("-inf")

    def ended(self, blocks: Sequence[int], now: float) -> None:
        if not blocks:
            return
        ended, last = self._ended, blocks[-1]
        if last in ended:
            del ended[last]
        ended[last] = (len(blocks), now)
        while now - self._all_since > HORIZON_S or len(ended) > _WATCHED:
            block, (_, self._all_since) = next(iter(ended.items()))
            if len(ended) <= _WATCHED and now - self._all_since <= HORIZON_S:
                return
            del ended[block]
            self._never += 1.0

    def arrived(self, blocks: Sequence[int], now: float) -> None:
        ended = self._ended
        if not blocks or not ended:
            return
        last = blocks[-1]
        if last not in ended:
            known = next(filter(ended.__contains__, reversed(blocks[-_LOOKED_AT:])), None)
            if known is None:
                return
            last = known
        depth, at = ended[last]
        if depth > len(blocks) or blocks[depth - 1] != last:
            return
        del ended[last]
        self._gaps[bisect_right(_EDGES_S, now - at)] += 1.0
        self._room -= 1
        # The sum is taken only when it may be so much.
        if self._room < 0 and sum(self._gaps) > _REMEMBERED:
            self._gaps = [count / 2 for count in self._gaps]
            self._never /= 2
            self._room = int(_REMEMBERED - sum(self._gaps)) - 1

    def return_share(self, age_s: float, now: float) -> float:
        """Of the conversations whose last answer ended `age_s` ago, the share that still goes on; 0 while
        too few have been seen. Those still open count as over, so that it is never too high."""
        if now - self._refreshed_at >= _REFRESH_S:
            self._refresh(now)
        return self._shares[_bucket(age_s)] or 0.0

    def _refresh(self, now: float) -> None:
        self._refreshed_at = now
        still = [0.0] * len(self._gaps)
        for _, at in self._ended.values():
            still[_bucket(now - at)] += 1.0
        later = list(accumulate(reversed(self._gaps)))[::-1]
        older = list(accumulate(reversed(still)))[::-1]
        enough = later[0] >= _ENOUGH
        self._shares = [
            back / (back + gone + self._never) if enough and back else None
            for back, gone in zip(later, older, strict=True)
        ]


def _bucket(gap_s: float) -> int:
    return bisect_right(_EDGES_S, gap_s)
