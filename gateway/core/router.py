"""Choosing an engine: pure functions of what is known now. Nothing here changes anything.

The cost is in predicted seconds. With P the engine's prefill rate, S its slots and N the number of
engines that could serve the request:

    wait + prefill accepted there / P + uncached / P x (1 + requests running there + waiting / N)
         + what of that another engine holds / P x AGAIN
         + what an answer takes longer there + CROWDING_S x requests running there

A prefill delays every request it is batched with and everyone who waits, so it is weighed for them all;
that weight decided more than any other part of the rule in a closed-loop simulation on agent traces. A
prefix attracts by the seconds that it saves and no more, so one that all requests share spreads under load.
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


CROWDING_S = 0.05
"""What each request that runs on an engine costs one more there: it decides where all else is equal, so that
requests that share one prefix do not pile up on its first holder."""


SLOWER = 1.25
"""An engine's answers take longer by as much before that counts: what is less is load, not the machine."""


AGAIN = 4.0
"""What is computed though another engine holds it weighs so much more: it is work that nobody had to do, and
the session's next turns follow it."""


class Usual(Struct, frozen=True):
    """What stands in for a figure that an engine has not shown yet: the mean of those that have.

    `answer_s` is what an answer, known before it only on average, takes on the fastest engine, whose peak
    rate is `decode_tokens_per_s`.
    """

    prefill_tokens_per_s: float
    decode_tokens_per_s: float
    answer_s: float


def usual(engines: Sequence[Engine]) -> Usual:
    fastest = max((engine.decode_peak_tokens_per_s for engine in engines), default=0.0)
    answer = _mean([engine.answer_tokens for engine in engines])
    return Usual(
        _mean([engine.prefill_tokens_per_s for engine in engines]) or DEFAULT_PREFILL_TOKENS_PER_S,
        fastest,
        answer / fastest if answer and fastest else 0.0,
    )


def _mean(figures: Sequence[float | None]) -> float | None:
    known = [figure for figure in figures if figure]
    return sum(known) / len(known) if known else None


class Terms(Struct):
    """What an engine costs whoever is put there now, whatever the prompt. `busy` weighs a prefill for those
    it would be batched with; `slot_wait_s` is for each slot that is missing; `decode_s` is what the answer
    takes longer than on the fastest engine, idle."""

    engine: Engine
    model: str
    usual: Usual
    rate_tokens_per_s: float = 1.0
    ahead_s: float = 0.0
    busy: float = 1.0
    slot_wait_s: float = 0.0
    decode_s: float = 0.0
    free: int = 0

    def refresh(self) -> None:
        """The engine's load has changed."""
        engine, usual = self.engine, self.usual
        self.rate_tokens_per_s = engine.prefill_tokens_per_s or usual.prefill_tokens_per_s
        self.ahead_s = engine.pending_prefill_tokens / self.rate_tokens_per_s
        self.busy = 1.0 + (engine.in_flight + engine.in_flight_average) / 4
        self.slot_wait_s = (engine.slot_s or DEFAULT_SLOT_S) / max(1, engine.usable)
        self.decode_s = CROWDING_S * engine.in_flight
        peak = engine.decode_peak_tokens_per_s
        if peak and usual.decode_tokens_per_s > SLOWER * peak:
            self.decode_s += usual.answer_s * (usual.decode_tokens_per_s / peak - 1.0)
        self.free = engine.free

    def cost_s(self, uncached_tokens: int, short: int, waiting_share: float, least_tokens: int = 0) -> float:
        """`short` slots are missing; `waiting_share` others wait for each engine; where most of the prompt
        is held, `least_tokens` of it are to be computed."""
        own_s = uncached_tokens / self.rate_tokens_per_s
        extra_s = (uncached_tokens - least_tokens) / self.rate_tokens_per_s
        cost_s = self.ahead_s + own_s * (self.busy + waiting_share) + extra_s * AGAIN + self.decode_s
        return cost_s + short * self.slot_wait_s if short > 0 else cost_s


def terms(engine: Engine, model: str, usual: Usual) -> Terms:
    made = Terms(engine, model, usual)
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
    decode_s: float = 0.0
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
    figures: Usual,
) -> None:
    """Set each candidate's `score`; the lowest wins. `turn` is the request's place in the rotation."""
    count = len(candidates)
    least = min(it.uncached_tokens for it in candidates)
    for index, it in enumerate(candidates):
        engine = it.engine
        if policy == "cost":
            of = terms(engine, it.model, figures)
            short = missing(engine, request.width, it.reserved)
            it.wait_s = short * of.slot_wait_s
            it.prefill_ahead_s = of.ahead_s
            it.own_prefill_s = it.uncached_tokens / of.rate_tokens_per_s
            it.weight = of.busy + waiting / count
            it.decode_s = of.decode_s
            it.score = of.cost_s(it.uncached_tokens, short, waiting / count, least)
            it.prefill_s = it.score - it.wait_s
        elif policy == "round_robin":
            it.score = float((index - turn) % count)
        elif policy == "session":
            # Rendezvous hashing: an engine that leaves moves only its own sessions.
            place = request.session or (request.blocks[0] if request.blocks else request.key)
            it.score = -float(xxh3_64_intdigest(engine.name.encode(), place))
        else:
            load = (engine.in_flight + engine.cooling_width + it.reserved) / max(1, engine.usable)
            it.score = load if policy == "least_loaded" else load - it.matched_tokens


def pick(candidates: Sequence[Candidate], random: Callable[[], float]) -> Candidate:
    """The candidate with the lowest score; ties are broken at random, or one engine would draw them all."""
    best = candidates[0]
    ties = 1
    for it in candidates[1:]:
        if it.score < best.score:
            best, ties = it, 1
        elif it.score == best.score:
            ties += 1
            if random() * ties < 1.0:
                best = it
    return best


def reason(policy: Policy, request: Request, chosen: Candidate, candidates: Sequence[Candidate]) -> Route:
    if len(candidates) == 1:
        return Route.ONLY
    if policy == "session" and request.session:
        return Route.SESSION
    if policy != "cost":
        return Route.POLICY
    best = max(it.matched_tokens for it in candidates)
    return Route.PREFIX if best and chosen.matched_tokens == best else Route.LOAD
