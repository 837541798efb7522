"""What breaks prefixes, as people see it: `/api/breakers`, `/api/sessions`, and the counts for Prometheus.

A request is only put away when it comes. Its prompt is compared some time within the next flushes, when it is
already on its way: so nobody waits for that, and there is a limit to how much of it is done at once.
"""

import logging
import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from gateway.core.breakers import Arrival, Breakers, Row
from gateway.core.call import Header
from gateway.core.facts import Billing
from gateway.core.index import Index
from gateway.core.request import Request
from gateway.core.shapes import Segment
from gateway.core.timestamps import iso_of
from gateway.edge.breaker_words import fix, sentence
from gateway.edge.sessions import Sessions
from gateway.edge.views import Views
from gateway.wire import segments

APIS = frozenset(("chat", "completions", "responses", "messages"))
"""Those whose prompts are read."""

MAX_WAITING = 512
MAX_WAITING_BYTES = 32 << 20
FLUSH_CHARS = 32_768
"""A flush ends when so much was looked at, with what was read: some milliseconds. A long prompt that is new
has a flush of its own."""

BODY_CHARS = 24_576
SHARED_CHARS = 131_072
"""Of new messages of one prompt, and of new system texts and tools, so much is looked at; of the rest, hashes
are compared alone."""

READ_SHARE = 16
"""Reading takes as long as looking at a part of it."""

READ_CHARS = 128
"""And so much for each segment; twice that for the prompt."""

MAX_SHOWN = 100
_MAX_CLIENT = 40
_PRODUCT = re.compile(rb"[A-Za-z][\w.-]*")
_CLIENTS = {
    "claude-cli": "Claude Code",
    "opencode": "OpenCode",
    "codex_cli_rs": "Codex",
    "codex_exec": "Codex",
}
_UNNAMED = "a client without a name"

_log = logging.getLogger(__name__)

MAX_FLUSHES = 5
"""A prompt that was not compared within so many flushes, a second, is let go."""

Waiting = tuple[str, Mapping[str, Any], Sequence[Header], Request, int]


