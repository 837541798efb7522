from collections.abc import Sequence

import pytest
from core_values import engine, request, text

from gateway.core.engine import DEFAULT_SLOT_S, Engine
from gateway.core.request import Request, Route
from gateway.core.router import (
    AGAIN,
    AGAIN_LITTLE,
    CROWDING_S,
    DEFAULT_PREFILL_TOKENS_PER_S,
    MOVING_S,
    POLICIES,
    WAITING,
    Candidate,
    Policy,
    again_s,
    missing,
    pick,
    reason,
    terms,
    usual_rate,
    weigh,
)

USUAL = 1000.0


def candidate(
    a: Engine, prompt: int = 1000, resident: int = 0, pending: int = 0, reserved: int = 0
) -> Candidate:
    return Candidate(
        engine=a,
        model="m",
        prompt_tokens=prompt,
        resident_tokens=resident,
        pending_tokens=pending,
        reserved=reserved,
    )


def slot_wait_s(a: Engine, width: int, reserved: int) -> float:
    return missing(a, width, reserved) * terms(a, USUAL).slot_wait_s


def scores(
    policy: Policy, candidates: Sequence[Candidate], it: Request | None = None, turn: int = 0
) -> list[float]:
    weigh(policy, it or request(1), turn, candidates, 0, USUAL)
    return [candidate.score for candidate in candidates]


def best(policy: Policy, candidates: Sequence[Candidate], it: Request | None = None, turn: int = 0) -> str:
    scores(policy, candidates, it, turn)
    return pick(candidates, lambda: 0.0).engine.name


# What stands in for what is not known


def test_the_prefill_rate_of_an_engine_that_has_shown_none_is_the_mean_of_the_others() -> None:
    new = engine("new")
    assert usual_rate([new]) == usual_rate([]) == DEFAULT_PREFILL_TOKENS_PER_S
    known = [engine(name, prefill_tokens_per_s=rate) for name, rate in (("a", 1000.0), ("b", 3000.0))]
    assert usual_rate([new, *known]) == 2000.0
    assert terms(new, usual_rate([new, *known])).rate_tokens_per_s == 2000.0


# What an engine costs


def test_waiting_is_predicted_from_the_slot_time_and_those_ahead() -> None:
    a = engine(slots=4)
    assert slot_wait_s(a, 4, 0) == 0.0
    assert slot_wait_s(a, 1, 4) == DEFAULT_SLOT_S / 4
    a.lease(1, 4, 0, 0.0)
    a.slot_s = 2.0
    assert slot_wait_s(a, 1, 0) == 0.5
    assert slot_wait_s(a, 2, 1) == 1.5
    assert slot_wait_s(a, 0, 5) == 0.0


def test_waiting_for_an_engine_without_usable_slots_is_finite() -> None:
    a = engine(slots=4)
    a.quota = 0
    assert slot_wait_s(a, 1, 0) == DEFAULT_SLOT_S


def test_cost_is_wait_and_prefill_ahead_and_ones_own_prefill_for_all_it_delays() -> None:
    a = engine(slots=4, prefill_tokens_per_s=500.0, slot_s=2.0, in_flight_average=1.0)
    a.lease(1, 3, 250, 0.0)
    it = candidate(a, prompt=1000, resident=400, pending=100, reserved=2)
    weigh("cost", request(1), 0, [it, candidate(engine("b"))], 6, USUAL)
    assert it.wait_s == 2 * 2.0 / 4
    assert it.prefill_ahead_s == 0.5
    assert it.own_prefill_s == 1.0
    assert it.weight == 1 + ((3 + 1) / 4 + 6 / 2) * 500.0 / USUAL
    assert it.crowding_s == 3 * CROWDING_S
    assert it.prefill_s == pytest.approx(0.5 + it.weight + it.crowding_s)
    assert it.score == pytest.approx(it.prefill_s + WAITING * it.wait_s)


