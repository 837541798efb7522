import pytest
from recordings import VLLM, answer, answered, server_info

from gateway.core.engine import Facts, LoadReport, Probe, Residency, SlotSource
from gateway.engines.vllm import VllmDialect

SERVER_INFO = "/server_info?config_format=json"
DIALECT = VllmDialect()
MODELS = answer(VLLM, "models")
METRICS = answer(VLLM, "metrics")


def test_facts_of_a_recorded_engine() -> None:
    answers = {"/v1/models": MODELS, "/metrics": METRICS, SERVER_INFO: answer(VLLM, "server_info")}
    assert DIALECT.read_facts(answers) == Facts(
        kind="vllm",
        models=("tiny",),
        slots=256,
        slots_source=SlotSource.ASSUMED,
        slots_declared=None,
        kv_tokens=262144,
        block_tokens=128,
        max_model_len=16384,
        residency=Residency.POOL,
        cancel_s=1.0,
    )


def test_dev_mode_tells_the_cap() -> None:
    facts = DIALECT.read_facts({"/v1/models": MODELS, "/metrics": METRICS, SERVER_INFO: server_info()})
    assert (facts.slots, facts.slots_source, facts.slots_declared) == (4, SlotSource.DISCOVERED, 4)


def test_without_any_answer_there_are_defaults() -> None:
    facts = DIALECT.read_facts({})
    assert (facts.models, facts.slots, facts.kv_tokens, facts.block_tokens) == ((), 256, None, 16)


def test_an_empty_200_says_no_more_than_none() -> None:
    paths = ("/v1/models", "/metrics", SERVER_INFO)
    assert DIALECT.read_facts({path: answered(b"") for path in paths}) == DIALECT.read_facts({})


def test_lora_adapters_are_models_too() -> None:
    cards = '{"data": [{"id": "base", "max_model_len": 4096}, {"id": "lora", "max_model_len": null}]}'
    facts = DIALECT.read_facts({"/v1/models": answered(cards)})
    assert (facts.models, facts.max_model_len) == (("base", "lora"), 4096)


def test_data_parallel_engine_cores_are_added_up() -> None:
    page = "".join(
        f'vllm:num_requests_running{{engine="{core}",model_name="m"}} 0\n'
        f'vllm:cache_config_info{{block_size="16",num_gpu_blocks="100",engine="{core}"}} 1\n'
        for core in range(2)
    )
    facts = DIALECT.read_facts({"/metrics": answered(page), SERVER_INFO: server_info()})
    assert (facts.slots, facts.slots_declared, facts.kv_tokens, facts.block_tokens) == (8, 8, 3200, 16)


@pytest.mark.parametrize("blocks", ["None", "0", "", "1" * 5000])
def test_a_pool_of_unknown_size_leaves_the_whole_unknown(blocks: str) -> None:
    page = (
        'vllm:cache_config_info{block_size="16",num_gpu_blocks="100",engine="0"} 1\n'
        f'vllm:cache_config_info{{block_size="16",num_gpu_blocks="{blocks}",engine="1"}} 1\n'
    )
    assert DIALECT.read_facts({"/metrics": answered(page)}).kv_tokens is None


def test_load_of_a_recorded_engine() -> None:
    assert DIALECT.read_load(METRICS, asked_at=7.0) == LoadReport(
        asked_at=7.0,
        running=0,
        waiting=0,
        kv_usage=0.0,
        started_at=1.79603139177e09,
        prefix_queries_tokens=2934.0,
        prefix_hits_tokens=1792.0,
    )


def test_load_is_the_sum_over_engine_cores_and_the_fullest_cache() -> None:
    page = b"""vllm:num_requests_running{engine="0"} 3.0
vllm:num_requests_running{engine="1"} 4.0
vllm:num_requests_waiting{engine="0"} 0.0
vllm:num_requests_waiting{engine="1"} 2.0
vllm:num_requests_waiting_by_reason{engine="1",reason="capacity"} 2.0
vllm:kv_cache_usage_perc{engine="0"} 0.25
vllm:kv_cache_usage_perc{engine="1"} 0.75
"""
    assert DIALECT.read_load(answered(page), 1.0) == LoadReport(
        asked_at=1.0, running=7, waiting=2, kv_usage=0.75
    )


def test_the_names_of_older_versions_are_read() -> None:
    page = b"""vllm:gpu_cache_usage_perc{model_name="m"} 0.5
vllm:gpu_prefix_cache_queries_total{model_name="m"} 100
vllm:gpu_prefix_cache_hits_total{model_name="m"} 40
"""
    assert DIALECT.read_load(answered(page), 1.0) == LoadReport(
        asked_at=1.0, kv_usage=0.5, prefix_queries_tokens=100.0, prefix_hits_tokens=40.0
    )


def test_without_log_stats_only_the_start_time_is_left() -> None:
    report = DIALECT.read_load(answered(b"process_start_time_seconds 5\n"), 1.0)
    assert report == LoadReport(asked_at=1.0, started_at=5.0)


@pytest.mark.parametrize("page", [answered(b""), answered(METRICS.body, 503), answered(b"python_info 1\n")])
def test_a_page_that_tells_nothing_is_no_report(page: object) -> None:
    assert DIALECT.read_load(page, 1.0) is None  # type: ignore[arg-type]


def test_health() -> None:
    assert DIALECT.read_health(answer(VLLM, "health")) is Probe.OK
    assert DIALECT.read_health(answered(b"", 503)) is Probe.ERROR
