"""What must hold whatever is thrown at the gateway, and how long it is thrown."""

import asyncio
import contextlib
import logging
import os
import random
from collections.abc import AsyncIterator
from typing import Any

from harness import until

BUDGET_S = float(os.environ.get("FUZZ_SECONDS", "20"))
"""Of all tests in this directory together."""


def a_seed() -> int:
    """`FUZZ_SEED` plays a run again; the one used is printed."""
    seed = int(os.environ.get("FUZZ_SEED", random.SystemRandom().randrange(1 << 32)))
    print(f"FUZZ_SEED={seed}")
    return seed


@contextlib.asynccontextmanager
async def no_exception(caplog) -> AsyncIterator[None]:
    """Neither the event loop nor the log has seen one in the meantime."""
    seen: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(context))
    caplog.set_level(logging.INFO)
    yield
    assert seen == []
    assert [it.getMessage() for it in caplog.records if it.levelno >= logging.ERROR or it.exc_info] == []


async def all_is_over(gateway, sent: int | None = None) -> None:
    """Nothing runs or waits, no slot is taken, the gateway answers, and `sent` requests were counted."""

    async def idle():
        state = await gateway.state()
        return not state["waiting"] and not any(it["in_flight"] or it["cooling"] for it in state["engines"])

    await until(idle)
    assert not gateway.gateway._relay._exchanges
    async with gateway.http.get(f"{gateway.api}/healthz") as response:
        assert response.status == 200
    if sent is not None:
        assert await gateway.metric("requests_total") == sent