def test_what_another_engine_holds_weighs_more_when_it_is_computed_again() -> None:
    holder, part, new = (engine(name, prefill_tokens_per_s=1000.0) for name in "abc")
    candidates = [candidate(holder, resident=500, pending=300), candidate(part, resident=400), candidate(new)]
    expected = [0.2, 0.6 + 0.1 * AGAIN_LITTLE, 1.0 + 0.5 * AGAIN + MOVING_S]
    assert scores("cost", candidates) == pytest.approx(expected)


@pytest.mark.parametrize(("tokens", "cost_s"), [(0, 0.0), (100, 1.2), (250, 3.0), (1000, 6.0)])
def test_a_little_that_is_computed_again_weighs_more_up_to_what_moving_does(
    tokens: int, cost_s: float
) -> None:
    assert again_s(tokens, 1000.0) == pytest.approx(cost_s)


def test_what_nobody_holds_weighs_no_more_anywhere() -> None:
    fast, slow = engine("a", prefill_tokens_per_s=2000.0), engine("b", prefill_tokens_per_s=500.0)
    assert scores("cost", [candidate(fast), candidate(slow)]) == [0.5, 2.0]


def test_an_engine_that_ran_more_lately_is_worth_less() -> None:
    busy, quiet = engine("busy", in_flight_average=4.0), engine("quiet")
    assert best("cost", [candidate(busy), candidate(quiet)]) == "quiet"
    assert scores("cost", [candidate(busy), candidate(quiet)]) == [2.0, 1.0]


def test_what_a_request_does_to_others_is_reckoned_at_the_mean_rate_of_all() -> None:
    """At its own rate a slow engine would take nobody."""
    fast = engine("fast", prefill_tokens_per_s=1900.0, in_flight_average=4.0)
    slow = engine("slow", prefill_tokens_per_s=100.0, in_flight_average=4.0)
    both = [candidate(fast, resident=500), candidate(slow)]
    again = again_s(500, USUAL)
    assert scores("cost", both) == pytest.approx([500 / 1900 + 0.5, 1000 / 100 + 1.0 + again])


def test_where_all_else_is_equal_the_less_crowded_engine_wins() -> None:
    crowded, other = engine("crowded", slots=4), engine("other", slots=4)
    crowded.lease(1, 1, 0, 0.0)
    one_token = [candidate(it, resident=999) for it in (crowded, other)]
    assert best("cost", one_token) == "other"
    assert one_token[0].score - one_token[1].score == pytest.approx(CROWDING_S, rel=0.01)


def test_where_prefill_is_quick_a_crowd_does_not_outweigh_what_is_resident() -> None:
    """Crowding is worth the prefill of 3,000 tokens at most, which is 30 ms here."""
    holder, other = (engine(name, slots=4, prefill_tokens_per_s=100_000.0) for name in ("holder", "other"))
    holder.lease(1, 2, 0, 0.0)
    both = [candidate(holder, prompt=2000, resident=1500), candidate(other, prompt=2000)]
    weigh("cost", request(1), 0, both, 0, 100_000.0)
    assert both[0].crowding_s == pytest.approx(2 * 0.03)
    assert both[0].score < both[1].score


def test_a_slow_engine_gets_what_the_fast_one_would_take_longer_for() -> None:
    fast = engine("fast", slots=4, prefill_tokens_per_s=5000.0, slot_s=8.0)
    both = [candidate(fast), candidate(engine("slow", slots=4, prefill_tokens_per_s=1000.0))]
    assert best("cost", both) == "fast"
    both[0].reserved = 4
    assert best("cost", both) == "slow"


def test_terms_follow_the_load_when_they_are_told() -> None:
    a = engine(slots=4, prefill_tokens_per_s=500.0)
    of = terms(a, USUAL)
    a.lease(1, 2, 1000, 0.0)
    assert (of.free, of.ahead_s, of.batched) == (4, 0.0, 0.0)
    of.refresh()
    assert (of.free, of.ahead_s, of.batched) == (2, 2.0, 0.5)


# Which is chosen


def test_a_prompt_that_is_all_cached_still_computes_one_token() -> None:
    it = candidate(engine(prefill_tokens_per_s=500.0), prompt=1000, resident=1000)
    scores("cost", [it])
    assert it.own_prefill_s == 1 / 500.0


