"""From what was seen to a verdict."""

from collections.abc import Sequence
from typing import Any

import pytest
from doctor_values import (
    a_capped_round,
    a_failed,
    a_paced_round,
    a_ramp,
    a_refused,
    a_stream,
    an_unequal_round,
    capped_findings,
    findings,
)

from gateway.doctor import verdict
from gateway.doctor.seen import Engine, Findings, Look, Reading, Role, Round, Shape, Stream
from gateway.doctor.verdict import Kind, Verdict, conclude

TINY = Shape(prompt_tokens=4, output_tokens=1)


def told(of: Findings) -> tuple[int | None, Kind]:
    found = conclude(of)
    return found.limit, found.kind


def a_batched_round(n: int, size: int, role: Role) -> Round:
    """Batches of unequal lengths; each begins when the longest before has ended."""
    streams: list[Stream] = []
    begun_at = 0.0
    while len(streams) < n:
        took = [2.0 + 0.5 * at for at in range(min(size, n - len(streams)))]
        streams += [a_stream(len(streams) + at, begun_at=begun_at, took_s=s) for at, s in enumerate(took)]
        begun_at += max(took)
    return Round(role=role, wanted=n, streams=tuple(streams))


def a_probe(long: int, *, held: bool, long_s: float = 6.0, every_s: float = 0.0) -> Round:
    """A short one beside `long` ones, which end `every_s` after one another."""
    streams = [a_stream(at, took_s=long_s + at * every_s, ttft_s=None) for at in range(long)]
    short = a_stream(long, sent_at=1.8, begun_at=long_s if held else 1.8, took_s=0.1, ttft_s=None)
    return Round(role=Role.PROBE, wanted=long, streams=(*streams, short))


# Nothing, and no limit


def test_nothing_was_measured() -> None:
    assert conclude(findings([])) == Verdict(
        limit=None, kind=Kind.NONE, confidence=0.0, tried=0, why=("nothing was measured",)
    )


def test_rounds_without_an_answer_measure_nothing() -> None:
    lost = Round(role=Role.RAMP, wanted=1, streams=(a_failed(),))

    assert conclude(findings([lost])).why == ("nothing was measured",)


@pytest.mark.parametrize(("most", "confidence"), [(16, 0.95), (32, 0.5)])
def test_all_ran_at_once(most: int, confidence: float) -> None:
    found = conclude(findings(a_ramp(64), max_concurrency=most))

    assert (found.limit, found.kind, found.confidence, found.tried) == (None, Kind.NONE, confidence, 16)
    assert found.why == ("all 16 ran at once",)


def test_where_some_failed_all_of_the_others_ran() -> None:
    found = conclude(findings([a_capped_round(2, 2, more=[a_failed(2), a_failed(3)])], max_concurrency=4))

    assert (found.limit, found.confidence) == (None, 0.5)
    assert found.why == ("the 2 of 4 answered ran at once",)


def test_answers_in_one_piece_that_end_one_by_one_are_slow_and_not_held() -> None:
    found = conclude(findings([a_paced_round(8, 0.25)]))

    assert (found.limit, found.kind, found.confidence) == (None, Kind.NONE, 0.6)


# Slots


def test_slots_with_all_that_speaks_for_them() -> None:
    found = conclude(capped_findings(4))

    assert (found.limit, found.kind, found.tried) == (4, Kind.SLOTS, 16)
    # Two rounds agree, each began when another ended, and the engine says it itself.
    assert found.confidence == pytest.approx(0.6 + 0.075 + 0.15 + 0.15)
    assert found.why == (
        "never more than 4 of 16 ran at once",
        "each that waited began when another ended",
        "the engine (llamacpp) itself says it has 4 slots",
    )


@pytest.mark.parametrize(("upto", "agreeing"), [(8, 1), (16, 2), (32, 3), (64, 4)])
def test_rounds_that_agree_make_it_surer(upto: int, agreeing: int) -> None:
    rounds = a_ramp(4, upto)

    assert verdict.ramp_limit(rounds) == (4, agreeing)
    assert conclude(findings(rounds)).confidence == pytest.approx(0.5 + min(0.15, 0.075 * (agreeing - 1)))


