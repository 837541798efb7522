"""Whole examinations of small servers on loopback."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web
from loopback import Api, Examined, Front, Json, a_sim, examined, listening, whole_answer

from gateway.doctor.examine import CannotExamine
from gateway.doctor.report import Report
from gateway.doctor.seen import Role
from gateway.doctor.verdict import Kind, Verdict

Post = Callable[[str, Json], web.Response]


async def verdict_of(url: str, **options: Any) -> Verdict:
    return Report((await examined(url, **options)).findings).verdict


async def test_the_slots_of_each_kind_of_engine() -> None:
    async with a_sim(kind="vllm") as a, a_sim(kind="sglang") as b, a_sim(kind="llamacpp") as c:
        examinations = await asyncio.gather(*(examined(it.url) for it in (a, b, c)))

    for kind, examination in zip(("vllm", "sglang", "llamacpp"), examinations, strict=True):
        report = Report(examination.findings)
        assert (report.verdict.limit, report.verdict.kind) == (2, Kind.SLOTS)
        assert report.findings.engine is not None
        assert report.findings.engine.kind == kind


async def test_an_engine_that_buffers_and_one_that_is_not_asked_to_stream() -> None:
    async with a_sim(quiet=True, faults=("buffer",)) as buffering, a_sim() as engine:
        examinations = await asyncio.gather(examined(buffering.url), examined(engine.url, stream=False))
        assert b'"stream"' in buffering.last_body
        assert b'"stream"' not in engine.last_body

    for examination in examinations:
        verdict = Report(examination.findings).verdict
        assert (verdict.limit, verdict.kind) == (2, Kind.SLOTS)
        assert examination.findings.of(Role.PROBE)
        assert not any(it.streamed for it in examination.findings.of(Role.RAMP))


async def behind_a_front_of_three(kind: str, *, directly: bool) -> Verdict:
    async with a_sim(kind=kind, slots=8, dev=True) as engine, listening(Front(engine, 3).handle) as url:
        return await verdict_of(url, engine_base=engine.url if directly else None, max_concurrency=6)


async def test_a_front_that_lets_three_through() -> None:
    verdicts = await asyncio.gather(
        behind_a_front_of_three("vllm", directly=False),
        behind_a_front_of_three("llamacpp", directly=False),
        behind_a_front_of_three("vllm", directly=True),
        behind_a_front_of_three("llamacpp", directly=True),
    )

    assert [(it.limit, it.kind) for it in verdicts] == [(3, Kind.FRONT)] * 4
    for direct in verdicts[2:]:
        assert any(it.startswith("the engine ran 3 of 8 ") for it in direct.why)


async def test_an_engine_url_where_nobody_is_ends_it() -> None:
    async with a_sim() as engine:
        with pytest.raises(CannotExamine, match=r"--engine-url http://127.0.0.1:1: .*onnect"):
            await examined(engine.url, engine_base="http://127.0.0.1:1")


async def test_a_limiter_that_refuses() -> None:
    async with a_sim(slots=8, faults=("rate:5",)) as engine:
        verdict = await verdict_of(engine.url, max_concurrency=8)

    assert (verdict.limit, verdict.kind, verdict.refuses) == (None, Kind.RATE, True)


async def test_memory_for_few() -> None:
    # Room for three requests of 88 tokens and a little more; smaller ones fit in more often.
    async with a_sim(kind="vllm", slots=8, kv_tokens=320) as engine:
        verdict = await verdict_of(engine.url, max_concurrency=8)

    assert verdict.kind is Kind.KV


async def test_no_limit_up_to_what_was_tried() -> None:
    async with a_sim(slots=8) as engine:
        verdict = await verdict_of(engine.url)

    assert (verdict.limit, verdict.kind, verdict.tried) == (None, Kind.NONE, 4)


# What ends it at once


def ok(path: str, body: Json) -> web.Response:
    return whole_answer(int(body.get("max_tokens") or body["max_completion_tokens"]))


@pytest.mark.parametrize(
    ("models", "post", "told"),
    [
        ({"data": []}, ok, "names no model: give --model NAME"),
        (web.Response(status=404), ok, r"names no model \(status 404\): give --model NAME"),
        (web.Response(status=503), ok, r"/v1/models answers 503 \(.*\): it may still be loading"),
        (web.Response(status=308), ok, r"/v1/models redirects to nowhere: give that address"),
        (web.Response(status=401), ok, r"/v1/models answers 401: give --api-key KEY"),
        (None, lambda path, body: web.Response(status=403), "answers 403: give --api-key KEY"),
        (None, lambda path, body: web.Response(status=400, text="no"), "refuses a request of .*: 400 no"),
    ],
)
async def test_what_cannot_be_examined_is_said_with_what_to_do(models: object, post: Post, told: str) -> None:
    api = Api(post) if models is None else Api(post, models)
    async with api as url:
        with pytest.raises(CannotExamine, match=told):
            await examined(url)


async def test_an_address_where_nobody_is() -> None:
    with pytest.raises(CannotExamine, match="onnect"):
        await examined("http://127.0.0.1:1")


async def test_without_a_list_of_models_a_name_is_enough() -> None:
    api = Api(ok, web.Response(status=404))
    async with api as url:
        await examined(url, model="mine", max_concurrency=1)

    assert {it["model"] for it in api.bodies} == {"mine"}


async def test_where_inference_is_reset_there_is_nothing_to_examine() -> None:
    async with a_sim(faults=("die-after-chunks:0",)) as engine:
        with pytest.raises(CannotExamine, match="/v1/chat/completions: "):
            await examined(engine.url)


async def test_an_endpoint_that_answers_but_one_is_not_examined() -> None:
    async def one_only(path: str, body: Json) -> web.Response:
        return ok(path, body) if body is api.bodies[0] else web.Response(status=500, text="boom")

    api = Api(one_only)
    async with api as url:
        with pytest.raises(CannotExamine, match="the next 3 were not: 500 boom"):
            await examined(url)


async def test_one_that_hangs_is_given_up_when_the_others_have_long_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.doctor.rounds._HUNG_LEAST_S", 0.4)
    never = asyncio.Event()

    async def one_hangs(path: str, body: Json) -> web.Response:
        if len(api.bodies) == 8:
            await never.wait()
        return ok(path, body)

    api = Api(one_hangs)
    async with api as url:
        examination = await examined(url)
        never.set()

    failed = [it for r in examination.findings.rounds for it in r.streams if not it.is_ok]
    assert [(it.status, it.error) for it in failed] == [(0, "no end, long after the others had theirs")]
    assert examination.findings.interrupted == ""
    assert Report(examination.findings).verdict.kind is Kind.NONE


# How it wants to be asked


def only(field: str) -> Post:
    """Refuses what has no such field, or one that it does not know."""
    known = {"model", "messages", "prompt", field, "stream"}

    def post(path: str, body: Json) -> web.Response:
        if set(body) <= known and field in body:
            return ok(path, body)
        return web.json_response({"error": {"message": "unknown field"}}, status=400)

    return post


async def test_a_form_that_is_refused_is_followed_by_a_plainer_one() -> None:
    api = Api(only("max_tokens"))
    async with api as url:
        await examined(url, max_concurrency=1)

    assert "ignore_eos" in api.bodies[0]
    assert set(api.bodies[-1]) == {"model", "messages", "max_tokens", "stream"}


async def test_a_limit_of_another_name() -> None:
    api = Api(only("max_completion_tokens"))
    async with api as url:
        await examined(url, max_concurrency=1)

    assert api.bodies[-1]["max_completion_tokens"] == 24


async def test_only_completions() -> None:
    paths = []

    def post(path: str, body: Json) -> web.Response:
        paths.append(path)
        return ok(path, body) if path == "/v1/completions" else web.Response(status=404)

    async with Api(post) as url:
        await examined(url, max_concurrency=1)

    assert paths[0] == "/v1/chat/completions"
    assert paths[-1] == "/v1/completions"


async def test_the_key_goes_with_every_request_and_into_no_finding() -> None:
    api = Api(ok)
    async with api as url, Examined(url, key="k-secret", max_concurrency=2) as it:
        await it.examination.run()

    assert api.keys == {"Bearer k-secret"}
    assert "k-secret" not in repr(it.examination.findings)


async def test_no_two_prompts_begin_alike() -> None:
    api = Api(ok)
    async with api as url:
        await examined(url, max_concurrency=4)

    beginnings = [it["messages"][0]["content"][:8] for it in api.bodies]
    assert len(set(beginnings)) == len(beginnings)


# Bounded, and ended early


async def test_it_stops_before_what_would_take_too_long() -> None:
    async with a_sim(kind="vllm", slots=64, decode_rate=48.0) as engine:
        examination = await examined(engine.url, max_s=3.0, max_concurrency=64)

    assert "the time was up (--max-seconds)" in examination.findings.interrupted
    assert max(it.wanted for it in examination.findings.of(Role.RAMP)) < 64


async def test_what_is_cancelled_in_the_middle_keeps_what_is_known() -> None:
    async with a_sim() as engine, Examined(engine.url) as it:
        running = asyncio.create_task(it.examination.run())
        async with asyncio.timeout(20):
            while "4 at once" not in it.told:
                await asyncio.sleep(0.01)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running

    report = Report(it.examination.findings)
    assert [it.wanted for it in report.findings.of(Role.RAMP)] == [1, 2]
    assert report.verdict.limit is None
    assert report.verdict.confidence == 0.5
    assert report.headline() == "No limit found up to 2 requests at once (confidence 50%)."