def test_a_prefix_wins_between_idle_engines_and_loses_to_a_long_wait() -> None:
    holder, other = engine("holder"), engine("other")
    assert best("cost", [candidate(holder, resident=900), candidate(other)]) == "holder"
    holder.lease(1, 2, 0, 0.0)
    holder.slot_s = 3.0
    assert best("cost", [candidate(holder, resident=900), candidate(other)]) == "holder"
    holder.slot_s = 20.0
    assert best("cost", [candidate(holder, resident=900), candidate(other)]) == "other"


def test_round_robin_takes_turns_whatever_the_load() -> None:
    engines = [candidate(engine(name)) for name in "abc"]
    engines[0].engine.lease(1, 2, 0, 0.0)
    assert [best("round_robin", engines, turn=turn) for turn in range(1, 7)] == list("bcabca")


def test_least_loaded_compares_shares_of_the_slots_with_all_that_takes_them() -> None:
    small, large = engine("small", slots=2), engine("large", slots=8)
    small.lease(1, 1, 0, 0.0)
    large.lease(1, 3, 0, 0.0)
    assert best("least_loaded", [candidate(small), candidate(large)]) == "large"
    large.cool(1, 0.0)
    assert best("least_loaded", [candidate(small), candidate(large, reserved=1)]) == "small"


def test_prefix_takes_the_longest_match_and_then_the_least_load() -> None:
    a, b, c = engine("a"), engine("b"), engine("c")
    a.lease(1, 2, 0, 0.0)
    assert best("prefix", [candidate(a, resident=300), candidate(b, resident=200), candidate(c)]) == "a"
    assert best("prefix", [candidate(a, resident=200), candidate(b, resident=200), candidate(c)]) == "b"


def test_a_session_stays_on_its_engine_and_moves_only_when_that_one_is_gone() -> None:
    engines = [candidate(engine(name)) for name in "abcd"]
    homes = {session: best("session", engines, request(session, session=session)) for session in range(1, 60)}
    assert set(homes.values()) == set("abcd")
    for session, home in homes.items():
        left = [it for it in engines if it.engine.name != "d"]
        now = best("session", left, request(900 + session, session=session))
        assert now == home or home == "d"


def test_without_a_session_the_first_block_names_it_and_without_blocks_each_is_its_own() -> None:
    engines = [candidate(engine(name)) for name in "abcd"]
    same = {best("session", engines, request(key, text(200, "x"))) for key in range(1, 30)}
    assert len(same) == 1
    assert len({best("session", engines, request(key)) for key in range(1, 30)}) > 1


def test_ties_are_broken_at_random_and_fairly() -> None:
    engines = [candidate(engine(name)) for name in "abc"]
    assert pick(engines, lambda: 0.99).engine.name == "a"
    assert pick(engines, lambda: 0.0).engine.name == "c"
    draws = iter([0.4, 0.4])
    assert pick(engines, lambda: next(draws)).engine.name == "b"


def test_a_higher_score_never_wins() -> None:
    engines = [candidate(engine(name)) for name in "abc"]
    for it, score in zip(engines, (2.0, 1.0, 3.0), strict=True):
        it.score = score
    assert pick(engines, lambda: 0.0).engine.name == "b"


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_gives_the_only_engine(policy: Policy) -> None:
    only = [candidate(engine())]
    assert best(policy, only) == "a"
    assert reason(policy, request(1, session=5), only[0], only) is Route.ONLY


def test_the_reason_tells_prefix_from_load_and_policy_from_session() -> None:
    holder, other = candidate(engine("a"), resident=100, pending=50), candidate(engine("b"))
    both = [holder, other]
    assert reason("cost", request(1), holder, both) is Route.PREFIX
    assert reason("cost", request(1), other, both) is Route.LOAD
    assert reason("cost", request(1), other, [other, candidate(engine("c"))]) is Route.LOAD
    assert reason("session", request(1, session=5), other, both) is Route.SESSION
    assert reason("session", request(1), other, both) is Route.POLICY
    assert reason("round_robin", request(1), holder, both) is Route.POLICY
