import pytest
from recordings import LLAMACPP, VLLM, answer, answered, load

from gateway.core.engine import Probe
from gateway.engines.reading import (
    amount,
    count,
    longest_context_tokens,
    member,
    model_cards,
    model_names,
    objects,
    read_body,
    read_json,
    serving,
    share,
    strings,
    summed,
)


def test_a_recording_is_split_into_its_request_and_its_answer() -> None:
    recording = load(VLLM, "error-404")
    assert (recording.method, recording.path, recording.request_body) == ("POST", "/v1/nope", b"{}")
    assert recording.answer.status == 404
    assert recording.answer.headers["content-type"] == "application/json"
    assert recording.answer.body == b'{"detail":"Not Found"}'


def test_every_recording_has_the_length_its_head_says() -> None:
    for engine, name in ((VLLM, "models"), (VLLM, "metrics"), (LLAMACPP, "props"), (LLAMACPP, "slots")):
        recorded = answer(engine, name)
        assert len(recorded.body) == int(recorded.headers["content-length"])


@pytest.mark.parametrize("body", [b"", b"<html>", b"\xff\xfe{}", b"{", b"[" * 200_000])
def test_a_body_that_cannot_be_read_is_a_missing_one(body: bytes) -> None:
    assert read_json(answered(body)) is None


def test_only_a_200_has_a_body_worth_reading() -> None:
    assert read_json(None) is None
    assert read_json(answered(b'{"a":1}', 404)) is None
    assert read_json(answered(b'{"a":1}')) == {"a": 1}


def test_a_body_may_be_wanted_of_any_status() -> None:
    assert read_body(answered(b'{"a":1}', 503)) == {"a": 1}
    assert read_body(answered(b"", 503)) is None


def test_members_are_found_in_objects_only() -> None:
    assert member({"a": {"b": 3}}, "a", "b") == 3
    assert member({"a": [3]}, "a", "b") is None
    assert member(None, "a") is None
    assert member({"a": 3}) == {"a": 3}


@pytest.mark.parametrize("value", [0, -1, True, 4.0, "4", None])
def test_a_count_is_a_positive_whole_number(value: object) -> None:
    assert count(value) is None
    assert count(4) == 4


@pytest.mark.parametrize("value", [-1, True, 4.0, "4", None])
def test_an_amount_is_a_whole_number_that_may_be_zero(value: object) -> None:
    assert amount(value) is None
    assert (amount(0), amount(4)) == (0, 4)


@pytest.mark.parametrize("value", [-0.5, True, "0.5", None])
def test_a_share_is_a_number_that_may_be_whole(value: object) -> None:
    assert share(value) is None
    assert (share(0), share(0.25)) == (0.0, 0.25)


def test_a_sum_is_known_if_every_part_is() -> None:
    assert summed([1, 0, 2]) == 3
    assert summed([1, None]) is None
    assert summed([]) is None


def test_a_list_of_objects_has_nothing_else_in_it() -> None:
    assert objects([{"a": 1}, {}]) == [{"a": 1}, {}]
    assert objects([{"a": 1}, 3]) == []
    assert objects({"a": 1}) == []


def test_strings_leaves_out_what_is_none() -> None:
    assert strings(["a", "", 3, None, "b"]) == ["a", "b"]
    assert strings("ab") == []


def test_model_names_are_ids_and_aliases_each_once() -> None:
    cards: list[object] = [{"id": "m", "aliases": ["m", "fast"]}, {"id": "lora"}, {"id": 7}, "odd"]
    assert model_names(cards) == ("m", "fast", "lora")


@pytest.mark.parametrize("body", ["", "[]", '{"data": null}', '{"data": {}}'])
def test_a_model_list_of_another_shape_is_empty(body: str) -> None:
    assert model_cards({"/v1/models": answered(body)}) == []


def test_the_longest_context_is_the_base_models() -> None:
    assert longest_context_tokens([{"max_model_len": 16384}, {"max_model_len": None}]) == 16384
    assert longest_context_tokens([{}]) is None


@pytest.mark.parametrize(
    ("status", "probe"), [(200, Probe.OK), (401, Probe.OK), (404, Probe.OK), (500, Probe.ERROR)]
)
def test_only_a_servers_own_failure_is_an_error(status: int, probe: Probe) -> None:
    assert serving(answered(b"", status)) is probe
