"""The demo's pure parts: what the agents say, what is made of the figures, and how it looks."""

import itertools
from typing import Any

import pytest

from gateway.demo import report
from gateway.demo.agents import Played
from gateway.demo.conversation import AGENTS, SYSTEM_PROMPT, TURNS, user_text

CHARS_PER_TOKEN = 4.6
"""English prose under Gemma's vocabulary."""


def played(agent: int = 1, turn: int = 1, **fields: Any) -> Played:
    figures = {"engine": "engine-1", "ttft_s": 1.0, "prompt_tokens": 1000, "cached_tokens": 0}
    return Played(agent=agent, turn=turn, **(figures | fields))


def conversation(cached_tokens: int, *, ttft_s: float = 1.0, **fields: Any) -> list[Played]:
    """Two agents of two turns; only the second turns hit."""
    return [
        played(agent, turn, cached_tokens=cached_tokens * (turn - 1), ttft_s=ttft_s, **fields)
        for agent in (1, 2)
        for turn in (1, 2)
    ]


# What is said


def test_the_shared_prompt_is_about_600_tokens_and_each_turn_about_200() -> None:
    assert 550 <= len(SYSTEM_PROMPT) / CHARS_PER_TOKEN <= 650
    for agent, turn in itertools.product(range(1, AGENTS + 1), range(1, TURNS + 1)):
        assert 170 <= len(user_text(agent, turn)) / CHARS_PER_TOKEN <= 250


def test_no_two_turns_begin_alike() -> None:
    turns = itertools.product(range(1, AGENTS + 1), range(1, TURNS + 1))
    beginnings = {user_text(agent, turn)[:64] for agent, turn in turns}
    assert len(beginnings) == AGENTS * TURNS


# What is made of it


def test_the_hit_rate_is_a_ratio_of_sums() -> None:
    turns = [
        played(prompt_tokens=100, cached_tokens=100),
        played(prompt_tokens=900, cached_tokens=0),
    ]
    summary = report.summarise(turns, 3.0)
    assert summary.hit_rate == 0.1
    assert summary.computed_tokens == 900


def test_what_an_engine_did_not_report_is_not_counted_as_zero() -> None:
    turns = [played(prompt_tokens=100, cached_tokens=50), played(prompt_tokens=100, cached_tokens=None)]
    summary = report.summarise(turns, 1.0)
    assert summary.hit_rate == 0.5
    assert summary.unreported == 1
    shown = [name for name, *_ in report.rows(summary, summary)]
    assert "requests without reported tokens" in shown


def test_without_any_report_there_is_no_hit_rate() -> None:
    summary = report.summarise([played(prompt_tokens=None, cached_tokens=None)], 1.0)
    assert summary.hit_rate is None
    assert ("prompt tokens from cache (hit rate)", "-", "-") in report.rows(summary, summary)


def test_a_failed_request_is_counted_and_left_out_of_the_figures() -> None:
    turns = [played(), played(turn=2, error="HTTP 503: full", ttft_s=None, prompt_tokens=None)]
    summary = report.summarise(turns, 1.0)
    assert (summary.ok, summary.requests) == (1, 2)
    assert summary.prompt_tokens == 1000


def test_first_and_later_turns_have_their_own_ttft() -> None:
    turns = [played(turn=1, ttft_s=4.0), played(turn=2, ttft_s=1.0), played(turn=3, ttft_s=2.0)]
    summary = report.summarise(turns, 1.0)
    assert summary.first_ttft_s == (4.0,)
    assert summary.later_ttft_s == (1.0, 2.0)


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [([], 50, None), ([7.0], 90, 7.0), ([3.0, 1.0, 2.0], 50, 2.0), ([1.0, 2.0, 3.0, 4.0], 90, 4.0)],
)
def test_a_percentile_is_one_of_the_values(
    values: list[float], percent: float, expected: float | None
) -> None:
    assert report.percentile(values, percent) == expected


def test_the_verdict_names_what_each_side_did_better() -> None:
    gateway = report.summarise(conversation(600, ttft_s=2.0), 10.0)
    round_robin = report.summarise(conversation(100, ttft_s=1.0), 10.2)
    said = report.verdict(gateway, round_robin)
    assert "The gateway did better at: prompt tokens computed (2,800 against 3,800)." in said
    assert "Round robin did better at: median TTFT of first turns (1.00 s against 2.00 s)" in said
    assert "Level, within 5 %: time for the whole conversation." in said


def test_the_verdict_does_not_compare_runs_with_failures() -> None:
    whole = report.summarise(conversation(600), 10.0)
    broken = report.summarise([*conversation(600), played(error="HTTP 500")], 10.0)
    assert "cannot be compared" in report.verdict(whole, broken)
    assert "cannot be compared" in report.verdict(broken, whole)


# Whether it went well


def test_a_demo_whose_later_turns_hit_succeeds() -> None:
    assert report.problems(conversation(600), conversation(0)) == []


def test_each_failed_request_of_either_run_is_a_problem() -> None:
    bad = played(2, 1, error="HTTP 502: engine gone")
    assert report.problems([*conversation(600), bad], conversation(0)) == [
        "agent 2 turn 1 (gateway): HTTP 502: engine gone"
    ]
    assert report.problems(conversation(600), [bad]) == [
        "agent 2 turn 1 (round robin): HTTP 502: engine gone"
    ]


def test_a_later_turn_that_missed_the_cache_is_a_problem() -> None:
    [problem] = report.problems([*conversation(600), played(3, 2, cached_tokens=0)], [])
    assert problem == "agent 3 turn 2: nothing came from the cache"


def test_a_later_turn_of_unknown_cached_tokens_is_a_problem() -> None:
    [problem] = report.problems([*conversation(600), played(3, 2, cached_tokens=None)], [])
    assert "did not report" in problem


def test_a_demo_that_sent_nothing_did_not_succeed() -> None:
    assert report.problems([], []) == ["no request was sent"]


# How it looks


def test_nothing_is_wider_than_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    summary = report.summarise(conversation(123_456, prompt_tokens=1_234_567, predicted_tokens=9), 239.9)
    report.render(summary, summary, report.console())
    lines = [
        *capsys.readouterr().out.splitlines(),
        report.HEADER,
        report.line(
            played(16, 4, queue_ms=123_456.7, ttft_s=123.4, predicted_tokens=99_999, cached_tokens=99_999)
        ),
    ]
    assert len(lines) > 10
    assert max(map(len, lines)) <= 80


def test_figures_stand_under_their_names() -> None:
    line = report.line(played(3, 2, queue_ms=1204.4, ttft_s=2.314, predicted_tokens=601, cached_tokens=584))
    assert line.split() == ["3", "2", "engine-1", "1,204", "2.31", "601", "584", "1,000"]
    for name in ("queue ms", "TTFT s", "predicted", "delivered", "prompt tokens"):
        end = report.HEADER.index(name) + len(name)
        assert line[end - 1].isdigit()
        assert line[end : end + 1] in (" ", "")


def test_what_is_unknown_is_shown_as_such() -> None:
    line = report.line(played(queue_ms=None, predicted_tokens=None, cached_tokens=None))
    assert line.split() == ["1", "1", "engine-1", "-", "1.00", "-", "-", "1,000"]


def test_a_failed_request_says_why() -> None:
    line = report.line(played(engine="", error="HTTP 503: the queue is full"))
    assert line.split(maxsplit=3) == ["1", "1", "-", "failed: HTTP 503: the queue is full"]
