"""What a refusal says: what happened, the limit, and what to do."""

from collections.abc import Container, Iterable, Sequence

from gateway.core.admission import Queue, Waiting
from gateway.core.engine import Engine
from gateway.core.request import Reason


def nobody(
    models: Sequence[str], engines: Iterable[Engine], failed: Container[str] = ()
) -> tuple[Reason, str]:
    """`failed`: names of engines that have failed or declined this request already."""
    possible = [
        engine
        for engine in engines
        if not engine.facts.models or any(model in engine.facts.models for model in models)
    ]
    states = [f"{engine.name} {_state(engine, engine.name in failed)}" for engine in possible]
    names = " or ".join(map(repr, models))
    will_pass = not possible or any(engine.draining or not engine.trouble for engine in possible)
    return (
        Reason.NO_READY_ENGINE if will_pass else Reason.ENGINE_UNREACHABLE,
        f"No engine that serves {names} is ready: {', '.join(states) or 'none is configured'}. Retry later.",
    )


def _state(engine: Engine, failed: bool) -> str:
    if engine.draining:
        return "is draining"
    if engine.trouble:
        return f"is {engine.health}: {engine.trouble}"
    return "did not take it before" if failed and engine.accepting else f"is {engine.health}"


def full(queue: Queue, body_bytes: int) -> str:
    return (
        f"The queue is full: {len(queue)} of {queue.max_requests} requests and {queue.bytes} of "
        f"{queue.max_bytes} bytes wait, and this request has {body_bytes} bytes. Retry after the given time, "
        "add slots, or raise admission.max_queue or admission.max_queue_bytes."
    )


def timed_out(waiting: Waiting, now: float) -> str:
    waits_for = waiting.why or "a slot"
    return (
        f"Waited {now - waiting.since:.1f} s for {waits_for}; the limit is {waiting.request.max_wait_s:g} s "
        "(admission.max_wait or x-gateway-max-wait-ms). Retry after the given time or add slots."
    )


def slots_on(engine: Engine, width: int) -> str:
    """What a queued request waits for."""
    return f"a slot on {engine.name}" if width == 1 else f"{engine.width_here(width)} slots on {engine.name}"


def room_on(engine: Engine) -> str:
    """What a queued request waits for whose prompt would displace conversations that are likely to go on."""
    return f"room in the KV cache of {engine.name}, which conversations in use fill"


def failed(engine: Engine) -> str:
    """The engine failed a request that no other one can take."""
    what = f"failed the request ({engine.trouble})" if engine.trouble else "failed the request"
    return f"Engine {engine.name} {what} and no other engine can take it. Retry."


def failed_twice(engine: Engine) -> str:
    """The second engine in the request's life that had all of it and closed the connection."""
    return f"Engine {engine.name} closed the connection, as another did before: not sent again."
