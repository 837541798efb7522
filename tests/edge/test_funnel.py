"""The page `/api/funnel`: by window and label, what a hit is worth, what is unknown, the hour in steps."""

from typing import Any

import pytest
from edge_values import a_record, a_snapshot, an_engine

from gateway.core.request import Outcome
from gateway.edge.metrics import Metrics
from gateway.edge.records import encode_json


class Gateway:
    """Metrics whose clock the test moves; it began at 1000 s."""

    def __init__(self, *engines: Any) -> None:
        self.now = 1000.0
        self.snapshot = a_snapshot(*(engines or (an_engine(),)))
        self.metrics = Metrics(
            snapshot=lambda: self.snapshot,
            known_models=lambda: ["m"],
            version="1",
            clock=lambda: self.now,
        )

    def finish(self, times: int = 1, **changes: object) -> None:
        for _ in range(times):
            self.metrics.observe(a_record(**changes))
        self.metrics.count()

    def page(self) -> Any:
        return self.metrics.funnel.page(self.snapshot, self.now, "2026-12-01T12:00:00.000Z")

    def hour(self, label: str) -> dict[str, tuple[int, int]]:
        """(requests, delivered) of the last hour by name."""
        by_name = self.page()["by"][label]
        return {name: (it["1h"].requests, it["1h"].delivered) for name, it in by_name.items()}


def test_nothing_has_come_yet() -> None:
    page = Gateway().page()
    assert encode_json(page)
    assert page["windows"]["all"].hit_rate is None
    assert page["by"] == {"engine": {}, "model": {}, "class": {}, "key": {}}
    assert page["worth"]["requests_per_hour_gained"] is None
    assert page["worth"]["prefill_seconds_saved"] == dict.fromkeys(("1m", "10m", "1h", "all"))
    assert page["unknown_engines"] == {}
    assert page["sentence"].startswith("Too little traffic to say: 0 requests")


def test_requests_count_to_the_time_in_which_they_ended() -> None:
    gateway = Gateway()
    gateway.finish(2)
    gateway.now += 120.0
    gateway.finish(1)
    windows = gateway.page()["windows"]
    assert {name: it.requests for name, it in windows.items()} == {"1m": 1, "10m": 3, "1h": 3, "all": 3}
    assert windows["all"].delivered == gateway.metrics.funnel.total().delivered == 3 * 512


def test_by_engine_model_class_and_key() -> None:
    gateway = Gateway(an_engine(), an_engine(name="b"))
    gateway.finish(1, cached_tokens=100)
    gateway.finish(2, engine="b", cached_tokens=200, workload_class="json", key_name="team")
    gateway.finish(1, model="made up", cached_tokens=400)
    assert gateway.hour("engine") == {"a": (2, 500), "b": (2, 400)}
    assert gateway.hour("model") == {"m": (3, 500), "other": (1, 400)}
    assert gateway.hour("class") == {"chat": (2, 500), "json": (2, 400)}
    assert gateway.hour("key") == {"none": (2, 500), "team": (2, 400)}


def test_what_a_hit_is_worth() -> None:
    gateway = Gateway(an_engine(prefill_tokens_per_s=2000.0), an_engine(name="b", prefill_tokens_per_s=None))
    gateway.now += 1800.0
    gateway.finish(10, cached_tokens=800, ttft_ms=100.0, queue_ms=0.0, duration_ms=4000.0)
    gateway.finish(10, cached_tokens=0, ttft_ms=500.0, queue_ms=0.0, duration_ms=4000.0)
    gateway.finish(10, cached_tokens=0, ttft_ms=None, queue_ms=0.0, duration_ms=0.0)
    gateway.finish(1, engine="b", cached_tokens=800, ttft_ms=None, queue_ms=0.0, duration_ms=0.0)
    worth = gateway.page()["worth"]
    assert worth["prefill_seconds_saved"] == {"1m": 4.0, "10m": 4.0, "1h": 4.0, "all": 4.0}
    # 31 requests in 80 s of slots; with 4 s more they would have been 31 x 80 / 84, and this is half an hour.
    assert worth["requests_per_hour_gained"] == pytest.approx(2 * (31 - 31 * 80 / 84))
    begun = {it.share: (it.requests, it.ttft_p50_ms) for it in worth["ttft_by_cached_share"]}
    assert begun["0-25 %"] == (10, 500.0)
    assert begun["75-90 %"] == (10, 100.0)
    assert begun["25-50 %"] == (0, None)


