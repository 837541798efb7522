"""Choosing an engine: pure functions of what is known now. Nothing here changes anything.

The cost is in predicted seconds. With P the engine's prefill rate and U the mean of all engines', N the
number of engines that could serve the request, and R the requests running there now and on average of the
last minute:

    wait for a slot x WAITING + (prefill accepted there + uncached) / P
         + uncached / U x (R / 4 + waiting / N)
         + the lesser of AGAIN_LITTLE x A and AGAIN x A + MOVING_S, with A = what another holds more of it / U
         + min(CROWDING_S, CROWDING_TOKENS / P) x requests running there

A prefill delays every request it is batched with and everyone who waits, so it is weighed for them all;
that weight decided more than any other part of the rule in a closed-loop simulation on agent traces. What a
request does to others is reckoned at the mean rate: at the engine's own, a slow engine would take nobody
while those who wait for the fast ones stand in line. A prefix attracts by the seconds that it saves and no
more, so one that all requests share spreads under load. How the constants were chosen: `docs/routing.md`.
"""

from collections.abc import Callable, Sequence
from typing import Literal, get_args

from msgspec import Struct
from xxhash import xxh3_64_intdigest

from gateway.core.engine import DEFAULT_SLOT_S, Engine
from gateway.core.request import Request, Route

Policy = Literal["cost", "round_robin", "least_loaded", "session", "prefix"]
POLICIES: tuple[Policy, ...] = get_args(Policy)

DEFAULT_PREFILL_TOKENS_PER_S = 2000.0
"""Prefill rate assumed until some engine has shown one; then the mean of those that have."""


CROWDING_S = 0.2
"""What each request that runs on an engine costs one more there: it decides where all else is equal, so that
requests that share one prefix do not pile up on its first holder."""

CROWDING_TOKENS = 3000
"""No more than the prefill of so many tokens: where that is quick, conversations would move for nothing."""

WAITING = 2.0
"""A predicted wait for a slot weighs so much: the session's next turns would stand in the same line."""

AGAIN = 4.0
"""What is computed though another engine holds it weighs so much more: it is work that nobody had to do, and
the session's next turns follow it. What is still being computed there does not count: siblings of a burst may
as well compute it side by side."""

AGAIN_LITTLE = 12.0
"""So much where it is little, up to `MOVING_S` in all."""

MOVING_S = 2.0
"""Predictions err by seconds, and an answer that begins that soon is prompt all the same: no conversation
moves to another engine to begin less than this sooner."""


def again_s(tokens: int, rate_tokens_per_s: float) -> float:
    """What it costs to compute `tokens` that another engine holds."""
    prefill_s = tokens / rate_tokens_per_s
    return min(prefill_s * AGAIN_LITTLE, prefill_s * AGAIN + MOVING_S)


def all_again_s(resident: Sequence[int], most: int, rate_tokens_per_s: float) -> list[float]:
    """`again_s` of what each engine has less of than `most`."""
    prefill_s = [(most - tokens) / rate_tokens_per_s for tokens in resident]
    return [min(it * AGAIN_LITTLE, it * AGAIN + MOVING_S) for it in prefill_s]


def usual_rate(engines: Sequence[Engine]) -> float:
    """Prefill tokens/s of an engine that has not shown any yet: the mean of those that have."""
    known = [engine.prefill_tokens_per_s for engine in engines if engine.prefill_tokens_per_s]
    return sum(known) / len(known) if known else DEFAULT_PREFILL_TOKENS_PER_S


class Terms(Struct):
    """What an engine costs whoever is put there now, whatever the prompt. `batched` weighs a prefill for
    those it would be batched with; `slot_wait_s` is for each slot that is missing. At `usual_rate`, that of
    all engines, delays of others are reckoned; it stands in for a rate that the engine has not shown."""

    engine: Engine
    usual_rate: float
    rate_tokens_per_s: float = 1.0
    ahead_s: float = 0.0
    batched: float = 0.0
    slot_wait_s: float = 0.0
    crowding_s: float = 0.0
    free: int = 0

    def refresh(self) -> None:
        """The engine's load has changed."""
        engine = self.engine
        self.rate_tokens_per_s = engine.prefill_tokens_per_s or self.usual_rate
        self.ahead_s = engine.pending_prefill_tokens / self.rate_tokens_per_s
        self.batched = (engine.in_flight + engine.in_flight_average) / 4
        self.slot_wait_s = (engine.slot_s or DEFAULT_SLOT_S) / max(1, engine.usable)
        crowding_s = min(CROWDING_S, CROWDING_TOKENS / self.rate_tokens_per_s)
        self.crowding_s = crowding_s * engine.in_flight
        self.free = engine.free

    def cost_s(self, uncached_tokens: int, short: int, waiting_share: float, again_tokens: int = 0) -> float:
        """`short` slots are missing; `waiting_share` others wait for each engine; `again_tokens` of what is
        to be computed are resident on another engine."""
        others_s = again_s(again_tokens, self.usual_rate)
        cost_s = self.ahead_s + uncached_tokens * self.token_s(waiting_share) + others_s + self.crowding_s
        return cost_s + short * self.slot_wait_s * WAITING if short > 0 else cost_s

    def token_s(self, waiting_share: float) -> float:
        """What each token costs that is to be computed, for the request itself and for others."""
        return 1.0 / self.rate_tokens_per_s + (self.batched + waiting_share) / self.usual_rate


