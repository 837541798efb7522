"""HTTP/1.1 heads: hop-by-hop rules, what passes to the other side, building heads."""

import re
from collections.abc import Iterable
from http import HTTPStatus

from gateway.core.call import Header

_HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer "
    b"transfer-encoding upgrade".split()
)
# What a client uses to prove itself to the gateway, and what the gateway writes anew for an engine.
_NOT_TO_ENGINE = _HOP_BY_HOP | frozenset(
    b"authorization x-api-key api-key x-goog-api-key xi-api-key cookie host content-length expect "
    b"accept-encoding x-request-id x-forwarded-for x-forwarded-host x-forwarded-proto forwarded "
    b"x-gateway-priority x-gateway-max-wait-ms".split()
)
_NOT_TO_CLIENT = _HOP_BY_HOP | frozenset((b"content-length", b"x-request-id"))
_SAFE_ID = re.compile(rb"[\x21-\x7e]{1,128}")
_REASONS = {status.value: status.phrase.encode() for status in HTTPStatus}
_REASONS[529] = b"Overloaded"


def header(headers: Iterable[Header], name: bytes) -> bytes | None:
    for key, value in headers:
        if key == name:
            return value
    return None


def is_listed(headers: Iterable[Header], name: bytes, token: bytes) -> bool:
    """Whether a comma-separated header holds `token`, in any of its lines and any case."""
    return any(
        token in (part.strip() for part in value.lower().split(b",")) for key, value in headers if key == name
    )


def _with_listed(drop: frozenset[bytes], headers: Iterable[Header]) -> frozenset[bytes]:
    """`drop` and what `connection` names as belonging to that connection only."""
    for key, value in headers:
        if key == b"connection":
            drop |= {part.strip() for part in value.lower().split(b",")}
    return drop


def without_upgrade(headers: Iterable[Header]) -> list[Header]:
    """The same headers without the offer of another protocol."""
    kept: list[Header] = []
    for name, value in headers:
        if name == b"connection":
            options = [part for part in value.split(b",") if part.strip().lower() != b"upgrade"]
            kept.append((name, b",".join(options)))
        elif name != b"upgrade":
            kept.append((name, value))
    return kept


def for_engine(headers: Iterable[Header]) -> tuple[Header, ...]:
    """A client's headers without its credentials and what belongs to its own connection."""
    items = tuple(headers)
    drop = _with_listed(_NOT_TO_ENGINE, items)
    return tuple([item for item in items if item[0] not in drop])


def for_client(headers: Iterable[Header], secret: bytes = b"") -> list[Header]:
    """An engine's headers for the client; one that echoes the engine's key (`secret`) is dropped."""
    items = tuple(headers)
    drop = _with_listed(_NOT_TO_CLIENT, items)
    kept = [item for item in items if item[0] not in drop]
    return [item for item in kept if secret not in item[1]] if secret else kept


def request_head(
    path: bytes, host: bytes, headers: Iterable[Header], length: int, extra: Iterable[Header]
) -> bytes:
    lines = [b"POST " + path + b" HTTP/1.1", b"host: " + host, b"content-length: %d" % length]
    lines += [name + b": " + value for name, value in headers]
    lines += [name + b": " + value for name, value in extra]
    return b"\r\n".join(lines) + b"\r\n\r\n"


def response_head(status: int, headers: Iterable[Header]) -> bytes:
    lines = [b"HTTP/1.1 %d %s" % (status, _REASONS.get(status, b"Unknown"))]
    lines += [name + b": " + value for name, value in headers]
    return b"\r\n".join(lines) + b"\r\n\r\n"


def request_id(headers: Iterable[Header], minted: str) -> str:
    """The client's `x-request-id` where it is safe to log and forward, else `minted`."""
    given = header(headers, b"x-request-id")
    return given.decode("ascii") if given is not None and _SAFE_ID.fullmatch(given) else minted


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST_CHUNK = b"0\r\n\r\n"
