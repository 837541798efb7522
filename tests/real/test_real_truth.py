"""What the gateway tells of cached tokens, beside what real engines put into answers and count themselves."""

import asyncio
import itertools
import json
from typing import Any

import pytest
from harness import Running
from llama import MODEL, RealEngine

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

TURNS = 4
_numbers = itertools.count(1)


def system(agent: int) -> str:
    number = next(_numbers)
    return " ".join(f"Rule {number}.{agent}.{at}: keep note {at} open." for at in range(30))


def chat(text: list[str], first: str) -> tuple[str, dict[str, Any]]:
    roles = itertools.cycle(("user", "assistant"))
    messages = [{"role": "system", "content": first}]
    messages += [{"role": role, "content": it} for role, it in zip(roles, text, strict=False)]
    return "/v1/chat/completions", {"messages": messages, "max_tokens": 8}


def streamed(text: list[str], first: str) -> tuple[str, dict[str, Any]]:
    path, body = chat(text, first)
    return path, body | {"stream": True, "stream_options": {"include_usage": True}}


def anthropic(text: list[str], first: str) -> tuple[str, dict[str, Any]]:
    _, body = chat(text, first)
    return "/v1/messages", {"system": first, "messages": body["messages"][1:], "max_tokens": 8}


def plain(text: list[str], first: str) -> tuple[str, dict[str, Any]]:
    return "/v1/completions", {"prompt": first + "\n".join(text), "max_tokens": 8}


def usage_of(body: bytes) -> tuple[int, int]:
    """Prompt and cached tokens."""
    pieces = [line[6:] for line in body.splitlines() if line.startswith(b"data: {")] or [body]
    usage = next(told for it in reversed(pieces) if (told := json.loads(it).get("usage")))
    if "input_tokens" in usage:
        cached = usage["cache_read_input_tokens"]
        return usage["input_tokens"] + cached, cached
    return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


async def converse(gateway: Running, form: Any, agent: int) -> list[tuple[int, int]]:
    first, text, out = system(agent), ["Begin."], []
    for turn in range(TURNS):
        path, body = form(text, first)
        status, _, answer = await gateway.post(path, {"model": MODEL, "temperature": 0, **body})
        assert status == 200, answer
        out.append(usage_of(answer))
        text += [f"Noted {turn}.", f"Go on with note {turn} of agent {agent}, please."]
    return out


@pytest.mark.parametrize("form", [chat, streamed, anthropic, plain])
async def test_delivered_is_what_answers_say_and_engines_count_and_losses_add_up(
    form: Any, gateway: Running, engines: list[RealEngine]
) -> None:
    before = [await engine.metric("prompt_tokens_cached_total") for engine in engines]
    told = await asyncio.gather(*(converse(gateway, form, agent) for agent in range(3)))
    grown = sum([await it.metric("prompt_tokens_cached_total") for it in engines]) - sum(before)
    prompt = sum(prompt for usages in told for prompt, _ in usages)
    cached = sum(cached for usages in told for _, cached in usages)
    assert cached > 0
    assert await gateway.metric("prompt_tokens_total") == prompt
    assert await gateway.metric("cached_tokens_delivered_total") == cached
    assert abs(grown - cached) <= 0.01 * cached
    assert await gateway.metric("prefix_loss_tokens_total") == prompt - cached
