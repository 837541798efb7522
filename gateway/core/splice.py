"""Edits of a JSON object's bytes in place: all other bytes stay as the client wrote them."""

import re

# Possessive: a string of megabytes (an image) must not be kept on the matcher's stack for backtracking.
STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
TOKEN = re.compile(STRING + rb"|[{}\[\]]", re.DOTALL)
_COLON = re.compile(rb"\s*:\s*")
PLAIN = re.compile(STRING + rb'|[^\s,{}\[\]"]+', re.DOTALL)


def value_spans(body: bytes, key: bytes) -> list[tuple[int, int]]:
    """Where the values of a top-level `key` stand in `body`, as (start, end), in order.

    `body` must already have been parsed as an object. Keys written with JSON escapes are not found;
    engines would see them, so callers treat "not found" as "leave the body alone".
    """
    spans: list[tuple[int, int]] = []
    quoted = b'"' + key + b'"'
    if quoted not in body:
        return spans
    depth, start = 0, -1
    for token in TOKEN.finditer(body):
        first = body[token.start()]
        if first in b"{[":
            depth += 1
        elif first in b"}]":
            depth -= 1
            if depth == 1 and start >= 0:
                spans.append((start, token.end()))
                start = -1
        elif depth == 1 and start < 0 and token.group() == quoted:
            colon = _COLON.match(body, token.end())
            if colon is None:
                continue
            plain = PLAIN.match(body, colon.end())
            if plain is None:
                start = colon.end()
            else:
                spans.append(plain.span())
    return spans


def replace_value(body: bytes, key: bytes, value: bytes) -> bytes:
    """`body` with every top-level value of `key` replaced by the JSON bytes `value`.

    Duplicate keys are all replaced, so that first-wins and last-wins parsers agree.
    """
    for start, end in reversed(value_spans(body, key)):
        body = body[:start] + value + body[end:]
    return body


def add_member(body: bytes, member: bytes) -> bytes:
    """`body`, a JSON object, with `member` (`"key":value`) added as its last member."""
    end = body.rindex(b"}")
    before = body[max(0, end - 1) : end]
    if before.isspace():
        before = body[:end].rstrip()
    comma = b"" if before.endswith(b"{") else b","
    # Slices of a view are no copies: bodies may be long.
    return b"".join((memoryview(body)[:end], comma, member, body[end:]))
