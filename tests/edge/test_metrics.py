import pytest
from edge_values import a_record, a_snapshot, a_waiting, an_engine
from prometheus_client.parser import text_string_to_metric_families

from gateway.core.engine import Health, SlotSource
from gateway.core.funnel import REASONS
from gateway.core.request import Outcome
from gateway.edge.metrics import Metrics

LABELS = [
    "engine",
    "model",
    "api",
    "outcome",
    "source",
    "priority",
    "reason",
    "part",
    "kind",
    "version",
    "le",
]


class Gateway:
    """The parts of a gateway that the metrics look at, with a scrape read back into a dict."""

    def __init__(self, *engines, models=("m",), waiting=(), degraded=None):
        self.engines = engines or (an_engine(),)
        self.models = models
        self.waiting = waiting
        self.metrics = Metrics(
            snapshot=lambda: a_snapshot(*self.engines, waiting=self.waiting),
            known_models=lambda: self.models,
            version="1.2.3",
            degraded=lambda: degraded or {},
        )

    def finish(self, times=1, **changes):
        for _ in range(times):
            self.metrics.observe(a_record(**changes))

    def scrape(self):
        samples = {}
        for family in text_string_to_metric_families(self.metrics.render().decode()):
            for sample in family.samples:
                labels = [sample.labels[label] for label in LABELS if label in sample.labels]
                assert len(labels) == len(sample.labels)
                key = (sample.name.removeprefix("prefix_gateway_"), *labels)
                assert key not in samples
                samples[key] = sample.value
        return samples

    def family(self, name):
        return {key[1:]: value for key, value in self.scrape().items() if key[0] == name}


def test_every_metric_of_this_release_is_there_with_its_type():
    types = {
        family.name: family.type
        for family in text_string_to_metric_families(Gateway().metrics.render().decode())
    }
    counters = "requests slot_idle_while_waiting_seconds rejected prompt_tokens cached_tokens_best "
    counters += "cached_tokens_infinite prefix_loss_tokens "
    counters += (
        "cached_tokens_predicted cached_tokens_delivered cached_tokens_unknown_requests concurrency_seconds "
        "prefix_breaks"
    )
    counters += " normalized_requests"
    gauges = (
        "in_flight slots slots_cooling queue_depth engine_up engine_running engine_waiting engine_kv_usage "
        "engine_inferred_cap "
    )
    gauges += "engine_prefill_tokens_per_second engine_decode_tokens_per_second engine_foreign_running "
    gauges += "degraded config_last_reload_success build_info"
    histograms = "queue_wait_seconds ttft_seconds request_seconds overhead_seconds"
    expected = dict.fromkeys(counters.split(), "counter")
    expected |= dict.fromkeys(gauges.split(), "gauge") | dict.fromkeys(histograms.split(), "histogram")
    assert types == {f"prefix_gateway_{name}": kind for name, kind in expected.items()}


@pytest.mark.parametrize("times", [1, 63, 64, 65, 200])
def test_every_request_is_counted_whenever_somebody_looks(times):
    gateway = Gateway()
    gateway.finish(times)
    assert gateway.metrics.funnel.total().prompt == times * 1000
    gateway.finish(times)
    assert gateway.scrape()["request_seconds_count",] == times * 2
    gateway.finish(times, cached_tokens=None)
    assert gateway.metrics.degradations()["usage_missing"] == (times >= 100)


def test_a_request_keeps_the_label_that_its_model_had_when_it_ended():
    gateway = Gateway()
    gateway.finish()
    gateway.models = ()
    assert gateway.family("requests_total") == {("a", "m", "chat", "ok"): 1}


def test_the_running_version_is_shown():
    assert Gateway().scrape()["build_info", "1.2.3"] == 1


def test_requests_are_counted_by_engine_model_api_and_outcome():
    gateway = Gateway()
    gateway.finish(times=3)
    gateway.finish(outcome=Outcome.CLIENT_DISCONNECT)
    assert gateway.family("requests_total") == {
        ("a", "m", "chat", "ok"): 3,
        ("a", "m", "chat", "client_disconnect"): 1,
    }


def test_a_request_that_got_no_engine_has_the_engine_label_none():
    gateway = Gateway()
    gateway.finish(engine="", outcome=Outcome.REJECTED, code="queue_full")
    assert gateway.family("requests_total") == {("none", "m", "chat", "rejected"): 1}


