"""What a request lost, by reason: to the token, whatever the index believed and the engine says."""

import pytest
from edge_values import a_record
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.funnel import COLUMNS, REASONS, Losses, figures, losses, plus, row, summed
from gateway.core.request import Outcome, Record


def lost(**changes: object) -> dict[str, int]:
    """What is not zero. A prompt of 1000 tokens, of which nobody had anything unless `changes` say so."""
    nothing = {
        "prompt_tokens": 1000,
        "cached_tokens": 0,
        "predicted_cached_tokens": 0,
        "best_cached_tokens": 0,
    }
    found = losses(a_record(**{**nothing, **changes}))
    assert found is not None
    return {reason: tokens for reason in REASONS if (tokens := getattr(found, reason))}


def test_what_nobody_had_is_cold() -> None:
    assert lost() == {"cold": 1000}


def test_what_was_delivered_is_not_lost() -> None:
    had = {"predicted_cached_tokens": 900, "best_cached_tokens": 900, "known_tokens": 900}
    assert lost(**had, cached_tokens=900) == {"cold": 100}
    assert lost(**had, cached_tokens=1000) == {}


def test_another_engine_had_more_and_a_slot_free() -> None:
    had = {
        "predicted_cached_tokens": 200,
        "best_cached_tokens": 900,
        "known_tokens": 900,
        "cached_tokens": 200,
    }
    assert lost(**had) == {"cold": 100, "spilled": 700}


def test_another_engine_had_more_and_no_slot_free() -> None:
    had = {
        "predicted_cached_tokens": 200,
        "best_cached_tokens": 900,
        "known_tokens": 900,
        "cached_tokens": 200,
    }
    assert lost(**had, holder_full=True) == {"cold": 100, "queued_elsewhere": 700}


def test_it_was_still_being_computed_where_the_request_went() -> None:
    had = {
        "predicted_cached_tokens": 200,
        "best_cached_tokens": 200,
        "known_tokens": 900,
        "cached_tokens": 200,
    }
    assert lost(**had, pending_tokens=700) == {"cold": 100, "pending": 700}


def test_what_is_still_being_computed_elsewhere_is_no_more_to_be_had_there() -> None:
    had = {
        "predicted_cached_tokens": 100,
        "best_cached_tokens": 300,
        "known_tokens": 900,
        "cached_tokens": 100,
    }
    assert lost(**had) == {"cold": 100, "spilled": 200, "pending": 600}


def test_the_engine_had_less_than_was_believed() -> None:
    had = {
        "predicted_cached_tokens": 900,
        "best_cached_tokens": 900,
        "known_tokens": 900,
        "cached_tokens": 100,
    }
    assert lost(**had) == {"cold": 100, "evicted": 800}
    assert lost(**had, is_miscounted=True) == {"cold": 100, "engine_disagrees": 800}


def test_what_was_delivered_beyond_the_prediction_lowers_what_is_above_it() -> None:
    had = {"predicted_cached_tokens": 100, "best_cached_tokens": 700, "known_tokens": 900}
    assert lost(**had, cached_tokens=500) == {"cold": 100, "spilled": 200, "pending": 200}
    assert lost(**had, cached_tokens=950) == {"cold": 50}


def test_a_prompt_that_turns_out_shorter_than_what_was_predicted_of_it() -> None:
    had = {"predicted_cached_tokens": 1200, "best_cached_tokens": 1500, "known_tokens": 1500}
    assert lost(**had, cached_tokens=900) == {"evicted": 100}


def test_an_engine_that_delivers_more_than_the_prompt_is_taken_to_deliver_the_prompt() -> None:
    assert lost(cached_tokens=5000) == {}
    assert figures(row(a_record(prompt_tokens=1000, cached_tokens=5000)) or ()).delivered == 1000


@pytest.mark.parametrize(
    "changes",
    [
        {"cached_tokens": None},
        {"prompt_tokens": None},
        {"engine": ""},
        {"width": 0},
        {"api": "embeddings"},
        {"outcome": Outcome.CLIENT_DISCONNECT, "cached_tokens": None},
    ],
)
def test_where_nothing_is_known_or_could_be_cached_nothing_is_lost(changes: dict[str, object]) -> None:
    assert losses(a_record(**changes)) is None


def test_a_failed_request_without_a_report_is_not_unknown_but_nothing() -> None:
    assert row(a_record(outcome=Outcome.ENGINE_ERROR, cached_tokens=None)) is None
    unknown = row(a_record(cached_tokens=None))
    assert unknown is not None
    assert {name: count for name, count in zip(COLUMNS, unknown, strict=True) if count} == {"unknown": 1}


tokens = st.integers(0, 3000)


@st.composite
def records(draw: st.DrawFn) -> Record:
    """Anything: what a scheduler would never say, too."""
    return a_record(
        prompt_tokens=draw(tokens),
        cached_tokens=draw(tokens),
        predicted_cached_tokens=draw(tokens),
        best_cached_tokens=draw(tokens),
        known_tokens=draw(tokens),
        pending_tokens=draw(tokens),
        seen_tokens=draw(tokens),
        holder_full=draw(st.booleans()),
        is_miscounted=draw(st.booleans()),
    )


@given(st.lists(records(), min_size=1, max_size=20))
def test_losses_are_prompt_less_delivered_of_each_request_and_of_all(many: list[Record]) -> None:
    rows = []
    for record in many:
        found, counted = losses(record), row(record)
        assert found is not None
        assert counted is not None
        one = figures(counted)
        assert one.lost == found
        assert all(getattr(found, reason) >= 0 for reason in REASONS)
        assert sum(getattr(found, reason) for reason in REASONS) == one.prompt - one.delivered
        assert one.delivered <= one.infinite <= one.prompt
        assert found.cold >= one.prompt - one.infinite
        rows.append(counted)
    total = figures(summed(rows))
    assert sum(getattr(total.lost, reason) for reason in REASONS) == total.prompt - total.delivered
    assert plus(summed(rows), rows[0]) == summed([*rows, rows[0]])


def test_the_figures_of_some_requests() -> None:
    first = a_record(
        prompt_tokens=1000, cached_tokens=600, predicted_cached_tokens=700, best_cached_tokens=800,
        known_tokens=800, seen_tokens=950, queue_ms=20.0, duration_ms=2020.9,
    )  # fmt: skip
    second = a_record(
        prompt_tokens=500, cached_tokens=400, predicted_cached_tokens=400, best_cached_tokens=400,
        known_tokens=400, seen_tokens=300, queue_ms=0.0, duration_ms=1000.0, width=2,
    )  # fmt: skip
    rows = [counted for it in (first, second, a_record(cached_tokens=None)) if (counted := row(it))]
    it = figures(summed(rows))
    assert (it.requests, it.unknown_requests) == (2, 1)
    assert (it.prompt, it.infinite, it.best, it.predicted, it.delivered) == (1500, 1350, 1200, 1100, 1000)
    assert it.hit_rate == 1000 / 1500
    assert it.lost == Losses(300, 100, 0, 0, 100, 0)
    assert summed(rows)[COLUMNS.index("slot_ms")] == 2000 + 2 * 1000
    assert figures([0] * len(COLUMNS)).hit_rate is None
