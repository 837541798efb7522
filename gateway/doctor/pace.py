"""Limiters: requests a second, whoever runs. Requests so small that no cap holds them long show them."""

from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

from gateway.doctor.seen import Findings, Role, Round, median, spread

EVEN = 0.35
"""A pace is even if the times between two ends miss their median by less than this share of it."""

SLOWER = 2.0
"""The pace of tiny requests must be so many times slower than one of them alone."""

SAME = 0.15
"""Two times that differ by less than this share are the same."""

SMALLER = 1.25
"""So many times as long must the longer answers be."""

SHORTEST_S = 0.05
"""Times below this may be those at which the doctor sends."""

LEAST = 4
"""So many requests show a pace."""


class Pace(Struct, frozen=True):
    """`per_s` None: too few came through to tell."""

    per_s: float | None
    confidence: float
    why: str


def own_pace(findings: Findings) -> Pace | None:
    """The pace of a limiter that lets wait, if there is one."""
    return tiny_pace(findings) or same_pace(findings)


def tiny_pace(findings: Findings) -> Pace | None:
    """The pace at which requests of one token each come through, if something other than their own work sets
    it. A cap lets them through at least as fast as one after another."""
    tiny, alone_s = findings.last(Role.TINY), _alone_s(findings)
    if tiny is None or alone_s is None or len(tiny.answered) < LEAST:
        return None
    every_s = _every_s([tiny])
    if every_s is None or every_s < SLOWER * alone_s + 0.01:
        return None
    figures = f"every {every_s * 1000:.0f} ms, alone one takes {alone_s * 1000:.0f} ms"
    why = f"requests of one token come through {figures}"
    return Pace(1 / every_s, 0.9, why)


def _alone_s(findings: Findings) -> float | None:
    """What a request of one token takes that nothing holds up. A slow limiter holds up those that are sent
    one after another, too; no first token of a longer prompt can have come sooner."""
    if findings.tiny_s is None:
        return None
    firsts = [it.first_at - it.sent_at for r in findings.of(Role.RAMP) for it in r.answered if it.first_at]
    return min([findings.tiny_s, *firsts])


def _every_s(rounds: Sequence[Round]) -> float | None:
    """The usual time between two beginnings, or ends where beginnings were not seen; None where they are too
    few or not even."""
    gaps = [gap for it in rounds for gap in _gaps(it)]
    if len(gaps) < 2:
        return None
    every_s = median(gaps)
    return None if spread(gaps) > EVEN * every_s else every_s


def _gaps(round_: Round) -> list[float]:
    """Half of them may come at once, from what a bucket had saved: those before are left out."""
    came = sorted(it.first_at or it.ended_at for it in round_.answered)
    return [after - before for before, after in pairwise(came)][max(0, len(came) // 2 - 1) :]


def same_pace(findings: Findings) -> Pace | None:
    """The even pace at which requests come through, if it is the same for smaller ones. What they take is
    then not what sets it: one slot, or prompts computed in turn, would be quicker with smaller ones."""
    full = [it for it in findings.of(Role.RAMP) if len(it.answered) >= LEAST]
    every_s = _every_s(full)
    if every_s is None or every_s < SHORTEST_S:
        return None
    for role in (Role.TINY, Role.SMALL):
        small = findings.last(role)
        small_s = _every_s([small]) if small is not None and _is_smaller(small, full[-1]) else None
        if small_s is not None and abs(small_s / every_s - 1) <= SAME:
            why = f"requests come through every {every_s * 1000:.0f} ms, smaller ones no quicker"
            return Pace(1 / small_s, 0.8, why)
    return None


def _is_smaller(small: Round, full: Round) -> bool:
    """By what was answered: some endpoints answer as long as they like."""
    if not small.answered:
        return False
    return SMALLER * max(it.tokens for it in small.answered) <= median([it.tokens for it in full.answered])


def again_refused(findings: Findings) -> bool | None:
    """Whether as many as were let in before are refused when they come again after those have ended: then it
    is a matter of time and not of number. None: not tried."""
    again = findings.of(Role.AGAIN)
    if not again:
        return None
    return any(it.refused for it in again)


def refused_pace(findings: Findings) -> Pace | None:
    if not again_refused(findings):
        return None
    again, first = findings.of(Role.AGAIN), findings.of(Role.RAMP)
    burst = max((len(it.answered) for it in first if it.refused), default=0)
    per_s = _rate_once_refused(again[-1])
    told = next((it.error for rounds in (again, first) for r in rounds for it in r.refused if it.error), "")
    why = f"{burst} were let in at once, and when those had ended fewer: it counts requests in time"
    return Pace(per_s, 0.9, f"{why} ({told[:80]})" if told else why)


def _rate_once_refused(round_: Round) -> float | None:
    """Let in a second from the first refusal on: what a bucket had saved is used up then. None where fewer
    than two were let in after it: one alone may have come just in time or long after."""
    refused_at = min((it.sent_at for it in round_.refused), default=0.0)
    let_in = sorted(it.sent_at for it in round_.answered if it.sent_at >= refused_at)
    if len(let_in) < 2 or let_in[-1] <= let_in[0]:
        return None
    return (len(let_in) - 1) / (let_in[-1] - let_in[0])
