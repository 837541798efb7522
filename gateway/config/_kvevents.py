"""Where an engine publishes KV events: all that a socket would refuse is refused before there is one.

Reasons leave the value out: the caller knows whether it may be shown.
"""

import ipaddress
import re
from urllib.parse import urlsplit

PUBLISHING = ("auto", "vllm", "sglang")
"""Kinds of engines, as configured, of which `kv_events: auto` may find events."""

_MAX_PORT = 65535
_USE = "use off, auto or tcp://host:port, with ?replay=PORT or ?replay=off after it"


def kv_endpoint(value: str) -> str:
    """`tcp://host:port`, perhaps with `?replay=PORT|off`. `ValueError` if it is anything else."""
    host, port, query = _parts(value)
    replay = re.fullmatch(r"replay=(off|[1-9]\d{0,4})", query) if query else None
    if query and (replay is None or (replay[1] != "off" and int(replay[1]) > _MAX_PORT)):
        raise ValueError(_USE)
    if host == "*":
        raise ValueError("* is for the engine; give its host: tcp://host:port")
    if not _can_connect_to(host):
        raise ValueError("the host is none to connect to; use a name or an address: tcp://host:port")
    if port == _MAX_PORT and replay is None:
        raise ValueError(
            f"no port comes after {_MAX_PORT} for what was missed; add ?replay=PORT or ?replay=off"
        )
    return value


def check_auto(url: str) -> None:
    """`ValueError` where the host of the engine's `url` is none for `auto`; a bad URL is not told here."""
    host = urlsplit(url).hostname
    if host and not _can_connect_to(host):
        raise ValueError(
            "auto takes the host of url, which is none to connect to for events; use tcp://host:port"
        )


def _parts(value: str) -> tuple[str, int, str]:
    """Host, port and query."""
    try:
        parts = urlsplit(value)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError(_USE) from None
    # Brackets are for IPv6 addresses, which nothing else looks like.
    odd = "@" in parts.netloc or ("[" in parts.netloc and ":" not in (host or ""))
    if parts.scheme != "tcp" or not host or not port or parts.path or parts.fragment or odd:
        raise ValueError(_USE)
    return host, port, parts.query


def _can_connect_to(host: str) -> bool:
    """libzmq's rule for the first character (`socket_base.cpp`, connect_internal), and of the others those
    that names have: `;` would be an address to connect from."""
    if ":" not in host:
        return re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", host) is not None
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True
