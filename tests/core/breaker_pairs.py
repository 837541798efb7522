"""Pairs of prompts: what agents and their frameworks do to a prefix, and what they do that harms none.

Each change takes any body (chat, messages, responses) of a client and gives the prompt before and the one
after, in the same session or in another. The texts are ours; `benchmarks/breakers/pairs.py` makes the same
pairs from prompts of real clients.
"""

from collections.abc import Callable
from dataclasses import dataclass

from breaker_bodies import Body


@dataclass(frozen=True)
class Pair:
    """`other_session`: the second prompt is another conversation of the same client."""

    name: str
    before: Body
    after: Body
    kind: str = ""
    part: str = ""
    other_session: bool = False


Change = Callable[[Body], Pair]
BREAKS: list[Change] = []
HARMLESS: list[Change] = []


def breaks(change: Change) -> Change:
    BREAKS.append(change)
    return change


def harmless(change: Change) -> Change:
    HARMLESS.append(change)
    return change


def pair(
    name: str, before: Body, after: Body, kind: str = "", part: str = "", *, other_session: bool = False
) -> Pair:
    return Pair(name, before, after, kind, part, other_session)
