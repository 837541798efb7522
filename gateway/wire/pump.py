"""One answer's body on its way to the client: the identity, unless a documented rewrite applies.

A pump reads along and never fails on what it reads. `feed` takes any split of the engine's bytes. What it
has seen: `started` (the answer's first token has passed, or for JSON its first byte), `failed` (an error
that the engine sent inside a stream), `usage` (the last totals reported), `whole` (it came to its own end).
"""

import json
import re

from gateway.wire import sse
from gateway.wire.body import compact
from gateway.wire.errors import error_event
from gateway.wire.usage import UNKNOWN, look, merged, usage_in

MAX_HELD_BYTES = 1024 * 1024
"""A longer event goes out in pieces, unread: forwarding must not depend on an event's size
(open-webui#24928)."""

MAX_JSON_BYTES = 8 * 1024 * 1024
"""A longer JSON answer passes without its usage being read."""

_FINISHED = re.compile(rb'"finish_reason"\s*:\s*"')
# The last event of Anthropic's API and the three of the Responses API; vLLM and llama.cpp send them all.
_LAST_NAMES = (b"message_stop", b"response.completed", b"response.incomplete", b"response.failed")
_LAST = b"(?:" + b"|".join(map(re.escape, _LAST_NAMES)) + b")"
_LAST_EVENT = re.compile(rb'"type"\s*:\s*"' + _LAST + rb'"|(?:^|[\r\n])event: ?' + _LAST + rb"[\r\n]")
# Sent before there is a token: llama.cpp's `return_progress`, Anthropic's and the Responses API's openings.
_PROGRESS = '"prompt_progress"'
_OPENING = re.compile(rb'"type"\s*:\s*"(?:ping|message_start|response\.(?:created|queued|in_progress))"')
# Or without one: the usage that SGLang sends after a refusal (sglang `serving_chat.py`).
_NO_CHOICE = re.compile(rb'"choices"\s*:\s*\[\s*\]')
# A text in an event, which is no key; braces count where a model's name is looked for.
_BARE = rb'[^"\\{}\r\n]*+'
_CONTENT = re.compile(rb'content":"(' + _BARE + rb')"[,}]')
_COMPLETION = re.compile(rb'"text":"(' + _BARE + rb')"[,}]')
_BARE_TEXT = re.compile(_BARE).fullmatch
_TEXT = re.compile(rb'[^"\r\n]*+').fullmatch
_ENDS = (b"\n\n", b"\r\n\r\n")
# Up to so many bytes `in` is quicker than `rfind`.
_FEW_BYTES = 1024
_NO_USAGE = '"usage":null'
_BLANK = " " * len(_NO_USAGE)
# Of ASCII: a key could be written with it.
_ESCAPE = "\\u00"
_TOLD = ('"usage"', '"timings"', '"error"')
_OVERLOAD = re.compile(
    rb'"(?:code|type|http_status_code|status)"\s*:\s*"?(?:429|503|529|SERVICE_UNAVAILABLE|overloaded)'
)
_OVERLOAD_TEXT = re.compile(rb"queue is full|overloaded|server busy", re.IGNORECASE)
_TOKEN = re.compile(rb'("(?:[^"\\\r\n]|\\.)*")\s*:|"(?:[^"\\\r\n]|\\.)*"|[{}\[\]]')
_OWNERS = ([b""], [b"", b'"message"'], [b"", b'"response"'])


def is_overload(error: bytes) -> bool:
    """Whether an error's JSON says "too busy" rather than "wrong": worth another engine.

    SGLang's full queue and TGI's overload arrive inside a 200 stream (sglang `serving_base.py`, TGI
    `infer/mod.rs`, whose code is always 422).
    """
    return bool(_OVERLOAD.search(error) or _OVERLOAD_TEXT.search(error))


class JsonPump:
    """A body with a beginning and an end. With `alias` (real, shown) it is held until it can be renamed."""

    usage = UNKNOWN
    started = False
    failed: bytes | None = None
    whole = True
    torn = False
    _size = 0
    _readable = True

    def __init__(self, alias: tuple[str, str] | None = None) -> None:
        self._rename = _Renamer(alias) if alias else None
        self._pieces: list[bytes] = []

    def feed(self, data: bytes) -> bytes:
        self.started = True
        if not self._readable:
            return data
        self._pieces.append(data)
        self._size += len(data)
        if self._size > MAX_JSON_BYTES:
            self._readable = False
            held, self._pieces = b"".join(self._pieces), []
            return held if self._rename else data
        return b"" if self._rename else data

    def end(self) -> bytes:
        if not self._readable:
            return b""
        body = b"".join(self._pieces)
        self.usage = usage_in(body)
        return self._rename(body) if self._rename else b""


