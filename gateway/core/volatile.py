"""What in a text is not the same the next time: dates and times, random ids, counters. And how they are
shown without the text around them.

A prompt is compared with the one before it by what is left when these are taken out, so it matters less that
each is named rightly than that the same place is always taken out in the same way.
"""

import re
from itertools import islice
from typing import NamedTuple

TIMESTAMP, RANDOM_ID, COUNTER = "timestamp", "random_id", "counter"

MASKS = {TIMESTAMP: "\x01", RANDOM_ID: "\x02", COUNTER: "\x03"}
"""What stands for each in a text that is compared: control characters, which prompts do not have."""

MAX_SHOWN = 48
"""Characters of one masked place."""

_WEEKDAYS = (
    "Mon(?:day|tag)?|Tue(?:s(?:day)?)?|Wed(?:nesday)?|Thu(?:r(?:s(?:day)?)?)?|Fri(?:day)?|Sat(?:urday)?|Sun(?:day)?"
    "|Dienstag|Mittwoch|Donnerstag|Freitag|Samstag|Sonntag"
    "|lundi|mardi|mercredi|jeudi|vendredi|samedi|dimanche|lunes|martes|mi[eé]rcoles|jueves|viernes|s[aá]bado|domingo"
)
_MONTHS = (
    "Jan(?:uary|uar)?|Feb(?:ruary|ruar)?|Mar(?:ch)?|März|Apr(?:il)?|May|Mai|June?|Juni|July?|Juli|Aug(?:ust)?"
    "|Sept?(?:ember)?|Oct(?:ober)?|Oktober|Nov(?:ember)?|Dec(?:ember)?|Dezember"
    "|janvier|f[ée]vrier|mars|avril|mai|juin|juillet|ao[uû]t|septembre|octobre|novembre|d[ée]cembre"
    "|enero|febrero|marzo|abril|mayo|junio|julio|agosto|septiembre|octubre|noviembre|diciembre"
)
_SMALL_MONTHS = "january|february|march|april|may|june|july|august|september|october|november|december"
_MONTH = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_WORD = f"(?:{_WEEKDAYS}|{_MONTHS})\\b\\.?"
_TIME = (
    r"\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d{1,9})?|[0-2]?\dh[0-5]\d\b"
    r"|(?:1[0-2]|0?[1-9])[ ]?[AaPp]\.?[Mm]\b\.?"
)
_DATE = (
    f"[0-3]?\\d[-/](?:{_MONTH})[-/](?:19|20)\\d\\d(?::\\d{{2}}:\\d{{2}}:\\d{{2}})?"
    f"|[0-3]?\\d(?:st|nd|rd|th)? (?:of )?(?:{_SMALL_MONTHS}),? (?:19|20)\\d\\d"
    f"|(?:{_SMALL_MONTHS}) [0-3]?\\d(?:st|nd|rd|th)?,? (?:19|20)\\d\\d"
    r"|(?:19|20)\d\d-?W[0-5]\d(?:-[1-7])?|(?:19|20)\d\d-[0-3]\d\d(?![\w-])|"
    r"(?:19|20)\d\d[-/.](?:1[0-2]|0?[1-9])[-/.][0-3]?\d|[0-3]?\d[-/.][0-3]?\d[-/.](?:19|20)?\d\d"
    r"|(?:19|20)\d\d(?:1[0-2]|0[1-9])(?:3[01]|[12]\d|0[1-9])(?:[T_-]\d{4,6}Z?)?"
)
_ZONE = (
    r" ?Z\b|(?:UTC|GMT|CES?T|[ECMP][SD]T|BST|JST|IST)\b(?:[+-]\d{1,2}(?::?\d\d)?)?|[+-]\d\d:?\d\d\b"
    r"|[AaPp]\.?[Mm]\b\.?"
)
_DAY = r"(?:19|20)\d\d\b|\d{1,2}(?:st|nd|rd|th)\b|\d{1,2}\.?(?![\w:])"
_ATOM = f"(?:{_DATE})(?![\\d-])|{_TIME}|{_WORD}|{_DAY}"
_BETWEEN = r"(?:[ ,]{1,3}|T|, ?at |\s(?:at|of|the|um|den|de|del|à|a las)\s)"
_DATES = f"(?<![A-Za-z0-9_.])(?:{_ATOM})(?:{_BETWEEN}?(?:{_ATOM}|{_ZONE})){{0,8}}"
_STRONG = re.compile(f"{_DATE}|{_TIME}|\\b{_WORD}")
_AGO = r"\d+(?:\.\d+)? ?(?:seconds?|secs?|minutes?|mins?|hours?|hrs?|days?|weeks?|months?) ago"
_EAST_ASIAN = (
    r"(?:19|20)\d\d(?:年|년) ?\d{1,2}(?:月|월) ?\d{1,2}(?:日|일)(?: ?\d{1,2}[时時시] ?\d{1,2}[分분])?"
)
_FIGURE = r"(?<![A-Za-z0-9_.])(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.\d+)(?![\w.])"
_EPOCH = r"(?<![A-Za-z0-9_.])1[5-9]\d{8}(?:\d{3}|\d{6}|\d{9})?(?:\.\d+)?(?![\w])"
_UUID = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
_MIXED = r"[A-Za-z]{0,8}[a-z][A-Z][a-z][A-Z]"
_KEYED = (
    r"(?<=cch=)\w+|(?<=cc_version=)[\w.]+"
    r"|(?<=/tmp/)[A-Za-z]{1,32}[-_.](?=[a-z0-9]*[A-Z0-9])[A-Za-z0-9]{6,12}\b"
    f"|(?:(?<=[=:])|(?<=[=:][ ]))(?:[a-f]{{5,}}|(?={_MIXED})[A-Za-z]{{6,}})\\b"
)
_BASE64 = r"(?<![\w/.+-])(?:[A-Za-z0-9+/]{24,}|[A-Za-z0-9+/]{14,}={1,2})(?![\w/.=-])"

