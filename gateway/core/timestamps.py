"""Times of day as they are shown and compared as text: ISO 8601 in UTC."""

from datetime import UTC, datetime
from typing import Literal

Unit = Literal["seconds", "milliseconds"]


def iso(at: datetime, to: Unit = "milliseconds") -> str:
    """`at` is in UTC; what is below `to` is cut."""
    return at.isoformat(timespec=to).replace("+00:00", "Z")


def iso_of(at_s: float, to: Unit = "milliseconds") -> str:
    """Of seconds since 1970."""
    return iso(datetime.fromtimestamp(at_s, UTC), to)
