import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.splice import add_member, replace_value, value_spans

# Small alphabets on purpose: keys that repeat, look like braces, or stand inside other strings.
names = st.text(alphabet='ak{}[]:,"\\ é', max_size=4)
scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), names)
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["k", "a", "k}"]), inner, max_size=3)
    ),
    max_leaves=12,
)
objects = st.dictionaries(st.one_of(st.just("k"), names), values, max_size=5)
layouts = st.sampled_from([(None, (",", ":")), (None, (", ", " : ")), (2, (",", ": "))])


def written(value: object, layout: tuple[int | None, tuple[str, str]]) -> bytes:
    indent, separators = layout
    return json.dumps(value, indent=indent, separators=separators, ensure_ascii=False).encode()


@given(objects, layouts)
def test_spans_are_exactly_the_top_level_values(
    body: dict[str, Any], layout: tuple[int | None, tuple[str, str]]
) -> None:
    raw = written(body, layout)
    spans = value_spans(raw, b"k")
    assert [json.loads(raw[start:end]) for start, end in spans] == ([body["k"]] if "k" in body else [])


@given(objects, values, layouts)
def test_replacing_a_value_changes_nothing_else(
    body: dict[str, Any], value: object, layout: tuple[int | None, tuple[str, str]]
) -> None:
    raw = replace_value(written(body, layout), b"k", written(value, layout))
    assert json.loads(raw) == ({**body, "k": value} if "k" in body else body)
    assert list(json.loads(raw)) == list(body)


@given(objects, values, layouts)
def test_adding_a_member_changes_nothing_else(
    body: dict[str, Any], value: object, layout: tuple[int | None, tuple[str, str]]
) -> None:
    raw = add_member(written(body, layout) + b" \n", b'"new":' + written(value, layout))
    assert json.loads(raw) == {**body, "new": value}
    assert list(json.loads(raw))[-1] == "new"


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b'{"k":1}', [b"1"]),
        (b'{ "k" :\t-1.5e3\n}', [b"-1.5e3"]),
        (b'{"k":NaN}', [b"NaN"]),
        (b'{"k":"}"}', [b'"}"']),
        (rb'{"k":"\"k\":2"}', [rb'"\"k\":2"']),
        (rb'{"k":"ends in a backslash \\"}', [rb'"ends in a backslash \\"']),
        (b'{"k":{"k":1},"a":[{"k":2}]}', [b'{"k":1}']),
        (b'{"k":[],"a":"k"}', [b"[]"]),
        (b'{"a":"k","k":3}', [b"3"]),
        (b'{"k":"k"}', [b'"k"']),
        (b'{"k":1,"k":"two","k":[3]}', [b"1", b'"two"', b"[3]"]),
        (b'{"a":"\\"k\\":1"}', []),
        (rb'{"\u006b":1}', []),
    ],
)
def test_what_counts_as_a_value(body: bytes, found: list[bytes]) -> None:
    assert [body[start:end] for start, end in value_spans(body, b"k")] == found


def test_all_duplicates_are_replaced() -> None:
    assert replace_value(b'{"k":1, "a":2, "k":{"k":3}}', b"k", b'"x"') == b'{"k":"x", "a":2, "k":"x"}'


def test_a_member_of_an_empty_object_has_no_comma() -> None:
    assert add_member(b"{ }\n", b'"a":1') == b'{ "a":1}\n'
    assert add_member(b'{"b":{}}', b'"a":1') == b'{"b":{},"a":1}'


@pytest.mark.parametrize("body", [b'{"k":', b'{"k":}', b'{"k":"open', b'{"k":[1', b'{"k"', b'"k":1'])
def test_a_body_that_is_cut_finds_nothing_and_does_not_raise(body: bytes) -> None:
    assert value_spans(body, b"k") == []


def test_a_string_of_megabytes_is_passed_without_being_copied_on_a_stack() -> None:
    # Each of these was kept for backtracking once: 120 bytes of memory for each byte of an image.
    body = b'{"image":"' + b"QUJD\\/" * 300_000 + b'","k":1}'
    tracemalloc.start()
    try:
        spans = value_spans(body, b"k")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert spans == [(len(body) - 2, len(body) - 1)]
    # The one string token may be copied; nothing may grow with its length times a factor.
    assert peak < 2 * len(body)
