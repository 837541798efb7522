"""From what was seen to a verdict: how many run at once, what holds the others, how sure that is.

Each conclusion needs evidence of its own, in this order: refusals; a pace that no end changes; a number that
grows with smaller requests; a batch that ends as a whole; who was silent in front of the engine. What is left
of a number that never grows is slots. Pure functions of `Findings`.
"""

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from gateway.doctor.front import Layer, layer
from gateway.doctor.overlap import (
    Starts,
    ends_one_by_one,
    followed_an_end,
    held,
    running_at_once,
    sent_at_once,
    starts,
)
from gateway.doctor.pace import Pace, again_refused, own_pace, refused_pace
from gateway.doctor.seen import Findings, Role, Round, Stream, median

MORE_WHEN_SMALL, MORE_IN_WAVES = 1.1, 1.25
"""So many times as many small requests must run at once, and one more at least: then memory was short. Waves
of answers in one piece are counted less exactly than streams."""

FOLLOWED, MOSTLY = 0.15, 0.8
"""What it adds to the confidence that each began when another ended; the share from which that is told."""


class Kind(StrEnum):
    SLOTS = "slots"
    FRONT = "front"
    KV = "kv"
    RATE = "rate"
    BATCH = "batch"
    NONE = "none"


class Verdict(Struct, frozen=True, kw_only=True):
    """`limit` None: none was found up to `tried`, or it is not a number of requests (`rate`, in
    `rate_per_s`). `why`: the evidence, in words. `refuses`: beyond the limit it answers 429 or 503 and does
    not let wait. `small_limit`: how many smaller requests ran at once, of kind kv. `in_turn`: nothing caps,
    but prompts are computed one after another."""

    limit: int | None
    kind: Kind
    confidence: float
    tried: int
    why: tuple[str, ...] = ()
    rate_per_s: float | None = None
    refuses: bool = False
    small_limit: int | None = None
    client_bound: bool = False
    in_turn: bool = False


def ramp_limit(rounds: Sequence[Round]) -> tuple[int, int] | None:
    """The number that runs at once however many are sent, and how many rounds agree on it; None while each
    round's requests all ran, or nothing can be told."""
    counted = [(it, at_once) for it in rounds if it.answered and (at_once := running_at_once(it)) is not None]
    short = [(it, at_once) for it, at_once in counted if at_once < min(len(it.answered), sent_at_once(it))]
    if not short or short[-1][0] is not counted[-1][0]:
        return None
    limit = short[-1][1]
    # First tokens show what ran; a wave of answers may have another's stragglers in it.
    ran = max((at_once for it, at_once in counted if it.streamed), default=0)
    limit = max(limit, ran)
    return limit, sum(at_once == limit for _, at_once in short)


def probed_limit(probes: Sequence[Round]) -> tuple[int, int | None]:
    """Of rounds in which a short request came to so many long ones: the most beside which it could begin, and
    the fewest beside which it could not (None: there were none)."""
    free = max((it.wanted for it in probes if held(it) is False), default=0)
    full = min((it.wanted for it in probes if held(it) and it.wanted > free), default=None)
    return free, full


BUSY, BUSY_S = 0.2, 0.05
"""A share of an answer's time, and at least so long. Where the doctor's own loop stood still for longer, it
is no good witness of a limit; it cannot have seen more at once than there were."""


def conclude(findings: Findings) -> Verdict:
    """The verdict as of now; what has not been looked into yet lowers its confidence."""
    verdict = _conclude(findings)
    lag_s = max((it.lag_s for it in findings.of(Role.RAMP)), default=0.0)
    if verdict.kind is Kind.NONE or lag_s < max(BUSY_S, BUSY * (findings.single_s or 0.0)):
        return verdict
    why = f"the doctor's own machine was busy: it stood still for {lag_s * 1000:.0f} ms"
    return replace(verdict, confidence=verdict.confidence / 2, why=(*verdict.why, why))


def _conclude(findings: Findings) -> Verdict:
    tried = max((it.wanted for it in findings.of(Role.RAMP)), default=0)
    refused = _refusing(findings, tried)
    if refused is not None:
        return refused
    found = ramp_limit(findings.of(Role.RAMP))
    if found is None:
        return _unlimited(findings, tried)
    limit, agreeing = found
    if _client_is_the_cap(findings, limit):
        return Verdict(
            limit=None, kind=Kind.NONE, confidence=0.3, tried=tried, client_bound=True,
            why=(f"the doctor's own client carries only {findings.client_streams} streams at once here",),
        )  # fmt: skip
    if findings.of(Role.PROBE):
        return _probed(findings, limit, tried)
    paced = _paced(findings, limit, tried)
    return paced or _capped(findings, limit, agreeing, tried)