def test_names_that_clients_make_up_share_one_series():
    gateway = Gateway()
    for number in range(50):
        gateway.finish(model=f"made-up-{number}", api=f"v1/{number}")
    assert gateway.family("requests_total") == {("a", "other", "other", "ok"): 50}
    assert gateway.family("prompt_tokens_total") == {("a", "other"): 50_000}


def test_a_model_that_an_engine_brings_later_gets_its_own_series():
    gateway = Gateway(models=("m",))
    gateway.finish(model="new")
    gateway.models = ("m", "new")
    gateway.finish(model="new")
    assert gateway.family("requests_total") == {
        ("a", "other", "chat", "ok"): 1,
        ("a", "new", "chat", "ok"): 1,
    }


def test_a_model_that_is_gone_after_a_scrape_is_other():
    gateway = Gateway(models=("m",))
    gateway.finish()
    gateway.scrape()
    gateway.models = ()
    gateway.finish()
    assert gateway.family("requests_total") == {("a", "m", "chat", "ok"): 1, ("a", "other", "chat", "ok"): 1}


def test_rejections_are_counted_by_reason_and_start_at_zero():
    gateway = Gateway()
    assert gateway.family("rejected_total")["queue_full",] == 0
    gateway.finish(engine="", outcome=Outcome.REJECTED, code="queue_full", queue_ms=0.0)
    gateway.finish(engine="", outcome=Outcome.REJECTED, code="what_is_this", queue_ms=0.0)
    gateway.finish(outcome=Outcome.ENGINE_ERROR, code="engine_unreachable")
    rejected = gateway.family("rejected_total")
    assert {reason: count for reason, count in rejected.items() if count} == {
        ("queue_full",): 1,
        ("other",): 1,
    }


def test_the_funnel_sums_tokens_of_requests_whose_engine_reported():
    gateway = Gateway()
    gateway.finish(prompt_tokens=1000, best_cached_tokens=800, predicted_cached_tokens=600, cached_tokens=512)
    gateway.finish(prompt_tokens=10, best_cached_tokens=0, predicted_cached_tokens=0, cached_tokens=0)
    scrape = gateway.scrape()
    assert scrape["prompt_tokens_total", "a", "m"] == 1010
    assert scrape["cached_tokens_best_total", "a", "m"] == 800
    assert scrape["cached_tokens_predicted_total", "a", "m"] == 600
    assert scrape["cached_tokens_delivered_total", "a", "m"] == 512
    assert scrape["cached_tokens_unknown_requests_total", "a"] == 0
    total = gateway.metrics.funnel.total()
    assert (total.requests, total.unknown_requests, total.hit_rate) == (2, 0, 512 / 1010)
    assert (total.prompt, total.best, total.predicted, total.delivered) == (1010, 800, 600, 512)


def test_every_token_that_was_not_delivered_has_a_reason():
    gateway = Gateway()
    reasons = gateway.family("prefix_loss_tokens_total")
    assert reasons == dict.fromkeys(((reason,) for reason in REASONS), 0)
    had = {"best_cached_tokens": 800, "predicted_cached_tokens": 600, "cached_tokens": 512}
    gateway.finish(**had, known_tokens=800)
    gateway.finish(**had, known_tokens=900, holder_full=True, is_miscounted=True, seen_tokens=950)
    scrape = gateway.scrape()
    lost = {key[1]: value for key, value in scrape.items() if key[0] == "prefix_loss_tokens_total"}
    assert lost == {
        "cold": 200 + 100,
        "pending": 100,
        "spilled": 200,
        "queued_elsewhere": 200,
        "evicted": 88,
        "engine_disagrees": 88,
    }
    assert scrape["cached_tokens_infinite_total", "a", "m"] == 800 + 950
    delivered = scrape["cached_tokens_delivered_total", "a", "m"]
    assert sum(lost.values()) == scrape["prompt_tokens_total", "a", "m"] - delivered


@pytest.mark.parametrize("missing", ["cached_tokens", "prompt_tokens"])
def test_a_request_without_a_report_is_unknown_and_in_no_token_counter(missing):
    gateway = Gateway()
    gateway.finish(**{missing: None})
    scrape = gateway.scrape()
    assert scrape["cached_tokens_unknown_requests_total", "a"] == 1
    assert scrape["prompt_tokens_total", "a", "m"] == 0
    assert scrape["cached_tokens_predicted_total", "a", "m"] == 0
    assert gateway.metrics.funnel.total().hit_rate is None


