"""Limiters: requests a second, whoever runs. Requests so small that no cap holds them long show them."""

from itertools import pairwise

from msgspec import Struct

from gateway.doctor.seen import Findings, Role, Round, median, spread

EVEN = 0.35
"""A pace is even if the times between two ends miss their median by less than this share of it."""

SLOWER = 2.0
"""The pace of tiny requests must be so many times slower than one of them alone."""


class Pace(Struct, frozen=True):
    per_s: float
    confidence: float
    why: str


def tiny_pace(findings: Findings) -> Pace | None:
    """The pace at which requests of one token each come through, if something other than their own work sets
    it. A cap lets them through at least as fast as one after another."""
    tiny, alone_s = findings.last(Role.TINY), findings.tiny_s
    if tiny is None or alone_s is None or len(tiny.answered) < 4:
        return None
    ends = sorted(it.ended_at for it in tiny.answered)
    # Half of them may come at once, from what a bucket had saved.
    gaps = [after - before for before, after in pairwise(ends)][len(ends) // 2 :]
    every_s = median(gaps)
    if every_s < SLOWER * alone_s + 0.01 or spread(gaps) > EVEN * every_s:
        return None
    figures = f"every {every_s * 1000:.0f} ms, alone one takes {alone_s * 1000:.0f} ms"
    why = f"requests of one token come through {figures}"
    return Pace(1 / every_s, 0.9, why)


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


def _rate_once_refused(round_: Round) -> float:
    """Let in a second from the first refusal on: what a bucket had saved is used up then."""
    refused_at = min((it.sent_at for it in round_.refused), default=None)
    if refused_at is None:
        ends = max((it.ended_at for it in round_.streams), default=0.0)
        return len(round_.answered) / ends if ends else 0.0
    let_in = sorted(it.sent_at for it in round_.answered if it.sent_at >= refused_at)
    if len(let_in) < 2:
        last = max(it.ended_at for it in round_.streams)
        return len(let_in) / (last - refused_at)
    return (len(let_in) - 1) / (let_in[-1] - let_in[0])
