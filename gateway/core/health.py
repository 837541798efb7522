"""How an engine is, and what one probe of it saw."""

from enum import StrEnum


class Health(StrEnum):
    UNKNOWN = "unknown"
    LOADING = "loading"
    READY = "ready"
    BUSY = "busy"
    DOWN = "down"


UP = (Health.READY, Health.BUSY)
"""An engine that takes requests."""


class Probe(StrEnum):
    """What one health probe saw. SLOW and ERROR say little while the engine is working."""

    OK = "ok"
    LOADING = "loading"
    SLOW = "slow"
    ERROR = "error"
    REFUSED = "refused"
