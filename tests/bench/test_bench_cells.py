"""Plan files: what they say, and what is said of mistakes."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.bench.cells import BurstSpec, PlanError, load_plan, read_plan
from gateway.bench.workload import EngineSpec

PLANS = Path(__file__).parent.parent.parent / "benchmarks" / "plans"
ENTRY: dict[str, Any] = {
    "name": "a",
    "workload": "miniswe",
    "half": "dev",
    "loads": [0.5],
    "engines": [{"count": 1}],
    "warm_s": 10,
    "until_s": 20,
}


def plan(**changes: Any) -> str:
    return yaml.safe_dump({"cells": [{**ENTRY, **changes}]})


def test_an_entry_is_one_cell_for_each_load() -> None:
    half, full = read_plan(plan(loads=[0.5, 1], seeds=[1, 2]))

    assert (half.name, half.load) == ("a-0.5", 0.5)
    assert (full.name, full.load) == ("a-1", 1.0)
    assert (half.seeds, half.think_cap_s, half.arrivals, half.bursts) == ((1, 2), 30.0, "closed", None)


def test_engines_come_in_groups() -> None:
    fast = {"count": 2, "kv_tokens": 80_000, "declared_kv_tokens": 160_000}
    slow = {"kv_tokens": 60_000, "prefill_tokens_per_s": 2000, "restarts_s": [15]}

    (cell,) = read_plan(plan(engines=[fast, slow], bursts={"every_s": 3}))

    two = EngineSpec(kv_tokens=80_000, declared_kv_tokens=160_000)
    one = EngineSpec(kv_tokens=60_000, prefill_tokens_per_s=2000.0, restarts_s=(15.0,))
    assert cell.engines == (two, two, one)
    assert cell.max_prompt_tokens == 30_000
    assert cell.bursts == BurstSpec(every_s=3.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"workload": "chat"}, "workload is 'chat', must be one of claude_code, mooncake_conversation"),
        ({"half": "both"}, r"Invalid enum value 'both' - at `\$.half`"),
        ({"loads": []}, r"loads is \[\], must be one or more numbers above 0"),
        ({"loads": [1, 0]}, r"loads is \[1.0, 0.0\], must be"),
        ({"seeds": []}, "seeds is empty"),
        ({"gaps": "code"}, "gaps is 'code', which sets when sessions start: needs arrivals: sessions"),
        ({"workload": "claude_code", "arrivals": "open"}, "arrivals is 'open', but claude_code has no clock"),
        ({"warm_s": 20}, r"warm_s is 20, must be from 0 to below until_s \(20\)"),
        ({"think_cap_s": -1}, "think_cap_s is -1, must not be negative"),
        ({"bursts": {"every_s": 0}}, "bursts: every_s and width must be above 0"),
        ({"engines": []}, "engines is empty"),
        ({"engines": [{"count": 0}]}, "engines: count is 0, must be above 0"),
        ({"engines": [{"slot": 4}]}, r"unknown field `slot` - at `\$.engines\[0\]`"),
        ({"colour": "red"}, "unknown field `colour`"),
    ],
)
def test_a_mistake_is_told_with_its_place(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=rf"cells\[0\] \(a\): .*{message}"):
        read_plan(plan(**changes))


def test_two_cells_need_two_names() -> None:
    with pytest.raises(PlanError, match=r"cell 'a-0\.5' stands there twice"):
        read_plan(plan(loads=[0.5, 0.50]))


@pytest.mark.parametrize("text", ["", "cells: 3", "plan: []", "["])
def test_what_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(PlanError, match="not a plan: "):
        read_plan(text)


def test_errors_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"cannot read plan .*none\.yaml: No such file"):
        load_plan(tmp_path / "none.yaml")
    (tmp_path / "bad.yaml").write_text("cells: 3")
    with pytest.raises(PlanError, match=r"bad\.yaml: not a plan"):
        load_plan(tmp_path / "bad.yaml")


def test_what_is_developed_on_is_not_what_decides() -> None:
    halves = {
        name: {cell.half for cell in load_plan(PLANS / name)} for name in ("develop.yaml", "quick.yaml")
    }

    assert halves == {"develop.yaml": {"dev"}, "quick.yaml": {"dev"}}
    assert {cell.half for cell in load_plan(PLANS / "held_out.yaml")} == {"held"}


def test_the_decision_covers_what_it_must() -> None:
    cells = load_plan(PLANS / "held_out.yaml")

    assert len(cells) <= 60
    assert {len(cell.engines) for cell in cells} >= {2, 4, 8, 16, 32}
    sizes = {engine.kv_tokens for cell in cells for engine in cell.engines}
    assert (min(sizes), max(sizes)) == (50_000, 2_000_000)
    loads = {cell.load for cell in cells}
    assert (min(loads), max(loads)) == (0.3, 1.3)
    assert {cell.arrivals for cell in cells} == {"closed", "sessions", "open"}
    assert any(cell.warm_s == 0 for cell in cells)
    assert any(cell.bursts == BurstSpec(every_s=20.0) for cell in cells)
    engines = [engine for cell in cells for engine in cell.engines]
    assert any(engine.restarts_s for engine in engines)
    assert any(engine.declared_kv_tokens == 2 * engine.kv_tokens for engine in engines)
    assert any(len({engine.decode_s for engine in cell.engines}) > 1 for cell in cells)
