"""The product's own scheduler as a router, by its public API."""

from collections.abc import Sequence
from random import Random
from time import perf_counter_ns

from gateway.bench.router import REFUSED, Sent, Sight
from gateway.bench.workload import Ask
from gateway.core.engine import Engine, Facts, Probe, SlotSource
from gateway.core.events import Discovered, Probed, Restarted
from gateway.core.request import Grant, Outcome, Request, Usage
from gateway.core.router import Policy
from gateway.core.scheduler import Limits, Scheduler, Step

MODEL = "m"

BYTES_PER_TOKEN = 4
"""What the scheduler assumes until it has learned better, so that here it never has to."""

MAX_QUEUE = 100_000

_NEVER_TOO_LONG_S = 1e9


class Gateway:
    """Implements `Router`. Every engine is ready from the start, and its facts are what it declares.

    `max_wait_s`: how long a request may wait before it is refused; as good as for ever if not given.
    `timed`: keep how long each offer, first token and finish took, in `decisions_ns`. `learns`: it is told
    how many tokens of each prompt came from a cache. What it predicted of them is in `predicted_tokens`.
    """

    def __init__(
        self,
        sights: Sequence[Sight],
        block_tokens: int,
        random: Random,
        *,
        policy: Policy = "cost",
        max_wait_s: float = _NEVER_TOO_LONG_S,
        timed: bool = False,
        learns: bool = True,
    ) -> None:
        self.decisions_ns: list[int] = []
        self.predicted_tokens: dict[int, int] = {}
        self._learns = learns
        self._timed = timed
        self._max_wait_s = max_wait_s
        self._with_session = policy == "session"
        self._asks: dict[int, Ask] = {}
        self._names = [f"e{number}" for number in range(len(sights))]
        self._numbers = {name: number for number, name in enumerate(self._names)}
        self.scheduler = Scheduler(
            [Engine(name, f"http://{name}") for name in self._names],
            Limits(max_queue=MAX_QUEUE),
            policy,
            random.random,
            BYTES_PER_TOKEN * block_tokens,
        )
        for name, sight in zip(self._names, sights, strict=True):
            spec = sight.spec
            facts = Facts(
                kind="vllm",
                models=(MODEL,),
                slots=spec.slots,
                slots_source=SlotSource.CONFIGURED,
                kv_tokens=spec.kv_tokens if spec.declared_kv_tokens is None else spec.declared_kv_tokens,
                block_tokens=block_tokens,
            )
            self.scheduler.update(name, Discovered(facts=facts), 0.0)
            self.scheduler.update(name, Probed(probe=Probe.OK), 0.0)

    def arrived(self, ask: Ask, now: float) -> Sequence[Sent]:
        self._asks[ask.key] = ask
        request = self._request(ask)
        began_ns = perf_counter_ns()
        step = self.scheduler.offer(request, now)
        self._took(began_ns)
        return self._sent(step)

    def first_token(self, key: int, now: float) -> None:
        began_ns = perf_counter_ns()
        self.scheduler.first_token(key, now)
        self._took(began_ns)

    def finished(self, key: int, cached_tokens: int, now: float) -> Sequence[Sent]:
        ask = self._asks.pop(key)
        usage = Usage(
            prompt_tokens=ask.prompt_tokens,
            completion_tokens=ask.output_tokens,
            cached_tokens=cached_tokens if self._learns else None,
        )
        began_ns = perf_counter_ns()
        step = self.scheduler.finish(key, Outcome.OK, usage, now)
        self._took(began_ns)
        return self._sent(step)

    def failed(self, key: int, now: float) -> Sequence[Sent]:
        return self._sent(self.scheduler.retry(key, now, reached=True))

    def went_down(self, engine: int, now: float) -> Sequence[Sent]:
        return self._sent(self.scheduler.update(self._names[engine], Probed(probe=Probe.REFUSED), now))

    def came_up(self, engine: int, now: float) -> Sequence[Sent]:
        name = self._names[engine]
        restarted = self._sent(self.scheduler.update(name, Restarted(), now))
        return [*restarted, *self._sent(self.scheduler.update(name, Probed(probe=Probe.OK), now))]

    def due_s(self) -> float | None:
        return self.scheduler.next_deadline()

    def wake(self, now: float) -> Sequence[Sent]:
        return self._sent(self.scheduler.tick(now))

    def _request(self, ask: Ask) -> Request:
        """Agents name no session: only the policy that is about nothing else is told of it."""
        return Request(
            key=ask.key,
            id=str(ask.key),
            api="chat",
            model=MODEL,
            blocks=ask.blocks,
            prompt_bytes=BYTES_PER_TOKEN * ask.prompt_tokens,
            body_bytes=0,
            session=ask.session if self._with_session else 0,
            max_wait_s=self._max_wait_s,
            stream=True,
        )

    def _took(self, began_ns: int) -> None:
        if self._timed:
            self.decisions_ns.append(perf_counter_ns() - began_ns)

    def _sent(self, step: Step) -> list[Sent]:
        sents = []
        for decision in step.decisions:
            if isinstance(decision, Grant):
                self.predicted_tokens[decision.key] = decision.predicted_tokens
                sents.append(Sent(decision.key, self._numbers[decision.engine]))
            else:
                self._asks.pop(decision.key, None)
                sents.append(Sent(decision.key, REFUSED))
        return sents
