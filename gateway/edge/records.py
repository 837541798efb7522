"""The last finished requests, kept for `/api/requests` and the dashboard, and how they become JSON."""

import json
from collections import deque
from itertools import islice

import msgspec
from msgspec.structs import asdict

from gateway.core.funnel import losses
from gateway.core.request import Record


class RecentRecords:
    """The newest `capacity` records; an older one falls out for each that comes in."""

    def __init__(self, capacity: int = 1000) -> None:
        if capacity < 1:
            raise ValueError(f"capacity is {capacity}, it must be at least 1")
        self._records: deque[Record] = deque(maxlen=capacity)
        self.add = self._records.append

    def latest(self, limit: int) -> list[Record]:
        """At most `limit` records, newest first."""
        return list(islice(reversed(self._records), max(limit, 0)))

    def told(self, limit: int) -> list[dict[str, object]]:
        """`latest`, each with what it `lost` by reason, None where that is unknown."""
        return [{**asdict(record), "lost": losses(record)} for record in self.latest(limit)]

    def __len__(self) -> int:
        return len(self._records)


def encode_json(value: object) -> bytes:
    """UTF-8 JSON of values that clients had a hand in.

    A client's model name or request id may hold lone surrogates, which have no UTF-8 form and make
    msgspec raise; they become U+FFFD, so that one odd request cannot take the log or a listing down.
    """
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_without_surrogates(msgspec.to_builtins(value)))


def encode_ascii_json(value: object) -> bytes:
    """`encode_json` with everything outside ASCII escaped: safe on any terminal and stream encoding."""
    line = encode_json(value)
    if line.isascii():
        return line.replace(b"\x7f", b"\\u007f")
    text = json.dumps(json.loads(line), separators=(",", ":"))
    return text.replace("\x7f", "\\u007f").encode("ascii")


def _without_surrogates(value: object) -> object:
    if isinstance(value, str):
        return "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in value)
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_surrogates(item) for item in value]
    return value
