"""Bodies are built from the fact sheet: TensorRT-LLM's serve/openai_protocol.py (model card) and
metrics/collector.py (the Prometheus page)."""

import pytest
from recordings import answered

from gateway.core.engine import Facts, LoadReport, SlotSource
from gateway.engines.trtllm import TrtllmDialect

DIALECT = TrtllmDialect()
MODELS = answered(
    '{"object":"list","data":[{"id":"llama-8b","object":"model","created":1,"owned_by":"tensorrt_llm"}]}'
)
LABELS = b'{engine_type="pytorch",model_name="llama-8b"}'
PAGE = b"".join(
    name + LABELS + b" " + value + b"\n"
    for name, value in (
        (b"trtllm_num_requests_running", b"3.0"),
        (b"trtllm_num_requests_waiting", b"1.0"),
        (b"trtllm_max_num_active_requests", b"512.0"),
        (b"trtllm_max_batch_size_static", b"2048.0"),
        (b"trtllm_max_batch_size_runtime", b"256.0"),
        (b"trtllm_kv_cache_utilization", b"0.125"),
        (b"trtllm_kv_cache_max_blocks", b"5358.0"),
        (b"trtllm_kv_cache_tokens_per_block", b"64.0"),
        (b"trtllm_prompt_tokens_total", b"1000.0"),
        (b"trtllm_prompt_cached_tokens_total", b"640.0"),
    )
)


def facts(page: bytes, status: int = 200) -> Facts:
    return DIALECT.read_facts({"/v1/models": MODELS, "/prometheus/metrics": answered(page, status)})


def test_facts_of_a_server_that_has_answered_a_request() -> None:
    assert facts(PAGE) == Facts(
        kind="trtllm",
        models=("llama-8b",),
        slots=512,
        slots_source=SlotSource.DISCOVERED,
        slots_declared=512,
        kv_tokens=5358 * 64,
        block_tokens=64,
        max_model_len=None,
        cancel_s=2.0,
    )


def test_a_gauge_that_was_never_set_gives_way_to_the_next() -> None:
    page = PAGE.replace(b"requests" + LABELS + b" 512.0", b"requests" + LABELS + b" 0.0")
    assert facts(page).slots == 256


@pytest.mark.parametrize(
    ("status", "page"),
    [(404, PAGE), (200, b""), (200, b'trtllm_kv_cache_max_blocks{model_name="m"} 5358\n')],
)
def test_a_server_that_tells_nothing_yet_is_assumed(status: int, page: bytes) -> None:
    found = facts(page, status)
    assert (found.slots, found.slots_source, found.slots_declared) == (8, SlotSource.ASSUMED, None)
    assert (found.kv_tokens, found.block_tokens) == (None, 32)


def test_the_load_report_leaves_out_what_changes_only_when_a_request_ends() -> None:
    assert DIALECT.read_load(answered(PAGE), 4.0) == LoadReport(
        asked_at=4.0, kv_usage=0.125, prefix_queries_tokens=1000.0, prefix_hits_tokens=640.0
    )


def test_without_perf_metrics_there_is_no_report() -> None:
    assert DIALECT.read_load(answered(PAGE, 404), 4.0) is None


def test_the_path_that_drains_the_statistics_is_never_asked() -> None:
    assert "/metrics" not in (DIALECT.health_path, DIALECT.load_path, *DIALECT.facts_paths)
