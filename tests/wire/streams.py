"""Events of an OpenAI stream, and what a pump makes of them."""

from collections.abc import Iterable

import msgspec
from splits import ways

from gateway.core.request import Usage
from gateway.wire.pump import SsePump

ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant"},"finish_reason":null}]}\n\n'
DELTA = b'data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}\n\n'
STOP = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}\n\n'
DONE = b"data: [DONE]\n\n"
ERROR = b'data: {"error":{"message":"no"}}\n\n'
REPORTED = Usage(prompt_tokens=3, completion_tokens=1)


class Result(msgspec.Struct):
    out: bytes
    usage: Usage
    started: bool
    whole: bool
    failed: bytes | None
    any_event: bool


def run(
    parts: Iterable[bytes], *, withhold_usage: bool = False, alias: tuple[str, str] | None = None
) -> Result:
    pump = SsePump(withhold_usage=withhold_usage, alias=alias)
    out = b"".join(map(pump.feed, parts)) + pump.end()
    return Result(out, pump.usage, pump.started, pump.whole, pump.failed, pump.any_event)


def same(data: bytes, *, withhold_usage: bool = False, alias: tuple[str, str] | None = None) -> Result:
    """The result of `data`, the same in any split."""
    results = [run(parts, withhold_usage=withhold_usage, alias=alias) for parts in ways(data)]
    assert all(result == results[0] for result in results)
    return results[0]


def counts(usage: Usage) -> tuple[int | None, int | None, int | None]:
    return usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens
