"""Bodies that are not JSON, audio and images mostly: only the model's name in a form is looked for.

They are `multipart/form-data` (RFC 7578) on the paths of OpenAI's API that take files.
"""

import re

SEARCHED_BYTES = 64 * 1024
"""How far from either end of a form its model is looked for: clients put fields before or after the file,
and a file may have megabytes."""

# Of a field's headers, and of its value: `model` is short.
_MAX_PART_BYTES = 1024
_BOUNDARY = re.compile(rb';\s*boundary=(?:"([^"]{1,200})"|([^\s;"]{1,200}))', re.IGNORECASE)
_IS_MODEL = re.compile(
    rb'^content-disposition:\s*form-data\b[^\r\n]*;\s*name=(?:"model"|model)\s*(?:;|\r|$)',
    re.IGNORECASE | re.MULTILINE,
)


def is_opaque(content_type: bytes, body: bytes) -> bool:
    """Whether `content_type` says that `body` is no JSON. Saying nothing is JSON: many clients do."""
    kind = content_type.partition(b";")[0].strip().lower()
    if kind == b"application/x-www-form-urlencoded":
        # What curl calls everything.
        return not body.lstrip().startswith(b"{")
    return bool(kind) and kind != b"application/json" and not kind.endswith(b"+json")


def model_in(body: bytes, content_type: bytes) -> str:
    """The form's field `model`; empty where there is none near its ends."""
    span = _model_span(body, content_type)
    return body[span[0] : span[1]].decode("utf-8", "replace") if span else ""


def renamed(body: bytes, content_type: bytes, model: str) -> bytes:
    """The same bytes with `model` in that field."""
    span = _model_span(body, content_type)
    return body[: span[0]] + model.encode("utf-8", "replace") + body[span[1] :] if span else body


def _model_span(body: bytes, content_type: bytes) -> tuple[int, int] | None:
    boundary = _BOUNDARY.search(content_type)
    if boundary is None or not content_type.lower().startswith(b"multipart/form-data"):
        return None
    delimiter = b"--" + (boundary[1] or boundary[2])
    tail = max(0, len(body) - SEARCHED_BYTES)
    return _search(body, delimiter, 0, SEARCHED_BYTES) or _search(body, delimiter, tail, len(body))


def _search(body: bytes, delimiter: bytes, start: int, end: int) -> tuple[int, int] | None:
    """Where the value stands, of a part that begins between `start` and `end`."""
    while (start := body.find(delimiter + b"\r\n", start, end)) >= 0:
        start += len(delimiter) + 2
        head_end = body.find(b"\r\n\r\n", start, start + _MAX_PART_BYTES)
        if head_end >= 0 and _IS_MODEL.search(body, start, head_end):
            value = head_end + 4
            value_end = body.find(b"\r\n" + delimiter, value, value + _MAX_PART_BYTES)
            return (value, value_end) if value_end >= 0 else None
    return None
