"""docs/cases.md has every case, and every test that it names exists."""

import re
from pathlib import Path

TESTS = Path(__file__).parent
ROWS = re.findall(r"^\| (\d+) \|(.*)\|$", (TESTS.parent / "docs" / "cases.md").read_text(), re.MULTILINE)
FIRST = [*range(1, 14), 15, 16, 17, 19, 20, 21, 23, 24, 25]
THEN = [27, 29, 30, 31, 32, 34, 35, 36, 38, 39, 40, 42, 43, 44, 45, 47, 48, 49, 50, 51, 53]
HARDENING = [56, 57, 60, 62, 63, 64, 65, 67, 68, 69, 70, 72, 74, 75, 77, 78, 80]


def test_every_case_is_there_once_and_in_order():
    assert [int(number) for number, _ in ROWS] == FIRST + THEN + HARDENING


def test_each_case_cites_where_it_was_reported_and_says_what_happens_here():
    for number, row in ROWS:
        reported, here, shown = (cell.strip() for cell in row.split("|"))
        assert all((reported, here, shown)), number
        assert re.search(r"#\d+|@\w{7}|code\.claude\.com", reported), number


def test_every_test_that_a_case_names_exists():
    sources = "".join(path.read_text() for path in TESTS.rglob("test_*.py"))
    defined = set(re.findall(r"def (test_\w+)", sources))
    for number, row in ROWS:
        named = re.findall(r"`(test_\w+)`", row)
        assert set(named) <= defined, number
        assert named or "not built yet" in row, number
