"""A snapshot of the scheduler: read-only, at one moment."""

from gateway.core.cap_note import found, sentence
from gateway.core.engine import Engine
from gateway.core.entry import Entry
from gateway.core.operating import by_label
from gateway.core.request import PRIORITY_NAMES
from gateway.core.scheduler import Scheduler
from gateway.core.snapshot import EngineView, RunningView, Snapshot, WaitingView


def snapshot(scheduler: Scheduler, now: float) -> Snapshot:
    queue = scheduler.queue
    running = (entry for entry in scheduler.entries.values() if entry.grant is not None)
    return Snapshot(
        engines=(
            *(_engine(scheduler, engine, now) for engine in scheduler.engines.values()),
            *(_engine(scheduler, engine, now, leaving=True) for engine in scheduler.fleet.leaving),
        ),
        waiting=tuple(
            WaitingView(
                id=waiting.request.id,
                api=waiting.request.api,
                model=waiting.request.model,
                priority=PRIORITY_NAMES[waiting.request.priority],
                position=position,
                width=waiting.request.width,
                waited_s=now - waiting.since,
                body_bytes=waiting.request.body_bytes,
                engine=waiting.engine,
                why=waiting.why or "a slot on any engine that serves its model",
            )
            for position, waiting in enumerate(queue, 1)
        ),
        running=tuple(_running(entry, now) for entry in running),
        queue_bytes=queue.bytes,
        max_queue=queue.max_requests,
        max_queue_bytes=queue.max_bytes,
        policy=scheduler.policy,
        concurrency_seconds=by_label(scheduler.concurrency.total(now).in_flight),
    )


def _engine(scheduler: Scheduler, engine: Engine, now: float, *, leaving: bool = False) -> EngineView:
    facts, report = engine.facts, engine.report
    blocks, bound = (0, 0) if leaving else scheduler.index.size(engine.name)
    idle_s = engine.slot_idle_while_waiting_s
    return EngineView(
        name=engine.name,
        url=engine.url,
        kind=facts.kind,
        models=facts.models,
        health=engine.health,
        draining=engine.draining,
        leaving=leaving,
        slots=engine.slots,
        slots_source=engine.slots_source,
        slots_declared=facts.slots_declared,
        quota=engine.slots if engine.quota is None else engine.quota,
        usable=engine.usable,
        in_flight=engine.in_flight,
        cooling=engine.cooling_width,
        foreign=engine.foreign,
        running=report.running if report else None,
        waiting=report.waiting if report else None,
        kv_usage=report.kv_usage if report else None,
        report_age_s=None if engine.report_at is None else now - engine.report_at,
        kv_tokens=facts.kv_tokens,
        block_tokens=facts.block_tokens,
        prefill_tokens_per_s=engine.prefill_tokens_per_s,
        decode_tokens_per_s=engine.decode_tokens_per_s,
        blocks=blocks,
        blocks_bound=bound,
        pending_prefill_tokens=engine.pending_prefill_tokens,
        slot_idle_while_waiting_s=idle_s if leaving else scheduler.idle_while_waiting_s(engine.name, now),
        restarts=engine.restarts,
        inferred_cap=found(engine),
        cap_note=sentence(engine),
    )


def _running(entry: Entry, now: float) -> RunningView:
    grant, request = entry.grant, entry.request
    assert grant is not None
    assert entry.engine is not None
    lease = entry.engine.leases[request.key]
    return RunningView(
        id=request.id,
        api=request.api,
        model=grant.model,
        engine=grant.engine,
        session=f"{request.session:016x}" if request.session else "",
        width=grant.width,
        route=grant.route,
        attempt=grant.attempt,
        age_s=now - lease.granted_at,
        producing=lease.first_token_at is not None,
        predicted_cached_tokens=grant.predicted_tokens,
    )
