"""Which layer holds the requests that wait: the engine, or something in front of it."""

from enum import StrEnum

from msgspec import Struct

from gateway.doctor.seen import Engine, Findings, Look, Reading, Role, Round, median

WAITS = 0.5
"""A GET that takes this share of the time until the next slot frees has stood in the same line."""

AT_ONCE = 0.2
"""One that takes less has not."""

QUICK_S = 0.05
"""Nor has one that takes less than this beyond an idle one."""

FULL = 0.9
"""KV usage from which memory may be what requests wait for."""


class Layer(StrEnum):
    ENGINE = "engine"
    FRONT = "front"
    KV = "kv"
    UNKNOWN = "unknown"


class Where(Struct, frozen=True):
    """`weight`: what it adds to the confidence."""

    layer: Layer
    weight: float
    why: tuple[str, ...]


def layer(findings: Findings, limit: int) -> Where:
    """The engine's own counters decide where they were read at its own address; else its declared slots, what
    a prefix-gateway says of itself, and at last a GET in the line."""
    engine = findings.engine
    if engine is not None and engine.direct and (told := _told(findings, engine, limit)) is not None:
        return told
    if findings.is_gateway and (queued := _queued_in_gateway(findings, limit)) is not None:
        return queued
    if engine is not None and engine.slots == limit:
        why = f"the engine ({engine.kind}) itself says it has {limit} slots"
        return Where(Layer.ENGINE, 0.15, (why,))
    seen = _looked(findings)
    told = _told(findings, engine, limit) if engine is not None else None
    if told is not None and told.layer is not seen.layer and seen.layer is not Layer.UNKNOWN:
        return Where(seen.layer, 0.0, seen.why) if told.layer is Layer.UNKNOWN else told
    return told or seen


def _told(findings: Findings, engine: Engine, limit: int) -> Where | None:
    """By the engine's own counters while requests waited: see the three lines of the module's tests."""
    known = [
        it
        for role in (Role.LOOK, Role.UNEQUAL, Role.RAMP)
        for round_ in findings.of(role)
        if round_.wanted > limit
        for it in _while_waiting(round_)
        if it.running is not None
    ]
    readings = [it for it in known if it.waiting is not None]
    if len(readings) < 2:
        return _told_by_running(engine, known, limit) if engine.direct else None
    running = max(it.running or 0 for it in readings)
    waiting = median([it.waiting or 0 for it in readings])
    declared = engine.slots
    figures = f"the engine ran {running}" + (f" of {declared}" if declared else "")
    if waiting < 1:
        if running > limit:
            return None
        return Where(Layer.FRONT, 0.2, (f"{figures} and nobody waited in it: a layer in front holds them",))
    if declared is not None and running < declared:
        return Where(
            Layer.KV, 0.1, (f"{figures} while {waiting:.0f} waited in it: KV memory or batched tokens",)
        )
    full = max((it.kv_usage or 0.0 for it in readings), default=0.0)
    if declared is None and full >= FULL:
        return Where(Layer.KV, 0.1, (f"{figures} while {waiting:.0f} waited in it, KV {full:.0%} used",))
    return Where(Layer.ENGINE, 0.2, (f"{figures} while {waiting:.0f} waited in it",))


def _told_by_running(engine: Engine, known: list[Reading], limit: int) -> Where | None:
    """Of an engine that does not tell who waits in it, such as llama.cpp: with slots to spare nobody does."""
    running = max((it.running or 0 for it in known), default=0)
    if len(known) < 2 or engine.slots is None or running > limit or limit >= engine.slots:
        return None
    why = f"the engine ran {running} of {engine.slots} while requests waited: a layer in front holds them"
    return Where(Layer.FRONT, 0.15, (why,))


def _while_waiting(round_: Round) -> list[Reading]:
    """Those from the time when somebody had to wait, after all had arrived."""
    sent = max((it.sent_at for it in round_.streams), default=0.0)
    firsts = sorted(it.first_at or it.ended_at for it in round_.answered)
    last_start = firsts[-1] if firsts else 0.0
    return [it for it in round_.readings if sent < it.at < last_start]


def _queued_in_gateway(findings: Findings, limit: int) -> Where | None:
    waited = [
        it.gateway_queue_s / max(it.first_at - it.sent_at, 1e-9)
        for round_ in findings.of(Role.RAMP)
        if round_.wanted > limit
        for it in sorted(round_.answered, key=lambda s: s.first_at or s.ended_at)[limit:]
        if it.gateway_queue_s is not None and it.first_at is not None
    ]
    if waited and median(waited) >= WAITS:
        why = "a prefix-gateway holds them in its queue until an engine has a slot: its headers say so"
        return Where(Layer.FRONT, 0.2, (why,))
    return None


def _looked(findings: Findings) -> Where:
    idle_s = findings.idle_look_s
    tried = [(round_, look) for round_ in findings.of(Role.LOOK) for look in round_.looks]
    if idle_s is None or not tried:
        return Where(Layer.UNKNOWN, -0.1, ())
    shares = [share for round_, look in tried if (share := _share(round_, look, idle_s)) is not None]
    if not shares:
        return Where(Layer.UNKNOWN, -0.1, ())
    if min(shares) <= AT_ONCE:
        return Where(
            Layer.ENGINE, 0.1, ("a GET is answered at once while requests wait: the engine holds them",)
        )
    if median(shares) >= WAITS:
        why = "a GET waits as long as the requests do: a layer in front of the engine holds them"
        return Where(Layer.FRONT, 0.15, (why,))
    return Where(Layer.UNKNOWN, -0.1, ())


def _share(round_: Round, look: Look, idle_s: float) -> float | None:
    """How much of the time until the next slot freed the GET took; None if nobody waited any more by
    then, and where the doctor itself stood still for so long that it would have to wait with anybody."""
    frees_s = min((it.ended_at for it in round_.answered), default=0.0) - look.sent_at
    if frees_s <= QUICK_S or round_.lag_s > QUICK_S:
        return None
    took_s = frees_s if look.took_s is None else look.took_s
    return 0.0 if took_s <= idle_s + QUICK_S else took_s / frees_s
