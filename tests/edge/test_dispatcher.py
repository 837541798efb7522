import asyncio
import logging

import pytest
from harness import until

from gateway.core.engine import Engine, Facts, Probe, SlotSource
from gateway.core.events import Discovered, Probed
from gateway.core.request import Grant, Outcome, Reason, Rejection, Request, Usage
from gateway.core.scheduler import Limits, Scheduler
from gateway.edge.dispatcher import Dispatcher

FACTS = Facts(models=("m",), slots=1, slots_source=SlotSource.CONFIGURED, cancel_s=0.05)


class Applicant:
    """Keeps what it is told; `on_grant` runs inside `granted`."""

    def __init__(self, on_grant=None) -> None:
        self.told: list = []
        self._on_grant = on_grant

    def granted(self, grant) -> None:
        self.told.append(grant)
        if self._on_grant is not None:
            self._on_grant(grant)

    def rejected(self, rejection) -> None:
        self.told.append(rejection)

    def crashed(self, error) -> None:
        self.told.append(error)


@pytest.fixture
async def dispatcher():
    it = make(["a"])
    yield it
    it.close()


def make(names, **limits) -> Dispatcher:
    scheduler = Scheduler([Engine(name, f"http://{name}") for name in names], Limits(**limits))
    it = Dispatcher(scheduler, asyncio.get_running_loop(), logging.getLogger("test"))
    for name in names:
        it.update(name, Discovered(facts=FACTS))
        it.update(name, Probed(probe=Probe.OK))
    return it


def request(key: int, **more) -> Request:
    return Request(key=key, id=str(key), api="chat", model="m", **more)


def finish(it: Dispatcher, key: int, outcome=Outcome.OK, *, reached=True) -> None:
    it.finish(key, outcome, Usage(), reached=reached)


async def test_a_free_slot_is_granted_within_submit(dispatcher):
    applicant = Applicant()
    dispatcher.submit(request(1), applicant)
    [grant] = applicant.told
    assert isinstance(grant, Grant)
    assert dispatcher.snapshot().engines[0].in_flight == 1


async def test_the_next_in_line_gets_the_slot_within_finish(dispatcher):
    first, second = Applicant(), Applicant()
    dispatcher.submit(request(1), first)
    dispatcher.submit(request(2), second)
    assert second.told == []
    finish(dispatcher, 1)
    assert [type(it) for it in second.told] == [Grant]


async def test_decisions_are_handed_out_one_after_another_never_nested(dispatcher):
    """An applicant that is over within its grant frees the slot for the next, and so on."""
    order: list[str] = []
    depth = 0

    def over(key):
        def on_grant(grant):
            nonlocal depth
            depth += 1
            assert depth == 1
            order.append(f"begin {key}")
            finish(dispatcher, key)
            order.append(f"end {key}")
            depth -= 1

        return on_grant

    dispatcher.submit(request(1), Applicant())
    for key in range(2, 500):
        dispatcher.submit(request(key), Applicant(over(key)))
    finish(dispatcher, 1)
    assert order == [f"{word} {key}" for key in range(2, 500) for word in ("begin", "end")]
    assert dispatcher.snapshot().engines[0].in_flight == 0


async def test_who_leaves_before_its_grant_arrives_gets_none_and_keeps_no_slot():
    """Two slots free at once; the applicant that is told first ends the other, granted already."""
    it = make(["a", "b"])
    last = Applicant()
    it.submit(request(1), Applicant())
    it.submit(request(2), Applicant())
    it.submit(request(3), Applicant(lambda _: finish(it, 4, Outcome.CLIENT_DISCONNECT, reached=False)))
    it.submit(request(4), last)

    def end_both(grant):
        finish(it, 1)
        finish(it, 2)

    it.submit(request(5, width=0), Applicant(end_both))
    assert last.told == []
    finish(it, 5)
    assert sum(engine.in_flight for engine in it.snapshot().engines) == 1
    it.close()


async def test_an_applicant_that_fails_is_told_and_the_others_go_on(dispatcher, caplog):
    def fail(grant):
        raise ZeroDivisionError

    first, second = Applicant(fail), Applicant()
    dispatcher.submit(request(1), first)
    assert isinstance(first.told[1], ZeroDivisionError)
    assert "a decision could not be carried out" in caplog.text
    dispatcher.submit(request(2), second)
    finish(dispatcher, 1, Outcome.ENGINE_ERROR)
    assert isinstance(second.told[0], Grant)


