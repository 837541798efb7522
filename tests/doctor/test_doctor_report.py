"""An examination as one value: the sentences, and what --json prints."""

import json
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

from gateway.doctor.report import Report
from gateway.doctor.seen import Engine, Findings, Look, Role, Round, Shape

REFUSED_ALONE = Round(role=Role.RAMP, wanted=1, streams=(a_refused(),))
LIMITED = [
    a_capped_round(4, 4, more=[a_refused(4)]),
    Round(
        role=Role.AGAIN,
        wanted=3,
        streams=(a_refused(), a_stream(1, sent_at=0.5), a_stream(2, sent_at=1.0)),
    ),
]


def a_front() -> Findings:
    look = a_capped_round(5, 4, role=Role.LOOK, looks=(Look(1.0, 1.0),))
    return findings([*a_ramp(4), an_unequal_round(12, 4), look], idle_look_s=0.001)


@pytest.mark.parametrize(
    ("of", "said"),
    [
        (findings([]), "Nothing was measured."),
        (findings([REFUSED_ALONE]), "Even a request alone was refused."),
        (findings(a_ramp(64)), "No limit found up to 16 requests at once (confidence 95%)."),
        (
            findings([a_capped_round(1, 1)], max_concurrency=1),
            "No limit found up to one request at once (confidence 95%).",
        ),
        (
            capped_findings(4, engine=Engine(kind="openai")),
            "4 of 16 requests run at once: that many slots in the engine (confidence 72%).",
        ),
        (
            capped_findings(4, engine=None),
            "4 of 16 requests run at once: that many slots in the engine (confidence 72%).",
        ),
        (a_front(), "4 of 16 requests run at once: held by a layer in front of the engine (confidence 98%)."),
        (
            findings([*a_ramp(4), a_capped_round(16, 8, role=Role.SMALL)]),
            "4 of 16 requests run at once: held by KV memory, not by slots (confidence 90%).",
        ),
        (findings(LIMITED), "A rate limit of about 2 requests/s (confidence 90%)."),
        (
            findings([LIMITED[0], Round(role=Role.AGAIN, wanted=1, streams=(a_refused(),))]),
            "A rate limit (confidence 90%).",
        ),
        (capped_findings(4, client_streams=4), "The doctor's own client is the limit here."),
    ],
)
def test_the_headline(of: Findings, said: str) -> None:
    assert Report(of).headline() == said


def test_the_headline_names_the_engine() -> None:
    assert Report(capped_findings(4)).headline().endswith(" (engine: llamacpp).")


