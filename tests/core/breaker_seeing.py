"""A pair of prompts as the gateway sees it."""

import json

import breaker_harmless
from breaker_bodies import Body
from breaker_histories import NEEDS_SESSION
from breaker_pairs import BREAKS, HARMLESS, Pair

from gateway.core.blocks import chain
from gateway.core.breakers import Arrival, Breakers
from gateway.core.divergence import Break
from gateway.wire import segments
from gateway.wire.openai import read

__all__ = ["BREAKS", "HARMLESS", "NEEDS_SESSION", "breaker_harmless", "found", "see"]


def see(breakers: Breakers, body: Body, session: int) -> Break | None:
    raw = json.dumps(body.data).encode()
    ask, data = read(body.api, raw), json.loads(raw)
    arrival = Arrival(
        session=session,
        model="m",
        blocks=chain(ask.canonical, "m"),
        prompt_bytes=ask.prompt_bytes,
        shared=lambda: segments.shared(body.api, data),
        body=lambda first: segments.body(body.api, data, first),
        client=lambda: "a client",
        bytes_per_token=4.0,
        now=0.0,
    )
    if breakers.repeats(session, arrival.blocks, arrival.prompt_bytes):
        return None
    return breakers.see(arrival)


def found(pair: Pair, sessions: tuple[int, int]) -> Break | None:
    breakers = Breakers()
    assert see(breakers, pair.before, sessions[0]) is None
    return see(breakers, pair.after, sessions[1])
