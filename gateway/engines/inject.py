"""Asking an engine to report token usage on a stream, by an edit of the client's own bytes."""

import msgspec

from gateway.core.splice import add_member, replace_value, value_spans

_WISH = b'"include_usage":true'
_OPTIONS = b"{" + _WISH + b"}"
_MEMBER = b'"stream_options":' + _OPTIONS


class _Seen(msgspec.Struct):
    stream_options: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


def ask_for_usage(body: bytes) -> bytes | None:
    """`body` with `stream_options.include_usage` true, or None where that cannot be done safely.

    For a body whose client said nothing about it. Not safe are options written twice, options that are
    no object (the engine refuses them, and should), keys spelt with JSON escapes, and UTF-16.
    """
    if body.find(b"\0") >= 0:
        return None
    # `rfind` takes half the time of `find` and `in` (CPython 3.11), and mostly the client said nothing.
    spans = value_spans(body, b"stream_options") if body.rfind(b'"stream_options"') >= 0 else ()
    if not spans:
        return None if _is_spelt_with_escapes(body) else add_member(body, _MEMBER)
    if len(spans) > 1:
        return None
    start, end = spans[0]
    options = _with_wish(body[start:end])
    return None if options is None else body[:start] + options + body[end:]


def _with_wish(options: bytes) -> bytes | None:
    if options == b"null":
        return _OPTIONS
    if not options.startswith(b"{") or b"\\" in options:
        return None
    spans = value_spans(options, b"include_usage")
    if not spans:
        return add_member(options, _WISH)
    # Null counts as nothing said; any other value is the client's word, odd as it may be.
    if all(options[start:end] == b"null" for start, end in spans):
        return replace_value(options, b"include_usage", b"true")
    return None


def _is_spelt_with_escapes(body: bytes) -> bool:
    """Whether the options are there after all. Only bodies with escapes pay for the parse."""
    if body.find(b"\\") < 0 or body.rfind(b"\\u") < 0:
        return False
    try:
        return msgspec.json.decode(body, type=_Seen).stream_options is not msgspec.UNSET
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return True
