import msgspec
import pytest
from engines import recordings
from engines.recordings import LLAMACPP, VLLM

from gateway.core.request import Usage
from gateway.wire.usage import UNKNOWN, look, merged, usage_in


def usage(text: str) -> Usage | None:
    seen = look(text.encode()).usage
    assert usage_in(text.encode()) == (seen or UNKNOWN)
    return seen


def counted(prompt: int | None, cached: int | None, completion: int | None) -> Usage:
    return Usage(prompt_tokens=prompt, cached_tokens=cached, completion_tokens=completion)


@pytest.mark.parametrize(
    ("engine", "name", "expected"),
    [
        (VLLM, "chat", counted(304, 0, 6)),
        (VLLM, "chat-cached", counted(304, 256, 6)),
        (VLLM, "completion", counted(6, 0, 4)),
        (VLLM, "completion-token-ids", counted(4, 0, 2)),
        (VLLM, "completion-two-prompts", counted(2, 0, 4)),
        (VLLM, "messages", counted(12, 0, 6)),
        (VLLM, "responses", counted(12, 0, 16)),
        (LLAMACPP, "chat", counted(202, 0, 6)),
        (LLAMACPP, "chat-cached", counted(202, 197, 6)),
        (LLAMACPP, "completion", counted(5, 0, 4)),
        (LLAMACPP, "completion-token-ids", counted(4, 0, 2)),
        (LLAMACPP, "completion-two-prompts", counted(2, 1, 2)),
        (LLAMACPP, "messages", counted(25, 20, 6)),
        (LLAMACPP, "responses", counted(25, 0, 16)),
    ],
)
def test_the_usage_of_recorded_answers(engine: str, name: str, expected: Usage) -> None:
    seen = look(recordings.answer(engine, name).body)
    assert seen.usage is not None
    assert msgspec.structs.replace(seen.usage, prefill_s=None, decode_s=None) == expected
    assert seen.error is None
    assert not seen.lonely


def test_an_engines_own_timings_are_seconds() -> None:
    seen = look(recordings.answer(LLAMACPP, "chat-cached").body).usage
    assert seen is not None
    assert (seen.prefill_s, seen.decode_s) == (0.070697, 0.227373)


@pytest.mark.parametrize("name", ["error-json", "error-max-tokens", "error-too-long"])
@pytest.mark.parametrize("engine", [VLLM, LLAMACPP])
def test_the_error_of_recorded_answers_is_seen(engine: str, name: str) -> None:
    body = recordings.answer(engine, name).body
    error = look(body).error
    assert error is not None
    assert body == b'{"error":' + error + b"}"


# claude-code-router 17fd7458, omi#11009
@pytest.mark.parametrize(
    "text",
    [
        '{"usage":{"prompt_tokens":1000,"prompt_tokens_details":{"cached_tokens":900}}}',
        '{"usage":{"input_tokens":1000,"input_tokens_details":{"cached_tokens":900}}}',
        '{"usage":{"input_tokens":100,"cache_read_input_tokens":900}}',
        '{"usage":{"input_tokens":60,"cache_read_input_tokens":900,"cache_creation_input_tokens":40}}',
        '{"type":"message_start","message":{"usage":{"input_tokens":100,"cache_read_input_tokens":900}}}',
        '{"response":{"usage":{"input_tokens":1000,"input_tokens_details":{"cached_tokens":900}}}}',
        '{"timings":{"cache_n":900,"prompt_n":100}}',
        '{"usage":{"prompt_tokens":1000},"timings":{"cache_n":900,"prompt_n":7}}',
    ],
)
def test_prompt_tokens_include_the_cached_ones_in_every_form(text: str) -> None:
    assert usage(text) == counted(1000, 900, None)


# vllm#16162, vllm-ascend#9030, litellm#22984
@pytest.mark.parametrize(
    ("details", "cached"),
    [
        ('"prompt_tokens_details":null', None),
        ('"x":1', None),
        ('"prompt_tokens_details":{}', None),
        ('"prompt_tokens_details":{"cached_tokens":null}', None),
        ('"prompt_tokens_details":{"cached_tokens":-1}', None),
        ('"prompt_tokens_details":{"cached_tokens":0}', 0),
    ],
)
def test_unknown_cached_tokens_are_not_zero(details: str, cached: int | None) -> None:
    assert usage(f'{{"usage":{{"prompt_tokens":5,"completion_tokens":2,{details}}}}}') == counted(
        5, cached, 2
    )


