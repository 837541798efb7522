import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.query import for_engine

NAMES = ["key", "api_key", "api-key", "apikey", "x-api-key", "access_token", "auth_token", "token"]


@pytest.mark.parametrize(
    "query", ["beta=true", "a=1&b=2&a=3", "a", "a=&&b", "a=1;b=2", "keys=1&monkey=2", "a=key"]
)
def test_a_query_passes_verbatim(query: str) -> None:
    assert for_engine(query) == "?" + query


def test_no_query_is_nothing() -> None:
    assert for_engine("") == ""


@pytest.mark.parametrize("name", [*NAMES, "KEY", "Api_Key", "api%5Fkey", "%6bey", "+key", "key+", "%20token"])
def test_a_credential_is_left_out_and_its_neighbours_stay(name: str) -> None:
    assert for_engine(f"{name}=CANARY") == ""
    assert for_engine(name) == ""
    assert for_engine(f"a=1&{name}=CANARY&b=%20") == "?a=1&b=%20"
    assert for_engine(f"{name}=CANARY&{name}=CANARY&a=1") == "?a=1"
    assert for_engine(f"a=1;{name}=CANARY;b=2&c") == "?a=1;b=2&c"


@given(st.lists(st.sampled_from([*NAMES, "a", "b=1", "", "c=key"]), max_size=8), st.sampled_from("&;"))
def test_whatever_is_around_it_no_credential_is_left(names: list[str], separator: str) -> None:
    left = for_engine(separator.join(name + "=CANARY" if name in NAMES else name for name in names))
    assert "CANARY" not in left
    assert [it for it in left.removeprefix("?").split(separator) if it] == [
        it for it in names if it and it not in NAMES
    ]
