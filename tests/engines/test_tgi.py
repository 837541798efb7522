"""Bodies are built from the fact sheet: text-generation-inference's router/src/server.rs:2240 (/info), its
model list in the same file, and the gauges of backends/v3/src/*.rs."""

import pytest
from recordings import answered

from gateway.core.engine import Facts, LoadReport, Probe, SlotSource
from gateway.engines.base import Answer
from gateway.engines.tgi import TgiDialect, is_tgi

DIALECT = TgiDialect()
MODELS = answered(
    '{"object":"list","data":[{"id":"meta-llama/Llama-3.1-8B-Instruct","object":"model","created":0,'
    '"owned_by":"meta-llama/Llama-3.1-8B-Instruct"}]}'
)
INFO = answered(
    '{"model_id":"meta-llama/Llama-3.1-8B-Instruct","model_sha":null,"model_pipeline_tag":null,'
    '"max_concurrent_requests":96,"max_best_of":2,"max_stop_sequences":4,"max_input_tokens":4095,'
    '"max_total_tokens":4096,"validation_workers":2,"max_client_batch_size":4,"router":"x",'
    '"version":"3.3.6","sha":null,"docker_label":null}'
)
# Text Embeddings Inference answers the same path.
EMBEDDINGS_INFO = answered('{"max_concurrent_requests":512,"max_input_length":512,"max_batch_tokens":16384}')
FRESH = b"# TYPE tgi_batch_max_total_tokens gauge\ntgi_batch_max_total_tokens 412000\n"
USED = FRESH + (
    b"# TYPE tgi_queue_size gauge\ntgi_queue_size 4\n# TYPE tgi_batch_current_size gauge\n"
    b"tgi_batch_current_size 12\ntgi_batch_current_max_tokens 49152\n"
)


def test_facts() -> None:
    answers = {"/v1/models": MODELS, "/info": INFO, "/metrics": answered(USED)}
    assert DIALECT.read_facts(answers) == Facts(
        kind="tgi",
        models=("meta-llama/Llama-3.1-8B-Instruct",),
        slots=96,
        slots_source=SlotSource.DISCOVERED,
        slots_declared=96,
        kv_tokens=412_000,
        block_tokens=1,
        max_model_len=4096,
        cancel_s=2.0,
    )


def test_without_its_properties_the_default_is_assumed() -> None:
    found = DIALECT.read_facts({"/v1/models": MODELS})
    assert (found.slots, found.slots_source, found.slots_declared) == (128, SlotSource.ASSUMED, None)
    assert (found.kv_tokens, found.max_model_len) == (None, None)


def test_load() -> None:
    assert DIALECT.read_load(answered(USED), 2.0) == LoadReport(asked_at=2.0, running=12, waiting=4)


@pytest.mark.parametrize("page", [b"", FRESH, b"tgi_queue_size 0\n", b"tgi_batch_current_size 0\n"])
def test_gauges_that_no_request_has_set_yet_are_no_report(page: bytes) -> None:
    assert DIALECT.read_load(answered(page), 2.0) is None


def test_health() -> None:
    unhealthy = b'{"error":"unhealthy","error_type":"healthcheck"}'
    assert DIALECT.read_health(answered(b"")) is Probe.OK
    assert DIALECT.read_health(answered(unhealthy, 503)) is Probe.ERROR


@pytest.mark.parametrize(
    ("answer", "expected"),
    [(INFO, True), (EMBEDDINGS_INFO, False), (answered('{"max_total_tokens":1}'), False), (None, False)],
)
def test_it_is_told_by_its_properties(answer: Answer | None, expected: bool) -> None:
    assert is_tgi(answer) is expected