@pytest.mark.parametrize("number", [2**63, 2**64 - 1, 10**20, 10**400])
def test_a_count_that_no_prompt_can_have_is_unknown(number: int) -> None:
    text = (
        '{"usage":{"prompt_tokens":%d,"completion_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d}}}'
    )
    assert usage(text % (number, 2, 0)) == counted(None, 0, 2)
    assert usage(text % (5, number, 0)) == counted(5, 0, None)
    assert usage(text % (5, 2, number)) == counted(5, None, 2)
    timings = usage(f'{{"timings":{{"cache_n":1,"prompt_n":{number},"prompt_ms":1.5,"predicted_n":3}}}}')
    assert timings is not None
    assert (timings.prompt_tokens, timings.cached_tokens, timings.completion_tokens) == (None, 1, 3)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"usage":{"input_tokens":5,"cache_read_input_tokens":-1}}', counted(5, None, None)),
        ('{"usage":{"prompt_tokens":-1,"completion_tokens":-1}}', counted(None, None, None)),
        ('{"timings":{"cache_n":-1,"prompt_n":5,"predicted_n":-1}}', counted(None, None, None)),
        ('{"timings":{"prompt_n":5,"prompt_ms":0,"predicted_ms":-3}}', counted(None, None, None)),
        ('{"usage":{}}', counted(None, None, None)),
    ],
)
def test_a_sentinel_is_unknown_and_never_summed(text: str, expected: Usage) -> None:
    assert usage(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "[DONE]",
        "5",
        '{"usage":null}',
        '{"usage":5}',
        '{"choices":{}}',
        '{"message":"text"}',
        "{}",
        '{"logprob":-Infinity,"usage":{"prompt_tokens":1}}',
        '{"usage":' + '{"a":' * 20_000,
    ],
)
def test_what_cannot_be_read_is_nothing_seen(text: str) -> None:
    # vllm#10234, sonar#183
    seen = look(text.encode())
    assert (seen.usage, seen.error) == (None, None)
    assert not seen.lonely
    assert look(b'{"a":"\xff","usage":"\xff"}').usage is None


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('{"error":{"message":"m"}}', b'{"message":"m"}'),
        ('{"error":"m","message":"m"}', b'"m"'),
        ('{"type":"response.failed","response":{"error":{"code":"c"}}}', b'{"code":"c"}'),
        ('{"error":null}', None),
        ('{"response":{"error":null}}', None),
    ],
)
def test_an_error_is_its_json(text: str, error: bytes | None) -> None:
    assert look(text.encode()).error == error


@pytest.mark.parametrize(
    ("text", "lonely"),
    [
        # litellm#36553, olla@e0f1f83
        ('{"choices":[],"usage":{"prompt_tokens":3}}', True),
        ('{"choices":[ ]}', True),
        ('{"choices":[{"index":0}],"usage":{"prompt_tokens":3}}', False),
        ('{"usage":{"prompt_tokens":3}}', False),
        ('{"choices":null}', False),
    ],
)
def test_a_chunk_without_a_choice_is_lonely(text: str, lonely: bool) -> None:
    assert look(text.encode()).lonely is lonely


# ai-gateway#2236, tensorzero#5481
@pytest.mark.parametrize(
    "delta",
    ['{"input_tokens":9,"cache_read_input_tokens":1,"output_tokens":16}', '{"output_tokens":16}'],
)
def test_totals_reported_twice_or_in_parts_are_not_added(delta: str) -> None:
    start = usage('{"message":{"usage":{"input_tokens":9,"cache_read_input_tokens":1,"output_tokens":1}}}')
    later = usage(f'{{"usage":{delta}}}')
    assert start is not None
    assert later is not None
    assert merged(start, later) == counted(10, 1, 16)


def test_timings_survive_a_later_report_without_them() -> None:
    timed = Usage(prefill_s=1.0, decode_s=2.0)
    assert merged(timed, counted(1, 0, 2)) == msgspec.structs.replace(
        counted(1, 0, 2), prefill_s=1.0, decode_s=2.0
    )
