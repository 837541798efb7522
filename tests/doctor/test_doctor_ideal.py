"""Whole examinations of ideal endpoints, in virtual time: the conclusion is right for each of them."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from ideal_endpoints import Endpoint, examined

from gateway.doctor.report import Report
from gateway.doctor.verdict import Kind

JITTER = (0.0, 0.02, 0.05)
WAYS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "streamed": ({}, {}),
    "whole": ({}, {"stream": False}),
    "buffered": ({"buffers": True}, {}),
}
"""How answers come: what that changes in the endpoint, and in what the doctor is asked for."""

ways = pytest.mark.parametrize("way", WAYS)


def each(way: str, seeds: int = 1, **many: tuple[Any, ...]) -> Iterator[tuple[dict[str, Any], Report]]:
    """An examination for each combination of `many`, with and without jitter."""
    about, options = WAYS[way]
    for seed, values in enumerate(itertools.product(*many.values(), JITTER, range(seeds))):
        settings = dict(zip([*many, "jitter"], values[:-1], strict=True)) | {"seed": seed}
        yield settings, examined(lambda s=settings: Endpoint(**about, **s), **options)  # type: ignore[misc]


def told(report: Report) -> tuple[int | None, Kind]:
    return report.verdict.limit, report.verdict.kind


@ways
@pytest.mark.parametrize("prefill_token_s", [0.0001, 0.01])
def test_slots_are_counted_whatever_prefill_takes_beside_decode(way: str, prefill_token_s: float) -> None:
    for settings, report in each(
        way, slots=(1, 2, 3, 4, 7, 8, 12, 15), prefill_token_s=(prefill_token_s,), each_s=(0.002,)
    ):
        assert told(report) == (settings["slots"], Kind.SLOTS), settings
        assert report.verdict.confidence >= 0.9


@pytest.mark.parametrize("seed", range(2))
def test_slots_are_counted_when_the_most_tried_is_just_above_or_at_them(seed: int) -> None:
    for slots, most in ((3, 4), (7, 8), (4, 5), (2, 3), (15, 16)):
        report = examined(lambda s=slots: Endpoint(slots=s, jitter=0.05, seed=seed), max_concurrency=most)  # type: ignore[misc]
        assert told(report) == (slots, Kind.SLOTS)
    for slots in (2, 4, 5, 8):
        report = examined(lambda s=slots: Endpoint(slots=s, jitter=0.05, seed=seed), max_concurrency=slots)  # type: ignore[misc]
        assert told(report) == (None, Kind.NONE)


@ways
def test_slots_are_counted_where_prompts_are_computed_in_turn(way: str) -> None:
    for settings, report in each(
        way, slots=(1, 2, 4, 6), is_serial=(True,), prefill_token_s=(0.0005, 0.001, 0.002)
    ):
        assert told(report) == (settings["slots"], Kind.SLOTS), settings


@ways
def test_prompts_computed_in_turn_are_no_cap(way: str) -> None:
    shares = tuple(share * 1.2 / 64 for share in (0.02, 0.1, 0.2, 0.3, 0.5, 0.8))
    for settings, report in each(way, is_serial=(True,), prefill_token_s=shares):
        assert told(report) == (None, Kind.NONE), settings


@ways
def test_plain_slowing_down_is_no_cap(way: str) -> None:
    for settings, report in each(way, each_s=(0.0, 0.01, 0.05), least_s=(0.0, 0.02)):
        assert told(report) == (None, Kind.NONE), settings
        assert report.verdict.confidence == 0.95


def test_where_it_saturates_is_told() -> None:
    report = examined(lambda: Endpoint(least_s=0.0125))

    assert "It saturates at about 4 at once" in report.advice


@ways
def test_a_front_is_told_from_the_engine_by_what_a_get_takes(way: str) -> None:
    for settings, report in each(way, front=(1, 2, 3, 4, 7), slots=(None, 10), each_s=(0.01,)):
        assert told(report) == (settings["front"], Kind.FRONT), settings


@pytest.mark.parametrize("way", ["streamed", "whole"])
def test_static_batches_are_told_also_if_the_first_is_greedy(way: str) -> None:
    for settings, report in each(way, batch=(2, 3, 4, 6, 8), gather_s=(0, 0.05)):
        assert told(report) == (settings["batch"], Kind.BATCH), settings


@pytest.mark.parametrize("way", ["streamed", "whole"])
@pytest.mark.parametrize("burst", [1, 3, 6])
def test_a_limiter_that_lets_wait_is_told_with_its_rate(way: str, burst: int) -> None:
    for settings, report in each(way, rate_per_s=(0.3, 0.7, 1.4, 5.0), burst=(burst,)):
        if settings["rate_per_s"] * 1.2 + burst < 14:
            assert told(report) == (None, Kind.RATE), settings
            assert report.verdict.rate_per_s == pytest.approx(settings["rate_per_s"], rel=0.1)


@pytest.mark.parametrize("way", ["streamed", "whole"])
@pytest.mark.parametrize("burst", [1, 3, 6])
def test_a_limiter_that_refuses_is_told_with_its_rate(way: str, burst: int) -> None:
    for settings, report in each(way, rate_per_s=(0.5, 1.0, 8.0), burst=(burst,), refuses=(True,)):
        assert told(report) == (None, Kind.RATE), settings
        assert report.verdict.refuses
        # The doctor does not wait for the second request that a slow one lets in.
        if report.verdict.rate_per_s is not None or settings["rate_per_s"] >= 4:
            assert report.verdict.rate_per_s == pytest.approx(settings["rate_per_s"], rel=0.2)


@ways
def test_memory_that_holds_fewer_long_ones_is_no_cap(way: str) -> None:
    about, options = WAYS[way]
    for fits, jitter in itertools.product((2, 3, 5, 7), JITTER):
        kv_tokens = round(fits * 88 * 1.1)
        report = examined(
            lambda j=jitter, kv=kv_tokens: Endpoint(kv_tokens=kv, jitter=j, **about),  # type: ignore[misc]
            output_tokens=24,
            **options,
        )
        assert report.verdict.kind is Kind.KV, (fits, jitter)
        assert report.verdict.limit == fits


def test_who_lets_some_wait_and_refuses_the_others_is_capped_at_what_runs() -> None:
    for settings, report in each("streamed", slots=(2, 3, 4), queue=(0, 1, 3)):
        assert told(report) == (settings["slots"], Kind.SLOTS if settings["queue"] else Kind.FRONT), settings
        assert report.verdict.refuses


def test_the_examination_is_bounded_in_requests_and_time() -> None:
    for slots in (1, 4, None):
        report = examined(lambda s=slots: Endpoint(slots=s, token_s=0.5), max_s=60.0)  # type: ignore[misc]
        sent = sum(len(it.streams) for it in report.findings.rounds)
        assert sent <= 150
