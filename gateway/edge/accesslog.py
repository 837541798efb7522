"""The access log: one line for each finished request, without prompt text or credentials."""

import json
import re
from functools import lru_cache
from typing import Literal, TextIO

from gateway.core.request import Outcome, Record
from gateway.edge.records import encode_ascii_json

Format = Literal["text", "json"]

BUFFER_BYTES = 64 * 1024
"""A fuller buffer is written out at once; a line is about 300 bytes."""

_BATCH = 32
_NEARLY_FULL_BYTES = BUFFER_BYTES - _BATCH * 512
"""A fuller buffer might not take a whole batch more."""

# Whatever else a client puts into a request id or a model name is quoted, so that it can neither start
# a line of its own, nor look like another field, nor reach a terminal as a control sequence.
_PLAIN = re.compile(r"[][A-Za-z0-9_./:@+,-]+").fullmatch


class AccessLog:
    """Collects lines and writes them in one call. The app flushes on a timer and at exit.

    `fmt` "text" is logfmt, `-` where a value is unknown or empty; "json" is the whole `Record`. Both are
    pure ASCII. A stream that cannot be written to must not fail requests: the lines are dropped and
    counted in `lost_lines`, which the app shows as a degradation.
    """

    def __init__(self, stream: TextIO, fmt: Format) -> None:
        if fmt not in ("text", "json"):
            raise ValueError(f"log format is {fmt!r}, it must be text or json")
        self._stream = stream
        self._line = _text_line if fmt == "text" else _json_line
        self._records: list[Record] = []
        self._lines: list[str] = []
        self._buffered_bytes = 0
        self.lost_lines = 0

    def write(self, record: Record) -> None:
        self._records.append(record)
        if len(self._records) >= _BATCH or self._buffered_bytes > _NEARLY_FULL_BYTES:
            self._format()
            if self._buffered_bytes > BUFFER_BYTES:
                self.flush()

    def flush(self) -> None:
        self._format()
        if not self._lines:
            return
        lines, self._lines, self._buffered_bytes = self._lines, [], 0
        try:
            self._stream.write("".join(lines))
            self._stream.flush()
        except (OSError, ValueError):  # ValueError: the stream has been closed
            self.lost_lines += len(lines)

    def _format(self) -> None:
        """A batch of lines costs half as much as one at a time, with a request's other work between."""
        records, self._records = self._records, []
        lines = list(map(self._line, records))
        self._lines += lines
        self._buffered_bytes += sum(map(len, lines))


def _json_line(record: Record) -> str:
    return encode_ascii_json(record).decode("ascii") + "\n"


def _text_line(r: Record) -> str:
    request_id, prompt, cached = r.id, r.prompt_tokens, r.cached_tokens
    queue_ms, ttft_ms, inside_ms, prefill_ms = r.queue_ms, r.ttft_ms, r.engine_queue_ms, r.prefill_ms
    if not (request_id.isalnum() and request_id.isascii()):
        request_id = _word(request_id)
    what, how = _worded(
        (r.api, r.model, r.engine, r.outcome, r.status, r.route, r.attempts, r.key_name, r.code)
    )
    return (
        f"time={r.time} id={request_id} {what} queue_ms={f'{queue_ms:.1f}' if queue_ms else '0.0'} "
        f"ttft_ms={'-' if ttft_ms is None else f'{ttft_ms:.1f}'} "
        f"engine_queue_ms={f'{inside_ms:.1f}' if inside_ms else '-' if inside_ms is None else '0.0'} "
        f"prefill_ms={'-' if prefill_ms is None else f'{prefill_ms:.1f}'} duration_ms={r.duration_ms:.1f} "
        f"prompt_tokens={'-' if prompt is None else prompt} predicted={r.predicted_cached_tokens} "
        f"cached={'-' if cached is None else cached} {how}\n"
    )


_Told = tuple[str, str, str, Outcome, int, str, int, str, str]


@lru_cache(maxsize=1024)
def _worded(told: _Told) -> tuple[str, str]:
    """What comes again and again is worded once: the part before the figures and the one behind them."""
    api, model, engine, outcome, status, route, attempts, key_name, code = told
    what = f"api={_word(api)} model={_word(model)} engine={_word(engine)} outcome={outcome} status={status}"
    how = f"route={_word(route)} attempts={attempts} key={_word(key_name)}"
    return what, f"{how} code={_word(code)}" if code else how


def _word(value: str) -> str:
    if not value:
        return "-"
    if value != "-" and _PLAIN(value):
        return value
    return json.dumps(value).replace("\x7f", "\\u007f")
