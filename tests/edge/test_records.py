import json

import pytest
from edge_values import a_record

from gateway.edge.records import RecentRecords, encode_ascii_json, encode_json


def test_the_newest_record_comes_first():
    recent = RecentRecords()
    for name in ("one", "two", "three"):
        recent.add(a_record(id=name))
    assert [record.id for record in recent.latest(2)] == ["three", "two"]


def test_the_oldest_record_falls_out_of_a_full_ring():
    recent = RecentRecords(capacity=2)
    for name in ("one", "two", "three"):
        recent.add(a_record(id=name))
    assert [record.id for record in recent.latest(10)] == ["three", "two"]
    assert len(recent) == 2


def test_a_limit_below_one_gives_nothing():
    recent = RecentRecords()
    recent.add(a_record())
    assert recent.latest(0) == recent.latest(-1) == []


def test_a_ring_without_room_is_refused():
    with pytest.raises(ValueError, match="at least 1"):
        RecentRecords(capacity=0)


def test_unknown_tokens_are_null_and_not_zero():
    assert json.loads(encode_json(a_record(cached_tokens=None)))["cached_tokens"] is None


def test_a_lone_surrogate_in_a_nested_value_is_replaced():
    value = {"requests": (a_record(model="m\ud800"),), "k\udfff": 1}
    decoded = json.loads(encode_json(value))
    assert decoded["requests"][0]["model"] == "m\ufffd"
    assert decoded["k\ufffd"] == 1


def test_ascii_json_keeps_the_value_and_escapes_what_a_terminal_would_act_on():
    line = encode_ascii_json({"model": "é\x9b31m\x1b\x7f"})
    assert line.isascii()
    assert b"\x7f" not in line
    assert b"\x1b" not in line
    assert json.loads(line) == {"model": "é\x9b31m\x1b\x7f"}


def test_ascii_json_escapes_delete_in_otherwise_plain_text():
    assert encode_ascii_json("a\x7f") == b'"a\\u007f"'


def test_what_is_told_of_a_record_has_what_it_lost():
    records = RecentRecords()
    records.add(a_record(known_tokens=800))
    records.add(a_record(cached_tokens=None))
    newer, older = records.told(10)
    assert newer["lost"] is None
    assert older["id"] == "r-1"
    assert json.loads(encode_json(older))["lost"] == {
        "cold": 200,
        "spilled": 200,
        "queued_elsewhere": 0,
        "pending": 0,
        "evicted": 88,
        "engine_disagrees": 0,
    }
