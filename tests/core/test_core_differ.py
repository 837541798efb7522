"""What became of one text, told by the shapes of both."""

import json

import pytest

from gateway.core.differ import differ
from gateway.core.shapes import Lines, Segment, shape_of

RULES = "You are careful.\nRead a file before you change it.\n"


def change(before: str, after: str, code: str = "s") -> str | None:
    old, new = (shape_of(Segment(code, "system[0]", text), Lines()) for text in (before, after))
    found = differ(old, new, after)
    return None if found is None else found.kind


SCHEMA = '{{"type":"object","properties":{{"a":{{"enum":{}}}}},"required":["a"]}}'.format
STATE = {"cwd": "/home/ann/project", "branch": "main", "os": "linux"}
ANOTHER_ORDER = dict(reversed(STATE.items()))


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ("[04/Mar/2026:09:12:44 +0100]", "[05/Mar/2026:10:01:02 +0100]", "timestamp"),
        ("build 20260304-091244", "build 20260305-100102", "timestamp"),
        ("as of 4 march 2026", "as of 5 march 2026", "timestamp"),
        ("as of 31 march 2026", "as of 1 april 2026", "timestamp"),
        ("Il est 14h32", "Il est 15h07", "timestamp"),
        ("Week 2026-W10-3", "Week 2026-W11-1", "timestamp"),
        ("day 2026-063", "day 2026-064", "timestamp"),
        ("cwd: /tmp/agent-XkQzPw", "cwd: /tmp/agent-bRtYhm", "random_id"),
        ("commit 1234567", "commit 8f3d2aa", "random_id"),
        ("State: " + json.dumps(STATE), "State: " + json.dumps(ANOTHER_ORDER), "key_order"),
        ("Allowed tools: read, write, list", "Allowed tools: list, read, write", "chunk_order"),
        ("Allowed tools: read, write, list", "Allowed tools: list, read, find", "other"),
    ],
)  # fmt: skip
def test_a_line_of_a_text(before, after, kind):
    assert change(RULES + before, RULES + after) == kind


def test_an_array_in_a_schema():
    assert change(SCHEMA('["a.md","b.md"]'), SCHEMA('["b.md","a.md"]'), "p") == "chunk_order"


def test_the_arguments_of_a_call():
    def call(arguments: dict[str, object]) -> str:
        return json.dumps({"name": "read", "arguments": json.dumps(arguments)})

    assert change(call(STATE), call(ANOTHER_ORDER), "c") == "key_order"