class SsePump:
    """A stream of events. Holds back at most one incomplete event.

    `whole`: it came to its own end, by `[DONE]`, its API's last event, or a finish reason. `any_event`: a
    complete data event has passed; before it, another engine may still be tried. `torn`: half of an event
    has passed, and nothing may be put in its middle.
    """

    # What a stream never changes, or once, is not set for each: most of this.
    usage = UNKNOWN
    started = False
    failed: bytes | None = None
    whole = False
    any_event = False
    torn = False
    _held = b""
    _tail = b""
    _after_cr = False
    _dropped = False
    _is_plain = False
    _text_at = _after_bytes = _unlike = 0
    _before = _after = _shown_before = _shown_after = b""
    # SGLang and OpenAI write `"usage":null` in each event.
    _writes_nulls = False

    def __init__(self, *, withhold_usage: bool = False, alias: tuple[str, str] | None = None) -> None:
        self._withhold = withhold_usage
        self._rename = _Renamer(alias) if alias else None
        self._is_text = _BARE_TEXT if alias else _TEXT

    def feed(self, data: bytes) -> bytes:
        if self._is_plain:
            if (
                self._text_at
                and data.startswith(self._before)
                and data.endswith(self._after)
                and self._is_text(data, self._text_at, len(data) - self._after_bytes)
            ):
                self._unlike = 0
                if self._rename is None:
                    return data
                return self._shown_before + data[self._text_at : -self._after_bytes] + self._shown_after
            if len(data) <= _FEW_BYTES and data.endswith(_ENDS) and not _tells(data):
                out = self._renamed(data)
                self._unlike += 1
                # The more rarely, the longer it has been in vain.
                if self._unlike & (self._unlike - 1) == 0:
                    self._learn(data, out)
                return out
        out = self._feed(data)
        self._is_plain = self.started and not (self._held or self.torn or self._after_cr)
        return out

    def _learn(self, data: bytes, shown: bytes) -> None:
        """Most events are as the one before but for their text. If that has no quotes and no line ends, what
        is around it tells as little as it did in `data`: a text is no key, and a key that no escape hides
        is a word that `_tells` looks for."""
        text = _CONTENT.search(data) or _COMPLETION.search(data)
        shown_text = _CONTENT.search(shown) or _COMPLETION.search(shown)
        if text is None or shown_text is None:
            return
        before, after = data[: text.start(1)], data[text.end(1) :]
        if before.find(b"\\") < 0 and after.find(b"\\") < 0:
            self._before, self._after = before, after
            self._text_at, self._after_bytes = len(before), len(after)
            self._shown_before, self._shown_after = shown[: shown_text.start(1)], shown[shown_text.end(1) :]

    def _feed(self, data: bytes) -> bytes:
        if self._after_cr and data:
            self._after_cr = False
            if data.startswith(b"\n"):
                # The second half of a CRLF, which goes the way of its event.
                return (b"" if self._dropped else b"\n") + self._feed(data[1:])
        if self.torn:
            return self._feed_torn(data)
        known = len(self._held)
        if known:
            data = self._held + data
            self._held = b""
        if not data.endswith(_ENDS):
            cut = sse.last_boundary(data, max(0, known - sse.STRADDLE_BYTES))
            if cut < len(data):
                self._held = data[cut:]
                data = data[:cut]
            self._after_cr = not self._held and data.endswith(b"\r")
        self._dropped = False
        out = self._observe(data) if data else b""
        return out + self._tear() if len(self._held) > MAX_HELD_BYTES else out

    def end(self) -> bytes:
        """The last event, if its blank line is missing: an engine may leave it out. One that was cut off
        inside its JSON is dropped: no client can read it, and an error event must be able to follow."""
        held, self._held = self._held, b""
        if not held or _is_cut_off(sse.data_of(held)):
            return b""
        out = self._observe(held)
        self.torn = bool(out)
        return out

    def truncated(self, code: str, message: str, api: str) -> bytes:
        """The in-band error that ends an answer which broke off; a half event before it is dropped."""
        self._held = b""
        return (b"\n\n" if self.torn else b"") + error_event(code, message, api)

    def _tear(self) -> bytes:
        piece, self._held = self._held, b""
        self.torn = self.started = self.any_event = True
        # `response.completed` repeats the whole answer; engines write what it is first.
        self.whole = self.whole or _has_last_event(piece)
        self._tail = piece[-sse.STRADDLE_BYTES :]
        return piece

    def _feed_torn(self, data: bytes) -> bytes:
        """The rest of an event that went out in pieces passes unread."""
        seen = self._tail + data
        end = sse.first_boundary(seen)
        if not end:
            self._tail = seen[-sse.STRADDLE_BYTES :]
            return data
        self.torn = self._dropped = False
        rest = end - len(self._tail)
        if rest == len(data):
            self._after_cr = data.endswith(b"\r")
            return data
        return data[:rest] + self._feed(data[rest:])

    def _observe(self, data: bytes) -> bytes:
        if not self.started:
            self._first(data)
        # Strings are searched more quickly than bytes.
        text = data.decode("latin-1")
        if hits := sse.first_hits(text, _TOLD):
            data = self._read(data, text, hits)
        if not self.whole:
            self.whole = sse.has_done(data) or _FINISHED.search(data) is not None or _has_last_event(data)
        return self._renamed(data)

    def _renamed(self, data: bytes) -> bytes:
        rename = self._rename
        if rename is None:
            return data
        # Mostly it is one event.
        one = data.find(b"\n\n") + 2 == len(data) and b"\r" not in data
        return rename(data) if one else b"".join(map(rename, sse.events(data)))

    def _first(self, data: bytes) -> None:
        start = 0
        while start < len(data) and not self.started:
            end = sse.first_boundary(data, start) or len(data)
            content = sse.data_of(data[start:end])
            if content:
                self.any_event = True
                self.started = _is_token(content)
                self._writes_nulls = content.find(_NO_USAGE.encode()) >= 0
            start = end

    def _read(self, data: bytes, text: str, hits: dict[str, int]) -> bytes:
        if self._writes_nulls and _ESCAPE not in text:
            text = text.replace(_NO_USAGE, _BLANK)
            hits = sse.first_hits(text, _TOLD)
        pieces: list[bytes] = []
        done = 0
        for start, end in sse.spans_with(data, text, hits):
            event = data[start:end]
            content = sse.data_of(event)
            if not content:
                continue
            seen = look(content)
            self.failed = self.failed or seen.error
            if seen.usage is None:
                continue
            self.usage = merged(self.usage, seen.usage)
            if self._withhold and seen.lonely and seen.error is None:
                # Blank lines before it belong to the event before.
                blank = len(event) - len(event.lstrip(b"\r\n"))
                pieces.append(data[done : start + blank])
                done = end
                self._dropped = end == len(data)
        if not done:
            return data
        pieces.append(data[done:])
        return b"".join(pieces)


