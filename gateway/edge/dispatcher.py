"""The scheduler's async face: its clock, its one timer, and whose decision is whose."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Iterable
from typing import Protocol

from gateway.core.engine import Engine
from gateway.core.events import EngineEvent
from gateway.core.request import Decision, Grant, Outcome, Rejection, Request, Usage
from gateway.core.router import Policy
from gateway.core.scheduler import Limits, Scheduler, Step
from gateway.core.snapshot import Snapshot
from gateway.core.view import snapshot


class Applicant(Protocol):
    """Whoever offered a request. Called at most once for each grant; a rejection is the last word."""

    def granted(self, grant: Grant) -> None: ...

    def rejected(self, rejection: Rejection) -> None: ...

    def crashed(self, error: Exception) -> None: ...


class Dispatcher:
    """Carries calls to the scheduler and its decisions to the applicants, one at a time, never nested."""

    def __init__(self, scheduler: Scheduler, loop: asyncio.AbstractEventLoop, log: logging.Logger) -> None:
        self.scheduler = scheduler
        # Not the loop's own clock: uvloop's stands still within a callback and counts milliseconds.
        self.now = time.monotonic
        self._loop = loop
        self._log = log
        self._applicants: dict[int, Applicant] = {}
        self._pending: deque[Decision] = deque()
        self._applying = False
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0

    def submit(self, request: Request, applicant: Applicant, now: float | None = None) -> None:
        """`now`: the clock, if it has just been read."""
        self._applicants[request.key] = applicant
        self._apply(self.scheduler.offer(request, self.now() if now is None else now))

    def first_token(self, key: int) -> float | None:
        """Returns how long the request waited inside its engine, None where that is not known."""
        now = self.now()
        waited_s = self.scheduler.first_token(key, now)
        if self.scheduler.queue.by_key:
            self._apply(self.scheduler.go_on(now))
        return waited_s

    def retry(self, key: int, *, reached: bool) -> None:
        """The applicant's engine failed it; a grant or a rejection follows, perhaps later."""
        self._apply(self.scheduler.retry(key, self.now(), reached=reached))

    def decline(self, key: int) -> bool:
        """The applicant's engine was too busy. True: another will be tried, a grant or rejection follows.
        False: there is none, the request is over for the scheduler and the applicant keeps the answer."""
        step = self.scheduler.decline(key, self.now())
        mine = [it for it in step.decisions if it.key == key and isinstance(it, Rejection)]
        if mine:
            self._applicants.pop(key, None)
            step = Step([it for it in step.decisions if it.key != key], step.want)
        self._apply(step)
        return not mine

    def finish(self, key: int, outcome: Outcome, usage: Usage, *, reached: bool) -> float:
        """Returns when that was. Never fails: whoever calls has a client to look after."""
        self._applicants.pop(key, None)
        now = self.now()
        try:
            self._apply(self.scheduler.finish(key, outcome, usage, now, reached=reached))
        except Exception:
            self._log.exception("the end of a request could not be taken to its end")
        return now

    def update(self, name: str, event: EngineEvent) -> None:
        self._apply(self.scheduler.update(name, event, self.now()))

    def drain(self, name: str, on: bool) -> None:
        self._apply(self.scheduler.drain(name, on, self.now()))

    def change_engines(self, remove: Iterable[str], add: Iterable[Engine]) -> None:
        self._apply(self.scheduler.change_engines(remove, add, self.now()))

    def configure(self, limits: Limits, policy: Policy) -> None:
        self._apply(self.scheduler.configure(limits, policy, self.now()))

    def snapshot(self) -> Snapshot:
        return snapshot(self.scheduler, self.now())

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _apply(self, step: Step) -> None:
        if step.decisions:
            self._pending += step.decisions
            if not self._applying:
                self._applying = True
                try:
                    while self._pending:
                        self._tell(self._pending.popleft())
                finally:
                    self._applying = False
        due = self.scheduler.next_deadline()
        if due is not None and (self._timer is None or due < self._due):
            self._arm(due)

    def _tell(self, decision: Decision) -> None:
        applicant = self._applicants.get(decision.key)
        if applicant is None:
            # It left between the decision and now; its `finish` has released the lease already.
            return
        try:
            if isinstance(decision, Grant):
                applicant.granted(decision)
            else:
                del self._applicants[decision.key]
                applicant.rejected(decision)
        except Exception as error:
            self._log.exception("a decision could not be carried out")
            try:
                applicant.crashed(error)
            except Exception:
                self._log.exception("nor could its failure be told")

    def _arm(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due = due
        self._timer = self._loop.call_later(max(0.0, due - self.now()), self._tick)

    def _tick(self) -> None:
        self._timer = None
        # Timers may fire a clock tick early; the deadline has come all the same.
        self._apply(self.scheduler.tick(max(self.now(), self._due)))
