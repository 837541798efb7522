"""What was measured: one sample for each scenario, system and round, and the medians of them."""

import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from math import inf
from pathlib import Path
from statistics import median

import msgspec
from msgspec import Struct

from gateway.bench.relay import proc
from gateway.bench.relay.scenarios import latency_figure
from gateway.bench.relay.systems import DIRECT

_RATES = ("json_rps", "burst_rps", "long_rps", "upload_rps")
_NEAR = 0.9
_BUSY = 0.1


class Sample(Struct, frozen=True, kw_only=True):
    """`bad`: socket errors and answers of status 400 and above, which `answers` may hold too."""

    system: str
    scenario: str
    round: int
    figures: Mapping[str, float]
    answers: int
    bad: int


class Failure(Struct, frozen=True, kw_only=True):
    """A system that did not start, or did not answer its first request."""

    system: str
    round: int
    message: str


class Machine(Struct, frozen=True, kw_only=True):
    cpu: str
    cores: int
    kernel: str
    python: str
    uvloop: str

    def __str__(self) -> str:
        return f"{self.cores} x {self.cpu}, Linux {self.kernel}, Python {self.python}, uvloop {self.uvloop}"


def this_machine() -> Machine:
    return Machine(
        cpu=proc.cpu_model(),
        cores=os.cpu_count() or 1,
        kernel=platform.release(),
        python=platform.python_version(),
        uvloop=version("uvloop"),
    )


class Results(Struct, kw_only=True):
    """`versions` by system and program; `skipped`: why a system could not be had here; `busy_cpus`: how much
    else ran just before."""

    machine: Machine
    versions: dict[str, str]
    rounds: int
    seconds: int
    scenarios: Sequence[str]
    busy_cpus: float = 0.0
    skipped: dict[str, str] = {}
    samples: list[Sample] = []
    failures: list[Failure] = []

    @property
    def systems(self) -> list[str]:
        return list(dict.fromkeys(sample.system for sample in self.samples))

    def median(self, system: str, figure: str) -> float | None:
        """Over the rounds that have it; None if none has."""
        values = [it.figures[figure] for it in self.samples if it.system == system and figure in it.figures]
        return median(values) if values else None

    def added_us(self, system: str, concurrency: int, percentile: int) -> float | None:
        """How much longer an answer takes than the median one straight from the engine."""
        own = self.median(system, latency_figure(concurrency, percentile))
        base = self.median(DIRECT, latency_figure(concurrency, 50))
        return None if own is None or base is None else own - base

    def bad(self, system: str) -> int:
        return sum(sample.bad for sample in self.samples if sample.system == system)

    def troubles(self) -> list[str]:
        """Whatever makes the figures less than they look, a line each."""
        lines = []
        if self.busy_cpus > _BUSY:
            lines.append(f"the machine was not idle before it began: {self.busy_cpus:.1f} CPUs were at work")
        lines += [f"{system} was left out: {why}" for system, why in self.skipped.items()]
        lines += [f"{it.system} failed in round {it.round}: {it.message}" for it in self.failures]
        for (system, scenario), (bad, answers) in _bad_answers(self.samples).items():
            lines.append(f"{system} gave bad answers in {scenario}: {bad:,} beside {answers:,} answers")
        return lines + self._bounds()

    def _bounds(self) -> list[str]:
        """Where the load and the engine are as slow as a proxy: its figure is a floor of what it could do."""
        return [
            f"{figure}: {system} is as fast as load and engine alone, within {1 - _NEAR:.0%}: they bound it,"
            " and ratios to it are better than they should be"
            for figure in _RATES
            for system in self.systems
            if system != DIRECT and (self.median(system, figure) or 0) > self._near_direct(figure)
        ]

    def _near_direct(self, figure: str) -> float:
        direct = self.median(DIRECT, figure)
        return inf if direct is None else _NEAR * direct


def _bad_answers(samples: Iterable[Sample]) -> dict[tuple[str, str], tuple[int, int]]:
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for it in samples:
        bad, answers = found.get((it.system, it.scenario), (0, 0))
        found[it.system, it.scenario] = bad + it.bad, answers + it.answers
    return {key: counted for key, counted in found.items() if counted[0]}


def write(path: Path, results: Results) -> None:
    """JSON: `medians` by system and figure, and everything they were made from. Raises OSError."""
    medians = {
        system: {
            figure: results.median(system, figure)
            for figure in dict.fromkeys(
                name for it in results.samples if it.system == system for name in it.figures
            )
        }
        | {"bad_answers": results.bad(system)}
        for system in results.systems
    }
    whole = {"medians": medians} | msgspec.to_builtins(results)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(whole), indent=1) + b"\n")
