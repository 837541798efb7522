"""Bodies are built from the fact sheet: /v1/loads and /server_info as sglang's entrypoints/v1_loads.py,
managers/load_snapshot.py:192 and entrypoints/http_server.py:796 write them."""

import json

import pytest
from recordings import answered

from gateway.core.engine import Facts, LoadReport, Probe, Residency, SlotSource
from gateway.engines.base import Answer
from gateway.engines.sglang import SglangDialect

DIALECT = SglangDialect()
# Base model and adapter (entrypoints/openai/protocol.py, ModelCard).
MODELS = answered(
    '{"object":"list","data":[{"id":"Qwen/Qwen3-8B","object":"model","created":1,"owned_by":"sglang",'
    '"root":"Qwen/Qwen3-8B","parent":null,"max_model_len":40960},'
    '{"id":"lora","object":"model","created":1,"owned_by":"sglang","root":"/lora",'
    '"parent":"Qwen/Qwen3-8B","max_model_len":null}]}'
)


def rank(number: int = 0, **more: object) -> dict[str, object]:
    return {
        "timestamp": 1787300000.5,
        "dp_rank": number,
        "num_running_reqs": 3,
        "num_waiting_reqs": 1,
        "num_waiting_uncached_tokens": 900,
        "num_used_tokens": 8000,
        "num_total_tokens": 9000,
        "num_active_tokens": 7000,
        "max_total_num_tokens": 100_000,
        "max_running_requests": 2048,
        "token_usage": 0.08,
        "gen_throughput": 120.5,
        "cache_hit_rate": 0.4,
        "utilization": 0.1,
        **more,
    }


def loads(*ranks: object) -> Answer:
    about = {"timestamp": 1787300001.0, "version": "0.5.18", "accelerator": None, "num_accelerators": 1}
    return answered(json.dumps({**about, "loads": ranks}))


def server_info(*caps: object, page_size: object = 64) -> Answer:
    states = [{"effective_max_running_requests_per_dp": cap} for cap in caps]
    info = {"version": "0.5.18", "max_running_requests": None, "page_size": page_size, "kv_events": None}
    return answered(json.dumps({**info, "max_total_num_tokens": 100_000, "internal_states": states}))


def facts(loads: Answer, info: Answer) -> Facts:
    return DIALECT.read_facts({"/v1/models": MODELS, "/v1/loads?include=core": loads, "/server_info": info})


def test_facts_of_one_rank() -> None:
    assert facts(loads(rank()), server_info(2048)) == Facts(
        kind="sglang",
        models=("Qwen/Qwen3-8B", "lora"),
        slots=2048,
        slots_source=SlotSource.DISCOVERED,
        slots_declared=2048,
        kv_tokens=100_000,
        block_tokens=64,
        max_model_len=40960,
        residency=Residency.POOL,
        cancel_s=2.0,
    )


def test_ranks_add_up() -> None:
    found = facts(loads(rank(0), rank(1, max_running_requests=1024)), server_info(2048, 1024))
    assert (found.slots, found.slots_declared, found.kv_tokens) == (3072, 3072, 200_000)


@pytest.mark.parametrize(
    "told", [loads(rank(max_running_requests=0)), loads(), loads(rank(), rank(1, max_running_requests=0))]
)
def test_before_the_first_snapshot_of_every_rank_the_servers_own_figure_counts(told: Answer) -> None:
    found = facts(told, server_info(256, 256))
    assert (found.slots, found.slots_source) == (512, SlotSource.DISCOVERED)


@pytest.mark.parametrize(
    "info", [answered("", 404), answered("[]"), server_info(None), server_info(256, 0, page_size=None)]
)
def test_where_no_route_tells_eight_slots_and_pages_of_one_are_assumed(info: Answer) -> None:
    found = facts(answered('{"detail":"Not Found"}', 404), info)
    assert (found.slots, found.slots_source, found.slots_declared) == (8, SlotSource.ASSUMED, None)
    assert found.kv_tokens is None


def test_pages_of_one_are_assumed() -> None:
    assert facts(loads(rank()), answered("", 404)).block_tokens == 1


def test_load_is_the_sum_of_the_ranks_and_the_fullest_pool() -> None:
    told = loads(rank(0), rank(1, num_running_reqs=0, num_waiting_reqs=0, token_usage=0.9))
    assert DIALECT.read_load(told, 5.0) == LoadReport(asked_at=5.0, running=3, waiting=1, kv_usage=0.9)


@pytest.mark.parametrize("usage", [None, "0.5", True, -1])
def test_a_pool_that_is_not_told_is_unknown(usage: object) -> None:
    assert DIALECT.read_load(loads(rank(token_usage=usage)), 5.0) == LoadReport(
        asked_at=5.0, running=3, waiting=1
    )


@pytest.mark.parametrize(
    "told",
    [
        answered("", 404),
        answered('{"loads": {}}'),
        loads(),
        loads(rank(), 3),
        loads(rank(), rank(1, num_running_reqs=None)),
        loads(rank(num_waiting_reqs=True)),
        loads(rank(num_waiting_reqs=-1)),
    ],
)
def test_a_load_that_cannot_be_read_whole_is_no_report(told: Answer) -> None:
    assert DIALECT.read_load(told, 5.0) is None


def test_health_is_that_of_the_model_list_and_no_probe_generates_a_token() -> None:
    paths = (DIALECT.health_path, DIALECT.load_path, *DIALECT.facts_paths)
    assert "/health" not in paths
    assert DIALECT.read_health(MODELS) is Probe.OK
    assert DIALECT.read_health(answered("", 503)) is Probe.ERROR
