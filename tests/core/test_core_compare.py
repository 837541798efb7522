"""Two spans compared: known values, unknown ones, and a mix of classes that changes."""

import random

import pytest

from gateway.core.compare import Change, compared
from gateway.core.compare_words import duration, sentence, span
from gateway.core.intervals import Estimate
from gateway.core.samples import Kind, Sample, Untold


def sample(
    prompt: int | None = 1000,
    cached: int | None = 500,
    ttft_ms: float | None = None,
    *,
    workload: str = "chat",
    session: int = 0,
    untold: Untold = Untold.UNKNOWN,
) -> Sample:
    is_told = prompt is not None and cached is not None
    return Sample(Kind("a", "m", workload), session, prompt, cached, ttft_ms, None if is_told else untold)


def varied(count: int, rate: float, workload: str = "chat", ttft_ms: float = 100.0) -> list[Sample]:
    """Prompts of 1,000 tokens, of which about `rate` are cached, and first tokens after about `ttft_ms`."""
    draw = random.Random(count)
    return [
        sample(
            1000,
            round(1000 * rate + draw.uniform(-50, 50)),
            ttft_ms * draw.uniform(0.8, 1.2),
            workload=workload,
        )
        for _ in range(count)
    ]


def test_figures_of_known_values() -> None:
    before = [sample(1000, 0, 100.0, session=1), sample(3000, 3000, 200.0, session=1), sample(500, None)]
    told = compared(before, [sample(100, 120, None)])
    of = told.before
    assert (of.requests, of.sessions, of.unknown_requests) == (3, 1, 1)
    assert (of.prompt_tokens, of.cached_tokens) == (4000, 3000)
    assert of.hit_rate.value == 0.75
    assert (of.prefill_tokens.total, of.prefill_tokens.per_request.value) == (1000, 500.0)
    assert (of.ttft_requests, of.ttft_p50_ms.value, of.ttft_p90_ms.value) == (2, 100.0, 200.0)
    # More cached than prompt is what some engines say of a prompt that was there whole.
    assert (told.after.hit_rate.value, told.after.prefill_tokens.total) == (1.0, 0)
    assert told.after.ttft_p50_ms == Estimate(why="no request told it")


def test_unknown_is_not_zero() -> None:
    told = compared([sample(1000, None), sample(None, None)], [sample()])
    assert told.before.hit_rate == Estimate(why="no engine reported cached tokens")
    assert told.before.prefill_tokens.per_request.value is None
    of = told.before
    assert (of.prompt_tokens, of.cached_tokens, of.prefill_tokens.total) == (None, None, None)
    assert told.changes.hit_rate.all.value is None
    assert told.changes.ttft_p50_ms == Change(*[Estimate(why="not known on both sides")] * 2)
    assert compared([], []).before.hit_rate == Estimate(why="no requests")
    assert compared([], []).before.prefill_tokens.total == 0


def test_what_failed_or_was_left_is_not_unknown() -> None:
    failed, never = sample(None, None, untold=Untold.FAILED), sample(10, None, untold=Untold.NEVER)
    of = compared([sample(), failed, failed, never, sample(10, None)], []).before
    assert (of.requests, of.unknown_requests, of.failed_requests) == (5, 1, 2)
    told = compared([failed, never], [sample()])
    assert (told.before.unknown_requests, told.before.prompt_tokens) == (0, None)
    assert told.before.hit_rate == Estimate(why="no request ended with a report of cached tokens")
    words = sentence(told, 60, 60)
    assert words.startswith(
        "The hit rate before is unknown: no request ended with a report of cached tokens."
    )
    words = sentence(compared([sample(), failed, never], [sample()]), 60, 60)
    assert words.endswith("few. 1 of them failed or was left by its client: it is in no hit rate.")
    words = sentence(compared([sample(), failed, failed, sample(10, None)], [sample()]), 60, 60)
    assert "The engine reported no cached tokens for 1 of them" in words
    assert words.endswith("2 of them failed or were left by their clients: they are in no hit rate.")