def terms(engine: Engine, usual_rate: float) -> Terms:
    made = Terms(engine, usual_rate)
    made.refresh()
    return made


class Candidate(Struct, kw_only=True):
    """One engine for one request, which it would be asked for as `model`. Tokens are of the prompt;
    `reserved` slots are not for this request. `prefill_s` is the cost without the wait for a slot."""

    engine: Engine
    model: str
    prompt_tokens: int
    resident_tokens: int
    pending_tokens: int
    reserved: int = 0
    wait_s: float = 0.0
    prefill_ahead_s: float = 0.0
    own_prefill_s: float = 0.0
    crowding_s: float = 0.0
    weight: float = 1.0
    prefill_s: float = 0.0
    score: float = 0.0

    @property
    def matched_tokens(self) -> int:
        return self.resident_tokens + self.pending_tokens

    @property
    def uncached_tokens(self) -> int:
        return max(1, self.prompt_tokens - self.matched_tokens)

    @property
    def uncached(self) -> float:
        """The share of the prompt that is to be computed."""
        return self.uncached_tokens / self.prompt_tokens


def missing(engine: Engine, width: int, reserved: int) -> int:
    """Slots that a request of `width` would still wait for, beside `reserved` ones."""
    here = engine.width_here(width)
    return max(0, here + reserved - engine.free) if here else 0


def weigh(
    policy: Policy,
    request: Request,
    turn: int,
    candidates: Sequence[Candidate],
    waiting: int,
    rate: float,
) -> None:
    """Set each candidate's `score`; the lowest wins. `turn` is the request's place in the rotation."""
    count = len(candidates)
    resident = max(it.resident_tokens for it in candidates)
    for index, it in enumerate(candidates):
        engine = it.engine
        if policy == "cost":
            of = terms(engine, rate)
            short = missing(engine, request.width, it.reserved)
            it.wait_s = short * of.slot_wait_s
            it.prefill_ahead_s = of.ahead_s
            it.own_prefill_s = it.uncached_tokens / of.rate_tokens_per_s
            it.weight = of.token_s(waiting / count) * of.rate_tokens_per_s
            it.crowding_s = of.crowding_s
            again = resident - it.resident_tokens
            it.score = of.cost_s(it.uncached_tokens, short, waiting / count, again)
            it.prefill_s = it.score - it.wait_s * WAITING
        elif policy == "round_robin":
            it.score = float((index - turn) % count)
        elif policy == "session":
            # Rendezvous hashing: an engine that leaves moves only its own sessions.
            place = request.session or (request.blocks[0] if request.blocks else request.key)
            it.score = -float(xxh3_64_intdigest(engine.name.encode(), place))
        else:
            load = (engine.in_flight + engine.cooling_width + it.reserved) / max(1, engine.usable)
            it.score = load if policy == "least_loaded" else load - it.matched_tokens


def saves_s(best: Candidate, other: Candidate) -> float:
    """What the cost would be more at `other` than at `best`, once that has a slot and has computed what is
    ahead there."""
    return other.prefill_s - best.prefill_s + best.prefill_ahead_s + best.crowding_s


def pick(candidates: Sequence[Candidate], random: Callable[[], float]) -> Candidate:
    """The candidate with the lowest score; ties are broken at random, or one engine would draw them all."""
    return candidates[lowest([it.score for it in candidates], random)]


def lowest(scores: Sequence[float], random: Callable[[], float]) -> int:
    """The place of the lowest of `scores`; ties are broken at random."""
    best, place, ties = scores[0], 0, 0
    for at, score in enumerate(scores):
        if score < best:
            best, place, ties = score, at, 1
        elif score == best:
            ties += 1
            if ties > 1 and random() * ties < 1.0:
                place = at
    return place


def reason(policy: Policy, request: Request, chosen: Candidate, candidates: Sequence[Candidate]) -> Route:
    """Why `chosen` of `candidates`."""
    best = max(it.matched_tokens for it in candidates)
    return why(policy, request, len(candidates), chosen.matched_tokens, best)


def why(policy: Policy, request: Request, count: int, matched_tokens: int, best_tokens: int) -> Route:
    """Why an engine with `matched_tokens` of the prompt was chosen out of `count`, the best of which has
    `best_tokens` of it."""
    if count == 1:
        return Route.ONLY
    if policy == "session" and request.session:
        return Route.SESSION
    if policy != "cost":
        return Route.POLICY
    return Route.PREFIX if best_tokens and matched_tokens == best_tokens else Route.LOAD
