from recordings import answered

from gateway.core.call import Call, Prepared
from gateway.core.engine import Facts, Probe, SlotSource
from gateway.engines.openai import OpenAIDialect

DIALECT = OpenAIDialect()


def test_facts_are_the_model_names_and_assumptions() -> None:
    models = answered('{"data": [{"id": "a"}, {"id": "b", "max_model_len": 2048}]}')
    assert DIALECT.read_facts({"/v1/models": models}) == Facts(
        kind="openai",
        models=("a", "b"),
        slots=8,
        slots_source=SlotSource.ASSUMED,
        max_model_len=2048,
        block_tokens=1,
        cancel_s=2.0,
    )


def test_load_is_never_known() -> None:
    assert DIALECT.load_path is None
    assert DIALECT.read_load(answered("[]"), 1.0) is None


def test_health_is_any_answer_that_is_no_failure_of_the_server() -> None:
    assert DIALECT.read_health(answered("", 401)) is Probe.OK
    assert DIALECT.read_health(answered("", 502)) is Probe.ERROR


def test_nothing_is_changed() -> None:
    headers = ((b"x-conversation-id", b"c"),)
    call = Call(
        api="chat",
        path="/v1/chat/completions",
        query="",
        headers=headers,
        body=b'{"stream":true}',
        stream=True,
    )
    assert OpenAIDialect(inject_usage=True).prepare(call) == Prepared(
        path=call.path, headers=headers, body=call.body
    )
