"""How fast an engine computes prompts when nothing holds it up: what a wait is compared with."""

SIZES = 3
"""A rate counts for prompts of up to 2 ** 3 times its own: longer ones may be slower by a lot (attention)."""

_BUCKETS = 32
_MOST_TOKENS = (1 << _BUCKETS - 1) - 1
_GUESSES = 3
_MIN_S = 1e-3


class Pace:
    """The best rate seen, by powers of two of the tokens. Every wait only makes a rate lower, so the best is
    the one least held up.

    Where the engine did not tell its cached tokens, what it computed is a guess, and may have been in a cache
    that nobody here knew of: of those the third best counts.
    """

    __slots__ = ("_best", "_guesses")

    def __init__(self) -> None:
        self._best = [0.0] * _BUCKETS
        self._guesses: list[list[float]] = [[] for _ in range(_BUCKETS)]

    def learn(self, tokens: int, seconds: float) -> None:
        """`tokens` were computed within `seconds`, as the engine told itself."""
        if 0 < tokens <= _MOST_TOKENS and seconds > _MIN_S:
            rate, bucket = tokens / seconds, tokens.bit_length()
            if rate > self._best[bucket]:
                self._best[bucket] = rate

    def guess(self, tokens: int, seconds: float) -> None:
        """About `tokens` were computed within `seconds`, for all that is known here."""
        if not 0 < tokens <= _MOST_TOKENS or seconds <= _MIN_S:
            return
        rate = tokens / seconds
        guesses = self._guesses[tokens.bit_length()]
        if len(guesses) < _GUESSES:
            guesses.append(rate)
        elif rate > guesses[-1]:
            guesses[-1] = rate
        else:
            return
        guesses.sort(reverse=True)

    def tokens_per_s(self, tokens: int) -> float | None:
        """For a prompt of so many tokens; None while nothing of that size has been seen."""
        first = max(0, tokens.bit_length() - SIZES)
        guessed = sorted((rate for it in self._guesses[first:] for rate in it), reverse=True)
        best = max(self._best[first:], default=0.0)
        if len(guessed) >= _GUESSES:
            best = max(best, guessed[_GUESSES - 1])
        return best or None
