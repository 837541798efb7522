import pytest
from recordings import VLLM, answer, answered

from gateway.engines.exposition import labels, page_of, samples, total, values, whole

PAGE = b"""# HELP running Number of running.
# TYPE running gauge
running{engine="0",model="a } b \\" c"} 3.0
running{engine="1",model="m"} 4
running_by_reason{engine="0"} 9
plain 1.5e3
stamped{a="b"} 2 1700000000
"""


def test_all_label_sets_of_exactly_that_name_are_found() -> None:
    assert values(PAGE, b"running") == [3.0, 4.0]
    assert total(PAGE, b"running") == 7.0


def test_a_sample_without_labels_and_one_with_a_timestamp() -> None:
    assert total(PAGE, b"plain") == 1500.0
    assert total(PAGE, b"stamped") == 2.0


def test_the_first_line_of_a_page_counts() -> None:
    assert total(b"x 1", b"x") == 1.0


def test_labels_may_hold_braces_and_quotes() -> None:
    assert labels(samples(PAGE, b"running")[0]) == {"engine": "0", "model": 'a } b \\" c'}


def test_a_name_that_is_missing_is_unknown_not_zero() -> None:
    assert total(PAGE, b"missing") is None
    assert total(b"", b"missing") is None
    assert values(PAGE, b"missing") == []


def test_the_first_known_name_wins() -> None:
    assert values(PAGE, b"missing", b"plain", b"running") == [1500.0]


@pytest.mark.parametrize("line", [b"x NaN", b"x +Inf", b"x one", b"x", b'x{a="b} 1', b"x_total 1"])
def test_a_line_without_a_finite_value_is_left_out(line: bytes) -> None:
    assert samples(line + b"\n", b"x") == []


def test_the_page_of_a_200_alone_is_read() -> None:
    assert page_of(answered(b"x 1\n")) == b"x 1\n"
    assert page_of(answered(b"x 1\n", 404)) == b""
    assert page_of(None) == b""


def test_numbers_of_things_are_whole() -> None:
    assert whole(3.0) == 3
    assert whole(None) is None


def test_a_recorded_page() -> None:
    page = answer(VLLM, "metrics").body
    assert len(page) > 60_000
    assert total(page, b"vllm:num_requests_running") == 0.0
    assert total(page, b"vllm:prefix_cache_queries_total") == 2934.0
    (cache,) = samples(page, b"vllm:cache_config_info")
    assert labels(cache)["block_size"] == "128"
