"""The doctor on real engines: two slots of llama-server, and vLLM engines that run already."""

import os

import pytest
from llama import RealEngine
from vllm_engine import Vllm

from gateway.doctor.client import Client
from gateway.doctor.examine import Examination, Options
from gateway.doctor.report import Report
from gateway.doctor.verdict import Kind

URLS = [url for url in os.environ.get("PREFIX_GATEWAY_VLLM_URLS", "").split(",") if url]

pytestmark = [pytest.mark.real, pytest.mark.timeout(170)]


async def examined(url: str, max_concurrency: int, output_tokens: int | None = None) -> Report:
    options = Options(base=url, max_concurrency=max_concurrency, output_tokens=output_tokens)
    async with Client(None, 160) as client:
        examination = Examination(client, options, lambda what, share: None)
        await examination.run()
    return Report(examination.findings)


async def test_two_slots_of_a_real_llama_server_are_found(engines: list[RealEngine]):
    report = await examined(engines[0].url, 6, output_tokens=24)
    assert (report.verdict.limit, report.verdict.kind) == (2, Kind.SLOTS)
    assert report.findings.engine is not None
    assert report.findings.engine.setting == "--parallel, default 4"
    assert report.waiting_share is not None
    assert report.waiting_share > 0


@pytest.mark.skipif(not URLS, reason="PREFIX_GATEWAY_VLLM_URLS names no running vLLM engines")
async def test_max_num_seqs_of_a_real_vllm_is_found():
    engine = Vllm("vllm", URLS[0])
    await engine.look()
    assert engine.declared_slots is not None, "start it with VLLM_SERVER_DEV_MODE=1, to compare"
    report = await examined(engine.url, 4 * engine.declared_slots)
    assert (report.verdict.limit, report.verdict.kind) == (engine.declared_slots, Kind.SLOTS)