def test_an_engine_that_does_not_report_is_unknown_with_what_to_switch_on() -> None:
    gateway = Gateway(
        an_engine(),
        an_engine(name="s", kind="sglang"),
        an_engine(name="o", kind="ollama"),
        an_engine(name="b"),
    )
    gateway.finish(3, cached_tokens=None)
    gateway.finish(3, engine="s", cached_tokens=None)
    gateway.finish(1, engine="s")
    gateway.finish(1, engine="o", prompt_tokens=None)
    page = gateway.page()
    assert page["unknown_engines"] == {
        "a": "start it with --enable-prompt-tokens-details",
        "o": "Ollama never tells cached tokens",
    }
    assert "a: start it with --enable-prompt-tokens-details" in page["sentence"]
    assert page["by"]["engine"]["a"]["all"].unknown_requests == 3
    assert page["by"]["engine"]["a"]["all"].hit_rate is None
    assert page["windows"]["all"].requests == 1


def test_what_failed_or_was_left_counts_only_if_it_was_reported() -> None:
    gateway = Gateway()
    gateway.finish(1, cached_tokens=None)
    for outcome in (Outcome.INVALID, Outcome.ENGINE_ERROR, Outcome.CLIENT_DISCONNECT):
        gateway.finish(1, outcome=outcome, cached_tokens=None)
    gateway.finish(1, outcome=Outcome.CLIENT_DISCONNECT)
    total = gateway.page()["windows"]["all"]
    assert (total.requests, total.unknown_requests) == (1, 1)


def test_an_engine_that_reports_again_is_not_unknown() -> None:
    gateway = Gateway()
    gateway.finish(3, cached_tokens=None)
    gateway.now += 4000.0
    assert list(gateway.page()["unknown_engines"]) == ["a"]
    gateway.finish(1)
    assert gateway.page()["unknown_engines"] == {}


def test_the_sentence_is_on_the_last_hour_if_that_says_enough() -> None:
    gateway = Gateway()
    gateway.finish(50, cached_tokens=0, known_tokens=0, predicted_cached_tokens=0, best_cached_tokens=0)
    gateway.now += 4000.0
    assert "0.0 % of 50,000 prompt tokens came from cache since the start" in gateway.page()["sentence"]
    gateway.finish(50, cached_tokens=1000)
    said = "100.0 % of 50,000 prompt tokens came from cache in the last hour. Little is lost."
    assert gateway.page()["sentence"] == said
    assert gateway.metrics.funnel.state(gateway.snapshot, gateway.now)["sentence"] == said


def test_the_hour_in_steps() -> None:
    gateway = Gateway()
    gateway.now = 1025.0
    gateway.finish(1, seen_tokens=900)
    gateway.now = 1060.0
    first, second, third = gateway.page()["series"]
    assert first == {
        "at": "2026-12-01T11:59:00.000Z",
        "seconds": 20.0,
        "requests": 0,
        "prompt": 0,
        "infinite": 0,
        "best": 0,
        "predicted": 0,
        "delivered": 0,
    }
    assert (second["at"], second["seconds"], second["requests"]) == ("2026-12-01T11:59:20.000Z", 30.0, 1)
    assert (second["prompt"], second["infinite"], second["delivered"]) == (1000, 900, 512)
    assert (third["at"], third["seconds"]) == ("2026-12-01T11:59:50.000Z", 10.0)
