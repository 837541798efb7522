"""Runs a model on the event loop: one timer for its next deadline, one inbox for each request."""

import asyncio
from collections.abc import AsyncIterator

from gateway.sim.model import SimModel
from gateway.sim.work import Event, Job, Work


class Ticket:
    """One request's place in the model and what has been produced for it."""

    __slots__ = ("inbox", "job")

    def __init__(self, job: Job) -> None:
        self.job = job
        self.inbox: asyncio.Queue[Event] = asyncio.Queue()

    async def events(self) -> AsyncIterator[Event]:
        """Every token of every choice, to the last one."""
        open_count = len(self.job.work.outputs)
        while open_count:
            event = await self.inbox.get()
            open_count -= event.is_last
            yield event


class Driver:
    """Gives `model` the time of the running loop, `speed` times as fast."""

    def __init__(self, model: SimModel, speed: float) -> None:
        self.model = model
        self._speed = speed
        self._loop = asyncio.get_running_loop()
        self._began_at = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._tickets: dict[int, Ticket] = {}
        self._is_closed = False

    def now(self) -> float:
        """Simulated seconds since the start."""
        return (self._loop.time() - self._began_at) * self._speed

    def submit(self, work: Work) -> Ticket:
        job = self.model.submit(work, self.now())
        ticket = self._tickets[job.id] = Ticket(job)
        self.settle()
        return ticket

    def leave(self, ticket: Ticket) -> None:
        """The client is gone: cancels what has not finished."""
        del self._tickets[ticket.job.id]
        if not self._is_closed:
            self.model.cancel(ticket.job, self.now())
            self.settle()

    def settle(self) -> None:
        """Brings the model to the present and hands out what it produced."""
        if self._is_closed:
            return
        for event in self.model.advance(self.now()):
            ticket = self._tickets.get(event.job.id)
            if ticket is not None:
                ticket.inbox.put_nowait(event)
        self._set_timer()

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self.model.next_deadline()
        if due is not None:
            self._timer = self._loop.call_at(self._began_at + due / self._speed, self.settle)