# ASCII: a run of other digits, which is no token, would be tried from each of its places.
_FIND = re.compile(
    f"(?P<uuid>{_UUID})|(?P<keyed>{_KEYED})|(?P<ago>{_AGO})|(?P<epoch>{_EPOCH}|{_EAST_ASIAN})"
    f"|(?P<figure>{_FIGURE})|(?P<dates>{_DATES})"
    f"|(?P<base64>{_BASE64})|(?P<token>\\w+(?:-\\w+)*)",
    re.ASCII,
)
_NAME = re.compile(f"(?<!\\w)(?:{_WEEKDAYS}|{_MONTHS})\\b")
# One set of characters to look for, which is ten times as fast as a choice of words. Months and days that are
# written small stand beside digits.
_MAY_HAVE = re.compile(
    f"[0-9=:/JFMASONDTW](?:(?<=[0-9])|(?<=/tmp/)|(?<=[=:])[ ]?(?:[a-f]{{5}}|{_MIXED})|(?<==)[0-9a-f]{{5}}"
    "|on|ue|ed|hu|ri|at|un|an|eb|ar|är|pr|a[yi]|ul|ug|ep|[ck]t|ov|e[cz]|ie|it|am)"
)
_TOKEN = re.compile(r"\w+(?:-\w+)*", re.ASCII)
_NUMBER = re.compile(r"\d+", re.ASCII)
_HEX = re.compile(r"(?:0x)?[0-9a-fA-F]{7,}|[0-9a-f]{3,6}")
_CHANGES = re.compile(r"(?<=[A-Za-z_])(?=\d)|(?<=\d)(?=[A-Za-z_])", re.ASCII)
_PREFIXED = re.compile(
    r"(?:id|req|request|call|toolu?|msg|run|trace|span|conv|thread|sess|ses|session|chatcmpl|resp|user|task|turn|job)"
    r"[_-](?=\w*\d)\w+",
)
_ID_KEY = re.compile(
    r"(?:\b|_|(?<=[a-z]))(?:id|ID|Id|uuid|UUID|guid|nonce|hash|sha|digest|seed|salt|trace|etag|checksum|fingerprint"
    r"|session|token|build)[\"'`]?\s?[:=#]\s?[\"'`]?$|\b(?:commit|revision) $"
)
_KEY_CHARS = 40
_KEY_ENDS = frozenset(":=#\"'` \t")
_LETTERS = re.compile(r"[^\W\d_]+")
_CALENDAR = re.compile(
    f"(?:{_WEEKDAYS}|{_MONTHS}|today|date|time|now|UTC|GMT|Z|T|AM|PM|am|pm)$", re.IGNORECASE
)
_YEAR = re.compile(r"(?<!\d)(?:19|20)\d\d(?=[-/.年]\d|\b)")


class Place(NamedTuple):
    """`kind` of what stands at `start` to `end` of a text."""

    kind: str
    start: int
    end: int


def may_change(text: str) -> bool:
    """Whether there is anything in it that could be a place: quick."""
    return _MAY_HAVE.search(text) is not None


