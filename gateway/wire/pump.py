"""One answer's body on its way to the client: the identity, unless a documented rewrite applies.

A pump reads along and never fails on what it reads. `feed` takes any split of the engine's bytes.
"""

import re
from typing import Protocol

from gateway.core.request import Usage
from gateway.wire import sse
from gateway.wire.errors import error_event
from gateway.wire.usage import look

MAX_HELD_BYTES = 1024 * 1024
"""A longer event goes out in pieces: forwarding must not depend on an event's size (open-webui#24928)."""

MAX_JSON_BYTES = 8 * 1024 * 1024
"""A longer JSON answer passes without its usage being read."""

_FINISHED = re.compile(rb'"finish_reason"\s*:\s*"')
_PROGRESS = b'"prompt_progress"'
_OVERLOAD = re.compile(
    rb'"(?:code|type|http_status_code|status)"\s*:\s*"?(?:429|503|529|SERVICE_UNAVAILABLE|overloaded)'
)
_OVERLOAD_TEXT = re.compile(rb"queue is full|overloaded|server busy", re.IGNORECASE)
_NO_USAGE = Usage()


def is_overload(error: bytes) -> bool:
    """Whether an error's JSON says "too busy" rather than "wrong": worth another engine.

    SGLang's full queue and TGI's overload arrive inside a 200 stream (sglang `serving_base.py`, TGI
    `infer/mod.rs`, whose code is always 422).
    """
    return bool(_OVERLOAD.search(error) or _OVERLOAD_TEXT.search(error))


class Pump(Protocol):
    """`started`: the answer's first token (or its first byte, for JSON) has passed. `failed` holds an error
    that the engine sent inside its answer, `usage` the last one reported."""

    usage: Usage
    started: bool
    failed: bytes | None

    def feed(self, data: bytes) -> bytes: ...

    def end(self) -> bytes: ...

    @property
    def whole(self) -> bool: ...


class JsonPump:
    """A body with a beginning and an end. With `alias` (real, shown) it is held until it can be renamed."""

    def __init__(self, alias: tuple[str, str] | None = None, *, readable: bool = True) -> None:
        self.usage = _NO_USAGE
        self.started = False
        self.failed: bytes | None = None
        self.whole = True
        self._rename = _Renamer(alias) if alias and readable else None
        self._pieces: list[bytes] = []
        self._size = 0
        self._readable = readable

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
        seen = look(body)
        self.usage = seen.usage or _NO_USAGE
        return self._rename(body) if self._rename else b""


class SsePump:
    """A stream of events. Holds back at most one incomplete event."""

    def __init__(self, *, withhold_usage: bool = False, alias: tuple[str, str] | None = None) -> None:
        self.usage = _NO_USAGE
        self.started = False
        self.failed: bytes | None = None
        self._withhold = withhold_usage
        self._rename = _Renamer(alias) if alias else None
        self._held = b""
        self._torn = False
        self._done = False
        self._finished = False
        self._events = False

    @property
    def whole(self) -> bool:
        """Whether the answer came to its own end: `[DONE]`, or a finish reason before a clean end."""
        return self._done or self._finished

    @property
    def done(self) -> bool:
        return self._done

    @property
    def any_event(self) -> bool:
        """Whether a complete data event has passed: before it, another engine may still be tried."""
        return self._events

    def feed(self, data: bytes) -> bytes:
        if self._held:
            data = self._held + data
            self._held = b""
        if not data.endswith(b"\n\n") or b"\r" in data:
            cut = sse.last_boundary(data)
            if cut < len(data):
                self._held = data[cut:]
                data = data[:cut]
                if len(self._held) > MAX_HELD_BYTES:
                    data += self._held
                    self._held = b""
                    self._torn = True
            if not data:
                return b""
        return self._observe(data)

    def end(self) -> bytes:
        """The half event that was held back, if any: an engine may leave out the last blank line."""
        held, self._held = self._held, b""
        return self._observe(held) if held else b""

    def truncated(self, code: str, message: str, api: str) -> bytes:
        """The in-band error that ends an answer which broke off; a half event before it is dropped."""
        self._held = b""
        return (b"\n\n" if self._torn else b"") + error_event(code, message, api)

    def _observe(self, data: bytes) -> bytes:
        if not self.started:
            self._first(data)
        if b'"usage"' in data or b'"timings"' in data or (b'"error"' in data and self.started):
            data = self._read(data)
        if b'"finish_reason"' in data and _FINISHED.search(data):
            self._finished = True
        if not self._done and sse.has_done(data):
            self._done = True
        return self._rename(data) if self._rename else data

    def _first(self, data: bytes) -> None:
        for event in sse.events(data):
            content = sse.data_of(event)
            if content is None:
                continue
            self._events = True
            if b'"error"' in content:
                self.failed = look(content).error
                if self.failed is not None:
                    return
            if _PROGRESS not in content:
                self.started = True
                return

    def _read(self, data: bytes) -> bytes:
        kept: list[bytes] = []
        for event in sse.events(data):
            if b'"usage"' in event or b'"timings"' in event or b'"error"' in event:
                content = sse.data_of(event)
                seen = look(content) if content is not None else None
                if seen is not None:
                    self.usage = seen.usage or self.usage
                    self.failed = self.failed or seen.error
                    if self._withhold and seen.lonely and seen.usage is not None:
                        continue
            kept.append(event)
        return b"".join(kept)


class _Renamer:
    """Writes the alias where the engine wrote the model's real name; quotes inside strings are escaped, so
    an unescaped `"model":"real"` is a member and never text."""

    def __init__(self, alias: tuple[str, str]) -> None:
        real, shown = alias
        self._real = re.compile(rb'("model"\s*:\s*")' + re.escape(real.encode()) + rb'"')
        self._shown = shown.encode()

    def __call__(self, data: bytes) -> bytes:
        return self._real.sub(lambda match: match.group(1) + self._shown + b'"', data)
