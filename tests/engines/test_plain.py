import pytest
from recordings import VLLM, answered, load

from gateway.core.call import Call, Prepared
from gateway.core.engine import Probe
from gateway.engines.plain import AskingDialect, PlainDialect

PLAIN = PlainDialect()
ASKING = AskingDialect()


def test_neither_process_nor_load_is_told() -> None:
    assert PLAIN.load_path is None
    assert PLAIN.read_load(answered("[]"), 1.0) is None
    assert PLAIN.read_identity(answered("{}")) is None


def test_health_is_any_answer_that_is_no_failure_of_the_server() -> None:
    assert PLAIN.read_health(answered("", 401)) is Probe.OK
    assert PLAIN.read_health(answered("", 502)) is Probe.ERROR


def stream(body: bytes, *, path: str = "/v1/chat/completions", include_usage: bool | None = None) -> Call:
    headers = ((b"x-conversation-id", b"c"),)
    return Call(
        api="chat",
        path=path,
        query="",
        headers=headers,
        body=body,
        stream=True,
        include_usage=include_usage,
    )


def untouched(call: Call) -> Prepared:
    return Prepared(path=call.path, headers=call.headers, body=call.body, withhold_usage=False)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_a_stream_that_does_not_say_is_made_to_report_usage(path: str) -> None:
    body = load(VLLM, "chat-stream").request_body
    call = stream(body, path=path)
    prepared = ASKING.prepare(call)
    assert prepared.body == body[:-1] + b',"stream_options":{"include_usage":true}}'
    assert prepared.withhold_usage
    assert (prepared.path, prepared.headers) == (path, call.headers)


@pytest.mark.parametrize("said", [True, False])
def test_the_clients_own_word_on_usage_stands(said: bool) -> None:
    call = stream(b'{"stream_options":{"include_usage":%s}}' % str(said).lower().encode(), include_usage=said)
    assert ASKING.prepare(call) == untouched(call)


def test_other_paths_and_whole_answers_are_left_alone() -> None:
    responses = stream(b"{}", path="/v1/responses")
    assert ASKING.prepare(responses) == untouched(responses)
    whole = Call(api="chat", path="/v1/chat/completions", query="", headers=(), body=b"{}")
    assert ASKING.prepare(whole) == untouched(whole)


def test_what_cannot_be_edited_is_sent_as_it_is_and_nothing_withheld() -> None:
    call = stream(b'{"stream_options":"all"}')
    assert ASKING.prepare(call) == untouched(call)


def test_injection_can_be_switched_off() -> None:
    call = stream(b"{}")
    assert AskingDialect(inject_usage=False).prepare(call) == untouched(call)


@pytest.mark.parametrize("inject_usage", [True, False])
def test_an_engine_that_is_not_asked_for_usage_gets_the_call_as_it_came(inject_usage: bool) -> None:
    call = stream(b"{}")
    assert PlainDialect(inject_usage).prepare(call) == untouched(call)
