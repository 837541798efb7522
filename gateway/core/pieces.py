"""How the text of a segment is cut into pieces that are found again where they were moved, and what is left
of it without reminders or with its JSON sorted. Time is linear in the text, whatever clients send."""

import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import islice

LONG_LINE = 200
LONG_PIECE = 320
MAX_JSON = 64
"""Fenced blocks and lines of one text that are read as JSON."""

MAX_JSON_CHARS = 32_768
"""Longer JSON is not sorted."""

_TAG = re.compile(
    r"<(/?)([\w-]{0,32}?(?:reminder|environment|context|system|status|todo|state)[\w-]{0,32})\b[^<>]{0,300}>",
    re.IGNORECASE,
)
_MAX_TAGS = 512
_FENCE = re.compile(r"```(?:json5?)?[ \t]{0,8}\n(?=[{\[])")
_FENCE_END = re.compile(r"\n[ \t]{0,64}```")
# So that the same pieces are found again: after objects, after sentences of scripts without spaces.
_CHUNK = re.compile(r".{24,320}?(?:\}+,?|[。！？])|.{160,320}(?<=[,; ])|.{1,320}", re.DOTALL)  # noqa: RUF001
_LABEL = re.compile(r"[^{\[]{0,100}(?=[{\[])")
_SENTENCE_ENDS = ".!?;>}]"


def without_reminders(text: str) -> tuple[str, int]:
    """A text without what stands in tags that are named like one, each up to the tag that closes it; and how
    many there were. One pass, and the first tags only."""
    opened: list[tuple[int, str]] = []
    closed: dict[str, list[int]] = {}
    for tag in islice(_TAG.finditer(text), _MAX_TAGS):
        if tag[1]:
            closed.setdefault(tag[2].lower(), []).append(tag.end())
        elif not tag[0].endswith("/>"):
            opened.append((tag.start(), tag[2].lower()))
    parts: list[str] = []
    at = count = 0
    for start, name in opened:
        ends = closed.get(name, [])
        nth = bisect_right(ends, start)
        if start >= at and nth < len(ends):
            parts.append(text[at:start])
            at, count = ends[nth], count + 1
    return "".join((*parts, text[at:])), count


def split(text: str) -> Iterator[tuple[int, str]]:
    """Lines that are not blank, with their offsets; long ones in pieces that end where a sentence does, or at
    plain words chosen by their hash, so that what is moved is found again."""
    at = 0
    for line in text.split("\n"):
        if len(line) > LONG_LINE:
            yield from _split_line(line, at)
        elif line and not line.isspace():
            yield at, line
        at += len(line) + 1


def _split_line(line: str, at: int) -> Iterator[tuple[int, str]]:
    start = end = 0
    for word in line.split(" "):
        end += len(word) + 1
        size = end - start
        if word and (
            word[-1] in _SENTENCE_ENDS
            or (size >= 24 and word.isalpha() and word.islower() and not hash(word) & 7)
        ):
            yield from _chunks(line[start:end], at + start)
            start = end
    yield from _chunks(line[start:], at + start)


def _chunks(text: str, at: int) -> Iterator[tuple[int, str]]:
    """A piece, in several where it is long: data has no sentences."""
    if len(text) <= LONG_PIECE:
        if text and not text.isspace():
            yield at, text
        return
    for chunk in _CHUNK.finditer(text):
        if not chunk[0].isspace():
            yield at + chunk.start(), chunk[0]


def ordered(text: str) -> int:
    """The hash of a text with the keys of all JSON in it sorted, 0 where there is none: the whole text,
    fenced blocks, single lines and what stands behind a label on them."""
    if "{" not in text:
        return 0
    whole = text.strip()
    if whole[0] in "{[" and (one := _sorted(whole)) is not None:
        return hash(one)
    lines = _with_sorted_fences(text).split("\n")
    left = MAX_JSON
    for at, one in enumerate(lines):
        if one.endswith(("}", "]")) and (label := _LABEL.match(one)) is not None:
            lines[at] = one[: label.end()] + (_sorted(one[label.end() :]) or one[label.end() :])
            left -= 1
            if not left:
                break
    return hash("\n".join(lines))


def _with_sorted_fences(text: str) -> str:
    parts: list[str] = []
    at = 0
    for _ in range(MAX_JSON):
        fence = _FENCE.search(text, at)
        end = fence and _FENCE_END.search(text, fence.end())
        if not fence or not end:
            break
        block = text[fence.end() : end.start()]
        parts += (text[at : fence.end()], _sorted(block) or block)
        at = end.start()
    return "".join((*parts, text[at:]))


def _sorted(text: str) -> str | None:
    if text[-1:] not in ("}", "]") or len(text) > MAX_JSON_CHARS:
        return None
    try:
        value = json.loads(text)
        # A call's arguments are JSON in a string.
        if isinstance(value, dict) and isinstance(inner := value.get("arguments"), str):
            value["arguments"] = _sorted(inner) or inner
        return json.dumps(value, sort_keys=True)
    except (ValueError, RecursionError):
        return None