def test_a_few_requests_that_are_all_alike_are_no_certainty() -> None:
    """The exact limits of none and all of six are 45.9 % and 54.1 %."""
    told = compared([sample(1000, 0)] * 6, [sample(1000, 300)] * 6)
    assert (told.before.hit_rate.low, told.after.hit_rate.value) == (0.0, 0.3)
    assert told.before.hit_rate.high == pytest.approx(0.459, abs=0.001)
    per_request = told.before.prefill_tokens.per_request
    assert (per_request.value, per_request.low) == (1000.0, pytest.approx(541, abs=1))
    assert "30.0 points higher, which may be chance (95 %: -" in sentence(told, 60, 60)
    # A change of a hit rate cannot be larger than from none to all.
    told = compared([sample(1000, 0)] * 6, [sample(1000, 980)] * 6)
    assert "98.0 points higher, more than chance (95 %: +33.7 to +100.0)" in sentence(told, 60, 60)
    # No cache at all on one side is still to be told from one, with requests enough.
    told = compared([sample(1000, 0)] * 200, varied(200, 0.3))
    assert told.before.hit_rate.high == pytest.approx(0.0183, abs=0.0001)
    assert "more than chance" in sentence(told, 60, 60)


def test_a_change_has_an_interval_around_it() -> None:
    told = compared(varied(200, 0.5), varied(200, 0.7))
    change = told.changes.hit_rate
    assert change.all.value == pytest.approx(0.2, abs=0.01)
    assert change.all.low is not None
    assert change.all.high is not None
    # The standard error of the difference is 0.1 / sqrt(12) x sqrt(2 / 200) = 0.0029.
    assert change.all.high - change.all.low == pytest.approx(2 * 1.972 * 0.00289, rel=0.1)
    assert change.same_mix == change.all
    assert change.mix == 0.0
    fewer = told.changes.prefill_tokens_per_request.all
    assert fewer.value == pytest.approx(-1000 * change.all.value)


def test_a_mix_that_moves_is_told_from_an_effect() -> None:
    """Short chats hit 80 %, long prompts 20 %, before and after alike, but there are more of the latter."""
    before = [*varied(180, 0.8, "chat", 100), *varied(20, 0.2, "long", 1000)]
    after = [*varied(20, 0.8, "chat", 100), *varied(180, 0.2, "long", 1000)]
    told = compared(before, after)
    change = told.changes.hit_rate
    assert change.all.value == pytest.approx(-0.48, abs=0.01)
    assert change.same_mix.value == pytest.approx(0, abs=0.01)
    assert change.same_mix.low is not None
    assert change.same_mix.high is not None
    assert change.same_mix.low < 0 < change.same_mix.high
    assert change.mix == pytest.approx(-0.48, abs=0.01)
    slower = told.changes.ttft_p50_ms
    assert slower.all.value == pytest.approx(900, abs=100)
    assert slower.same_mix.value == pytest.approx(0, abs=50)
    assert told.classes["long"].before.hit_rate.value == pytest.approx(0.2, abs=0.02)
    assert told.classes["long"].after.requests == 180
    words = sentence(told, 600, 600)
    assert "48.0 points lower, more than chance" in words
    assert "The mix of classes moved it by more than the rest: at one mix it is " in words
    assert "(95 %: -" in words.partition("at one mix it is ")[2]
    assert "At one mix of classes the p50 is " in words


def test_an_effect_within_classes_is_not_taken_for_the_mix() -> None:
    before = [*varied(100, 0.5, "chat"), *varied(100, 0.2, "long")]
    after = [*varied(100, 0.7, "chat"), *varied(100, 0.4, "long")]
    told = compared(before, after)
    assert told.changes.hit_rate.same_mix.value == pytest.approx(0.2, abs=0.01)
    assert "mix" not in sentence(told, 60, 60)


def test_a_class_on_one_side_only_is_part_of_the_mix() -> None:
    told = compared(varied(100, 0.5), [*varied(100, 0.5), *varied(100, 0.9, "json")])
    assert told.changes.hit_rate.all.value == pytest.approx(0.2, abs=0.01)
    assert told.changes.hit_rate.same_mix.value == pytest.approx(0, abs=0.001)
    assert told.classes["json"].before.requests == 0
    told = compared(varied(100, 0.5, "chat"), varied(100, 0.5, "json"))
    assert told.changes.hit_rate.same_mix == Estimate(why="no class has requests on both sides")
    assert told.changes.ttft_p90_ms.same_mix == told.changes.hit_rate.same_mix
    assert told.changes.hit_rate.mix is None
    assert "mix" not in sentence(told, 60, 60)


