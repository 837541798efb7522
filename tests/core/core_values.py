"""Values for the tests of the core: requests, engines that are ready, and what a step decided."""

from collections.abc import Callable, Iterable

from gateway.core.blocks import chain
from gateway.core.engine import Engine, Facts, LoadReport, Probe, Residency, SlotSource
from gateway.core.events import Discovered, Probed, Reported
from gateway.core.request import NORMAL, Grant, Member, Outcome, Reason, Rejection, Request, Usage
from gateway.core.router import Policy
from gateway.core.scheduler import Limits, Scheduler, Step

NOTHING = Usage()


def request(
    key: int,
    prompt: bytes = b"",
    *,
    model: str = "m",
    width: int = 1,
    priority: int = NORMAL,
    session: int = 0,
    body_bytes: int = 100,
    max_wait_s: float = 120.0,
    token_ids: bool = False,
    pool: tuple[str, ...] = (),
    stream: bool = False,
) -> Request:
    """`pool`: the models that may answer, the first of which is the request's, instead of `model`."""
    model = pool[0] if pool else model
    return Request(
        key=key,
        id=f"r{key}",
        api="chat",
        model=model,
        blocks=chain(prompt, model),
        prompt_bytes=len(prompt),
        body_bytes=body_bytes,
        width=width,
        priority=priority,
        session=session,
        max_wait_s=max_wait_s,
        token_ids=token_ids,
        stream=stream,
        pool=tuple(Member(it, chain(prompt, it)) for it in pool),
    )


def text(tokens: int, of: str) -> bytes:
    """A prompt of `tokens` tokens at four bytes each; prompts of different `of` share no block."""
    words = b"".join(b"%s %d, " % (of.encode(), at) for at in range(tokens))
    return words[: tokens * 4]


def facts(
    slots: int = 2,
    *,
    models: tuple[str, ...] = ("m",),
    kv_tokens: int | None = None,
    block_tokens: int = 1,
    residency: Residency = Residency.POOL,
    cancel_s: float = 2.0,
    source: SlotSource = SlotSource.DISCOVERED,
) -> Facts:
    return Facts(
        models=models,
        slots=slots,
        slots_source=source,
        kv_tokens=kv_tokens,
        block_tokens=block_tokens,
        residency=residency,
        cancel_s=cancel_s,
    )


def engine(name: str = "a", slots: int = 2, **more: float) -> Engine:
    """A ready engine that no scheduler knows."""
    made = Engine(name, f"http://{name}:8000")
    made.facts = facts(slots)
    for field, value in more.items():
        assert hasattr(made, field)
        setattr(made, field, value)
    made.probed(Probe.OK, 0.0)
    return made


def fleet(
    *names: str,
    slots: int = 2,
    policy: Policy = "cost",
    max_queue: int = 512,
    max_queue_bytes: int = 1 << 20,
    random: Callable[[], float] = lambda: 0.99,
) -> Scheduler:
    """A scheduler over engines that are ready to serve model `m`. Ties go to the first of them."""
    limits = Limits(max_queue=max_queue, max_queue_bytes=max_queue_bytes)
    made = Scheduler([Engine(name, f"http://{name}:8000") for name in names], limits, policy, random)
    for name in names:
        discovered(made, name, facts(slots))
        probed(made, name, Probe.OK)
    return made


def discovered(scheduler: Scheduler, name: str, what: Facts, now: float = 0.0) -> Step:
    return scheduler.update(name, Discovered(facts=what), now)


def probed(scheduler: Scheduler, name: str, probe: Probe, now: float = 0.0) -> Step:
    return scheduler.update(name, Probed(probe=probe), now)


def reported(scheduler: Scheduler, name: str, running: int | None, now: float, waiting: int = 0) -> Step:
    return scheduler.update(
        name, Reported(report=LoadReport(asked_at=now, running=running, waiting=waiting)), now
    )


def usage(prompt: int, cached: int = 0, completion: int = 1) -> Usage:
    return Usage(prompt_tokens=prompt, cached_tokens=cached, completion_tokens=completion)


def ok(scheduler: Scheduler, key: int, now: float, used: Usage = NOTHING) -> Step:
    return scheduler.finish(key, Outcome.OK, used, now)


def placed(step: Step) -> list[tuple[int, str]]:
    """(key, engine) of each grant, in order; the step must hold nothing else."""
    assert all(isinstance(it, Grant) for it in step.decisions), step.decisions
    return [(it.key, it.engine) for it in step.decisions if isinstance(it, Grant)]


def refused(step: Step) -> list[tuple[int, Reason]]:
    """(key, reason) of each rejection, in order; the step must hold nothing else."""
    assert all(isinstance(it, Rejection) for it in step.decisions), step.decisions
    return [(it.key, it.reason) for it in step.decisions if isinstance(it, Rejection)]


def granted(step: Step) -> Grant:
    (it,) = step.decisions
    assert isinstance(it, Grant)
    return it


def rejected(step: Step) -> Rejection:
    (it,) = step.decisions
    assert isinstance(it, Rejection)
    return it


def offer_all(scheduler: Scheduler, requests: Iterable[Request], now: float = 0.0) -> list[tuple[int, str]]:
    """Offer one after another at one moment; (key, engine) of all grants."""
    return [pair for it in requests for pair in placed(scheduler.offer(it, now))]
