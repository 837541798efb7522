"""Text of the configuration into addresses, bytes and seconds, and back.

Every parser raises `ValueError` with what it accepts, and leaves the value out: the caller knows
whether it may be shown.
"""

import ipaddress
import math
import re
from dataclasses import dataclass

_NUMBER = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")
_BYTES = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
}
_SECONDS = {"": 1.0, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}

_SIZE_HELP = "use a size such as 256MiB (B, KB, MB, GB, KiB, MiB, GiB; a plain number is bytes)"
_DURATION_HELP = "use a duration such as 120s (ms, s, m, h; a plain number is seconds)"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens. `host` is without brackets; port 0 asks the system for a free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect. A host name other than localhost is not trusted to be."""
        if self.host.lower() == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_address(value: object) -> Address:
    """`host:port` or `[v6]:port`."""
    if isinstance(value, Address):
        return value
    found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:/\[\]]+)):(\d{1,5})", str(value).strip())
    if found is None or int(found[3]) > 65535:
        raise ValueError("use host:port, such as 127.0.0.1:8900, 0.0.0.0:8900 or '[::1]:8900'")
    host = found[1] or found[2]
    if found[1] is not None:
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise ValueError("the address in brackets is not an IPv6 address") from None
    return Address(host, int(found[3]))


def _scaled(value: object, units: dict[str, float] | dict[str, int], accepts: str) -> float:
    found = _NUMBER.fullmatch(str(value).strip())
    factor = units.get(found[2].lower()) if found else None
    if found is None or factor is None or isinstance(value, bool):
        raise ValueError(accepts)
    scaled = float(found[1]) * factor
    if not math.isfinite(scaled):
        raise ValueError(accepts)
    return scaled


def parse_size(value: object) -> int:
    """Bytes."""
    return int(_scaled(value, _BYTES, _SIZE_HELP))


def parse_duration(value: object) -> float:
    """Seconds."""
    return _scaled(value, _SECONDS, _DURATION_HELP)


def is_off(value: str) -> bool:
    return value.lower() in ("off", "false", "no")


def parse_interval_or_off(value: object) -> float | None:
    """Seconds, at least 1; None for `off`."""
    if value is None or is_off(str(value)):
        return None
    try:
        interval_s = parse_duration(value)
    except ValueError as error:
        raise ValueError(f"{error}, or off") from None
    if interval_s < 1:
        raise ValueError("use at least 1s, or off")
    return interval_s


def format_size(size_bytes: int) -> str:
    """The shortest exact text that `parse_size` reads back."""
    for unit in ("GiB", "MiB", "KiB"):
        if size_bytes and size_bytes % _BYTES[unit.lower()] == 0:
            return f"{size_bytes // _BYTES[unit.lower()]}{unit}"
    return f"{size_bytes}B"


def format_duration(duration_s: float) -> str:
    """Text that `parse_duration` reads back, in seconds, or milliseconds where they are whole."""
    if duration_s == int(duration_s):
        return f"{int(duration_s)}s"
    milliseconds = round(duration_s * 1000, 6)
    return f"{milliseconds:.0f}ms" if milliseconds == int(milliseconds) else f"{duration_s:f}s"


def parse_count(value: object, minimum: int) -> int:
    """A whole number of at least `minimum`."""
    text = str(value).strip()
    if isinstance(value, bool) or not re.fullmatch(r"[0-9]{1,15}", text) or int(text) < minimum:
        raise ValueError(f"use a whole number of at least {minimum}")
    return int(text)


def parse_count_or_auto(value: object) -> int | None:
    """A whole number of at least 1; None for `auto`."""
    if value is None or value == "auto":
        return None
    try:
        return parse_count(value, 1)
    except ValueError as error:
        raise ValueError(f"{error}, or auto") from None
