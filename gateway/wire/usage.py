"""What an answer says about its own cost: tokens, cached tokens, the engine's timings."""

from typing import Any

import msgspec
from msgspec import Struct

from gateway.core.request import Usage


class _Details(Struct):
    cached_tokens: int | None = None


class _Reported(Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _Details | None = None
    cache_read_input_tokens: int | None = None


class _Timings(Struct):
    """llama.cpp: `cache_n` tokens hit, `prompt_n` evaluated (`tools/server/server-common.cpp`)."""

    cache_n: int | None = None
    prompt_n: int | None = None
    prompt_ms: float | None = None
    predicted_n: int | None = None
    predicted_ms: float | None = None


class _Body(Struct):
    choices: list[msgspec.Raw] | None = None
    usage: _Reported | None = None
    timings: _Timings | None = None
    error: msgspec.Raw | None = None


class Seen(Struct, frozen=True):
    """One JSON body or event, as far as it matters: `lonely` is a usage chunk that carries no choice."""

    usage: Usage | None
    error: bytes | None
    lonely: bool


_NOTHING = Seen(None, None, False)
_decode = msgspec.json.Decoder(_Body).decode


def look(data: bytes) -> Seen:
    """Read usage and error out of a JSON object; anything unreadable is nothing seen, never a failure."""
    try:
        body = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _NOTHING
    error = bytes(body.error) if body.error is not None else None
    return Seen(usage_of(body), error if error != b"null" else None, body.choices == [])


def usage_of(body: Any) -> Usage | None:
    """`prompt_tokens` includes cached ones in OpenAI's form and excludes them in Anthropic's."""
    reported, timings = body.usage, body.timings
    if reported is None and timings is None:
        return None
    prompt = completion = cached = None
    if reported is not None:
        details = reported.prompt_tokens_details or reported.input_tokens_details
        cached = details.cached_tokens if details is not None else None
        prompt = reported.prompt_tokens
        completion = reported.completion_tokens
        if prompt is None and reported.input_tokens is not None:
            prompt, completion = reported.input_tokens, reported.output_tokens
            if reported.cache_read_input_tokens is not None:
                cached = reported.cache_read_input_tokens
                prompt += cached
    if timings is not None and timings.cache_n is not None and timings.prompt_n is not None:
        cached = timings.cache_n if cached is None else cached
        prompt = timings.cache_n + timings.prompt_n if prompt is None else prompt
    if timings is not None and completion is None:
        completion = timings.predicted_n
    return Usage(
        prompt_tokens=_count(prompt),
        completion_tokens=_count(completion),
        cached_tokens=_count(cached),
        prefill_s=_seconds(timings.prompt_ms if timings else None),
        decode_s=_seconds(timings.predicted_ms if timings else None),
    )


def _count(value: int | None) -> int | None:
    """Some engines write a negative sentinel for "not known" (vllm#16162)."""
    return value if value is not None and value >= 0 else None


def _seconds(milliseconds: float | None) -> float | None:
    return milliseconds / 1000 if milliseconds is not None and milliseconds > 0 else None