def test_batches_have_a_headline() -> None:
    streams = [a_stream(at, begun_at=2.5 * (at // 2), took_s=2.0 + 0.5 * (at % 2)) for at in range(8)]
    unequal = Round(role=Role.UNEQUAL, wanted=8, streams=tuple(streams))

    said = Report(findings([*a_ramp(2), unequal])).headline()

    assert said.startswith("2 of 16 requests run at once: in static batches ")


def test_what_the_cap_costs() -> None:
    # Ahead of a cap of 4 each of 16 answers takes 6.16 s, 0.4 s of it to the first token.
    report = Report(capped_findings(4))

    assert report.cost_sentence() == (
        "96% of TTFT at 16 streams is waiting behind a cap of 4; two more slots would give about "
        "+23% aggregate."
    )


def test_without_first_tokens_it_is_of_the_whole_answer() -> None:
    said = Report(capped_findings(4, streamed=False)).cost_sentence()

    assert said == "60% of the time to the answer at 16 streams is waiting behind a cap of 4."


def test_more_slots_are_no_matter_of_a_front() -> None:
    assert "slots" not in Report(a_front()).cost_sentence()


@pytest.mark.parametrize(
    "of", [findings([]), findings(a_ramp(64)), findings(LIMITED), findings([a_paced_round(8, 0.25)])]
)
def test_without_a_cap_there_is_no_cost(of: Findings) -> None:
    assert Report(of).cost_sentence() == ""


@pytest.mark.parametrize(
    ("rate", "said"),
    [
        (5.2, "At most 4 slots keep 5.2 tokens/s for each stream."),
        (4.0, "At most 7 slots keep 4 tokens/s for each stream, beyond what was measured."),
        (50.0, "Not even one stream gets 50 tokens/s."),
        (None, ""),
    ],
)
def test_the_most_slots_that_keep_a_rate(rate: float | None, said: str) -> None:
    assert Report(capped_findings(4), rate).rate_sentence() == said


def test_without_first_tokens_no_rate_is_told() -> None:
    said = Report(capped_findings(4, streamed=False), 5.0).rate_sentence()

    assert said == "Whether each stream keeps 5 tokens/s cannot be told: no first tokens were seen."


@pytest.mark.parametrize(
    ("of", "wanted"),
    [
        (capped_findings(2), 8),
        (capped_findings(4), 16),
        (capped_findings(8), 16),
        (findings(a_ramp(64)), 16),
        (findings([]), None),
    ],
)
def test_the_round_to_draw_is_three_times_the_limit(of: Findings, wanted: int | None) -> None:
    shown = Report(of).round_shown

    assert (shown.wanted if shown else None) == wanted


# --json


def as_json(of: Findings, rate: float | None = None) -> dict[str, Any]:
    text = json.dumps(Report(of, rate).as_json(), allow_nan=False)
    told: dict[str, Any] = json.loads(text)
    return told


def test_json_has_what_is_promised() -> None:
    told = as_json(capped_findings(4), 5.2)

    assert told["concurrency_limit"] == 4
    assert told["limit_kind"] == "slots"
    assert told["confidence"] == 0.975
    assert told["aggregate_tokens_per_second"] == {
        "1": 7.78, "2": 13.52, "4": 21.43, "8": 21.43, "16": 21.43,
    }  # fmt: skip
    assert told["stream_tokens_per_second"] == {"1": 8.33, "2": 7.14, "4": 5.56, "8": 5.56, "16": 5.56}
    assert told["ttft_ms"]["16"] == {"p50": 9640.0, "max": 18880.0}
    assert told["answer_ms"]["1"] == {"p50": 4240.0, "max": 4240.0}
    assert (told["waiting_share"], told["waiting_share_at"]) == (0.959, 16)
    assert told["gain_of_two_more_slots"] == 0.227
    assert (told["min_stream_rate"], told["slots_for_min_stream_rate"]) == (5.2, 4)
    assert told["advice"] == Report(capped_findings(4)).advice
    assert told["engine"] == {
        "kind": "llamacpp",
        "setting": "-np (llama.cpp, default 4)",
        "declared_slots": 4,
        "kv_tokens": None,
        "asked_directly": False,
    }
    assert told["request"] == {"prompt_tokens": 512, "output_tokens": 33, "streams": True}
    assert told["interrupted"] is None


def test_json_of_nothing_is_complete_too() -> None:
    told = as_json(findings([], interrupted="interrupted"))

    assert told.keys() == as_json(capped_findings(4)).keys()
    assert (told["concurrency_limit"], told["limit_kind"], told["confidence"]) == (None, "none", 0.0)
    assert (told["ttft_ms"], told["waiting_share"], told["engine"]) == ({}, None, None)
    assert told["interrupted"] == "interrupted"
    assert told["request"] == {"prompt_tokens": 512, "output_tokens": 33, "streams": False}


def test_json_of_a_limiter_has_its_rate_and_no_waiting() -> None:
    told = as_json(findings(LIMITED))

    assert (told["limit_kind"], told["concurrency_limit"], told["rate_per_second"]) == ("rate", None, 2.0)
    assert (told["refuses"], told["waiting_share"], told["gain_of_two_more_slots"]) == (True, None, None)


def test_json_without_a_limit_waits_nothing() -> None:
    assert as_json(findings(a_ramp(64)))["waiting_share"] == 0.0


def test_each_round_is_told_with_who_was_refused_and_who_failed() -> None:
    round_ = a_capped_round(2, 2, more=[a_refused(2), a_failed(3), a_failed(4)], lag_s=0.0123)

    assert as_json(findings([round_]))["rounds"] == [
        {"role": "ramp", "sent": 5, "at_once": 2, "refused": 1, "failed": 2, "own_lag_ms": 12.3}
    ]


def test_prompts_are_as_long_as_the_endpoint_counted_or_as_asked_for() -> None:
    counted = a_capped_round(1, 1, shape=Shape(prompt_tokens=77, output_tokens=33))
    uncounted = Round(
        role=Role.RAMP,
        wanted=1,
        streams=(a_stream(shape=Shape(prompt_tokens=0, output_tokens=33)),),
    )

    assert as_json(findings([counted]))["request"]["prompt_tokens"] == 77
    assert as_json(findings([uncounted]))["request"]["prompt_tokens"] == 512