def test_the_last_round_decides() -> None:
    bad_moment = [a_capped_round(4, 3), a_capped_round(8, 8)]

    assert verdict.ramp_limit(bad_moment) is None
    assert verdict.ramp_limit([a_capped_round(8, 3), a_capped_round(8, 4)]) == (4, 1)
    assert verdict.ramp_limit([]) is None


def test_what_was_seen_to_run_counts_more_than_a_wave() -> None:
    assert verdict.ramp_limit([a_capped_round(4, 4), a_capped_round(8, 3, ttft_s=None)]) == (4, 0)


def test_a_round_in_which_the_doctor_could_not_send_more_shows_no_limit() -> None:
    late = [a_stream(at, begun_at=2.0 * (at // 2), written_at=2.0 * (at // 2)) for at in range(6)]

    assert verdict.ramp_limit([Round(role=Role.RAMP, wanted=6, streams=tuple(late))]) is None


def test_unequal_ones_in_one_piece_add_nothing() -> None:
    rounds = [*a_ramp(4), an_unequal_round(12, 4, streamed=False)]

    assert conclude(findings(rounds)).confidence == pytest.approx(0.575)


def test_nor_do_so_few_that_nobody_waited() -> None:
    rounds = [*a_ramp(4), an_unequal_round(4, 4)]

    assert conclude(findings(rounds)).confidence == pytest.approx(0.575)


# A front, memory, batches


def test_a_get_that_waits_makes_it_a_front() -> None:
    look = a_capped_round(5, 4, role=Role.LOOK, looks=(Look(1.0, 1.0),))

    found = conclude(findings([*a_ramp(4), an_unequal_round(12, 4), look], idle_look_s=0.001))

    assert (found.limit, found.kind) == (4, Kind.FRONT)
    assert found.confidence == pytest.approx(0.6 + 0.075 + 0.15 + 0.15)


def test_counters_that_speak_of_memory_make_it_kv() -> None:
    readings = (Reading(1.0, 4, 4), Reading(1.5, 4, 4))
    rounds = [*a_ramp(4), a_capped_round(16, 4, readings=readings)]

    assert told(findings(rounds, engine=Engine(kind="vllm", slots=8, direct=True))) == (4, Kind.KV)


@pytest.mark.parametrize(
    ("limit", "small", "streamed", "is_kv"),
    [
        (4, 5, True, True),
        (4, 4, True, False),
        (16, 18, True, True),
        (16, 17, True, False),
        (1, 2, True, True),
        (8, 10, False, True),
        (8, 9, False, False),
    ],
)
def test_a_tenth_more_small_ones_and_one_at_least_are_memory_and_a_quarter_in_waves(
    limit: int, small: int, streamed: bool, is_kv: bool
) -> None:
    few = a_capped_round(32, small, role=Role.SMALL, ttft_s=0.4 if streamed else None)
    rounds = [*a_ramp(limit, 32, streamed=streamed), few]

    found = conclude(findings(rounds))

    assert (found.kind is Kind.KV) is is_kv
    if is_kv:
        assert (found.limit, found.small_limit, found.confidence) == (limit, small, 0.9)


def test_each_time_more_small_ones_must_have_run() -> None:
    rounds = [a_capped_round(16, count, role=Role.SMALL) for count in (8, 4)]

    assert verdict.more_when_small(findings(rounds), 4) is None
    assert verdict.more_when_small(findings([]), 4) is None
    assert verdict.more_when_small(findings([a_paced_round(8, 0.25, role=Role.SMALL)]), 4) is None


def test_batches_that_end_as_a_whole() -> None:
    unequal = a_batched_round(12, 4, Role.UNEQUAL)

    found = conclude(findings([*a_ramp(4), unequal]))

    assert (found.limit, found.kind) == (4, Kind.BATCH)
    assert found.confidence == pytest.approx(0.6 + 0.075 + 0.15)


# A pace of its own


def a_serial_round(n: int, every_s: float, role: Role, took_s: Sequence[float] = (2.0,)) -> Round:
    streams = [
        a_stream(at, begun_at=at * every_s, took_s=took_s[at % len(took_s)], ttft_s=0.1) for at in range(n)
    ]
    return Round(role=role, wanted=n, streams=tuple(streams))


SERIAL = [
    a_serial_round(16, 0.5, Role.RAMP),
    a_serial_round(12, 0.5, Role.UNEQUAL, (1.0, 3.0, 1.5, 2.5)),
]


def test_prompts_computed_in_turn_are_no_cap() -> None:
    found = conclude(findings(SERIAL))

    assert (found.limit, found.kind, found.confidence, found.in_turn) == (None, Kind.NONE, 0.7, True)


def test_the_same_with_tiny_ones_at_that_pace_is_a_limiter() -> None:
    tiny = [a_stream(at, begun_at=at * 0.5, took_s=0.02, ttft_s=None, shape=TINY) for at in range(12)]
    rounds = [*SERIAL, Round(role=Role.TINY, wanted=12, streams=tuple(tiny))]

    found = conclude(findings(rounds, tiny_s=0.02))

    assert (found.limit, found.kind, found.confidence, found.refuses) == (None, Kind.RATE, 0.9, False)
    assert found.rate_per_s == pytest.approx(2.0)


def test_two_that_waited_are_needed_for_a_pace() -> None:
    unequal = a_serial_round(5, 0.5, Role.UNEQUAL, (1.0, 3.0))

    assert conclude(findings([a_serial_round(16, 0.5, Role.RAMP), unequal])).limit == 4


def test_equal_ones_that_come_in_waves_are_capped_whatever_the_unequal_ones_do() -> None:
    streams = [a_stream(at, begun_at=2.0 * (at // 4) + 0.1 * (at % 4), took_s=1.9) for at in range(16)]
    waves = Round(role=Role.RAMP, wanted=16, streams=tuple(streams))

    assert told(findings([waves, SERIAL[1]])) == (4, Kind.SLOTS)


def test_one_by_one_in_one_piece_at_the_pace_of_tiny_ones_is_a_limiter() -> None:
    tiny = [a_stream(at, begun_at=at * 0.25, took_s=0.02, ttft_s=None, shape=TINY) for at in range(12)]
    rounds = [a_paced_round(8, 0.25), Round(role=Role.TINY, wanted=12, streams=tuple(tiny))]

    assert told(findings(rounds, tiny_s=0.02)) == (None, Kind.RATE)


# Answers in one piece


def whole(*probes: Round, slots: int | None = 4, **changes: Any) -> Findings:
    ramp = a_ramp(slots, streamed=False) if slots else [a_paced_round(8, 0.25)]
    return findings([*ramp, *probes], **changes)


def test_the_fewest_beside_which_a_short_one_waits() -> None:
    found = conclude(whole(a_probe(4, held=True), a_probe(3, held=False)))

    assert (found.limit, found.kind) == (4, Kind.SLOTS)
    # Waves and probes agree; nobody looked who holds them.
    assert found.confidence == pytest.approx(0.7 + 0.1 + 0.1 - 0.1)
    assert found.why == ("a short request had to wait beside 4 long ones", "and not beside 3")


def test_probes_count_more_than_waves_and_a_gap_between_them_is_less_sure() -> None:
    found = conclude(whole(a_probe(6, held=True), a_probe(3, held=False)))

    assert (found.limit, found.confidence) == (6, pytest.approx(0.7 - 0.2 - 0.1))


def test_a_probe_that_was_free_beside_more_overrules_one_that_was_not() -> None:
    probes = [a_probe(2, held=True), a_probe(3, held=False), a_probe(5, held=True)]

    assert verdict.probed_limit(probes) == (3, 5)
    assert verdict.probed_limit([]) == (0, None)


def test_a_short_one_that_waits_even_beside_one_waits_for_a_batch() -> None:
    assert told(whole(a_probe(4, held=True), a_probe(3, held=True))) == (4, Kind.BATCH)


def test_one_slot_is_no_batch() -> None:
    assert told(whole(a_probe(1, held=True), slots=1)) == (1, Kind.SLOTS)


def test_a_short_one_that_never_waits_is_no_limit() -> None:
    found = conclude(whole(a_probe(16, held=False), slots=None))

    assert (found.limit, found.kind, found.confidence) == (None, Kind.NONE, 0.7)


def test_long_ones_that_end_one_by_one_do_not_run_together_either() -> None:
    found = conclude(whole(a_probe(16, held=True, every_s=0.3), a_probe(15, held=False), slots=None))

    assert (found.limit, found.kind, found.in_turn) == (None, Kind.NONE, True)


@pytest.mark.parametrize("held", [True, False])
def test_with_tiny_ones_at_an_even_pace_it_is_a_limiter(held: bool) -> None:
    tiny = [a_stream(at, begun_at=at * 0.25, took_s=0.02, ttft_s=None, shape=TINY) for at in range(12)]
    rounds = [a_probe(4, held=held), Round(role=Role.TINY, wanted=12, streams=tuple(tiny))]

    assert told(whole(*rounds, slots=None, tiny_s=0.02)) == (None, Kind.RATE)


def test_more_small_ones_in_one_piece_are_memory_too() -> None:
    small = a_capped_round(12, 8, ttft_s=None, role=Role.SMALL)

    assert told(whole(small, a_probe(4, held=True))) == (4, Kind.KV)


def test_a_get_that_waits_beside_answers_in_one_piece_is_a_front() -> None:
    look = a_capped_round(5, 4, ttft_s=None, role=Role.LOOK, looks=(Look(1.0, 1.0),))

    found = conclude(whole(a_probe(4, held=True), a_probe(3, held=False), look, idle_look_s=0.001))

    assert (found.limit, found.kind, found.confidence) == (4, Kind.FRONT, 0.99)


# Refusals


def again(*streams: Stream) -> Round:
    return Round(role=Role.AGAIN, wanted=len(streams), streams=streams)


REFUSING = a_capped_round(4, 4, more=[a_refused(at) for at in range(4, 8)])


@pytest.mark.parametrize(
    ("kind", "by"),
    [("vllm", Kind.FRONT), ("tgi", Kind.SLOTS), ("sglang", Kind.SLOTS), ("openai", Kind.FRONT)],
)
def test_who_refuses_what_is_beyond_a_number(kind: str, by: Kind) -> None:
    found = conclude(findings([REFUSING], engine=Engine(kind=kind)))

    assert (found.limit, found.kind, found.confidence, found.refuses) == (4, by, 0.6, True)
    assert found.why == ("of 8 at once 4 were refused",)


def test_as_many_let_in_again_make_it_surer() -> None:
    found = conclude(findings([REFUSING, again(*(a_stream(at) for at in range(4)))]))

    assert (found.limit, found.confidence) == (4, 0.9)
    assert found.why[-1].endswith("it counts requests, not time")


def test_refused_again_it_is_a_rate() -> None:
    found = conclude(
        findings([REFUSING, again(a_refused(), a_stream(sent_at=0.5), a_stream(1, sent_at=1.0))])
    )

    assert (found.limit, found.kind, found.rate_per_s, found.refuses) == (None, Kind.RATE, 2.0, True)


def test_refused_alone_says_nothing_of_a_number() -> None:
    alone = Round(role=Role.RAMP, wanted=1, streams=(a_refused(),))

    found = conclude(findings([alone, again(a_stream())]))

    assert (found.limit, found.kind, found.confidence, found.refuses) == (None, Kind.NONE, 0.2, True)


# The doctor itself


@pytest.mark.parametrize(("carries", "bound"), [(4, True), (5, False), (None, False)])
def test_a_client_that_carries_no_more_is_the_limit(carries: int | None, bound: bool) -> None:
    found = conclude(capped_findings(4, client_streams=carries))

    assert found.client_bound is bound
    assert found.limit == (None if bound else 4)


@pytest.mark.parametrize(("lag_s", "is_busy"), [(0.399, False), (0.4, True)])
def test_a_doctor_that_stood_still_is_half_as_sure_of_a_limit(lag_s: float, is_busy: bool) -> None:
    sure = conclude(findings(a_ramp(4), single_s=2.0))
    late = [*a_ramp(4)[:-1], a_capped_round(16, 4, lag_s=lag_s)]

    found = conclude(findings(late, single_s=2.0))

    assert (found.limit, found.confidence) == (4, pytest.approx(sure.confidence * (0.5 if is_busy else 1)))
    assert (found.why[-1] == "the doctor's own machine was busy: it stood still for 400 ms") is is_busy


def test_a_doctor_that_stood_still_has_seen_all_run_at_once_nevertheless() -> None:
    found = conclude(findings([a_capped_round(2, 2, lag_s=1.0)], single_s=2.0, max_concurrency=2))

    assert (found.kind, found.confidence) == (Kind.NONE, 0.95)