def test_a_request_that_failed_before_its_report_is_not_unknown():
    gateway = Gateway()
    gateway.finish(outcome=Outcome.CLIENT_DISCONNECT, prompt_tokens=None, cached_tokens=None)
    assert gateway.scrape()["cached_tokens_unknown_requests_total", "a"] == 0


def test_a_failed_request_whose_engine_reported_counts_in_the_funnel():
    gateway = Gateway()
    gateway.finish(outcome=Outcome.ENGINE_TRUNCATED)
    assert gateway.scrape()["cached_tokens_delivered_total", "a", "m"] == 512


@pytest.mark.parametrize(
    "changes",
    [{"api": "embeddings"}, {"api": "tokenize"}, {"api": "detokenize"}, {"api": "count_tokens", "width": 0}],
)
def test_calls_that_have_no_cached_tokens_are_left_out_of_the_funnel(changes):
    gateway = Gateway()
    gateway.finish(**changes)
    gateway.finish(**changes, cached_tokens=None)
    scrape = gateway.scrape()
    assert scrape["requests_total", "a", "m", changes["api"], "ok"] == 2
    assert scrape["prompt_tokens_total", "a", "m"] == 0
    assert scrape["cached_tokens_unknown_requests_total", "a"] == 0


def test_an_answer_of_the_gateway_itself_is_not_an_engine_without_a_report():
    gateway = Gateway()
    gateway.finish(engine="", api="models", cached_tokens=None)
    assert gateway.metrics.funnel.total().unknown_requests == 0


def test_the_queue_is_zero_and_not_absent_where_nothing_waits():
    gateway = Gateway(
        models=("m", "n"), waiting=(a_waiting(), a_waiting(id="w-2"), a_waiting(priority="low", model="?"))
    )
    assert gateway.family("queue_depth") == {
        ("m", "high"): 0,
        ("m", "normal"): 2,
        ("m", "low"): 0,
        ("n", "high"): 0,
        ("n", "normal"): 0,
        ("n", "low"): 0,
        ("other", "low"): 1,
    }


def test_an_engine_shows_its_slots_and_its_own_counters():
    scrape = Gateway(an_engine(health=Health.BUSY)).scrape()
    assert scrape["slots", "a", "discovered"] == 4
    assert scrape["in_flight", "a"] == 3
    assert scrape["slots_cooling", "a"] == 1
    assert scrape["slot_idle_while_waiting_seconds_total", "a"] == 1.5
    assert scrape["engine_up", "a"] == 1
    assert scrape["engine_running", "a"] == 5
    assert scrape["engine_waiting", "a"] == 0
    assert scrape["engine_kv_usage", "a"] == 0.25
    assert scrape["engine_prefill_tokens_per_second", "a"] == 2500
    assert scrape["engine_decode_tokens_per_second", "a"] == 80
    assert scrape["engine_foreign_running", "a"] == 2


@pytest.mark.parametrize("health", [Health.DOWN, Health.LOADING, Health.UNKNOWN])
def test_an_engine_that_takes_no_requests_is_not_up(health):
    assert Gateway(an_engine(health=health)).scrape()["engine_up", "a"] == 0


def test_what_an_engine_does_not_tell_is_absent_and_not_zero():
    silent = an_engine(
        running=None,
        waiting=None,
        kv_usage=None,
        prefill_tokens_per_s=None,
        decode_tokens_per_s=None,
        foreign=0,
    )
    names = {key[0] for key in Gateway(silent).scrape()}
    assert "in_flight" in names
    assert not names & {
        "engine_running",
        "engine_waiting",
        "engine_kv_usage",
        "engine_prefill_tokens_per_second",
        "engine_decode_tokens_per_second",
        "engine_foreign_running",
    }


def test_the_series_of_a_removed_engine_end():
    gateway = Gateway(an_engine(name="a"), an_engine(name="b"))
    gateway.finish(engine="a")
    gateway.finish(engine="b")
    gateway.finish(engine="")
    gateway.engines = (an_engine(name="b"),)
    keys = gateway.scrape().keys()
    assert not [key for key in keys if "a" in key[1:]]
    assert ("requests_total", "b", "m", "chat", "ok") in keys
    assert ("requests_total", "none", "m", "chat", "ok") in keys


