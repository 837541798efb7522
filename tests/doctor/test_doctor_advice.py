"""What to do about a verdict, in words."""

from typing import Any

import pytest
from doctor_values import a_ramp, findings

from gateway.doctor.advice import MORE_SLOTS, advice, setting_of
from gateway.doctor.cost import Line, gain
from gateway.doctor.seen import Engine, Findings
from gateway.doctor.verdict import Kind, Verdict

VLLM = Engine(kind="vllm", setting="--max-num-seqs, default 256")


def told(
    kind: Kind, limit: int | None = 4, of: Findings | None = None, line: Line | None = None, **more: Any
) -> str:
    found = Verdict(limit=limit, kind=kind, confidence=0.9, tried=16, **more)
    gains = None if limit is None else gain(line, limit, MORE_SLOTS)
    return advice(of or findings([]), found, gains)


@pytest.mark.parametrize(
    ("engine", "setting"),
    [
        (VLLM, "--max-num-seqs, default 256"),
        (Engine(kind="llamacpp", setting="--parallel, default 4"), "-np (--parallel, default 4)"),
        (
            Engine(kind="openai"),
            "--max-num-seqs (vLLM, 256 or 1024 by GPU), --max-running-requests (SGLang), -np (llama.cpp, 4), "
            "OLLAMA_NUM_PARALLEL (Ollama, 1)",
        ),
    ],
)
def test_the_setting_has_the_engines_own_name(engine: Engine, setting: str) -> None:
    assert setting_of(engine) == setting


def test_of_an_unknown_engine_all_are_named() -> None:
    assert setting_of(None) == setting_of(Engine(kind="openai"))


@pytest.mark.parametrize(
    ("line", "effect"),
    [
        (Line(0.1, 0.02), "Two more slots would give about +23% aggregate, by the curve so far."),
        (Line(0.0, 0.02), "Two more slots would add little: about +0% to the aggregate by the curve so far."),
        (None, "What more slots would give cannot be told from answers in one piece."),
    ],
)
def test_slots_are_raised_by_their_setting_and_what_that_gives(line: Line | None, effect: str) -> None:
    assert told(Kind.SLOTS, of=findings([], engine=VLLM), line=line) == (
        f"To run more at once raise --max-num-seqs, default 256. {effect} Or hold the rest where they can be "
        "seen: a gateway that gives it 4 requests at a time."
    )


def test_one_slot_shows_no_curve() -> None:
    said = told(Kind.SLOTS, 1)

    assert "cannot be told from one slot alone." in said
    assert said.endswith("a gateway that gives it one request at a time.")


def test_3_percent_are_little_and_more_is_not() -> None:
    def gains(each_s: float) -> str:
        return told(Kind.SLOTS, line=Line(1.0, each_s))

    # 6 / (1 + 6x) by 4 / (1 + 4x): 1.03 at x = 2.61
    assert "about +3% aggregate" in gains(2.5)
    assert "would add little: about +3%" in gains(2.7)


def test_a_front_is_to_be_looked_for() -> None:
    said = told(Kind.FRONT)

    assert said.startswith("Something in front of the engine holds what is beyond 4: ")
    assert "maxconn" in said


def test_who_refuses_may_be_the_engine_itself() -> None:
    said = told(Kind.FRONT, refuses=True)

    assert said.startswith("What is beyond 4 is refused, in front of the engine or by a bound of its own: ")


def test_a_gateway_is_a_front_on_purpose() -> None:
    assert "what a prefix-gateway is for" in told(Kind.FRONT, of=findings([], is_gateway=True))


@pytest.mark.parametrize(
    ("engine", "means"),
    [
        (VLLM, "--gpu-memory-utilization"),
        (Engine(kind="sglang"), "--mem-fraction-static"),
        (Engine(kind="llamacpp"), "-c, which all slots share"),
        (None, "more memory for KV"),
    ],
)
def test_memory_is_given_by_each_engines_means(engine: Engine | None, means: str) -> None:
    said = told(Kind.KV, of=findings([], engine=engine))

    assert said.startswith("KV memory holds 4 requests of this size (512 prompt and 33 output tokens)")
    assert means in said


@pytest.mark.parametrize(
    ("rate", "refuses", "said"),
    [
        (2.5, True, "A limiter lets about 2.5 requests/s through and refuses what comes faster"),
        (0.5, False, "A limiter lets about 0.5 requests/s through and delays what comes faster"),
        (None, True, "A limiter counts requests in time and refuses what comes faster"),
    ],
)
def test_a_limiter_has_a_rate(rate: float | None, refuses: bool, said: str) -> None:
    assert told(Kind.RATE, None, rate_per_s=rate, refuses=refuses).startswith(said)


def test_batches_want_continuous_batching() -> None:
    said = told(Kind.BATCH)

    assert said.startswith("It takes batches of 4 ")
    assert "continuous batching" in said


def test_a_client_at_its_limit_says_nothing_of_the_endpoint() -> None:
    said = told(Kind.NONE, None, client_bound=True, why=("it carries 4",))

    assert said.startswith("Nothing can be said of the endpoint: it carries 4. ")


# Without a limit


def test_nothing_measured_wants_more_time() -> None:
    assert told(Kind.NONE, None) == (
        "Run it again and let it come further: more time (--max-seconds), or shorter answers."
    )


def test_refused_alone_wants_an_hour_of_its_own() -> None:
    assert told(Kind.NONE, None, refuses=True).startswith("Run it when nobody else uses the endpoint")


def test_prompts_in_turn_want_shorter_ones() -> None:
    assert "shorter prompts" in told(Kind.NONE, None, findings(a_ramp(64)), in_turn=True)


def test_where_it_saturates_is_told_with_what_it_gives() -> None:
    of = findings(a_ramp(64, alone_s=0.0, each_s=0.02, ttft_s=0.0))

    assert told(Kind.NONE, None, of) == (
        "It saturates at about 1 at once (51.6 tokens/s): more at once only makes each slower, so a cap of 1 "
        "would cost nothing."
    )


@pytest.mark.parametrize(("most", "option"), [(16, "--max-concurrency"), (32, "--max-seconds")])
def test_where_it_still_grows_more_is_to_be_tried(most: int, option: str) -> None:
    of = findings(a_ramp(64), max_concurrency=most)

    assert told(Kind.NONE, None, of) == (
        f"It still gave more at 16 at once (38.2 tokens/s) than at fewer: a larger {option} shows where "
        "that ends."
    )