class PrefixWatch:
    """`index` knows bytes per token, `billing` what a model's engines make of Claude Code's billing line,
    `wall_s` is a clock in seconds since the epoch."""

    def __init__(
        self,
        index: Index,
        billing: Callable[[str, tuple[str, ...]], Billing],
        show_text: bool = False,
        wall_s: Callable[[], float] = lambda: datetime.now(UTC).timestamp(),
    ) -> None:
        self._index = index
        self._billing = billing
        self._wall_s = wall_s
        self.breakers = Breakers(keep_text=show_text)
        self.sessions = Sessions()
        self.skipped = 0
        """Requests that were not compared: too many at once, too long, or odd."""
        self._waiting: deque[Waiting] = deque()
        self._waiting_bytes = 0
        self._flushes = 0
        self._read_chars = 0

    def show_text(self, on: bool) -> None:
        """From now on; what was kept is forgotten where it may no longer be."""
        self.breakers.keep_text(on)

    def came(self, api: str, data: Mapping[str, Any], headers: Sequence[Header], request: Request) -> None:
        """A request that will be offered, with its parsed body. The hot path."""
        # One that repeats is not put away: a body that is kept for a while costs more than a look-up.
        if api not in APIS or self.breakers.repeats(request.session, request.blocks, request.prompt_bytes):
            return
        waiting = self._waiting
        if len(waiting) >= MAX_WAITING or self._waiting_bytes > MAX_WAITING_BYTES:
            self.skipped += 1
            return
        waiting.append((api, data, headers, request, self._flushes))
        self._waiting_bytes += request.body_bytes

    def flush(self) -> None:
        """To be called every fifth of a second."""
        self._flushes += 1
        self._work()

    def _work(self) -> None:
        self.sessions.flush()
        waiting = self._waiting
        begin = self.done_chars
        while waiting and (done := self.done_chars - begin) < FLUSH_CHARS:
            if done and done + self._expected(waiting[0][3]) > FLUSH_CHARS:
                break
            api, data, headers, request, since = waiting.popleft()
            self._waiting_bytes -= request.body_bytes
            if self._flushes - since > MAX_FLUSHES:
                self.skipped += 1
                continue
            if self.breakers.repeats(request.session, request.blocks, request.prompt_bytes):
                continue
            try:
                self._compare(api, data, headers, request)
            except segments.TooLongError:
                self.skipped += 1
                self.breakers.checked -= 1
                self._read_chars += segments.MAX_WEIGHT // READ_SHARE
            except Exception as error:
                # Bodies may have any form, and this must not end the flushes. Its message may quote a prompt.
                self.skipped += 1
                _log.warning("a prompt was not compared with the one before: %s", type(error).__name__)

    def _compare(
        self, api: str, data: Mapping[str, Any], headers: Sequence[Header], request: Request
    ) -> None:
        now = self._wall_s()
        client = client_of(headers)
        self._read_chars += 2 * READ_CHARS
        broken = self.breakers.see(
            Arrival(
                session=request.session,
                model=request.model,
                blocks=request.blocks,
                prompt_bytes=request.prompt_bytes,
                shared=lambda: self._read(
                    segments.shared(api, data, self._billing(api, request.models)), SHARED_CHARS
                ),
                body=lambda first: self._read(segments.body(api, data, first), BODY_CHARS),
                client=lambda: client,
                bytes_per_token=self._index.bytes_per_token(request, request.model),
                now=now,
            )
        )
        if request.session:
            self.sessions.came(request.session, client, broken is not None)

    def _expected(self, request: Request) -> int:
        """How much there is to look at, at most. Of one that goes on it is mostly little."""
        is_known = self.breakers.conversations.begun_by(request.session, request.blocks) is not None
        return 0 if is_known else min(request.body_bytes, BODY_CHARS + SHARED_CHARS)

    @property
    def done_chars(self) -> int:
        """How much was looked at and read, in characters of new text."""
        return self.breakers.shapes.made_chars + self._read_chars

    def _read(self, found: list[Segment], most_chars: int) -> list[Segment]:
        """Segments that were read, of which so much may be looked at."""
        self.breakers.shapes.until_chars = self.breakers.shapes.made_chars + most_chars
        self._read_chars += sum(READ_CHARS + len(it.text) // READ_SHARE for it in found)
        return found

    def kinds(self) -> Mapping[str, int]:
        """Requests that broke a prefix, by kind; all kinds are in it."""
        return self.breakers.kinds

    def views(self) -> Views:
        return Views(gets={"/api/breakers": self._breakers_view, "/api/sessions": self._sessions_view})

    def _breakers_view(self, _query: Mapping[str, str]) -> Mapping[str, object]:
        self._work()
        now = self._wall_s()
        rows = self.breakers.rows(now)
        return {
            "requests_checked": self.breakers.checked,
            "breaks": sum(self.breakers.kinds.values()),
            "tokens_per_hour": sum(row.tokens_per_hour(now) for row in rows),
            "kinds": self.breakers.kinds,
            "breakers": [_row(row, now) for row in rows[:MAX_SHOWN]],
            "skipped": self.skipped,
        }

    def _sessions_view(self, _query: Mapping[str, str]) -> Mapping[str, object]:
        self._work()
        return {"sessions": self.sessions.latest()}


def _row(row: Row, now: float) -> Mapping[str, object]:
    per_hour = row.tokens_per_hour(now)
    shown: dict[str, object] = {
        "kind": row.kind,
        "part": row.part,
        "scope": row.scope,
        "client": row.client,
        "model": row.model,
        "count": row.count,
        "tokens": row.tokens,
        "tokens_per_hour": per_hour,
        "first_at": iso_of(row.first_at, "seconds"),
        "last_at": iso_of(row.last_at, "seconds"),
        "before": row.before,
        "after": row.after,
        "sentence": sentence(row, per_hour),
        "fix": fix(row),
    }
    if row.text is not None:
        shown["text_before"], shown["text_after"] = row.text
    return shown


def client_of(headers: Sequence[Header]) -> str:
    """Who a request is from, as its `user-agent` begins."""
    agent = next((value for name, value in headers if name == b"user-agent"), b"")
    product = _PRODUCT.match(agent)
    if product is None:
        return _UNNAMED
    name = product[0][:_MAX_CLIENT].decode()
    return _CLIENTS.get(name, name)
