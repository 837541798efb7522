"""What the doctor has seen of an endpoint: frozen values, from which everything is concluded.

Times are seconds from the start of the round that they belong to.
"""

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct


class Role(StrEnum):
    """What a round of requests is for.

    RAMP: equal requests, more at once each time. UNEQUAL: short and long ones mixed, which tells slots from
    batches and from plain pacing. SMALL: smaller ones, more of which fit into a full KV cache. LOOK: just
    above the limit, with cheap GETs beside it. PROBE: long ones, and when they run a short one, which tells
    whether another could begin beside them; it is the last of `streams` and not `wanted`. TINY: one token
    each, which only a limiter can hold up. AGAIN: as many as were let in before, at once after those have
    ended.
    """

    RAMP = "ramp"
    UNEQUAL = "unequal"
    SMALL = "small"
    LOOK = "look"
    PROBE = "probe"
    TINY = "tiny"
    AGAIN = "again"


class Shape(Struct, frozen=True):
    """One request's size, in tokens as asked for; what the endpoint counted is in `Stream`."""

    prompt_tokens: int
    output_tokens: int


class Stream(Struct, frozen=True, kw_only=True):
    """One request. `written_at`: on its way, connected and with its head sent. `first_at`: its first token,
    None where the answer came in one piece. `arrivals`: when tokens came. `status` 0: no answer, for the
    reason in `error`. `gateway_queue_s`: what a prefix-gateway says it waited there."""

    number: int
    sent_at: float
    ended_at: float
    shape: Shape
    written_at: float | None = None
    first_at: float | None = None
    arrivals: tuple[float, ...] = ()
    tokens: int = 0
    prompt_tokens: int | None = None
    status: int = 200
    error: str = ""
    gateway_queue_s: float | None = None

    @property
    def is_ok(self) -> bool:
        return self.status == 200 and not self.error

    @property
    def is_refused(self) -> bool:
        """Turned away for load, not for what it asked."""
        return self.status in (429, 503, 529)


class Look(Struct, frozen=True):
    """A cheap GET while requests run. `took_s` None: no answer before the round was over."""

    sent_at: float
    took_s: float | None


class Reading(Struct, frozen=True):
    """The engine's own counters at a moment."""

    at: float
    running: int | None
    waiting: int | None
    kv_usage: float | None = None


class Round(Struct, frozen=True, kw_only=True):
    """`wanted` requests sent at once. `lag_s`: the longest that the doctor's own loop stood still."""

    role: Role
    wanted: int
    streams: tuple[Stream, ...]
    looks: tuple[Look, ...] = ()
    readings: tuple[Reading, ...] = ()
    lag_s: float = 0.0

    @property
    def answered(self) -> list[Stream]:
        return [it for it in self.streams if it.is_ok]

    @property
    def refused(self) -> list[Stream]:
        return [it for it in self.streams if it.is_refused]

    @property
    def streamed(self) -> bool:
        """Whether first tokens were seen, so that it shows when an answer began."""
        answered = self.answered
        return bool(answered) and all(it.first_at is not None for it in answered)


class Engine(Struct, frozen=True, kw_only=True):
    """What is behind the URL, by its own words. `slots` None: it does not tell. `direct`: asked at an address
    of its own and not through what may stand in front of it."""

    kind: str
    setting: str = ""
    slots: int | None = None
    kv_tokens: int | None = None
    direct: bool = False
    url: str = ""


class Findings(Struct, kw_only=True):
    """All that is known so far; grows with each round. `client_streams`: how many streams the doctor's own
    client has carried at once against itself."""

    url: str
    model: str
    shape: Shape
    max_concurrency: int
    engine: Engine | None = None
    is_gateway: bool = False
    idle_look_s: float | None = None
    single_s: float | None = None
    single_ttft_s: float | None = None
    tiny_s: float | None = None
    client_streams: int | None = None
    rounds: list[Round] = []
    interrupted: str = ""

    def of(self, role: Role) -> list[Round]:
        return [it for it in self.rounds if it.role is role]

    @property
    def prompt_tokens(self) -> int:
        """Of each equal request: as the endpoint counted them, else as asked for."""
        counted = (it.prompt_tokens for round_ in self.of(Role.RAMP) for it in round_.answered)
        return next(filter(None, counted), None) or self.shape.prompt_tokens

    def last(self, role: Role) -> Round | None:
        found = self.of(role)
        return found[-1] if found else None


def median(values: Sequence[float]) -> float:
    """Of at least one value."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def spread(values: Sequence[float]) -> float:
    """Median distance from the median; 0 of none."""
    if not values:
        return 0.0
    centre = median(values)
    return median([abs(value - centre) for value in values])