def _unlimited(findings: Findings, tried: int) -> Verdict:
    ramp = findings.of(Role.RAMP)
    if findings.of(Role.PROBE):
        return _probed(findings, None, tried)
    pace = own_pace(findings)
    answered_last = next((it for it in reversed(ramp) if it.answered), None)
    unclear = answered_last is not None and running_at_once(answered_last) is None
    if unclear and pace is not None:
        return _rate(pace, tried)
    if not any(it.answered for it in ramp):
        return Verdict(limit=None, kind=Kind.NONE, confidence=0.0, tried=tried, why=("nothing was measured",))
    if unclear:
        why = "answers ended one by one and not in waves: it slows down, nobody is held back"
        return Verdict(limit=None, kind=Kind.NONE, confidence=0.6, tried=tried, why=(why,))
    if answered_last is not None and not ramp[-1].answered:
        why = f"all {answered_last.wanted} ran at once, and of {tried} none was answered"
        return Verdict(limit=None, kind=Kind.NONE, confidence=0.3, tried=tried, why=(why,))
    answered = len(ramp[-1].answered)
    done = tried >= findings.max_concurrency and answered == tried
    why = (
        f"all {tried} ran at once" if answered == tried else f"the {answered} of {tried} answered ran at once"
    )
    return Verdict(limit=None, kind=Kind.NONE, confidence=0.95 if done else 0.5, tried=tried, why=(why,))


def _probed(findings: Findings, waves: int | None, tried: int) -> Verdict:
    """Answers in one piece: a short request beside long ones shows what their ends alone do not."""
    free, full = probed_limit(findings.of(Role.PROBE))
    small = _kv(findings, waves) if waves is not None else None
    if small is not None:
        return small
    if full is None:
        pace = own_pace(findings)
        if pace is not None:
            return _rate(pace, tried)
        if free == 0:
            return _unprobed(waves, tried)
        why = f"a short request was answered at once beside {free} long ones"
        return Verdict(limit=None, kind=Kind.NONE, confidence=0.7, tried=tried, why=(why,))
    one_by_one = _one_by_one(findings, full, tried)
    if one_by_one is not None:
        return one_by_one
    if waves is not None and waves > 1 and free == 0:
        waits = f"{waves} answers end together, but a short request waits even beside one: for a batch"
        return Verdict(limit=waves, kind=Kind.BATCH, confidence=0.85, tried=tried, why=(waits,))
    seen = [f"a short request had to wait beside {full} long ones"]
    if free:
        seen.append(f"and not beside {free}")
    where = layer(findings, full)
    kind = {Layer.FRONT: Kind.FRONT, Layer.KV: Kind.KV}.get(where.layer, Kind.SLOTS)
    sure = 0.7 + (0.1 if waves == full else 0.0) + (0.1 if free == full - 1 else -0.2) + where.weight
    return Verdict(
        limit=full, kind=kind, confidence=max(0.1, min(0.99, sure)), tried=tried, why=(*seen, *where.why)
    )


def _unprobed(waves: int | None, tried: int) -> Verdict:
    """Answers in one piece of an endpoint that sets their length itself: only waves are left to go by."""
    why = (
        "answers in one piece are as long as the endpoint likes, so short ones beside long ones tell nothing"
    )
    if waves is None:
        return Verdict(limit=None, kind=Kind.NONE, confidence=0.2, tried=tried, why=(why,))
    seen = f"of equal requests {waves} ended together"
    return Verdict(limit=waves, kind=Kind.SLOTS, confidence=0.5, tried=tried, why=(seen, why))


def _one_by_one(findings: Findings, full: int, tried: int) -> Verdict | None:
    """If the long ones did not run together either, the short one waited for its turn and not for a slot."""
    pace = own_pace(findings)
    if pace is not None:
        return _rate(pace, tried)
    probes = [it for it in findings.of(Role.PROBE) if it.wanted == full and held(it)]
    if not any(ends_one_by_one(it.streams[:-1]) for it in probes):
        return None
    return _in_turn(f"{full} long answers ended one by one and not in waves", 0.6, tried)


def _in_turn(seen: str, confidence: float, tried: int) -> Verdict:
    why = f"{seen}: prompts are computed in turn, no cap holds them"
    return Verdict(limit=None, kind=Kind.NONE, confidence=confidence, tried=tried, why=(why,), in_turn=True)


def _client_is_the_cap(findings: Findings, limit: int) -> bool:
    streams = findings.client_streams
    return streams is not None and streams <= limit


def _refusing(findings: Findings, tried: int) -> Verdict | None:
    turned_away = [it for it in findings.of(Role.RAMP) if it.refused]
    if not turned_away:
        return None
    pace = refused_pace(findings)
    if pace is not None:
        return _rate(pace, tried, refuses=True)
    let_in = [len(it.answered) for it in turned_away]
    limit = round(median(let_in))
    # Some wait, others are refused: a queue with a bound. What runs at once is then the limit.
    found = ramp_limit([it for it in findings.of(Role.RAMP) if it.answered])
    if found is not None and found[0] < limit:
        return _bounded_queue(found[0], limit, turned_away[-1], tried)
    if limit < 1:
        alone = "even one alone was refused: others may use up what it lets in"
        return Verdict(limit=None, kind=Kind.NONE, confidence=0.2, tried=tried, why=(alone,), refuses=True)
    refusing = again_refused(findings)
    why = [f"of {turned_away[-1].wanted} at once {len(turned_away[-1].refused)} were refused"]
    if refusing is False:
        why.append("as many as were let in are let in again at once: it counts requests, not time")
    own = findings.engine is not None and findings.engine.kind in ("tgi", "sglang")
    kind = Kind.SLOTS if own else Kind.FRONT
    confidence = 0.9 if refusing is False else 0.6
    return Verdict(limit=limit, kind=kind, confidence=confidence, tried=tried, why=tuple(why), refuses=True)


