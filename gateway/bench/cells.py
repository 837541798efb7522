"""What a replay runs: cells, each a workload, a way to play it and a cluster, listed in a plan file.

A plan is YAML: `cells`, a list of mappings with the fields of `_Entry`. One entry stands for one cell, or for
one a load if `loads` names several. Plans of this project: `benchmarks/plans/`.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml
from msgspec import Struct

from gateway.bench.traces import WORKLOADS, Half
from gateway.bench.workload import EngineSpec


class PlanError(ValueError):
    """A plan that cannot be run; says file, place, value and what would do."""


class EngineGroup(EngineSpec, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`count` engines of one kind."""

    count: int = 1


class BurstSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sub-agents on top of the workload: every `every_s` on average `width` at once, whose prompts share one
    new prefix."""

    every_s: float
    width: int = 8
    prefix_tokens: int = 4096
    own_tokens: int = 1024
    output_tokens: int = 150


Arrivals = Literal["closed", "sessions", "open"]


class Cell(Struct, frozen=True, kw_only=True):
    """One experiment; every policy plays it once for each of `seeds`.

    `load` 1.0 is what the cluster can do if nothing is computed twice, see `gateway.bench.load`. It sets
    the number of agents (`closed`), the sessions started a second (`sessions`; by an Azure trace's gaps with
    `gaps`) or the speed of the recording (`open`). Recorded think times are cut at `think_cap_s`. What
    arrives from `warm_s` on counts, up to `until_s`, the run's end; a `warm_s` of 0 is a cold start.
    """

    name: str
    workload: str
    half: Half
    arrivals: Arrivals
    load: float
    engines: tuple[EngineSpec, ...]
    warm_s: float
    until_s: float
    think_cap_s: float
    gaps: Literal["code", "conv"] | None
    bursts: BurstSpec | None
    seeds: tuple[int, ...]

    @property
    def max_prompt_tokens(self) -> int:
        """Half of the smallest cache: an engine must hold a prompt beside another."""
        return min(engine.kv_tokens for engine in self.engines) // 2


class _Entry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    workload: str
    half: Half
    arrivals: Arrivals = "closed"
    loads: tuple[float, ...]
    engines: tuple[EngineGroup, ...]
    warm_s: float
    until_s: float
    think_cap_s: float = 30.0
    gaps: Literal["code", "conv"] | None = None
    bursts: BurstSpec | None = None
    seeds: tuple[int, ...] = (1,)


class _Plan(Struct, frozen=True, forbid_unknown_fields=True):
    cells: tuple[dict[str, Any], ...]


def load_plan(path: Path) -> tuple[Cell, ...]:
    """The cells of a plan file, in its order. Raises PlanError."""
    try:
        text = path.read_text()
    except OSError as error:
        raise PlanError(f"cannot read plan {path}: {error.strerror}") from error
    try:
        return read_plan(text)
    except PlanError as error:
        raise PlanError(f"{path}: {error}") from error


def read_plan(text: str) -> tuple[Cell, ...]:
    """The cells of a plan's text, in its order. Raises PlanError."""
    try:
        entries = msgspec.convert(yaml.safe_load(text), _Plan).cells
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise PlanError(f"not a plan: {error}") from error
    cells = [cell for number, entry in enumerate(entries) for cell in _cells(number, entry)]
    if twice := [name for name, times in Counter(cell.name for cell in cells).items() if times > 1]:
        raise PlanError(f"cell {twice[0]!r} stands there twice: results go by name, give each its own")
    return tuple(cells)


def _cells(number: int, raw: dict[str, Any]) -> Sequence[Cell]:
    place = f"cells[{number}] ({raw.get('name', 'without a name')})"
    try:
        entry = msgspec.convert(raw, _Entry)
    except msgspec.ValidationError as error:
        raise PlanError(f"{place}: {error}") from error
    if problem := _problem(entry):
        raise PlanError(f"{place}: {problem}")
    return [
        Cell(
            name=f"{entry.name}-{load:g}",
            workload=entry.workload,
            half=entry.half,
            arrivals=entry.arrivals,
            load=load,
            engines=tuple(_spec(group) for group in entry.engines for _ in range(group.count)),
            warm_s=entry.warm_s,
            until_s=entry.until_s,
            think_cap_s=entry.think_cap_s,
            gaps=entry.gaps,
            bursts=entry.bursts,
            seeds=entry.seeds,
        )
        for load in entry.loads
    ]


def _spec(group: EngineGroup) -> EngineSpec:
    return EngineSpec(**{name: getattr(group, name) for name in EngineSpec.__struct_fields__})


def _problem(entry: _Entry) -> str | None:
    if entry.workload not in WORKLOADS:
        return f"workload is {entry.workload!r}, must be one of {', '.join(WORKLOADS)}"
    if not entry.loads or min(entry.loads) <= 0:
        return f"loads is {list(entry.loads)}, must be one or more numbers above 0"
    if not entry.seeds:
        return "seeds is empty, give at least one"
    if entry.gaps is not None and entry.arrivals != "sessions":
        return f"gaps is {entry.gaps!r}, which sets when sessions start: needs arrivals: sessions"
    if entry.arrivals == "open" and entry.workload == "claude_code":
        return "arrivals is 'open', but claude_code has no clock common to its sessions: closed or sessions"
    if not 0 <= entry.warm_s < entry.until_s:
        return f"warm_s is {entry.warm_s:g}, must be from 0 to below until_s ({entry.until_s:g})"
    if entry.think_cap_s < 0:
        return f"think_cap_s is {entry.think_cap_s:g}, must not be negative"
    if entry.bursts is not None and min(entry.bursts.every_s, entry.bursts.width) <= 0:
        return "bursts: every_s and width must be above 0"
    if not entry.engines:
        return "engines is empty, give at least one"
    return next((problem for group in entry.engines if (problem := _group_problem(group))), None)


def _group_problem(group: EngineGroup) -> str | None:
    positive = ("count", "slots", "kv_tokens", "prefill_tokens_per_s", "decode_s", "step_tokens")
    for field in positive:
        if (value := getattr(group, field)) <= 0:
            return f"engines: {field} is {value:g}, must be above 0"
    return None
