"""`benchmarks/relay/cost.py` measures a whole gateway, and says when a budget is not held."""

import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

RELAY = Path(__file__).parent.parent / "benchmarks" / "relay"
if not RELAY.is_dir():
    pytest.skip("the source distribution comes without benchmarks", allow_module_level=True)
sys.path.append(str(RELAY))

import cost  # noqa: E402


@pytest.mark.parametrize("scenario", cost.SCENARIOS)
def test_each_scenario_is_served_to_its_end(scenario: str) -> None:
    assert cost.child(cost.ROOT, scenario, seconds=0.01) > 0


@pytest.mark.parametrize(("after_us", "holds"), [(57.9, True), (58.1, False)])
def test_the_median_of_the_pairs_is_held_against_the_budget(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], after_us: float, holds: bool
) -> None:
    figures = iter([50.0, after_us, 40.0, after_us - 10, 50.0, 90.0])

    @contextmanager
    def checked_out(ref: str):
        yield Path(ref)

    monkeypatch.setattr(cost, "checked_out", checked_out)
    monkeypatch.setattr(cost, "child", lambda *_: next(figures))
    assert cost.compare("before", ["json"], rounds=3, seconds=1.0) is holds
    line = capsys.readouterr().out.splitlines()[1]
    assert ("NOT HELD" in line) is not holds