def places(text: str) -> list[Place]:
    """All in a line of text, from left to right."""
    found: list[Place] = []
    at = 0
    # Only what is around a digit or a name is looked at closely: most of a prompt is neither.
    while (hint := _MAY_HAVE.search(text, at)) is not None:
        near = hint.start()
        if not (hint[0][0].isalpha() and _NAME.match(text, near) is None):
            before = text.rfind(" ", at, near)
            at = max(at, text.rfind(" ", at, before) + 1) if before > 0 else at
            at = _look(text, at, near, found)
        at = max(at, hint.end())
    return found


def _look(text: str, at: int, near: int, found: list[Place]) -> int:
    """Add what stands at `near`, which the words before may be part of; where to go on."""
    finder = _FIND.finditer(text, at)
    # A digit or a name is always part of something, at least of a token.
    while at <= near:
        match = next(finder)
        start, end = match.span()
        group = match.lastgroup
        if group == "token":
            _of_token(text, start, end, found)
        elif group == "base64" and text[end - 1] != "=" and _few_changes(text, start, end):
            for token in _TOKEN.finditer(text, start, end):
                _of_token(text, *token.span(), found)
        elif group in ("uuid", "keyed", "base64"):
            found.append(Place(RANDOM_ID, start, end))
        elif group == "figure":
            found.append(Place(COUNTER, start, end))
        elif group == "dates" and _STRONG.search(text, start, end) is None:
            _numbers(text, start, end, found)
        else:
            found.append(Place(TIMESTAMP, start, end))
        at = end
    return at


def _few_changes(text: str, start: int, end: int) -> bool:
    return sum(1 for _ in islice(_CHANGES.finditer(text, start, end), 4)) < 4


def masked(text: str, found: list[Place]) -> str:
    """`text` with a mark in each place's stead."""
    parts: list[str] = []
    last = 0
    for kind, start, end in found:
        parts += (text[last:start], MASKS[kind])
        last = end
    parts.append(text[last:])
    return "".join(parts)


def shown(text: str, place: Place) -> str:
    """A place with what stands before it on its line, from which no text can be read: letters but those of
    calendar words are one `x` for each run, digits are dots, but for years in dates."""
    before = _hide(text[max(0, place.start - 24) : place.start], years=False)
    inside = text[place.start : min(place.end, place.start + 2 * MAX_SHOWN)]
    if place.kind == RANDOM_ID:
        seen = re.sub(r"[^\W_]", "·", inside)
    else:
        seen = _hide(inside, years=place.kind == TIMESTAMP)
    return f"{before[-24:]}{seen}"[:MAX_SHOWN]


def hidden(text: str) -> str:
    """A line from which nothing can be read but its punctuation and calendar words."""
    return _hide(text, years=False)[:MAX_SHOWN]


def _hide(text: str, *, years: bool) -> str:
    text = _LETTERS.sub(_hidden_word, text)
    kept = [match.span() for match in _YEAR.finditer(text)] if years else []
    out = [
        "·" if char.isdigit() and not any(start <= at < end for start, end in kept) else char
        for at, char in enumerate(text)
    ]
    return "".join(out)


def _hidden_word(match: re.Match[str]) -> str:
    return match[0] if _CALENDAR.match(match[0]) else "x"


def _of_token(text: str, start: int, end: int, found: list[Place]) -> None:
    token = text[start:end]
    if token.isalpha():
        return
    if is_id(token) or (len(token) >= 4 and _NUMBER.search(token) and _is_named_id(text, start)):
        found.append(Place(RANDOM_ID, start, end))
    else:
        _numbers(text, start, end, found)


def _is_named_id(text: str, start: int) -> bool:
    """Whether what stands before `start` says that an id comes."""
    if not start or text[start - 1] not in _KEY_ENDS:
        return False
    return _ID_KEY.search(text, max(0, start - _KEY_CHARS), start) is not None


def _numbers(text: str, start: int, end: int, found: list[Place]) -> None:
    found.extend(Place(COUNTER, *match.span()) for match in _NUMBER.finditer(text, start, end))


def is_id(token: str) -> bool:
    """Whether nobody would have made up this token: letters and digits mixed as names are not."""
    if _HEX.fullmatch(token):
        return not (token.isdigit() or token.isalpha())
    if len(token) < 6:
        return False
    changes = sum(1 for _ in islice(_CHANGES.finditer(token), 3))
    if len(token) >= 8 and changes >= 3:
        return True
    return bool((changes > 1 and len(token) >= 20) or (changes and _PREFIXED.fullmatch(token)))