def test_a_bucket_holds_its_upper_bound_and_buckets_add_up():
    gateway = Gateway()
    gateway.finish(ttft_ms=5.0)
    gateway.finish(ttft_ms=5.1)
    gateway.finish(ttft_ms=400_000.0)
    scrape = gateway.scrape()
    assert scrape["ttft_seconds_bucket", "total", "0.005"] == 1
    assert scrape["ttft_seconds_bucket", "total", "0.01"] == 2
    assert scrape["ttft_seconds_bucket", "total", "300.0"] == 2
    assert scrape["ttft_seconds_bucket", "total", "+Inf"] == scrape["ttft_seconds_count", "total"] == 3
    assert scrape["ttft_seconds_sum", "total"] == pytest.approx(400.0101)


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        ("ttft_seconds", 0.005, 300),
        ("queue_wait_seconds", 0.001, 300),
        ("request_seconds", 0.01, 1000),
        ("overhead_seconds", 0.00005, 0.1),
    ],
)
def test_buckets_span_what_engines_and_gateways_take(name, first, last):
    bounds = sorted({float(key[-1]) for key in Gateway().family(f"{name}_bucket")})
    assert (bounds[0], bounds[-2]) == (first, last)


def test_the_queue_part_of_ttft_covers_the_same_requests_as_the_total():
    gateway = Gateway()
    gateway.finish(queue_ms=100.0, ttft_ms=400.0)
    gateway.finish(queue_ms=100.0, ttft_ms=None, stream=False)
    scrape = gateway.scrape()
    assert scrape["ttft_seconds_count", "total"] == scrape["ttft_seconds_count", "gateway_queue"] == 1
    assert scrape["ttft_seconds_sum", "gateway_queue"] == pytest.approx(0.1)


def test_the_parts_of_ttft_add_up_where_they_are_known():
    gateway = Gateway()
    gateway.finish(queue_ms=100.0, ttft_ms=400.0, engine_queue_ms=120.0, prefill_ms=180.0)
    gateway.finish(queue_ms=100.0, ttft_ms=400.0, engine_queue_ms=None, prefill_ms=None)
    scrape = gateway.scrape()
    assert scrape["ttft_seconds_count", "total"] == 2
    assert scrape["ttft_seconds_count", "engine_queue"] == scrape["ttft_seconds_count", "prefill"] == 1
    assert scrape["ttft_seconds_sum", "engine_queue"] == pytest.approx(0.12)
    assert scrape["ttft_seconds_sum", "prefill"] == pytest.approx(0.18)


def test_an_engine_that_runs_less_than_its_cap_says_is_a_degradation_if_that_is_a_hard_one():
    def mismatch(**changes: object) -> object:
        return Gateway(an_engine(**changes)).metrics.degradations()["cap_mismatch"]

    assert mismatch(slots=16, slots_source=SlotSource.CONFIGURED, inferred_cap=4)
    assert mismatch(slots=16, slots_source=SlotSource.DISCOVERED, inferred_cap=4)
    assert not mismatch(slots=16, slots_source=SlotSource.CONFIGURED, inferred_cap=16)
    assert not mismatch(slots=4, slots_source=SlotSource.INFERRED, inferred_cap=4)
    assert not mismatch(slots=16, slots_source=SlotSource.CONFIGURED, inferred_cap=4, health=Health.DOWN)
    scrape = Gateway(an_engine(inferred_cap=4), an_engine(name="b")).scrape()
    assert scrape["engine_inferred_cap", "a"] == 4
    assert ("engine_inferred_cap", "b") not in scrape


def test_refusals_at_the_door_do_not_make_the_gateway_look_fast():
    gateway = Gateway()
    gateway.finish(engine="", outcome=Outcome.REJECTED, code="queue_full", queue_ms=0.0, ttft_ms=None)
    gateway.finish(engine="", outcome=Outcome.INVALID, code="invalid_request", queue_ms=0.0, ttft_ms=None)
    scrape = gateway.scrape()
    assert scrape["queue_wait_seconds_count",] == scrape["request_seconds_count",] == 0


def test_a_request_that_waited_in_vain_counts_with_its_wait():
    gateway = Gateway()
    gateway.finish(
        engine="", outcome=Outcome.REJECTED, code="queue_timeout", queue_ms=120_000.0, ttft_ms=None
    )
    assert gateway.scrape()["queue_wait_seconds_sum",] == 120