def test_a_few_requests_of_a_class_do_not_take_the_interval_of_all() -> None:
    told = compared(
        [*varied(100, 0.5), sample(workload="json")], [*varied(100, 0.6), sample(workload="json")]
    )
    assert told.changes.hit_rate.same_mix.low is not None
    told = compared([sample(), sample(session=3)], varied(100, 0.6))
    assert told.changes.hit_rate.same_mix.value == pytest.approx(0.1, abs=0.01)
    assert told.changes.hit_rate.same_mix.why.startswith("2 sessions: ")


def test_the_sentence_of_a_clear_change() -> None:
    words = sentence(compared(varied(1200, 0.5, ttft_ms=2000), varied(900, 0.7, ttft_ms=100)), 600, 7200)
    assert words.startswith("Hit rate 50.")
    assert " before, 69.8 % after: 19.8 points higher, more than chance (95 %: +19.6 to +20.1)." in words
    assert "TTFT p90 2.33 s before, 116 ms after, more than chance." in words
    assert words.endswith("1,200 requests in 10 min before, 900 requests in 2.0 h after.")


def test_the_sentence_of_no_change() -> None:
    words = sentence(compared(varied(100, 0.5), varied(100, 0.5)), 60, 60)
    assert words.startswith("Hit rate 49.7 % before, 49.7 % after: the same (95 %: -0.8 to +0.8).")
    assert "TTFT p50 100 ms before, 100 ms after, which may be chance." in words


def test_the_sentence_of_little_or_nothing() -> None:
    words = sentence(compared([sample(ttft_ms=5.0, session=1)], [sample(1000, 400, session=1)]), 60, 119)
    assert words == (
        "Hit rate 50.0 % before, 40.0 % after: 10.0 points lower, perhaps by chance (1 session: an interval "
        "needs at least 5, or requests that name none). TTFT is not known on both sides. "
        "1 request in 60 s before, 1 request in 119 s after, which is few."
    )
    assert sentence(compared([], [sample()]), 60, 60) == "Nothing to compare: no request in the 60 s before."
    nothing = "Nothing to compare: no request in the 60 s before and none in the 2 min after."
    assert sentence(compared([], []), 60, 120) == nothing


def test_the_sentence_says_what_engines_did_not_report() -> None:
    words = sentence(compared([sample(), sample(10, None)], [sample()]), 60, 60)
    assert words.endswith("The engine reported no cached tokens for 1 of them: they are in no hit rate.")
    words = sentence(compared([sample()], [sample(10, None, 5.0)]), 60, 60)
    assert words.startswith("The hit rate after is unknown: no engine reported cached tokens. TTFT is not")
    words = sentence(compared([sample(10, None, 7.0)], [sample(10, None, 5.0)]), 60, 60)
    assert words.startswith("The hit rate before is unknown")
    assert "TTFT p50 7 ms before, 5 ms after. TTFT p90" in words


def test_a_mix_of_which_nothing_is_left_says_the_same() -> None:
    before = [sample(ttft_ms=1.0)] * 9 + [sample(ttft_ms=9.0, workload="long")] * 9
    after = [sample(ttft_ms=1.0)] * 3 + [sample(ttft_ms=9.0, workload="long")] * 15
    words = sentence(compared(before, after), 60, 60)
    assert "At one mix of classes the p50 is the same." in words
    assert "The mix" not in words


def test_durations_and_spans_in_words() -> None:
    assert [duration(it) for it in (12.4, 999.4, 1000, 61_000)] == ["12 ms", "999 ms", "1.00 s", "61.00 s"]
    assert [span(it) for it in (3.4, 119, 120, 7199, 7200)] == ["3 s", "119 s", "2 min", "120 min", "2.0 h"]
