import json

import pytest
from engines import recordings
from engines.recordings import VLLM
from splits import ways
from streams import DELTA, DONE, counts, same

from gateway.core.request import Usage
from gateway.wire import pump as pump_module
from gateway.wire.pump import JsonPump

NAMES = ("Qwen/Qwen3-8B", 'fast "ü" \\ \ud800')


@pytest.mark.parametrize("model", ['"Qwen/Qwen3-8B"', r'"Qwen\/Qwen3-8B"'])
@pytest.mark.parametrize(
    "event",
    [
        '{{"model":{0},"choices":[{{"delta":{{"content":"{{"}}}}]}}',
        '{{"choices":[{{"delta":{{"content":"}} x"}}}}],"model" : {0},"usage":{{"a":{{}}}}}}',
        '{{"type":"message_start","message":{{"content":[],"model":{0},"usage":{{}}}}}}',
        '{{"x":{{}},"response":{{"tools":[{{}}],"model":{0},"usage":{{}}}}}}',
        '{{"x":{{}},\ndata: "model":{0},\ndata: "y":{{}}}}',
    ],
)
def test_the_models_name_in_an_event_becomes_the_alias_and_nothing_else(event: str, model: str) -> None:
    # CLIProxyAPI#3965, 9router#1311
    data = f': it"s\ndata: {event.format(model)}\n\n'.encode()
    result = same(DELTA + data + DONE, alias=NAMES)
    assert result.out == DELTA + data.replace(model.encode(), json.dumps(NAMES[1]).encode()) + DONE


@pytest.mark.parametrize(
    "event",
    [
        '{"choices":[{"delta":{"content":"\\"model\\":\\"real\\""}}]}',
        '{"content":[{"input":{"model":"real"}}],"x":{}}',
        '{"message":{"input":{"model":"real"}},"x":{}}',
        '{"other":{"model":"real"},"x":{}}',
        '{"model":"real-8b"}',
        '{"model":"Real"}',
        '{"name":"real"}',
        '{"x":{},"]":{"model":"real"},"y":{}}',
        '{"a":{"x\\"model":"real"}}',
    ],
)
def test_the_same_name_in_a_text_or_a_tools_arguments_stays(event: str) -> None:
    data = f"data: {event}\n\n".encode()
    assert same(data, alias=("real", "alias")).out == data
    whole = JsonPump(("real", "alias"))
    assert whole.feed(event.encode()) + whole.end() == event.encode()


def test_a_name_outside_any_object_stays() -> None:
    data = b'data: } ] "model":"real" { } { }\n\n'
    assert same(data, alias=("real", "alias")).out == data


def test_a_json_answer_passes_as_it_comes_and_is_read_at_its_end() -> None:
    body = recordings.answer(VLLM, "chat-cached").body
    for parts in ways(body):
        pump = JsonPump()
        assert not pump.started
        for part in parts:
            assert pump.feed(part) == part
        assert (pump.started, pump.whole, pump.failed, pump.end()) == (True, True, None, b"")
        assert counts(pump.usage) == (304, 256, 6)


def test_a_json_answer_is_held_until_its_model_can_be_renamed() -> None:
    body = rb'{"choices": [{"text": "{\"model\":\"real\"}"}, {}], "model" : "real", "usage": {}}'
    for parts in ways(body):
        pump = JsonPump(("real", "alias"))
        assert b"".join(map(pump.feed, parts)) == b""
        assert pump.end() == body.replace(b' "real"', b' "alias"')


def test_a_json_answer_too_long_to_read_passes_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pump_module, "MAX_JSON_BYTES", 10)
    body = b'{"model":"real","usage":{"prompt_tokens":3}}'
    for alias in (None, ("real", "alias")):
        for parts in ways(body):
            pump = JsonPump(alias)
            assert b"".join(map(pump.feed, parts)) + pump.end() == body
            assert pump.usage == Usage()


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"not json", b'{"usage":5}'])
def test_a_json_answer_that_cannot_be_read_passes(body: bytes) -> None:
    pump = JsonPump()
    assert pump.feed(body) + pump.end() == body
    assert pump.usage == Usage()
