import contextlib
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.wire.body import compact, model_of, parse_object, shown
from gateway.wire.errors import BadRequest


@pytest.mark.parametrize(
    ("body", "says"),
    [
        # production-stack#1017, ai-gateway#1864
        (b"", "is empty"),
        (b" \r\n", "is empty"),
        (b"\xef\xbb\xbf", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b'{"a":1}x', "not valid JSON"),
        (b'{"a":"\x01"}', "not valid JSON"),
        (b'{"a":\xff}', "not valid JSON"),
        (b"\x00", "not valid JSON"),
        (b'{"a":' + b"1" * 5000 + b"}", "not valid JSON"),
        (b"[]", "not an array"),
        (b'""', "not a string"),
        (b"null", "not null"),
        (b"5", "not a number or boolean"),
        (b"true", "not a number or boolean"),
        (b"[" * 20_000, "nested too deeply"),
        (b'{"a":' * 20_000 + b"1" + b"}" * 20_000, "nested too deeply"),
    ],
)
def test_what_is_no_json_object_is_a_bad_request_that_says_why(body: bytes, says: str) -> None:
    with pytest.raises(BadRequest, match=says) as caught:
        parse_object(body)
    assert caught.value.code == "invalid_request"


def test_what_python_engines_take_and_strict_parsers_refuse_is_read() -> None:
    # vllm#10234, vllm#19661, sglang#20323
    read = parse_object(b'{"a": NaN, "b": -Infinity, "c": 1e400}')
    assert math.isnan(read["a"])
    assert (read["b"], read["c"]) == (-math.inf, math.inf)
    assert parse_object(b'\xef\xbb\xbf{"a": 1}') == {"a": 1}
    assert parse_object(rb'{"a": "\ud800"}') == {"a": "\ud800"}
    assert parse_object('{"a": "é"}'.encode("utf-16")) == {"a": "é"}
    assert parse_object(b'{"a": 1%b}' % (b"0" * 400)) == {"a": 10**400}


def test_of_a_key_written_twice_the_last_counts_as_engines_do_it() -> None:
    # fgentic#1409
    assert parse_object(b'{"model": "a", "model": "b"}') == {"model": "b"}
    assert parse_object(b'{"model": "a", "x": NaN, "model": "b"}')["model"] == "b"


@settings(deadline=None)
@given(
    st.binary(max_size=60)
    | st.text(alphabet='{}[]":,\\u0189eE+-. nulltrefasNaI', max_size=40).map(str.encode)
)
def test_any_bytes_are_an_object_or_a_bad_request(body: bytes) -> None:
    with contextlib.suppress(BadRequest):
        assert isinstance(parse_object(body), dict)


def test_no_model_and_null_are_no_name() -> None:
    assert model_of({}) == model_of({"model": None}) == model_of({"model": ""}) == ""
    assert model_of({"model": "a"}) == "a"


@pytest.mark.parametrize(
    ("model", "named"), [(5, "5"), (1.5, "1.5"), (True, "True"), ([1], "an array"), ({"a": 1}, "an object")]
)
def test_a_model_that_is_no_string_is_a_bad_request(model: object, named: str) -> None:
    with pytest.raises(BadRequest, match=f"'model' must be a string, not {named}") as caught:
        model_of({"model": model})
    assert caught.value.param == "model"


@pytest.mark.parametrize("levels", range(850, 1000, 5))
def test_a_model_nested_as_deep_as_can_be_parsed_is_a_bad_request(levels: int) -> None:
    with pytest.raises(BadRequest):
        model_of(parse_object(b'{"model":' + b"[" * levels + b"]" * levels + b"}"))


def test_a_shown_value_is_short_and_no_prompt() -> None:
    assert shown("a") == "'a'"
    assert shown("\ud800\n") == r"'\ud800\n'"
    assert shown("p" * 10_000_000) == "'" + "p" * 56 + "..."
    assert shown(10**100) == "1" + "0" * 56 + "..."
    assert shown(["secret prompt"]) == "an array"
    assert shown({"secret": "prompt"}) == "an object"


@pytest.mark.parametrize(
    "value", ["é\u2028", [1, 2.5, None, True], {"b": 1, "a": {"c": []}}, 10**30, "\ud800"]
)
def test_compact_json_is_the_value_in_its_own_key_order(value: object) -> None:
    assert json.loads(compact(value)) == value
    assert compact({"b": 1, "a": 2}) == '{"b":1,"a":2}'


def test_compact_json_of_what_utf8_cannot_say_is_ascii() -> None:
    assert compact({"é": "\ud800"}) == r'{"\u00e9":"\ud800"}'
    assert compact({"n": 10**400}) == '{"n":1' + "0" * 400 + "}"