def _tells(data: bytes) -> bool:
    """Whether whole events hold anything to be read: all but a few of an answer hold text alone."""
    # `in` of bytes raises an error inside, and drops it (CPython 3.11).
    text = data.decode("latin-1")
    if "[DONE]" in text or '"timings"' in text or '"error"' in text or "message_stop" in text:
        return True
    if '"usage"' in text and (text.count('"usage"') > text.count(_NO_USAGE) or _ESCAPE in text):
        return True
    if "response." in text and _has_last_event(data):
        return True
    at = text.find('"finish_reason"')
    # What the event of a token says of it, once and as most engines spell it; the rest is looked at closely.
    return at >= 0 and not (text.startswith(":null", at + 15) and text.find('"finish_reason"', at + 15) < 0)


def _has_last_event(data: bytes) -> bool:
    if data.rfind(b"response.") < 0 and data.rfind(b"message_stop") < 0:
        return False
    return any(data.rfind(name) >= 0 for name in _LAST_NAMES) and _LAST_EVENT.search(data) is not None


def _is_token(content: bytes) -> bool:
    text = content.decode("latin-1")
    if text.startswith("[DONE]") or _PROGRESS in text or _NO_CHOICE.search(content):
        return False
    if '"type"' in text and _OPENING.search(content):
        return False
    return '"error"' not in text or look(content).error is None


def _is_cut_off(content: bytes | None) -> bool:
    if content is None or not content.startswith((b"{", b"[")) or content.startswith(b"[DONE]"):
        return False
    try:
        json.loads(content)
    except (ValueError, RecursionError):
        return True
    return False


class _Renamer:
    """Writes the alias where the engine wrote the model's real name: in the answer's own `model`, and in the
    one of the `message` or `response` inside it, not in a tool's arguments. Takes one JSON text or event."""

    def __init__(self, alias: tuple[str, str]) -> None:
        real, shown = alias
        spellings = {compact(real), json.dumps(real)}
        spellings |= {spelling.replace("/", "\\/") for spelling in spellings}
        names = b"|".join(re.escape(spelling.encode()) for spelling in sorted(spellings))
        self._member = re.compile(rb'("model"\s*:\s*)(?:' + names + rb")")
        self._shown = compact(shown).encode()

    def __call__(self, text: bytes) -> bytes:
        match = self._member.search(text)
        if match is None:
            return text
        pieces: list[bytes] = []
        done = walked = 0
        parents: list[bytes] = []
        while match is not None:
            start, end = match.span()
            # Only one brace before it, or after it, is that of the answer itself: no need to look closer.
            own = text.count(b"{", 0, start) == 1 or text.count(b"}", end) == 1
            if not own:
                _walk(text, walked, start, parents)
                walked = start
                own = parents in _OWNERS
            # After a backslash it is the end of some other key.
            if own and text[start - 1 : start] != b"\\":
                pieces += (text[done : match.end(1)], self._shown)
                done = end
            match = self._member.search(text, end)
        pieces.append(text[done:])
        return b"".join(pieces)


def _walk(text: bytes, start: int, end: int, parents: list[bytes]) -> None:
    """Goes on from `start` to `end`; `parents` are the keys of the objects and arrays that are open there."""
    key = b""
    for token in _TOKEN.finditer(text, start, end):
        if token.group(1) is not None:
            key = token.group(1)
        elif token.group() in (b"{", b"["):
            parents.append(key)
            key = b""
        elif token.group() in (b"}", b"]") and parents:
            parents.pop()
