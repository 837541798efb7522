"""Bodies are built from the fact sheet: lmdeploy's serve/openai/protocol.py (model card),
serve/openai/endpoints/management.py:24 (health) and metrics/loggers.py:149 (metrics)."""

import pytest
from recordings import answered

from gateway.core.engine import Facts, LoadReport, Probe, SlotSource
from gateway.engines.lmdeploy import LmdeployDialect

DIALECT = LmdeployDialect()
MODELS = answered(
    '{"object":"list","data":[{"id":"internlm/internlm3-8b","object":"model","created":1,'
    '"owned_by":"lmdeploy","root":"internlm/internlm3-8b","parent":null,"permission":[]}]}'
)
PAGE = b"""# TYPE lmdeploy:num_requests_running gauge
lmdeploy:num_requests_running{engine="0",model_name="m"} 7.0
lmdeploy:num_requests_waiting{engine="0",model_name="m"} 2.0
lmdeploy:gpu_cache_usage_perc{engine="0",model_name="m"} 0.25
lmdeploy:gpu_cache_usage_perc{engine="1",model_name="m"} 0.5
lmdeploy:prompt_tokens_total{engine="0",model_name="m"} 900.0
lmdeploy:cached_tokens_total{engine="0",model_name="m"} 384.0
"""


def test_facts_are_the_model_names_and_defaults() -> None:
    assert DIALECT.read_facts({"/v1/models": MODELS}) == Facts(
        kind="lmdeploy",
        models=("internlm/internlm3-8b",),
        slots=128,
        slots_source=SlotSource.ASSUMED,
        slots_declared=None,
        kv_tokens=None,
        block_tokens=64,
        max_model_len=None,
        cancel_s=2.0,
    )


def test_the_load_report_leaves_out_what_is_ten_seconds_old() -> None:
    assert DIALECT.read_load(answered(PAGE), 4.0) == LoadReport(
        asked_at=4.0, kv_usage=0.5, prefix_queries_tokens=900.0, prefix_hits_tokens=384.0
    )


@pytest.mark.parametrize(("status", "page"), [(404, b""), (200, b""), (401, PAGE)])
def test_without_metrics_there_is_no_report(status: int, page: bytes) -> None:
    assert DIALECT.read_load(answered(page, status), 4.0) is None


@pytest.mark.parametrize(
    ("status", "body", "probe"),
    [
        (200, b'{"status":"healthy","message":""}', Probe.OK),
        (200, b'{"status":"sleeping","message":""}', Probe.LOADING),
        (503, b'{"status":"initializing","message":""}', Probe.LOADING),
        (503, b'{"status":"unhealthy","message":"sleeping on it"}', Probe.ERROR),
        (200, b"", Probe.OK),
        (500, b"no JSON", Probe.ERROR),
    ],
)
def test_an_engine_that_sleeps_or_begins_is_loading(status: int, body: bytes, probe: Probe) -> None:
    assert DIALECT.read_health(answered(body, status)) is probe
