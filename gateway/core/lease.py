"""What occupies an engine's slots, and one reading of the engine's own counters to compare it with."""

from msgspec import Struct

_ON_ITS_WAY_S = 0.05
_TOKENIZED_PER_S = 200_000
"""A request is in a report if it had this long to get there and be tokenized (llama.cpp does some millions
a second), and was granted before the engine answered the report before; a younger one may be on its way."""


class LoadReport(Struct, frozen=True, kw_only=True):
    """One reading of an engine's own counters, asked for at `asked_at`.

    `running` and `waiting` count sequences, not requests. `started_at` is any value that changes when
    the engine process is another one (its start time); None where the engine does not tell.
    """

    asked_at: float
    running: int | None = None
    waiting: int | None = None
    kv_usage: float | None = None
    started_at: float | None = None
    prefix_queries_tokens: float | None = None
    prefix_hits_tokens: float | None = None


class Lease(Struct, gc=False):
    """One request's slots on an engine, from its grant to its last byte. `ahead_tokens` of other prompts were
    still to be computed when it was granted.

    The rest is for `caps`. `is_stream`: its first token will be seen. `place`: the width granted by then,
    itself included; `overtaken`: what of that came later and has ended before its first token.
    `ahead_tokens_told`: like `ahead_tokens`, without what must be done, as later prompts are.
    `untold_before`: prompt tokens of requests that tell no first token and came before it; `untold_ahead`: of
    those of which nothing told yet that they are done. `slot_at`: when it got its slots in the engine, None
    while it waits for them there and where that is not known.
    """

    width: int
    granted_at: float
    prefill_tokens: int
    prompt_tokens: int = 0
    ahead_tokens: int = 0
    first_token_at: float | None = None
    is_stream: bool = False
    place: int = 0
    overtaken: int = 0
    ahead_tokens_told: int = 0
    untold_before: int = 0
    untold_ahead: int = 0
    slot_at: float | None = None

    def is_in(self, report: LoadReport, asked_before: float) -> bool:
        """Whether the engine must have counted it in `report`, the one before having been asked for at
        `asked_before`."""
        if self.first_token_at is not None:
            return True
        arrived = self.granted_at + _ON_ITS_WAY_S + self.prompt_tokens / _TOKENIZED_PER_S
        return self.granted_at < asked_before and arrived < report.asked_at


class Cooling(Struct, frozen=True):
    """Slots whose client left while the engine may still be working on the request."""

    width: int
    since: float
    until: float
