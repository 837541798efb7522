"""The measurement itself: engines started once, every system anew for each round, one after the other."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from gateway.bench.relay.engine import Manner
from gateway.bench.relay.errors import RelayError
from gateway.bench.relay.processes import (
    LOAD_CPU,
    PROXY_CPU,
    NotReady,
    Ports,
    process,
    wait_until_it_answers,
)
from gateway.bench.relay.results import Failure, Sample
from gateway.bench.relay.scenarios import SCENARIOS, Loads, Target
from gateway.bench.relay.systems import Place, System


class Plan(NamedTuple):
    systems: Sequence[System]
    scenarios: Sequence[str]
    rounds: int
    seconds: int


class Bench:
    """What the rounds of one measurement share. `wrk` is the program's path."""

    def __init__(self, plan: Plan, folder: Path, wrk: str) -> None:
        self._plan = plan
        self._folder = folder
        self._loads = Loads(wrk, folder)
        self._ports = Ports()

    def play(self) -> Iterator[Sample | Failure]:
        """Raises RelayError if the engine or wrk do not work, and OSError."""
        groups = _groups(self._plan.scenarios)
        with ExitStack() as stack:
            engines = {manner: self._engine(stack, manner) for manner, _ in groups}
            for round_ in range(1, self._plan.rounds + 1):
                for system in self._plan.systems:
                    for manner, scenarios in groups:
                        yield from self._group(system, round_, engines[manner], scenarios)

    def _engine(self, stack: ExitStack, manner: Manner) -> int:
        port = self._ports.take()
        command = [sys.executable, "-m", "gateway.bench.relay.engine", "--port", str(port), *manner.arguments]
        log = self._folder / f"engine-{port}.log"
        child = stack.enter_context(process(command, LOAD_CPU, log))
        try:
            wait_until_it_answers(child, port, log)
        except NotReady as error:
            raise RelayError(f"the mock engine {error}") from None
        return port

    def _group(
        self, system: System, round_: int, engine_port: int, scenarios: Sequence[str]
    ) -> Iterator[Sample | Failure]:
        at = Place(
            port=self._ports.take(),
            admin_port=self._ports.take(),
            engine_port=engine_port,
            slots=max(SCENARIOS[name].slots for name in scenarios),
            folder=self._folder,
        )
        command = system.command(at)
        if not command:
            target = Target(engine_port, None, self._loads, self._plan.seconds)
            wanted = [name for name in scenarios if not SCENARIOS[name].is_of_proxies]
            yield from self._samples(system, round_, wanted, target)
            return
        log = self._folder / f"{system.name}-{at.port}.log"
        try:
            with process(command, PROXY_CPU, log) as child:
                wait_until_it_answers(child, at.port, log)
                target = Target(at.port, child.pid, self._loads, self._plan.seconds)
                yield from self._samples(system, round_, scenarios, target)
        except (NotReady, OSError) as error:
            yield Failure(system=system.name, round=round_, message=str(error))
        # An access log of a run is hundreds of megabytes.
        log.unlink(missing_ok=True)

    def _samples(
        self, system: System, round_: int, scenarios: Sequence[str], target: Target
    ) -> Iterator[Sample]:
        for name in scenarios:
            measured = SCENARIOS[name].measure(target)
            yield Sample(
                system=system.name,
                scenario=name,
                round=round_,
                figures=measured.figures,
                answers=measured.answers,
                bad=measured.bad,
            )


def _groups(scenarios: Sequence[str]) -> list[tuple[Manner, list[str]]]:
    """Scenarios that ask the same engine share one start of each system."""
    manners = list(dict.fromkeys(SCENARIOS[name].manner for name in SCENARIOS))
    ordered = sorted(scenarios, key=lambda name: manners.index(SCENARIOS[name].manner))
    return [(manner, list(names)) for manner, names in groupby(ordered, lambda it: SCENARIOS[it].manner)]
