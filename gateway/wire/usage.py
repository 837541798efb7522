"""What an answer says about its own cost: tokens, cached tokens, the engine's timings."""

from typing import TypeVar

import msgspec
from msgspec import Struct

from gateway.core.request import Usage

_Number = TypeVar("_Number", int, float)

# msgspec takes no value but null for `Raw | None`.
_ABSENT = msgspec.Raw()
_MAX_TOKENS = 1_000_000_000


class _Details(Struct, gc=False):
    cached_tokens: int | None = None


class _Reported(Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _Details | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class _Timings(Struct, gc=False):
    """llama.cpp: `cache_n` tokens hit, `prompt_n` evaluated (`tools/server/server-common.cpp`)."""

    cache_n: int | None = None
    prompt_n: int | None = None
    prompt_ms: float | None = None
    predicted_n: int | None = None
    predicted_ms: float | None = None


class _Inner(Struct, gc=False):
    """Anthropic's `message_start` has its usage in `message`, the Responses API everything in `response`."""

    usage: _Reported | None = None
    error: msgspec.Raw = _ABSENT


class _Body(Struct, gc=False):
    choices: list[msgspec.Raw] | None = None
    usage: _Reported | None = None
    timings: _Timings | None = None
    error: msgspec.Raw = _ABSENT
    message: msgspec.Raw = _ABSENT
    response: msgspec.Raw = _ABSENT


class Seen(Struct, frozen=True, gc=False):
    """One JSON body or event, as far as it matters: `lonely` is a usage chunk that carries no choice."""

    usage: Usage | None
    error: bytes | None
    lonely: bool


UNKNOWN = Usage()
_NOTHING = Seen(None, None, False)
_decode = msgspec.json.Decoder(_Body).decode
_decode_inner = msgspec.json.Decoder(_Inner).decode


def look(data: bytes) -> Seen:
    """Read usage and error out of a JSON object; anything unreadable is nothing seen, never a failure."""
    try:
        body = _decode(data)
        reported, error = body.usage, body.error
        if body.message is not _ABSENT or body.response is not _ABSENT:
            inner = _inner(body)
            reported = reported or inner.usage
            error = error if present(error) else inner.error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _NOTHING
    return Seen(
        usage_of(reported, body.timings),
        None if error is _ABSENT else present(error),
        body.choices == [],
    )


def usage_in(body: bytes) -> Usage:
    """The usage that `look` sees in a whole answer, `UNKNOWN` where it sees none."""
    try:
        told = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return UNKNOWN
    if told.message is not _ABSENT or told.response is not _ABSENT:
        return look(body).usage or UNKNOWN
    return usage_of(told.usage, told.timings) or UNKNOWN


def present(raw: msgspec.Raw) -> bytes | None:
    """A field's JSON; None where it is missing or null."""
    value = bytes(raw)
    return value if value not in (b"", b"null") else None


def _inner(body: _Body) -> _Inner:
    for raw in (body.message, body.response):
        # A `message` may also be the text of an error.
        if bytes(raw).startswith(b"{"):
            return _decode_inner(raw)
    return _Inner()


def usage_of(reported: _Reported | None, timings: _Timings | None) -> Usage | None:
    """`prompt_tokens` includes cached ones in OpenAI's form and excludes them in Anthropic's."""
    if timings is None:
        return None if reported is None else _stated(reported)
    return _timed(timings) if reported is None else merged(_timed(timings), _stated(reported))


def _stated(reported: _Reported) -> Usage:
    prompt, completion = reported.prompt_tokens, reported.completion_tokens
    details = reported.prompt_tokens_details or reported.input_tokens_details
    cached = None if details is None else details.cached_tokens
    if (
        prompt is None
        or cached is None
        or completion is None
        or not 0 <= cached <= _MAX_TOKENS
        or not 0 <= prompt <= _MAX_TOKENS
        or not 0 <= completion <= _MAX_TOKENS
    ):
        return _pieced(reported, _count(prompt), _count(completion), _count(cached))
    return Usage(prompt_tokens=prompt, completion_tokens=completion, cached_tokens=cached)


def _pieced(reported: _Reported, prompt: int | None, completion: int | None, cached: int | None) -> Usage:
    """What OpenAI's form left open, from the others."""
    if cached is None or prompt is None:
        read, written = _count(reported.cache_read_input_tokens), _count(reported.cache_creation_input_tokens)
        cached = read if cached is None else cached
        if prompt is None:
            prompt = _count(reported.input_tokens)
            if prompt is not None:
                prompt += (read or 0) + (written or 0)
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=_count(reported.output_tokens) if completion is None else completion,
        cached_tokens=cached,
    )


def _timed(timings: _Timings) -> Usage:
    cached, evaluated = _count(timings.cache_n), _count(timings.prompt_n)
    return Usage(
        prompt_tokens=None if cached is None or evaluated is None else cached + evaluated,
        completion_tokens=_count(timings.predicted_n),
        cached_tokens=cached,
        prefill_s=_seconds(timings.prompt_ms),
        decode_s=_seconds(timings.predicted_ms),
    )


def merged(earlier: Usage, later: Usage) -> Usage:
    """What both say, the later one where they differ. Streams report running totals, sometimes in parts:
    Anthropic's `message_delta` may leave out what `message_start` told (ai-gateway#2236)."""
    if earlier is UNKNOWN:
        return later
    return Usage(
        prompt_tokens=_either(later.prompt_tokens, earlier.prompt_tokens),
        completion_tokens=_either(later.completion_tokens, earlier.completion_tokens),
        cached_tokens=_either(later.cached_tokens, earlier.cached_tokens),
        prefill_s=_either(later.prefill_s, earlier.prefill_s),
        decode_s=_either(later.decode_s, earlier.decode_s),
    )


def _either(value: _Number | None, default: _Number | None) -> _Number | None:
    return default if value is None else value


def _count(value: int | None) -> int | None:
    """Some engines write a negative sentinel for "not known" (vllm#16162). A number that no prompt can have
    is as little known: one of hundreds of digits would not even fit a float."""
    return value if value is not None and 0 <= value <= _MAX_TOKENS else None


def _seconds(milliseconds: float | None) -> float | None:
    return milliseconds / 1000 if milliseconds is not None and milliseconds > 0 else None
