"""One canonical key for all APIs."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from conversations import APIS, CONVERSATIONS, EXCHANGES, WORDS, Client, Conversation, Exchange, Round, Tool
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core import blocks
from gateway.wire.openai import read

RANDOMS = st.integers(0, 2**32).map(Random)


@settings(deadline=None)
@given(CONVERSATIONS, RANDOMS)
def test_a_conversation_has_one_key_whatever_its_api_and_however_it_is_written(
    it: Conversation, random: Random
) -> None:
    prompts = {Client(random).canonical(api, it) for api in APIS for _ in range(3)}
    assert len(prompts) == 1


@settings(deadline=None)
@given(CONVERSATIONS, st.lists(EXCHANGES, max_size=2), RANDOMS, st.sampled_from(APIS))
def test_the_next_turns_prompt_starts_with_this_ones(
    it: Conversation, more: list[Exchange], random: Random, api: str
) -> None:
    client = Client(random)
    now = client.canonical(api, it)
    later = client.canonical(api, replace(it, exchanges=(*it.exchanges, *more)))
    assert later.startswith(now)
    known = blocks.chain(now, "m")
    assert blocks.chain(later, "m")[: len(known)] == known


@settings(deadline=None)
@given(CONVERSATIONS, st.lists(EXCHANGES, max_size=2), RANDOMS)
def test_where_a_template_shows_tools_first_so_does_the_key_of_every_api(
    it: Conversation, more: list[Exchange], random: Random
) -> None:
    client = Client(random)
    it = replace(it, system=it.system + "S", tools=(Tool("zztool", "d", {}), *it.tools))

    def prompt(api: str, it: Conversation) -> bytes:
        return read(api, client.bytes(api, it), lambda model: model == "m").canonical

    (now,) = {prompt(api, it) for api in APIS}
    (later,) = {prompt(api, replace(it, exchanges=(*it.exchanges, *more))) for api in APIS}
    assert later.startswith(now)
    assert now.startswith(b"\x1e\x1dtools")
    assert len(now) == len(client.canonical("chat", it))


Edit = Callable[[Conversation, str], Conversation]


def last_round(it: Conversation, edit: Callable[[Round], Round]) -> Conversation:
    *before, last = it.exchanges
    rounds = last.rounds or (Round("a", (("read", {}),), ("r",)),)
    return replace(it, exchanges=(*before, replace(last, rounds=(*rounds[:-1], edit(rounds[-1])))))


def last_exchange(it: Conversation, edit: Callable[[Exchange], Exchange]) -> Conversation:
    return replace(it, exchanges=(*it.exchanges[:-1], edit(it.exchanges[-1])))


def first_tool(it: Conversation, edit: Callable[[Tool], Tool]) -> Conversation:
    tools = it.tools or (Tool("other", "d", {}),)
    return replace(it, tools=(edit(tools[0]), *tools[1:]))


EDITS: dict[str, Edit] = {
    "system": lambda it, text: replace(it, system=it.system + text),
    "user": lambda it, text: last_exchange(it, lambda last: replace(last, user=last.user + text)),
    "image": lambda it, text: last_exchange(it, lambda last: replace(last, image=last.image + text.encode())),
    "assistant": lambda it, text: last_round(it, lambda last: replace(last, text=last.text + text)),
    "one more call": lambda it, text: last_round(
        it, lambda last: replace(last, calls=(*last.calls, ("read", {text: 1})))
    ),
    "one more result": lambda it, text: last_round(
        it, lambda last: replace(last, results=(*last.results, text))
    ),
    "one more exchange": lambda it, text: replace(it, exchanges=(*it.exchanges, Exchange(text))),
    "a tool's name": lambda it, text: first_tool(it, lambda tool: replace(tool, name=tool.name + text)),
    "a tool's description": lambda it, text: first_tool(
        it, lambda tool: replace(tool, description=tool.description + text)
    ),
    "a tool's schema": lambda it, text: first_tool(
        it, lambda tool: replace(tool, schema={**tool.schema, "x" + text: text})
    ),
    "one more tool": lambda it, text: replace(it, tools=(*it.tools, Tool(text, text, {}))),
}


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("what", EDITS)
@settings(deadline=None, max_examples=25)
@given(it=CONVERSATIONS, text=WORDS, random=RANDOMS)
def test_any_change_that_reaches_the_prompt_changes_the_key(
    api: str, what: str, it: Conversation, text: str, random: Random
) -> None:
    client = Client(random)
    assert client.canonical(api, EDITS[what](it, text)) != client.canonical(api, it)


@settings(deadline=None)
@given(CONVERSATIONS, RANDOMS, st.sampled_from(APIS))
def test_another_order_is_another_prompt(it: Conversation, random: Random, api: str) -> None:
    client = Client(random)
    two = replace(it, exchanges=(Exchange("a"), Exchange("b"), *it.exchanges))
    swapped = replace(it, exchanges=(Exchange("b"), Exchange("a"), *it.exchanges))
    assert client.canonical(api, two) != client.canonical(api, swapped)
    tools = (Tool("f", "d", {}), Tool("g", "d", {}))
    forward, back = replace(it, tools=tools), replace(it, tools=tools[::-1])
    assert client.canonical(api, forward) != client.canonical(api, back)


def test_the_order_of_a_schemas_keys_reaches_the_prompt() -> None:
    schemas = ({"type": "object", "required": []}, {"required": [], "type": "object"})
    for api in APIS:
        first, second = (
            Client(Random(1)).canonical(api, Conversation(tools=(Tool("f", "d", it),))) for it in schemas
        )
        assert first != second
