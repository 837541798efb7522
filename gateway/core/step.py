"""What each call of the scheduler answers, and what bounds its queue."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from gateway.core.request import Decision


class Step(Struct, frozen=True, gc=False):
    decisions: Sequence[Decision]
    want: Mapping[str, int]


class Limits(Struct, frozen=True, kw_only=True):
    """Bounds of the queue: requests, bytes of their bodies."""

    max_queue: int = 512
    max_queue_bytes: int = 256 * 1024 * 1024
