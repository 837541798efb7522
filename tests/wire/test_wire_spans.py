import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire import spans
from gateway.wire.body import compact
from gateway.wire.spans import Path, edited

BODY = b'\xef\xbb\xbf { "a" : [ 1 , {"b":"x\\"]"} , [] ] ,"c":null, "\\u0064": {"e": NaN} }\n'


@pytest.mark.parametrize(
    ("path", "before", "after"),
    [
        (("a", 0), b"[ 1 ,", b"[ NEW ,"),
        (("a", 1), b'{"b":"x\\"]"}', b"NEW"),
        (("a", 1, "b"), b'"x\\"]"', b"NEW"),
        (("a", 2), b"[] ]", b"NEW ]"),
        (("c",), b"null", b"NEW"),
        (("d", "e"), b"NaN", b"NEW"),
    ],
)
def test_one_value_is_replaced_and_nothing_else(path: Path, before: bytes, after: bytes) -> None:
    assert edited(BODY, [(path, b"NEW")]) == BODY.replace(before, after)


@pytest.mark.parametrize("path", [("x",), ("a", 3), ("a", "b"), ("c", 0), ("d", 0), ("a", 1, "x")])
def test_a_path_to_nothing_changes_nothing(path: Path) -> None:
    assert edited(BODY, [(path, b"NEW")]) == BODY


def test_a_key_that_stands_twice_is_edited_twice() -> None:
    assert edited(b'{"a":1,"a":[2]}', [(("a",), b"3")]) == b'{"a":3,"a":3}'
    assert edited(b'{"a":[5],"a":[1,2]}', [(("a",), (1, 0))]) == b'{"a":[5],"a":[2,1]}'


@pytest.mark.parametrize("other", [b"null", b'"[]"', b'{"a":1,"b":2}', b"[]", b"[5]"])
def test_only_an_array_is_put_in_order_where_a_key_stands_twice(other: bytes) -> None:
    for body in (b'{"a":%b,"a":[1,2]}', b'{"a":[1,2],"a":%b}'):
        assert edited(body % other, [(("a",), (1, 0))]) == (body % other).replace(b"1,2", b"2,1")


def test_many_edits_take_one_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    def tokens(count: int) -> int:
        seen: list[int] = []

        def after(pattern: re.Pattern[bytes], body: bytes, at: int) -> int:
            seen.append(at)
            return true_after(pattern, body, at)

        monkeypatch.setattr(spans, "_after", after)
        body = b'{"a":[%b]}' % b",".join([b'{"b":[1]}'] * count)
        made = edited(body, [(("a", number, "b", 0), b"2") for number in range(count)])
        assert made == body.replace(b"1", b"2")
        return len(seen)

    true_after = spans._after
    first, second, third = map(tokens, (1, 11, 101))
    assert third - second == 9 * (second - first)


@pytest.mark.parametrize(
    ("order", "after"),
    [
        ((2, 0, 1), b'{"a":[ {"x":[3]},  1 , "2"\t]}'),
        ((0, 2), b'{"a":[ 1,  {"x":[3]}\t]}'),
        ((1,), b'{"a":[ "2"\t]}'),
    ],
)
def test_elements_of_an_array_change_places_or_go(order: tuple[int, ...], after: bytes) -> None:
    assert edited(b'{"a":[ 1,  "2" , {"x":[3]}\t]}', [(("a",), order)]) == after


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


def places(value: Any, path: Path = ()) -> list[Path]:
    children = (
        enumerate(value) if isinstance(value, list) else value.items() if isinstance(value, dict) else ()
    )
    return [path, *(it for key, child in children for it in places(child, (*path, key)))]


@given(st.dictionaries(st.text(max_size=3), JSON, min_size=1, max_size=3), st.data())
def test_an_edit_is_what_it_is_to_the_value(value: Any, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(places(value)[1:]))
    written = json.dumps(
        value, ensure_ascii=data.draw(st.booleans()), indent=data.draw(st.sampled_from((None, 1)))
    ).encode("utf-8", "surrogatepass")
    target = value
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = "new"
    assert json.loads(edited(written, [(path, compact("new").encode())])) == value
