"""Why an engine gets a request, and why the others do not, in words that follow the figures."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from gateway.core.router import WAITING, Candidate, Policy

_LEAST_S = 0.05
"""Smaller differences are not worth a word."""


class Forecast(Struct, frozen=True, eq=False):
    """What is predicted of one engine: the wait for a slot, the prefill before it, the request's own. The
    last two are parts of the cost, in seconds that are weighed: no time that passes."""

    of: Candidate
    has_room: bool
    wait_s: float
    ahead_s: float
    own_s: float
    crowding_s: float
    again_s: float = 0.0

    @property
    def name(self) -> str:
        return self.of.engine.name

    @property
    def predicted_s(self) -> float:
        """Until the first token."""
        return self.wait_s + self.ahead_s + self.own_s

    @property
    def cost_s(self) -> Mapping[str, float]:
        """The parts of the policy's cost. What others are delayed by counts to the computing."""
        other = {"wait": self.wait_s * WAITING, "ahead": self.ahead_s, "crowding": self.crowding_s}
        return {"computing": self.of.score - sum(other.values()), **other}


def sentence(
    policy: Policy,
    forecasts: Sequence[Forecast],
    winner: Forecast | None,
    waits_for: str,
    not_considered: Mapping[str, str],
) -> str:
    if winner is None:
        whys = "; ".join(f"{name} {reason}" for name, reason in not_considered.items())
        return f"goes nowhere now: {whys or 'there are no engines'}"
    goes = f"waits for {waits_for}" if waits_for else f"goes to {winner.name}"
    rival = _rival(forecasts, winner)
    if rival is None:
        return f"{goes}, the only engine that may have it: {_holding(winner)}, {_begins(winner)}"
    if policy != "cost":
        return f"{goes} by policy {policy}: {_holding(winner)}; {rival.name} {_holding(rival)}"
    return f"{goes}: {_better(winner, rival)}; {rival.name} {_but(rival, winner)}"


def why(policy: Policy, it: Forecast, winner: Forecast | None, forecasts: Sequence[Forecast]) -> str:
    """Of the winner what it has over the next best, of any other what it lacks."""
    if winner is None or len(forecasts) == 1:
        return "the only engine that may have it"
    if policy != "cost":
        return f"policy {policy}, which asks for no costs"
    rival = _rival(forecasts, winner)
    if it is winner:
        return "the only engine that may have it" if rival is None else _better(winner, rival)
    return f"{_but(it, winner)}; costs {_more(it.of.score - winner.of.score)}"


def _rival(forecasts: Sequence[Forecast], winner: Forecast) -> Forecast | None:
    others = [it for it in forecasts if it is not winner]
    return min(others, key=lambda it: it.of.score, default=None)


def _better(winner: Forecast, rival: Forecast) -> str:
    """The part of the cost in which the winner is furthest ahead."""
    mine, its = winner.cost_s, rival.cost_s
    part = max(mine, key=lambda name: its[name] - mine[name])
    if its[part] - mine[part] < _LEAST_S:
        return f"{_holding(winner)}, costs no more than {rival.name}"
    if part == "computing":
        return _saving(winner, rival)
    if part == "wait":
        return f"{'has a slot now' if winner.has_room else 'has one sooner'}, {_holding(winner)}"
    if part == "ahead":
        return (
            f"{_seconds(rival.ahead_s - winner.ahead_s)} less to compute there before it, {_holding(winner)}"
        )
    return (
        f"less runs there ({winner.of.engine.in_flight}, {rival.of.engine.in_flight} on {rival.name}), "
        + (_holding(winner))
    )


def _saving(winner: Forecast, rival: Forecast) -> str:
    saved_s = rival.own_s - winner.own_s
    if winner.of.uncached_tokens == rival.of.uncached_tokens:
        return f"computes faster, {_seconds(saved_s)} sooner done, {_holding(winner)}"
    return f"{_holding(winner)}, saves {_seconds(saved_s)}" if saved_s >= _LEAST_S else _holding(winner)


def _but(it: Forecast, winner: Forecast) -> str:
    """What speaks for another than the winner, and what against it."""
    for_it, against = [], []
    if it.of.matched_tokens > winner.of.matched_tokens:
        for_it.append(_holding(it))
    else:
        against.append(f"would compute {_tokens(it.of.uncached_tokens)}")
    if it.has_room:
        for_it.insert(0, "would be free now")
    else:
        against.insert(0, f"has no slot for about {_seconds(it.wait_s)}")
    if it.ahead_s - winner.ahead_s >= _LEAST_S:
        against.append(f"has {_seconds(it.ahead_s)} to compute before it")
    if not against:
        against.append(_less_wanted(it, winner))
    return " but ".join(part for part in (" and ".join(for_it), " and ".join(against)) if part)


def _less_wanted(it: Forecast, winner: Forecast) -> str:
    if it.own_s - winner.own_s >= _LEAST_S:
        return f"takes {_seconds(it.own_s)} to compute the rest"
    running = it.of.engine.in_flight
    return f"would delay the {running} running there" if running else "is no cheaper"


def _holding(it: Forecast) -> str:
    tokens = _tokens(it.of.prompt_tokens)
    if it.of.pending_tokens:
        return f"holds {it.of.resident_tokens:,} and computes {it.of.pending_tokens:,} now of {tokens}"
    return f"holds {it.of.resident_tokens:,} of {tokens}"


def _begins(it: Forecast) -> str:
    return f"first token in about {_seconds(it.predicted_s)}"


def _seconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _tokens(count: int) -> str:
    return f"{count:,} token{'' if count == 1 else 's'}"


def _more(cost: float) -> str:
    """Without a unit: a cost is weighed."""
    return f"{cost:.1f} more" if cost >= _LEAST_S else "about the same"
