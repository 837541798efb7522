from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.volatile import hidden, is_id, masked, may_change, places, shown

T, I, N = "timestamp", "random_id", "counter"  # noqa: E741


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Today's date: 2026-12-01", [(T, "2026-12-01")]),
        ("Now: 2026-12-01T10:15:30.123Z", [(T, "2026-12-01T10:15:30.123Z")]),
        ("at 2026-12-01 10:15:30,123 INFO", [(T, "2026-12-01 10:15:30,123")]),
        ("Date: Tue, 01 Dec 2026 10:15:00 +0000", [(T, "Tue, 01 Dec 2026 10:15:00 +0000")]),
        ("on Tue Dec 01 2026.", [(T, "Tue Dec 01 2026")]),
        ("Today is Monday", [(T, "Monday")]),
        ("12/1/2026, 9:05:33 AM", [(T, "12/1/2026, 9:05:33 AM")]),
        ("am 1. Dezember 2026 um 10:15", [(T, "1. Dezember 2026 um 10:15")]),
        ("le 1 décembre 2026", [(T, "1 décembre 2026")]),
        ("今天是2026年12月1日", [(T, "2026年12月1日")]),
        ("the 1st of December 2026", [(T, "1st of December 2026")]),
        ("ts 1796032517 and 1796032517693", [(T, "1796032517"), (T, "1796032517693")]),
        ("built 20261201T101500Z", [(T, "20261201T101500Z")]),
        ("synced 5 minutes ago", [(T, "5 minutes ago")]),
        ("3:45 PM (Tuesday)", [(T, "3:45 PM"), (T, "Tuesday")]),
        ("id 550e8400-e29b-41d4-a716-446655440000", [(I, "550e8400-e29b-41d4-a716-446655440000")]),
        ("01ARZ3NDEKTSV4RRFFQ69G5FAV", [(I, "01ARZ3NDEKTSV4RRFFQ69G5FAV")]),
        ("run V1StGXR8_Z5jdHi6B-myT", [(I, "V1StGXR8_Z5jdHi6B-myT")]),
        ("dGhpcyBpcyBhIHRlc3Qgb2YgMTIzNDU2Nzg5MA==", [(I, "dGhpcyBpcyBhIHRlc3Qgb2YgMTIzNDU2Nzg5MA==")]),
        ("see gateway/core/wire/module9/files", [(N, "9")]),
        ("req_abc123", [(I, "req_abc123")]),
        ("commit a1b2c3d", [(I, "a1b2c3d")]),
        ("cc_version=2.1.197.92f; cch=eb6c6;", [(I, "2.1.197.92f"), (I, "eb6c6")]),
        ("cch=abcde; cch=01234", [(I, "abcde"), (I, "01234")]),
        ("session: kf93kd02", [(I, "kf93kd02")]),
        ("Request ID: 12345678", [(I, "12345678")]),
        ("budget: 123456 tokens", [(N, "123456")]),
        ("turn 3 of 10", [(N, "3"), (N, "10")]),
        ("$0.0345, 1,234 credits, 12%", [(N, "0.0345"), (N, "1,234"), (N, "12")]),
        ("python3 and step 2 of utf-8", [(N, "3"), (N, "2"), (N, "8")]),
        ("May I say Monteverdi, Mark?", [(T, "May")]),
        ("Nothing of that, Another word", []),
        ("[04/Mar/2026:09:12:44 +0100] x", [(T, "04/Mar/2026:09:12:44 +0100")]),
        ("build 20260304-091244", [(T, "20260304-091244")]),
        ("as of 31 march 2026", [(T, "31 march 2026")]),
        ("as of march 4, 2026", [(T, "march 4, 2026")]),
        ("step 4 may fail", [(N, "4")]),
        ("il est 14h32", [(T, "14h32")]),
        ("Week 2026-W10-3", [(T, "2026-W10-3")]),
        ("day 2026-063", [(T, "2026-063")]),
        ("cwd: /tmp/agent-XkQzPw/x", [(I, "agent-XkQzPw")]),
        ("commit 1234567", [(I, "1234567")]),
        ("id_" + "1" * 300 + "-a", [(N, "1" * 300)]),
        ("٣٣٣ 1", [(N, "1")]),
    ],
)
def test_what_changes_by_itself_is_found_with_its_kind(text, found):
    assert [(kind, text[start:end]) for kind, start, end in places(text)] == found


def test_two_texts_that_differ_only_in_such_places_are_the_same_without_them():
    one, other = "At 10:15 run a1b2c3d did 3 steps", "At 9:02 run 0f9e8d7 did 127 steps"
    assert masked(one, places(one)) == masked(other, places(other)) != one


@pytest.mark.parametrize(
    ("text", "look"),
    [
        ("Secret date: 2026-12-01 10:15", "x date: 2026-··-·· ··:··"),
        ("Geheim: Tue, 01 Dec 2026", "x: Tue, ·· Dec 2026"),
        ("user ann, session: kf93kd02", "x x, x: ········"),
        ("budget 123456", "x ······"),
    ],
)
def test_no_text_can_be_read_from_what_is_shown(text, look):
    assert shown(text, places(text)[0]) == look


def test_a_hidden_line_keeps_its_punctuation_and_calendar_words():
    assert hidden("Paths: /home/ann/x, 17 of them; today") == "x: /x/x/x, ·· x x; today"


@pytest.mark.parametrize(
    ("token", "is_one"),
    [("deadbeef1", True), ("12345678", False), ("deadbeef", False), ("a1", False), ("sha256sum", False),
     ("toolu_01AbCdEf", True), ("component2", False), ("component_of_the_second_2", False)],
)  # fmt: skip
def test_an_id_is_told_from_a_name_with_a_number(token, is_one):
    assert is_id(token) is is_one


def test_a_text_without_digits_and_names_is_passed_over():
    assert not may_change("You are careful, and answer in short sentences.")
    assert may_change("You are number 4.")


ALPHABET = st.one_of(st.sampled_from("0123456789=abcdefMonTueär .:-/年月日,@"), st.characters())


@given(st.text(alphabet=ALPHABET))
def test_any_text_has_places_from_left_to_right(text):
    found = places(text)
    assert all(0 <= it.start < it.end <= len(text) for it in found)
    assert all(one.end <= other.start for one, other in pairwise(found))
    assert masked(text, found).count("\x01") >= sum(it.kind == T for it in found)
    for it in found:
        assert len(shown(text, it)) <= 48
