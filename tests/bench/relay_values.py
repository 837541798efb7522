"""Results of a relay measurement, made up."""

from collections.abc import Mapping

from gateway.bench.relay.results import Machine, Results, Sample


def results(
    figures: Mapping[str, Mapping[str, float]],
    *,
    bad: Mapping[str, int] | None = None,
    scenario: str = "json",
) -> Results:
    """One round: figures by system."""
    return Results(
        machine=Machine(cpu="Some CPU", cores=2, kernel="6.1", python="3.11.7", uvloop="0.23.0"),
        versions={"wrk": "4.1", "gateway": "0.1.0"},
        rounds=1,
        seconds=1,
        scenarios=[scenario],
        samples=[a_sample(name, it, bad=(bad or {}).get(name, 0)) for name, it in figures.items()],
    )


def a_sample(
    system: str, figures: Mapping[str, float], *, bad: int = 0, scenario: str = "json", number: int = 1
) -> Sample:
    return Sample(system=system, scenario=scenario, round=number, figures=figures, answers=100, bad=bad)
