"""The funnel in words."""

from gateway.core.diagnosis import causes, sentence
from gateway.core.funnel import Figures, Losses

NOTHING = Losses(0, 0, 0, 0, 0, 0)


def funnel(
    prompt: int = 0, infinite: int = 0, delivered: int = 0, requests: int = 100, lost: Losses = NOTHING
) -> Figures:
    return Figures(
        requests=requests, prompt=prompt, infinite=infinite, best=0, predicted=0, delivered=delivered,
        hit_rate=delivered / prompt if prompt else None, lost=lost, unknown_requests=0,
    )  # fmt: skip


def test_causes_are_all_that_was_lost() -> None:
    it = funnel(10_000, 8000, 4000, lost=Losses(3000, 700, 300, 500, 1200, 300))
    assert causes(it) == {"workload": 2000, "capacity": 1000 + 1200, "routing": 1500, "counting": 300}
    assert sum(causes(it).values()) == it.prompt - it.delivered


def test_too_little_traffic_says_nothing() -> None:
    assert sentence(funnel(), "since the start", {}) == (
        "Too little traffic to say: 100 requests with cached tokens reported since the start."
    )
    one = funnel(1000, 0, 0, requests=1, lost=Losses(1000, 0, 0, 0, 0, 0))
    assert sentence(one, "in the last hour", {}) == (
        "Too little traffic to say: 1 request with cached tokens reported in the last hour."
    )


def test_little_is_lost() -> None:
    it = funnel(100_000, 96_000, 95_000, lost=Losses(5000, 0, 0, 0, 0, 0))
    assert sentence(it, "in the last hour", {}) == (
        "95.0 % of 100,000 prompt tokens came from cache in the last hour. Little is lost."
    )


def test_the_workload_loses_most() -> None:
    it = funnel(100_000, 40_000, 35_000, lost=Losses(60_000, 0, 0, 0, 5000, 0))
    assert sentence(it, "in the last hour", {}) == (
        "35.0 % of 100,000 prompt tokens came from cache in the last hour. The workload loses most: 60.0 % "
        "was new to every engine. Prompts that break their own prefix are at /api/breakers; what is really "
        "new has to be computed."
    )


def test_the_capacity_loses_most() -> None:
    it = funnel(100_000, 80_000, 20_000, lost=Losses(40_000, 0, 0, 0, 40_000, 0))
    assert "The capacity loses most: 60.0 % had been seen before" in sentence(it, "since the start", {})


def test_the_routing_loses_most_and_how() -> None:
    for lost, words in (
        (
            Losses(10_000, 40_000, 5000, 5000, 0, 0),
            "80.0 % of that was on another engine that had a slot free",
        ),
        (
            Losses(10_000, 5000, 40_000, 5000, 0, 0),
            "80.0 % of that was on an engine whose slots were all taken",
        ),
        (Losses(10_000, 5000, 5000, 40_000, 0, 0), "80.0 % of that was still being computed"),
    ):
        said = sentence(funnel(100_000, 90_000, 40_000, lost=lost), "in the last hour", {})
        assert "The routing loses most: 50.0 % was not there where the request went; " + words in said


def test_counting_loses_most() -> None:
    it = funnel(100_000, 98_000, 90_000, lost=Losses(2000, 0, 0, 0, 0, 8000))
    assert "The counting loses most: 8.0 % is how engine and gateway count" in sentence(
        it, "since the start", {}
    )


def test_engines_that_do_not_report_are_unknown_and_told() -> None:
    unknown = {"a": "start it with --this", "b": "never tells"}
    told = "Unknown, not zero, is what engines deliver that do not report it. "
    told += "a: start it with --this; b: never tells."
    assert sentence(funnel(requests=0), "since the start", unknown) == told
    it = funnel(100_000, 96_000, 95_000, lost=Losses(5000, 0, 0, 0, 0, 0))
    assert sentence(it, "since the start", unknown).endswith(f"Little is lost. {told}")
