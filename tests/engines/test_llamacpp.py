import pytest
from recordings import LLAMACPP, answer, answered

from gateway.core.call import Call, Prepared
from gateway.core.engine import Facts, LoadReport, Probe, Residency, SlotSource
from gateway.engines.llamacpp import LlamaCppDialect

DIALECT = LlamaCppDialect()
LOADING = b'{"error":{"message":"Loading model","type":"unavailable_error","code":503}}'


def test_facts_of_a_recorded_engine() -> None:
    answers = {"/v1/models": answer(LLAMACPP, "models"), "/props": answer(LLAMACPP, "props")}
    assert DIALECT.read_facts(answers) == Facts(
        kind="llamacpp",
        models=("gemma-3-270m",),
        slots=2,
        slots_source=SlotSource.DISCOVERED,
        slots_declared=2,
        kv_tokens=8192,
        block_tokens=1,
        max_model_len=4096,
        residency=Residency.SLOTS,
        cancel_s=60.0,
    )


@pytest.mark.parametrize("props", [b"", b"[]", b'{"total_slots": 0}', b'{"role": "router"}'])
def test_without_slots_in_its_properties_four_are_assumed(props: bytes) -> None:
    facts = DIALECT.read_facts({"/props": answered(props)})
    assert (facts.slots, facts.slots_source, facts.slots_declared) == (4, SlotSource.ASSUMED, None)
    assert facts.kv_tokens is None


def test_slots_without_a_context_size_leave_the_kv_size_unknown() -> None:
    facts = DIALECT.read_facts({"/props": answered(b'{"total_slots": 3}')})
    assert (facts.slots, facts.kv_tokens, facts.max_model_len) == (3, None, None)


def test_load_of_a_recorded_engine() -> None:
    assert DIALECT.read_load(answer(LLAMACPP, "slots"), 3.0) == LoadReport(asked_at=3.0, running=0)


def test_load_counts_the_slots_that_work() -> None:
    recorded = answer(LLAMACPP, "slots").body
    busy = recorded.replace(b'"is_processing":false', b'"is_processing":true', 1)
    assert DIALECT.read_load(answered(busy), 3.0) == LoadReport(asked_at=3.0, running=1)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (501, b'{"error":{"code":501,"message":"not enabled"}}'),
        (200, b""),
        (200, b"[]"),
        (200, b"{}"),
        (200, b'[{"is_processing": true}, {"is_processing": 1}]'),
        (200, b'[{"is_processing": true}, 3]'),
    ],
)
def test_slots_that_cannot_be_read_are_no_report(status: int, body: bytes) -> None:
    assert DIALECT.read_load(answered(body, status), 3.0) is None


@pytest.mark.parametrize(
    ("status", "body", "probe"),
    [
        (200, b'{"status":"ok"}', Probe.OK),
        (503, LOADING, Probe.LOADING),
        (503, b'{"error":{"message":"no slot available"}}', Probe.ERROR),
        (500, LOADING, Probe.ERROR),
    ],
)
def test_health(status: int, body: bytes, probe: Probe) -> None:
    assert DIALECT.read_health(answered(body, status)) is probe


@pytest.mark.parametrize("inject_usage", [True, False])
def test_only_the_header_that_keeps_a_slot_busy_is_taken_out(inject_usage: bool) -> None:
    call = Call(
        api="chat",
        path="/v1/chat/completions",
        query="a=1",
        headers=((b"accept", b"*/*"), (b"x-conversation-id", b"c"), (b"x-request-id", b"r")),
        body=b'{"stream":true}',
        stream=True,
    )
    assert LlamaCppDialect(inject_usage).prepare(call) == Prepared(
        path="/v1/chat/completions",
        headers=((b"accept", b"*/*"), (b"x-request-id", b"r")),
        body=b'{"stream":true}',
        withhold_usage=False,
    )


def test_the_media_marker_tells_one_process_from_another() -> None:
    assert DIALECT.read_identity(answered(b'{"media_marker": "<m1>"}')) == "<m1>"
    assert DIALECT.read_identity(answered(b"{}")) is None
