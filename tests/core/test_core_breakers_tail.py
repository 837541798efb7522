"""What changes in the last block of what sessions share, when others have begun with the same text."""

from functools import cache

import pytest
from breaker_bodies import BODIES, Body, tool_output
from breaker_seeing import see
from breaker_values import RULES, an_arrival, said, system

from gateway.core.blocks import BLOCK_BYTES, chain
from gateway.core.breakers import Breakers
from gateway.core.shapes import first_difference
from gateway.wire.openai import read_object

ENDS = {
    "timestamp": lambda at: f"Current time: 10:{at + 10}\n</env>",
    "random_id": lambda at: f"Request: 7f3c9a52-{at + 10}4e-4b1a-9d2e-{at + 10}5f6a7b8c9d",
    "counter": lambda at: f"Requests so far: {at + 10} of 500.",
    "whitespace": lambda at: f"Be kind.{' ' * (at + 1)}",
}


def in_system(body: Body, end: str) -> Body:
    body.data["tools"] = []
    text, write, _ = body.system()
    write(f"{text()}\n{end}")
    return body


def in_tools(body: Body, end: str) -> Body:
    tool = body.tools[-1]
    function = tool.get("function", tool)
    function.pop("strict", None)
    field = "input_schema" if body.api == "messages" else "parameters"
    function[field] = {"type": "object", "description": end}
    return body


PLACES = {"system": in_system, "tools": in_tools}


@cache
def filler(kind, api, place):
    """What puts the change into the block in which the messages begin, so that the full blocks before it are
    the same whatever the change."""
    for filling in ("", "and so on " * 9):
        data = [
            PLACES[place](BODIES[api].copy(), filling + ENDS[kind](at)).ask(question).data
            for at, question in ((0, "a" * 600), (1, "a" * 600), (0, "b" * 600))
        ]
        one, changed, asked = (chain(read_object(api, it, 0).canonical, "m") for it in data)
        if first_difference(one, changed) == first_difference(one, asked):
            return filling
    raise AssertionError("the change is in a full block")


def prompt(kind, api, place, session, turn):
    end = filler(kind, api, place) + ENDS[kind](turn)
    question = f"Session {session}.\n{tool_output(session)}"
    return PLACES[place](BODIES[api].copy(), end).ask(question).talk(turn)


@pytest.mark.parametrize("named", [True, False], ids=["session", "no session"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("api", BODIES)
@pytest.mark.parametrize("kind", ENDS)
def test_each_turn_in_which_it_changes_breaks_each_session(kind, api, place, named):
    breakers, found = Breakers(), []
    for turn in range(3):
        for session in (1, 2, 3):
            body = prompt(kind, api, place, session, turn)
            found.append(see(breakers, body, session if named else 0))
    assert found[:3] == [None] * 3
    assert [it and it.kind for it in found[3:]] == [kind] * 6
    assert {row.scope for row in breakers.rows(0.0)} == {"session"}


@pytest.mark.parametrize("named", [True, False], ids=["session", "no session"])
def test_of_many_sessions_too(named):
    breakers = Breakers()
    for turn in range(3):
        for session in range(1, 41):
            see(breakers, prompt("timestamp", "chat", "system", session, turn), session if named else 0)
    assert {kind: count for kind, count in breakers.kinds.items() if count} == {"timestamp": 80}


@pytest.mark.parametrize("length", range(1, BLOCK_BYTES, 15))
def test_wherever_the_text_ends_in_a_block(length):
    breakers, text = Breakers(), f"{RULES}\n{'x' * length}\nNow: "
    for session, word in enumerate(("one", "two"), 1):
        begun = an_arrival(system(f"{text}10:15"), said(f"{word} {RULES}"), session=session)
        assert breakers.see(begun) is None
    grown = said(f"one {RULES}", "ho", "go")
    broken = breakers.see(an_arrival(system(f"{text}10:16"), grown, session=1))
    assert (broken.kind, broken.part) == ("timestamp", "system[0]")


def test_a_session_that_begins_with_another_end_breaks_what_its_client_shares():
    breakers = Breakers()
    for session, time in enumerate(("10:15", "10:15", "10:15", "10:16", "10:16"), 1):
        shared = system(f"{RULES}\nNow: {time}")
        broken = breakers.see(an_arrival(shared, said(f"{session} {RULES}"), session=session))
        assert (broken is not None) == (session == 4)
    (row,) = breakers.rows(0.0)
    assert (row.scope, row.kind, row.count) == ("family", "timestamp", 1)


def test_what_is_added_behind_a_form_that_is_known_is_not_that_form():
    breakers = Breakers()
    for session, word in enumerate(("one", "two"), 1):
        breakers.see(an_arrival(system(RULES), said(f"{word} {RULES}"), session=session))
    more = system(RULES, "And now for something else.")
    broken = breakers.see(an_arrival(more, said(f"one {RULES}", "ho", "go"), session=1))
    assert (broken.kind, broken.part) == ("other", "system[1]")


def test_a_session_that_goes_on_with_the_same_end_breaks_nothing():
    breakers, shared = Breakers(), system(f"{RULES}\nNow: 10:15")
    for session in (1, 2, 3):
        assert breakers.see(an_arrival(shared, said(f"{session}"), session=session)) is None
    for session in (1, 2, 3):
        assert breakers.see(an_arrival(shared, said(f"{session}", "ho", "go"), session=session)) is None
