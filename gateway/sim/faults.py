"""The ways a simulated engine can be told to misbehave."""

import math
import re

from msgspec import Struct

_DIE_AFTER_SPELLED_OUT = re.compile(r"die-after-(\d+)-chunks")


class Faults(Struct, frozen=True, kw_only=True):
    """The faults in force; the default is none. All times are seconds, all rates requests/s.

    `stall_s` and `slow_cancel_s` are simulated time, the others wall time.
    """

    refuse_s: float | None = None
    reset: bool = False
    die_after_chunks: int | None = None
    stall_s: float | None = None
    error_500: bool = False
    slow_health_s: float | None = None
    truncate: bool = False
    slow_cancel_s: float | None = None
    kill_on: str | None = None
    overload: bool = False
    close_idle_s: float | None = None
    buffer: bool = False
    rate_per_s: float | None = None
    rate_delay_per_s: float | None = None


def parse_faults(texts: list[str] | tuple[str, ...]) -> Faults:
    """The faults named by `NAME` or `NAME:ARG`. Raises ValueError with what is wrong.

    refuse[:SECONDS]      stops listening and resets every connection, for that long or for good
    reset                 accepts connections and resets each one at its first request (/sim/ excepted)
    die-after-chunks:N    resets the connection after N SSE events; 0: instead of any answer
    stall[:SECONDS]       no token after the first one, for that long or for good
    500                   every POST answers 500
    slow-health:SECONDS   /health takes that long
    truncate              streams end cleanly without finish_reason and [DONE]
    slow-cancel:SECONDS   a slot stays busy that long after its client left
    kill-on:TEXT          a body that contains TEXT ends the engine
    overload              every POST is refused as this kind refuses
    close-idle:SECONDS    closes kept-alive connections idle that long
    buffer                streams are sent when they are complete, head and all, as through a buffering proxy
    rate:N                a POST to /v1/ beyond N a second, after a burst of N, is refused with 429
    rate-delay:N          a POST to /v1/ waits until it is its turn, N turns a second at even distances
    """
    values: dict[str, object] = {}
    for text in texts:
        name, _, arg = text.partition(":")
        spelled_out = _DIE_AFTER_SPELLED_OUT.fullmatch(name)
        if spelled_out:
            name, arg = "die-after-chunks", spelled_out[1]
        field, value = _parse_one(name, arg)
        values[field] = value
    return Faults(**values)  # type: ignore[arg-type]


def _parse_one(name: str, arg: str) -> tuple[str, object]:
    match name:
        case "reset" | "truncate" | "overload" | "buffer":
            return name, True
        case "500":
            return "error_500", True
        case "refuse" | "stall":
            return f"{name}_s", _seconds(name, arg) if arg else math.inf
        case "slow-health" | "slow-cancel" | "close-idle":
            return name.replace("-", "_") + "_s", _seconds(name, arg)
        case "rate" | "rate-delay":
            return name.replace("-", "_") + "_per_s", _rate(name, arg)
        case "die-after-chunks":
            if not arg.isdigit():
                raise ValueError(f"fault {name}: needs a whole number, got {arg!r}")
            return "die_after_chunks", int(arg)
        case "kill-on":
            if not arg:
                raise ValueError("fault kill-on: needs a text")
            return "kill_on", arg
        case _:
            raise ValueError(f"unknown fault {name!r}")


def _seconds(name: str, arg: str) -> float:
    seconds = _number(arg)
    if not 0 <= seconds < math.inf:
        raise ValueError(f"fault {name}: needs a number of seconds, got {arg!r}")
    return seconds


def _rate(name: str, arg: str) -> float:
    rate_per_s = _number(arg)
    if not 0 < rate_per_s < math.inf:
        raise ValueError(f"fault {name}: needs a number of requests/s above 0, got {arg!r}")
    return rate_per_s


def _number(arg: str) -> float:
    """NaN for what is no number."""
    try:
        return float(arg)
    except ValueError:
        return math.nan
