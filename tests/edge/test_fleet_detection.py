"""What the gateway finds out about an engine from its URL alone."""

import logging
from pathlib import Path

import pytest
from fleet import KINDS, ask, entries, simulated
from harness import chat, running


@pytest.mark.parametrize("kind", ["llamacpp", "vllm"])
async def test_kind_models_slots_and_kv_are_discovered(tmp_path: Path, kind: str):
    async with (
        simulated(1, kind, slots=3, kv_tokens=9000, model="tiny") as (engine,),
        running(tmp_path, [{"url": engine.url}]) as gateway,
    ):
        (seen,) = (await gateway.state())["engines"]
        assert seen["name"] == engine.url.removeprefix("http://")
        assert (seen["kind"], seen["models"], seen["health"]) == (kind, ["tiny"], "ready")
        assert (seen["slots"], seen["slots_source"], seen["usable"]) == (3, "discovered", 3)
        # A vLLM engine has whole blocks of 16 tokens.
        assert seen["kv_tokens"] == (9000 if kind == "llamacpp" else 8992)
        assert await gateway.metric("slots", source="discovered") == 3
        assert await gateway.metric("degraded", kind="slots_assumed") == 0


async def test_a_vllm_that_hides_its_slots_is_assumed_to_have_256_and_that_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.WARNING, "prefix_gateway")
    async with (
        simulated(1, dev=False, slots=3) as (engine,),
        running(tmp_path, [{"url": engine.url}]) as gateway,
    ):
        (seen,) = (await gateway.state())["engines"]
        assert (seen["slots"], seen["slots_source"], seen["slots_declared"]) == (256, "assumed", None)
        assert await gateway.metric("degraded", kind="slots_assumed") == 1
        assert await gateway.metric("slots", source="assumed") == 256
        assert "256 slots are assumed" in caplog.text


@pytest.mark.parametrize("kind", KINDS)
async def test_an_engine_that_tells_nothing_is_an_openai_one_with_assumed_slots(tmp_path: Path, kind: str):
    async with (
        simulated(1, kind, slots=3, quiet=True) as (engine,),
        running(tmp_path, [{"url": engine.url}]) as gateway,
    ):
        (seen,) = (await gateway.state())["engines"]
        assert (seen["kind"], seen["models"], seen["health"]) == ("openai", ["sim-model"], "ready")
        assert (seen["slots"], seen["slots_source"], seen["slots_declared"]) == (8, "assumed", None)
        assert (await ask(gateway, chat("Hello"))).status == 200


async def test_a_configured_number_above_the_engines_own_is_cut_and_that_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.WARNING, "prefix_gateway")
    async with (
        simulated(1, "llamacpp", slots=4) as engines,
        running(tmp_path, entries(engines, slots=16)) as gateway,
    ):
        seen = await gateway.engine("a")
        assert (seen["slots"], seen["slots_source"], seen["slots_declared"]) == (4, "configured", 4)
        assert "configured 16 > engine 4" in caplog.text


async def test_a_configured_number_below_the_engines_own_holds(tmp_path: Path):
    async with simulated(1, slots=4) as engines, running(tmp_path, entries(engines, slots=2)) as gateway:
        seen = await gateway.engine("a")
        assert (seen["slots"], seen["slots_source"], seen["slots_declared"]) == (2, "configured", 4)
