"""A dry run in words: every engine's figures for one request, and which would get it."""

from collections.abc import Collection, Mapping
from typing import Any

from gateway.core.engine import Engine
from gateway.core.request import Request
from gateway.core.router import Candidate, reason
from gateway.core.scheduler import Scheduler


def explain(scheduler: Scheduler, request: Request, now: float) -> Mapping[str, object]:
    """The decision for `request` as things are now. Nothing changes. Seconds are predictions."""
    candidates, chosen = scheduler.explain(request)
    considered = {it.engine.name for it in candidates}
    return {
        "model": chosen.model if chosen else request.model,
        "models": request.models,
        "policy": scheduler.policy,
        "prompt_bytes": request.prompt_bytes,
        "blocks": len(request.blocks),
        "width": request.width,
        "engine": chosen.engine.name if chosen else None,
        "route": reason(scheduler.policy, request, chosen, candidates) if chosen else None,
        "waits_for": scheduler.waits_for(request, chosen, now) if chosen else "an engine",
        "engines": [_figures(it, it is chosen, request.width) for it in candidates],
        "not_considered": {
            engine.name: _why_not(request.models, engine)
            for engine in scheduler.engines.values()
            if engine.name not in considered
        },
    }


def _figures(it: Candidate, chosen: bool, width: int) -> dict[str, Any]:
    engine = it.engine
    return {
        "engine": engine.name,
        "model": it.model,
        "chosen": chosen,
        "prompt_tokens": it.prompt_tokens,
        "predicted_cached_tokens": it.resident_tokens,
        "pending_tokens": it.pending_tokens,
        "uncached_tokens": it.prompt_tokens - it.matched_tokens,
        "free_slots": engine.free,
        "slots": engine.slots,
        "in_flight": engine.in_flight,
        "wait_s": it.wait_s,
        "prefill_ahead_s": it.prefill_ahead_s,
        "own_prefill_s": it.own_prefill_s,
        "prefill_weight": it.weight,
        "crowding_s": it.crowding_s,
        "score": it.score,
        "now": engine.free >= engine.width_here(width),
    }


def _why_not(models: Collection[str], engine: Engine) -> str:
    if not engine.facts.models:
        return f"has not told its models, is {engine.health}"
    if not any(model in engine.facts.models for model in models):
        return f"does not serve {' or '.join(models)}"
    if engine.accepting:
        return "the session is on another model of the pool"
    return "draining" if engine.draining else f"is {engine.health}"