def test_an_unknown_overhead_is_not_zero():
    gateway = Gateway()
    gateway.finish(overhead_ms=None)
    gateway.finish(overhead_ms=0.2)
    scrape = gateway.scrape()
    assert scrape["overhead_seconds_count",] == 1
    assert scrape["overhead_seconds_sum",] == pytest.approx(0.0002)


def test_each_kind_of_degradation_is_zero_when_all_is_well():
    assert Gateway().family("degraded") == {
        ("metrics_stale",): 0,
        ("usage_missing",): 0,
        ("slots_assumed",): 0,
        ("cap_mismatch",): 0,
    }


@pytest.mark.parametrize(
    ("changes", "is_stale"),
    [
        ({"report_age_s": 10.5}, True),
        ({"report_age_s": 10.5, "health": Health.BUSY}, True),
        ({"report_age_s": 10.0}, False),
        ({"report_age_s": None}, False),
        ({"report_age_s": 99.0, "health": Health.DOWN}, False),
    ],
)
def test_an_old_load_report_of_an_engine_that_is_up_is_a_degradation(changes, is_stale):
    assert (
        Gateway(an_engine(), an_engine(name="b", **changes)).metrics.degradations()["metrics_stale"]
        is is_stale
    )


@pytest.mark.parametrize(
    ("changes", "is_assumed"),
    [
        ({"slots_source": SlotSource.ASSUMED}, True),
        ({"slots_source": SlotSource.ASSUMED, "health": Health.UNKNOWN}, False),
        ({"slots_source": SlotSource.INFERRED}, False),
        ({"slots_source": SlotSource.CONFIGURED}, False),
    ],
)
def test_running_on_an_assumed_cap_is_a_degradation(changes, is_assumed):
    assert (
        Gateway(an_engine(), an_engine(name="b", **changes)).metrics.degradations()["slots_assumed"]
        is is_assumed
    )


def test_an_engine_that_never_reports_is_noticed_after_twenty_requests():
    gateway = Gateway()
    gateway.finish(times=19, cached_tokens=None)
    gateway.finish(times=50, cached_tokens=None, outcome=Outcome.CLIENT_DISCONNECT)
    assert not gateway.metrics.degradations()["usage_missing"]
    gateway.finish(cached_tokens=None)
    assert gateway.metrics.degradations()["usage_missing"]


def test_an_engine_that_stops_reporting_is_noticed_after_a_hundred_requests():
    gateway = Gateway()
    gateway.finish()
    gateway.finish(times=99, cached_tokens=None)
    assert not gateway.metrics.degradations()["usage_missing"]
    gateway.finish(cached_tokens=None)
    assert gateway.metrics.degradations()["usage_missing"]
    gateway.finish()
    assert not gateway.metrics.degradations()["usage_missing"]


def test_one_reporting_engine_does_not_hide_a_silent_one_and_a_removed_one_is_forgotten():
    gateway = Gateway(an_engine(name="a"), an_engine(name="b"))
    for _ in range(20):
        gateway.finish(engine="a")
        gateway.finish(engine="b", cached_tokens=None)
    assert gateway.metrics.degradations()["usage_missing"]
    gateway.engines = (an_engine(name="a"),)
    assert not gateway.metrics.degradations()["usage_missing"]


def test_degradations_that_other_parts_know_of_are_shown_too():
    gateway = Gateway(degraded={"redis_down": True})
    assert gateway.family("degraded")["redis_down",] == 1
    assert gateway.metrics.degradations()["redis_down"] is True


def test_two_gateways_in_one_process_count_apart():
    one, other = Gateway(), Gateway()
    one.finish()
    assert other.family("requests_total") == {}


def test_the_process_metrics_stand_beside_and_not_among_the_gateways_own():
    metrics = Gateway().metrics
    own = {family.name for family in text_string_to_metric_families(metrics.render().decode())}
    process = {family.name for family in text_string_to_metric_families(metrics.render_process().decode())}
    assert {"python_info", "python_gc_collections"} <= process
    assert not own & process


def test_an_engine_that_leaves_gives_way_to_the_one_that_has_its_name():
    new = an_engine(name="a", in_flight=1, slots=9)
    scrape = Gateway(new, an_engine(name="a", leaving=True), an_engine(name="b", leaving=True)).scrape()
    assert (scrape["in_flight", "a"], scrape["in_flight", "b"]) == (1, 3)
    assert [key for key in scrape if key[0] == "slots" and "a" in key] == [("slots", "a", "discovered")]