def _bounded_queue(limit: int, let_in: int, round_: Round, tried: int) -> Verdict:
    why = (
        f"never more than {limit} of {tried} ran at once",
        f"of {round_.wanted} at once {len(round_.refused)} were refused: "
        f"{let_in - limit} may wait, more are turned away",
    )
    return Verdict(limit=limit, kind=Kind.SLOTS, confidence=0.7, tried=tried, why=why, refuses=True)


def _rate(pace: Pace, tried: int, *, refuses: bool = False) -> Verdict:
    return Verdict(
        limit=None, kind=Kind.RATE, confidence=pace.confidence, tried=tried, why=(pace.why,),
        rate_per_s=pace.per_s, refuses=refuses,
    )  # fmt: skip


def _paced(findings: Findings, limit: int, tried: int) -> Verdict | None:
    """Requests that begin at a pace of their own: a limiter, or a prefill computed one after another."""
    pace = own_pace(findings)
    if pace is not None:
        return _rate(pace, tried)
    unequal = findings.last(Role.UNEQUAL)
    if unequal is None or not _is_paced(findings, unequal, limit):
        return None
    return _in_turn("requests begin one after another whoever ends", 0.7, tried)


def _is_paced(findings: Findings, unequal: Round, limit: int) -> bool:
    seen = starts(unequal.answered, limit)
    if seen is None or seen.count < 2 or (limit > 1 and seen.in_batches):
        return False
    equal = starts(findings.of(Role.RAMP)[-1].answered, limit)
    return seen.is_paced and not (equal is not None and equal.comes_in_waves)


def _capped(findings: Findings, limit: int, agreeing: int, tried: int) -> Verdict:
    why = [f"never more than {limit} of {tried} ran at once"]
    confidence = 0.6 + min(0.15, 0.075 * (agreeing - 1))
    small = _kv(findings, limit)
    if small is not None:
        return small
    evidence, is_batch = _unequal_evidence(findings, limit)
    confidence += evidence
    if _all_equal(findings, limit):
        why.append("answers were equally long whatever was asked for, so slots and batches look the same")
    if is_batch:
        why.append("with unequal lengths the next begin only when the longest before them has ended")
        return Verdict(
            limit=limit, kind=Kind.BATCH, confidence=min(0.97, confidence), tried=tried, why=tuple(why)
        )
    if evidence >= MOSTLY * FOLLOWED:
        why.append("each that waited began when another ended")
    where = layer(findings, limit)
    why += where.why
    kind = {Layer.FRONT: Kind.FRONT, Layer.KV: Kind.KV}.get(where.layer, Kind.SLOTS)
    confidence += where.weight
    return Verdict(
        limit=limit, kind=kind, confidence=max(0.1, min(0.99, confidence)), tried=tried, why=tuple(why)
    )


def _unequal_evidence(findings: Findings, limit: int) -> tuple[float, bool]:
    """What the unequal round adds to the confidence, and whether a batch ended as a whole."""
    unequal, seen = _unequal_starts(findings, limit)
    if seen is None:
        return 0.0, False
    if limit > 1 and seen.in_step:
        return (0.15, True) if seen.in_batches else (0.0, False)
    return FOLLOWED * followed_an_end(unequal, limit), False


def _all_equal(findings: Findings, limit: int) -> bool:
    _, seen = _unequal_starts(findings, limit)
    return seen is not None and limit > 1 and seen.in_step and not seen.in_batches


def _unequal_starts(findings: Findings, limit: int) -> tuple[list[Stream], Starts | None]:
    """The answers of the unequal round, and how those began who had to wait; None where that was not seen."""
    unequal = findings.last(Role.UNEQUAL)
    if unequal is None or not unequal.streamed:
        return [], None
    return unequal.answered, starts(unequal.answered, limit)


def more_when_small(findings: Findings, limit: int) -> int | None:
    """How many small requests ran at once, if each time clearly more than `limit` did."""
    small = findings.of(Role.SMALL)
    counts = [count for it in small if (count := running_at_once(it)) is not None]
    least = min(counts, default=0)
    times = MORE_WHEN_SMALL if all(it.streamed for it in small) else MORE_IN_WAVES
    return least if least >= max(limit + 1, times * limit) else None


def _kv(findings: Findings, limit: int) -> Verdict | None:
    at_once = more_when_small(findings, limit)
    if at_once is None:
        return None
    tried = max(it.wanted for it in findings.of(Role.RAMP))
    why = (
        f"never more than {limit} of {tried} ran at once",
        f"of smaller requests {at_once} ran at once: memory for KV decides, not slots",
    )
    return Verdict(limit=limit, kind=Kind.KV, confidence=0.9, tried=tried, why=why, small_limit=at_once)
