"""The sentence of a dry run, for each kind of reason there is."""

from typing import Any

import pytest

from gateway.core.engine import Engine
from gateway.core.router import WAITING, Candidate, Policy
from gateway.edge.explain_words import Forecast, sentence, why


def forecast(name: str, resident: int, *, in_flight: int = 0, room: bool = True, **parts: float) -> Forecast:
    """Of 12,000 tokens `resident` are there; 2,000 tokens/s, unless `own_s` says otherwise."""
    engine = Engine(name, "http://127.0.0.1:1")
    engine.in_flight = in_flight
    pending = int(parts.pop("pending", 0))
    of = Candidate(
        engine=engine, model="m", prompt_tokens=12_000, resident_tokens=resident, pending_tokens=pending
    )
    made: dict[str, Any] = {
        "wait_s": 0.0,
        "ahead_s": 0.0,
        "own_s": of.uncached_tokens / 2000,
        "crowding_s": 0.0,
    }
    again_s = parts.pop("again_s", 0.0)
    made |= parts
    of.score = made["wait_s"] * WAITING + made["ahead_s"] + made["own_s"] + made["crowding_s"] + again_s
    return Forecast(of, room, *made.values())


def said(*forecasts: Forecast, policy: Policy = "cost", waits_for: str = "") -> str:
    """The first is the winner."""
    return sentence(policy, forecasts, forecasts[0], waits_for, {})


def test_it_goes_where_its_prefix_is() -> None:
    assert said(forecast("b", 11_200), forecast("a", 0)) == (
        "goes to b: holds 11,200 of 12,000 tokens, saves 5.6 s; "
        "a would be free now but would compute 12,000 tokens"
    )


def test_it_goes_where_a_slot_is() -> None:
    full = forecast("b", 11_200, room=False, wait_s=30.0)
    assert said(forecast("a", 0), full) == (
        "goes to a: has a slot now, holds 0 of 12,000 tokens; "
        "b holds 11,200 of 12,000 tokens but has no slot for about 30.0 s"
    )


def test_it_waits_for_the_engine_that_has_most() -> None:
    best = forecast("b", 11_200, room=False, wait_s=0.5)
    assert said(best, forecast("a", 0), waits_for="a slot on b") == (
        "waits for a slot on b: holds 11,200 of 12,000 tokens, saves 5.6 s; "
        "a would be free now but would compute 12,000 tokens"
    )
    sooner = said(best, forecast("a", 11_200, room=False, wait_s=9.0), waits_for="a slot on b")
    assert sooner == (
        "waits for a slot on b: has one sooner, holds 11,200 of 12,000 tokens; "
        "a has no slot for about 9.0 s and would compute 800 tokens"
    )


def test_it_goes_where_less_is_computed_before_it() -> None:
    assert said(forecast("a", 0), forecast("b", 4000, ahead_s=20.0)) == (
        "goes to a: 20.0 s less to compute there before it, holds 0 of 12,000 tokens; "
        "b would be free now and holds 4,000 of 12,000 tokens but has 20.0 s to compute before it"
    )


def test_it_goes_where_less_runs() -> None:
    assert said(forecast("a", 0), forecast("b", 0, in_flight=3, crowding_s=0.6)) == (
        "goes to a: less runs there (0, 3 on b), holds 0 of 12,000 tokens; "
        "b would be free now but would compute 12,000 tokens"
    )
    ends = said(forecast("a", 0), forecast("b", 100, in_flight=3, crowding_s=6.0))
    assert ends.endswith(
        "b would be free now and holds 100 of 12,000 tokens but would delay the 3 running there"
    )


def test_it_goes_to_the_quicker_engine() -> None:
    assert said(forecast("a", 0), forecast("b", 0, own_s=30.0)).startswith(
        "goes to a: computes faster, 24.0 s sooner done, holds 0 of 12,000 tokens; b "
    )
    ends = said(forecast("a", 0), forecast("b", 1000, own_s=30.0))
    assert ends.endswith("but takes 30.0 s to compute the rest")


def test_equals_are_said_to_be() -> None:
    assert said(forecast("a", 0), forecast("b", 0)).startswith(
        "goes to a: holds 0 of 12,000 tokens, costs no more than b; b "
    )
    assert said(forecast("a", 0), forecast("b", 10)).endswith("but is no cheaper")


def test_what_is_being_computed_is_told() -> None:
    words = said(forecast("a", 1000, pending=8000), forecast("b", 0))
    assert words.startswith("goes to a: holds 1,000 and computes 8,000 now of 12,000 tokens, saves 4.5 s; ")


def test_computing_again_what_another_holds_is_a_reason_without_seconds_of_its_own() -> None:
    words = said(forecast("a", 6000), forecast("b", 5880, again_s=2.0))
    assert words.startswith("goes to a: holds 6,000 of 12,000 tokens, saves 60 ms; ")
    words = said(forecast("a", 6000), forecast("b", 5990, again_s=2.0))
    assert words.startswith("goes to a: holds 6,000 of 12,000 tokens; ")


def test_one_engine_is_no_choice() -> None:
    assert said(forecast("a", 4000)) == (
        "goes to a, the only engine that may have it: holds 4,000 of 12,000 tokens, "
        "first token in about 4.0 s"
    )
    only = forecast("a", 0)
    assert why("cost", only, only, [only]) == "the only engine that may have it"


def test_other_policies_do_not_ask_for_costs() -> None:
    forecasts = [forecast("a", 0), forecast("b", 4000)]
    assert said(*forecasts, policy="round_robin") == (
        "goes to a by policy round_robin: holds 0 of 12,000 tokens; b holds 4,000 of 12,000 tokens"
    )
    told = why("round_robin", forecasts[0], forecasts[0], forecasts)
    assert told == "policy round_robin, which asks for no costs"


def test_a_cost_is_weighed_and_no_time() -> None:
    winner, other = forecast("a", 11_999), forecast("b", 11_998, again_s=0.5)
    assert why("cost", other, winner, [winner, other]) == (
        "would be free now but would compute 2 tokens; costs 0.5 more"
    )
    alike = forecast("b", 11_999, crowding_s=0.01)
    assert why("cost", alike, winner, [winner, alike]) == (
        "would be free now but would compute 1 token; costs about the same"
    )


def test_nobody_is_an_answer_too() -> None:
    assert sentence("cost", [], None, "an engine", {"a": "is down", "b": "draining"}) == (
        "goes nowhere now: a is down; b draining"
    )
    assert sentence("cost", [], None, "an engine", {}) == "goes nowhere now: there are no engines"


def test_each_engine_has_a_reason() -> None:
    best, free, full = forecast("b", 11_200), forecast("a", 0), forecast("c", 0, room=False, wait_s=3.0)
    forecasts = [free, best, full]
    assert [why("cost", it, best, forecasts) for it in forecasts] == [
        "would be free now but would compute 12,000 tokens; costs 5.6 more",
        "holds 11,200 of 12,000 tokens, saves 5.6 s",
        "has no slot for about 3.0 s and would compute 12,000 tokens; costs 11.6 more",
    ]


@pytest.mark.parametrize(("own_s", "told"), [(0.25, "250 ms"), (1.0, "1.0 s")])
def test_seconds_in_words(own_s: float, told: str) -> None:
    assert said(forecast("a", 0, own_s=own_s)).endswith(f"first token in about {told}")
