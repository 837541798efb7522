"""The funnel in words: whether the workload, the capacity or the routing loses most, and what to do."""

from collections.abc import Mapping

from gateway.core.funnel import Figures, Losses

FEW_REQUESTS = 20
"""Fewer than this say nothing about a workload."""

_GOOD = 0.05
"""So small a share of the prompts is not worth a cause: most of it is what every prompt has new."""

_ADVICE = {
    "workload": (
        "was new to every engine. Prompts that break their own prefix are at /api/breakers; what is really "
        "new has to be computed"
    ),
    "capacity": (
        "had been seen before and was gone from the caches. Give the engines more KV memory, or each of them "
        "fewer conversations: more engines"
    ),
    "counting": (
        "is how engine and gateway count: whole blocks, and what a template puts around messages. "
        "Nothing to do"
    ),
}
_ROUTING_ADVICE = {
    "spilled": (
        "was on another engine that had a slot free and more load. More engines or slots would move fewer "
        "prompts"
    ),
    "queued_elsewhere": (
        "was on an engine whose slots were all taken. More slots there, or more engines, would keep prompts "
        "on theirs"
    ),
    "pending": (
        "was still being computed when the request was sent. Let one of a burst begin to answer before the "
        "rest start"
    ),
}


def causes(it: Figures) -> dict[str, int]:
    """Tokens lost by cause; they add up to prompt - delivered. What was cold is the workload's if nobody had
    asked it before, else it was forgotten for want of room."""
    new, lost = it.prompt - it.infinite, it.lost
    return {
        "workload": new,
        "capacity": lost.cold - new + lost.evicted,
        "routing": lost.spilled + lost.queued_elsewhere + lost.pending,
        "counting": lost.engine_disagrees,
    }


def sentence(it: Figures, when: str, unknown: Mapping[str, str]) -> str:
    """`when` the figures are of, in words; engines that do not report, with what to switch on."""
    words = [_known(it, when)] if it.requests or not unknown else []
    if unknown:
        words.append(_unknown(unknown))
    return " ".join(words)


def _known(it: Figures, when: str) -> str:
    if it.requests < FEW_REQUESTS or it.hit_rate is None:
        plural = "" if it.requests == 1 else "s"
        return f"Too little traffic to say: {it.requests} request{plural} with cached tokens reported {when}."
    start = f"{_percent(it.delivered, it.prompt)} of {it.prompt:,} prompt tokens came from cache {when}."
    by_cause = causes(it)
    cause = max(by_cause, key=by_cause.__getitem__)
    if it.prompt - it.delivered <= _GOOD * it.prompt:
        return f"{start} Little is lost."
    advice = _ADVICE[cause] if cause in _ADVICE else _routing(it.lost, by_cause[cause])
    return f"{start} The {cause} loses most: {_percent(by_cause[cause], it.prompt)} {advice}."


def _routing(lost: Losses, tokens: int) -> str:
    by_reason = {reason: getattr(lost, reason) for reason in _ROUTING_ADVICE}
    most = max(by_reason, key=by_reason.__getitem__)
    share = _percent(by_reason[most], tokens)
    return f"was not there where the request went; {share} of that {_ROUTING_ADVICE[most]}"


def _unknown(unknown: Mapping[str, str]) -> str:
    told = "; ".join(f"{name}: {what}" for name, what in unknown.items())
    return f"Unknown, not zero, is what engines deliver that do not report it. {told}."


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "0.0 %"
