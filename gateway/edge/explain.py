"""A dry run in figures and words: what every engine holds and costs, which would get the request, and why."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from gateway.core import router
from gateway.core.engine import Engine
from gateway.core.request import Request
from gateway.core.router import Candidate, Policy, reason
from gateway.core.scheduler import Scheduler
from gateway.edge.explain_words import Forecast, sentence, why
from gateway.edge.intake import Intake
from gateway.wire import paths
from gateway.wire.errors import BadRequest

# Short bodies of these two are the same.
_ALIKE = {"chat", "messages"}
APIS = ("chat", "completions", "responses", "messages")


def asked(intake: Intake, api: str, body: bytes) -> Request:
    """The request that `body` would be. `api`: which it is for, by its name or path, else the body tells.
    Raises `BadRequest`."""
    request = intake.dry_run(body)
    name = _named(api) if api else request.api
    if name == request.api:
        return request
    if {name, request.api} != _ALIKE:
        raise BadRequest(f"The body is one of {request.api}, not of {name}.", param="api")
    return intake.dry_run(body, name)


def explain(scheduler: Scheduler, request: Request, now: float) -> Mapping[str, object]:
    """The decision for `request` as things are now. Nothing changes. Seconds are predictions."""
    candidates, chosen = scheduler.explain(request)
    considered = {it.engine.name for it in candidates}
    not_considered = {
        engine.name: _why_not(request.models, engine)
        for engine in scheduler.engines.values()
        if engine.name not in considered
    }
    forecasts = _forecasts(candidates, request.width)
    winner = next((it for it in forecasts if it.of is chosen), None)
    waits_for = scheduler.waits_for(request, chosen, now) if chosen else "an engine"
    return {
        "api": request.api,
        "model": chosen.model if chosen else request.model,
        "models": request.models,
        "policy": scheduler.policy,
        "prompt_bytes": request.prompt_bytes,
        "blocks": len(request.blocks),
        "width": request.width,
        "engine": chosen.engine.name if chosen else None,
        "route": reason(scheduler.policy, request, chosen, candidates) if chosen else None,
        "waits_for": waits_for,
        "queued_before": len(scheduler.queue),
        "sentence": sentence(scheduler.policy, forecasts, winner, waits_for, not_considered),
        "engines": [_figures(it, winner, forecasts, scheduler.policy) for it in forecasts],
        "not_considered": not_considered,
    }


def _named(api: str) -> str:
    target = paths.target(f"/{api.removeprefix('/')}")
    name = api if api in APIS or target is None else target.api
    if name not in APIS:
        raise BadRequest(f"api must be one of {', '.join(APIS)}, or the path of one.", param="api")
    return name


def _forecasts(candidates: Sequence[Candidate], width: int) -> list[Forecast]:
    """Also under policies that ask for no seconds."""
    rate = router.usual_rate([it.engine for it in candidates])
    most = max((it.resident_tokens for it in candidates), default=0)
    out = []
    for it in candidates:
        of = router.terms(it.engine, rate)
        wait_s = router.missing(it.engine, width, it.reserved) * of.slot_wait_s
        own_s = it.uncached_tokens / of.rate_tokens_per_s
        has_room = it.engine.has_room(width, it.reserved)
        again_s = router.again_s(most - it.resident_tokens, rate)
        out.append(Forecast(it, has_room, wait_s, of.ahead_s, own_s, of.crowding_s, again_s))
    return out


def _figures(
    forecast: Forecast, winner: Forecast | None, forecasts: Sequence[Forecast], policy: Policy
) -> dict[str, Any]:
    it, engine = forecast.of, forecast.of.engine
    return {
        "engine": engine.name,
        "model": it.model,
        "chosen": forecast is winner,
        "prompt_tokens": it.prompt_tokens,
        "predicted_cached_tokens": it.resident_tokens,
        "pending_tokens": it.pending_tokens,
        "uncached_tokens": it.prompt_tokens - it.matched_tokens,
        "free_slots": engine.free,
        "slots": engine.slots,
        "in_flight": engine.in_flight,
        "wait_s": forecast.wait_s,
        "prefill_ahead_s": forecast.ahead_s,
        "own_prefill_s": forecast.own_s,
        "predicted_s": forecast.predicted_s,
        "prefill_weight": it.weight,
        "crowding_s": forecast.crowding_s,
        "again_s": forecast.again_s,
        "score": it.score,
        "now": forecast.has_room,
        "why": why(policy, forecast, winner, forecasts),
    }


def _why_not(models: Collection[str], engine: Engine) -> str:
    if not engine.facts.models:
        return f"has not told its models, is {engine.health}"
    if not any(model in engine.facts.models for model in models):
        return f"does not serve {' or '.join(models)}"
    if engine.accepting:
        return "the session is on another model of the pool"
    return "draining" if engine.draining else f"is {engine.health}"
