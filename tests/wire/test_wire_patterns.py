import pytest

from gateway.wire.patterns import compiled


@pytest.mark.parametrize(
    "pattern",
    [
        r"\d{4}-\d{2}-\d{2}( \d{2}:\d{2}(:\d{2})?)?",
        r"(?i)current time: .{0,200}",
        r"cch=[0-9a-f]{1,16};",
        r"(?:Mon|Tue|Wed), [A-Z][a-z]{2,8}",
        r"(?=at )at (?!home)(?<=at )[^\n]{1,80}?;",
        r"(?>a{1,3})b{2,4}+",
        r"(<)?id(?(1)>|;)",
        r"(a|b){0,3}x",
        r"(?P<x>a)(?P=x)",
    ],
)
def test_patterns_whose_repeats_end_are_taken(pattern: str) -> None:
    assert compiled(pattern).pattern == pattern


@pytest.mark.parametrize("pattern", ["x*", "x?", "", "(a|)", "(?=x)", r"\b", "^"])
def test_one_that_matches_nothing_at_all_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="matches the empty string"):
        compiled(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "x+",
        "x.*y",
        "(a+)+b",
        "a{3,}",
        "x(?=.*y)",
        "(a|aa){1,30}b",
        "(a{0,2}){0,500}b",
        ".{0,100}.{0,100}x",
        "((a{9}){9}){99}",
        "(?:(?:ax|by){9}){9}",
        "(x)(?(1)a{1,40}b{1,40}|c)",
    ],
)
def test_one_that_could_take_long_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="could take too long"):
        compiled(pattern)


@pytest.mark.parametrize("pattern", ["(", "[a", "a{2,1}", "(?P<x>a)(?P<x>b)", "(?<=a{1,2})b", "\\"])
def test_one_that_is_none_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="is no regular expression"):
        compiled(pattern)


def test_one_that_nobody_could_read_is_refused() -> None:
    with pytest.raises(ValueError, match="longer than 1000 characters"):
        compiled("x" * 1001)
