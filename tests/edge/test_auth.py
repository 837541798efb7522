import hashlib

import pytest

from gateway.core.request import LOW
from gateway.edge.auth import ANYBODY, Key, Keyring
from gateway.wire.errors import BadRequest


def key(name: str, value: bytes, **more) -> Key:
    return Key(name, hashlib.sha256(value).hexdigest(), **more)


A, B = key("a", b"key-a"), key("b", b"key-b", priority=LOW)


def test_without_keys_everybody_is_let_in():
    assert Keyring([]).admit([(b"authorization", b"Bearer whatever")]) is ANYBODY
    assert Keyring([]).admit([]) is ANYBODY


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        (b"authorization", b"Bearer key-a", A),
        (b"authorization", b"bearer key-b", B),
        (b"authorization", b"BEARER   key-b ", B),
        (b"authorization", b"key-a", A),
        (b"x-api-key", b"key-b", B),
        (b"api-key", b" key-a ", A),
    ],
)
def test_a_key_is_found_by_its_digest(name, value, expected):
    assert Keyring([A, B]).admit([(b"accept", b"*/*"), (name, value)]) is expected


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"authorization", b"")],
        [(b"authorization", b"Bearer")],
        [(b"authorization", b"Bearer ")],
        [(b"authorization", b"Basic key-a")],
        [(b"authorization", b"Bearer Bearer key-a")],
        [(b"authorization", b"Bearer key-a,key-b")],
        [(b"authorization", A.sha256.encode())],
        [(b"x-goog-api-key", b"key-a")],
        [(b"cookie", b"key-a")],
    ],
)
def test_anything_else_is_refused_without_a_word_about_what_was_sent(headers):
    with pytest.raises(BadRequest) as refused:
        Keyring([A, B]).admit(headers)
    assert refused.value.code == "unauthorized"
    assert "key-a" not in refused.value.message


def test_one_right_key_among_several_headers_is_enough():
    headers = [(b"x-api-key", b"sk-for-somebody-else"), (b"authorization", b"Bearer key-b")]
    assert Keyring([A, B]).admit(headers) is B


def test_a_key_shows_no_secret():
    assert "key-a" not in repr(A)