async def test_a_request_that_waits_too_long_is_rejected_by_the_timer(dispatcher):
    dispatcher.submit(request(1), Applicant())
    waiting = [Applicant() for _ in range(3)]
    for key, wait_s in ((2, 0.15), (3, 0.05), (4, 0.1)):
        dispatcher.submit(request(key, max_wait_s=wait_s), waiting[key - 2])

    async def all_told():
        return all(it.told for it in waiting)

    await until(all_told)
    for it in waiting:
        [rejection] = it.told
        assert (type(rejection), rejection.reason) == (Rejection, Reason.QUEUE_TIMEOUT)
    assert dispatcher._applicants.keys() == {1}


async def test_the_timer_returns_cooling_slots_to_those_who_wait(dispatcher):
    second = Applicant()
    dispatcher.submit(request(1), Applicant())
    dispatcher.submit(request(2), second)
    finish(dispatcher, 1, Outcome.CLIENT_DISCONNECT)
    assert second.told == []

    async def granted():
        return second.told

    [grant] = await until(granted)
    assert isinstance(grant, Grant)


async def test_a_retry_goes_to_the_other_engine():
    it = make(["a", "b"])
    applicant = Applicant()
    it.submit(request(1), applicant)
    it.retry(1, reached=False)
    first, second = applicant.told
    assert {first.engine, second.engine} == {"a", "b"}
    assert second.attempt == 2
    it.retry(1, reached=False)
    assert applicant.told[2].reason is Reason.ENGINE_UNREACHABLE
    assert not it._applicants
    it.close()


async def test_a_declined_request_goes_to_another_engine_or_is_over():
    it = make(["a", "b"])
    applicant, next_one = Applicant(), Applicant()
    it.submit(request(1), applicant)
    assert it.decline(1) is True
    assert [grant.attempt for grant in applicant.told] == [1, 2]
    assert it.decline(1) is False
    assert len(applicant.told) == 2
    assert not it._applicants
    it.submit(request(2), next_one)
    assert isinstance(next_one.told[0], Grant)
    finish(it, 1)
    assert sum(engine.in_flight for engine in it.snapshot().engines) == 1
    it.close()


async def test_calls_for_a_request_that_is_over_do_nothing(dispatcher):
    dispatcher.submit(request(1), Applicant())
    finish(dispatcher, 1)
    finish(dispatcher, 1)
    dispatcher.first_token(1)
    dispatcher.retry(1, reached=True)
    assert dispatcher.snapshot().engines[0].in_flight == 0


async def test_a_drained_engine_rejects_those_who_wait_for_it(dispatcher):
    waiting = Applicant()
    dispatcher.submit(request(1), Applicant())
    dispatcher.submit(request(2), waiting)
    dispatcher.drain("a", True)
    assert waiting.told[0].reason is Reason.NO_READY_ENGINE
    dispatcher.drain("a", False)
    assert dispatcher.snapshot().engines[0].in_flight == 1


async def test_an_end_that_fails_keeps_no_slot_and_reaches_nobody(dispatcher, monkeypatch, caplog):
    first, second = Applicant(), Applicant()
    dispatcher.submit(request(1), first)
    dispatcher.submit(request(2), second)

    def broken(*args):
        raise ArithmeticError("a count")

    with monkeypatch.context() as patch:
        patch.setattr(dispatcher.scheduler.index, "delivered", broken)
        finish(dispatcher, 1)
    assert "could not be taken to its end" in caplog.text
    assert dispatcher.scheduler.engines["a"].in_flight == 0
    dispatcher.update("a", Probed(probe=Probe.OK))
    assert [type(it) for it in second.told] == [Grant]


async def test_an_applicant_that_cannot_even_crash_keeps_no_decision_from_others(dispatcher, caplog):
    class Broken(Applicant):
        def crashed(self, error) -> None:
            raise error

    def fail(grant):
        raise ArithmeticError("a head")

    dispatcher.submit(request(1), Broken(fail))
    assert "nor could its failure be told" in caplog.text
    finish(dispatcher, 1)
    last = Applicant()
    dispatcher.submit(request(2), last)
    assert [type(it) for it in last.told] == [Grant]
