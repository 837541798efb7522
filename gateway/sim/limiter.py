"""Limits on requests/s, as an operator or a provider puts them in front of an engine.

Pure: every call brings the time, in seconds from any origin, never going back.
"""


class Bucket:
    """A token bucket: refuses what exceeds `rate_per_s` after a burst of as many requests (at least one)."""

    def __init__(self, rate_per_s: float) -> None:
        self._rate_per_s = rate_per_s
        # Below one request/s no whole token would ever be there.
        self._size = max(1.0, rate_per_s)
        self._tokens = self._size
        self._refilled_at: float | None = None

    def admits(self, now: float) -> bool:
        """Whether a request that comes now may pass; it takes its token then."""
        if self._refilled_at is not None:
            grown = self._tokens + (now - self._refilled_at) * self._rate_per_s
            self._tokens = min(self._size, grown)
        self._refilled_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class Pacer:
    """Lets requests pass one by one, `1 / rate_per_s` seconds apart at least, and refuses none.

    nginx's `limit_req` with a burst that is never reached. As there, the turn of a client that leaves while
    it waits is lost.
    """

    def __init__(self, rate_per_s: float) -> None:
        self._gap_s = 1 / rate_per_s
        self._free_at = 0.0

    def delay_s(self, now: float) -> float:
        """How long a request that comes now has to wait; its turn is taken then."""
        turn = max(now, self._free_at)
        self._free_at = turn + self._gap_s
        return turn - now
