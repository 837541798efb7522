"""Two sessions of one agent: the shapes of Codex 0.1 and Claude Code 2.1.197, with words made up."""

from random import Random
from typing import Any

import pytest
from bodies import Body, ask

from gateway.core.blocks import chain
from gateway.core.facts import Billing
from gateway.wire.billing import as_rendered


def words(count: int, of: int) -> str:
    random = Random(of)
    return " ".join(random.choice(("delta", "queen", "river", "stone", "vivid")) for _ in range(count))


def schema(of: int) -> Body:
    return {
        "type": "object",
        "properties": {name: {"type": "string", "description": words(15, of)} for name in ("cmd", "workdir")},
        "required": ["cmd"],
        "additionalProperties": False,
    }


def codex(session: int) -> Body:
    """Random ids in every item; what differs comes last."""
    random = Random(1000 + session)

    def item(role: str, *texts: str) -> Body:
        parts = [{"type": "input_text", "text": text} for text in texts]
        return {"type": "message", "id": f"msg_{random.getrandbits(64):x}", "role": role, "content": parts}

    return {
        "model": "m",
        "input": [
            item("developer", words(2800, 1)),
            item("developer", words(350, 2), words(50, 3)),
            item("user", words(60, 4)),
            item("user", f"say done {session}"),
        ],
        "tools": [
            {"type": "function", "name": f"tool_{n}", "description": words(15, n), "strict": False,
             "parameters": schema(n)}
            for n in range(10)
        ],
        "prompt_cache_key": f"{random.getrandbits(64):x}",
        "client_metadata": {"turn_id": f"{random.getrandbits(64):x}"},
        "stream": True,
    }  # fmt: skip


def claude_code(session: int, cch: str = "") -> Body:
    """`messages` before `system` and `tools`; what differs is in the first message, with a reminder after."""
    line = f"x-anthropic-billing-header: cc_version=2.1.197.92f; cc_entrypoint=sdk-cli;{cch}"
    mark = {"cache_control": {"type": "ephemeral"}}
    reminder = f"<system-reminder>\n{words(50, 5)}"
    first = [{"type": "text", "text": reminder}, {"type": "text", "text": f"say done {session}", **mark}]
    return {
        "model": "m",
        "messages": [{"role": "user", "content": first}, {"role": "system", "content": words(1000, 6)}],
        "system": [
            {"type": "text", "text": line},
            {"type": "text", "text": words(10, 7), **mark},
            {"type": "text", "text": words(970, 8), **mark},
        ],
        "tools": [
            {"name": f"Tool{n}", "description": words(200, n), "input_schema": schema(n)} for n in range(24)
        ],
        "metadata": {"user_id": words(20, session)},
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "high"},
        "stream": True,
    }


def shared(first: tuple[int, ...], second: tuple[int, ...]) -> float:
    return sum(a == b for a, b in zip(first, second, strict=True)) / len(first)


@pytest.mark.parametrize(("api", "session"), [("responses", codex), ("messages", claude_code)])
def test_two_sessions_share_most_of_their_blocks(api: str, session: Any) -> None:
    # Of two real captures of each agent: Codex 100 %, Claude Code 92 %.
    first, second = (chain(ask(api, **session(n)).canonical, "m") for n in (1, 2))
    assert len(first) > 90
    assert shared(first, second) >= 0.85


def test_a_cch_of_each_request_ends_that_unless_it_is_not_shown() -> None:
    first, second = (
        ask("messages", **claude_code(1, f" cch={cch};")).canonical for cch in ("eb6c6", "0aaa9")
    )
    assert shared(chain(first, "m"), chain(second, "m")) == 0
    for billing in (Billing.MASKED, Billing.DROPPED):
        assert as_rendered(first, billing) == as_rendered(second, billing)
