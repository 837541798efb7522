"""A real vLLM that publishes KV events: what it evicted is known, and what it delivers is predicted."""

import itertools
import os
from pathlib import Path
from typing import Any

import pytest
from harness import Running, chat, running, until
from vllm_engine import Vllm

URL = os.environ.get("PREFIX_GATEWAY_VLLM_URLS", "").partition(",")[0]
KV_EVENTS = os.environ.get("PREFIX_GATEWAY_VLLM_KV_EVENTS", "")

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not (URL and KV_EVENTS), reason="PREFIX_GATEWAY_VLLM_KV_EVENTS names no KV events"),
]

_numbers = itertools.count(1)
LEAST_TOKENS = 1000


def prompt(model: str) -> dict[str, Any]:
    """A new one of at least so many tokens: none of this text is longer than a number, mostly."""
    number = next(_numbers)
    text = "".join(f"{number}:{at} " for at in range(LEAST_TOKENS // 2))
    return chat(text, model=model, max_tokens=4, stream=True)


async def feed(gateway: Running) -> dict[str, Any]:
    async with gateway.http.get(f"{gateway.admin}/api/kv-events") as response:
        return (await response.json())["engines"]["vllm"]


async def post(gateway: Running, body: dict[str, Any]) -> None:
    status, _, answer = await gateway.post(
        "/v1/chat/completions", body, headers={"content-type": "application/json"}
    )
    assert status == 200, answer


async def test_of_an_evicted_prompt_nothing_is_predicted_and_of_another_all(tmp_path: Path) -> None:
    engine = Vllm("vllm", URL)
    await engine.look()
    entry = {"name": "vllm", "url": URL, "kind": "vllm", "slots": 4, "kv_events": KV_EVENTS}
    async with running(tmp_path, [entry]) as gateway:
        first = prompt(engine.model)
        bodies = [first]
        room = await engine.cache_label("num_gpu_blocks") * await engine.cache_label("block_size")
        bodies += [prompt(engine.model) for _ in range(2 * room // LEAST_TOKENS)]
        for placed, body in enumerate(bodies, 1):
            await post(gateway, body)

            async def are_placed(count: int = placed) -> bool:
                return (await feed(gateway))["requests_placed"] == count

            await until(are_placed)
        for body in (first, bodies[-1]):
            await post(gateway, body)

        last, evicted = (await gateway.records())[:2]
        assert evicted["predicted_cached_tokens"] == evicted["cached_tokens"]
        assert evicted["cached_tokens"] < LEAST_TOKENS / 2
        assert last["predicted_cached_tokens"] == last["cached_tokens"] > LEAST_TOKENS / 2
        seen = await feed(gateway)
        assert (seen["state"], seen["losses"], seen["errors"]) == ("following", 0, 0)
