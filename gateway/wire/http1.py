"""HTTP/1.1 heads: hop-by-hop rules, what passes to the other side, building heads."""

import re
from collections.abc import Iterable
from functools import lru_cache
from http import HTTPStatus

from gateway.core.call import Header

_HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer "
    b"transfer-encoding upgrade".split()
)
# What a client uses to prove itself to the gateway, and what the gateway writes anew for an engine.
_NOT_TO_ENGINE = _HOP_BY_HOP | frozenset(
    b"authorization x-api-key api-key x-goog-api-key xi-api-key cookie x-auth-token x-access-token "
    b"x-litellm-api-key ocp-apim-subscription-key x-amz-security-token host content-length expect "
    b"accept-encoding x-request-id x-real-ip forwarded x-forwarded-for x-forwarded-host x-forwarded-proto "
    b"x-forwarded-port x-forwarded-prefix x-forwarded-server x-forwarded-access-token x-forwarded-user "
    b"x-forwarded-email x-forwarded-groups x-forwarded-preferred-username x-auth-request-access-token "
    b"x-gateway-priority x-gateway-max-wait-ms".split()
)
_NOT_TO_CLIENT = _HOP_BY_HOP | frozenset((b"content-length", b"x-request-id"))
_PLAIN_CONNECTION = (b"keep-alive", b"close")
_UNBUFFERED = ((b"cache-control", b"no-cache, no-transform"), (b"x-accel-buffering", b"no"))
_SAFE_ID = re.compile(rb"[\x21-\x7e]{1,128}")
_REASONS = {status.value: status.phrase.encode() for status in HTTPStatus}
_REASONS[529] = b"Overloaded"


def header(headers: Iterable[Header], name: bytes) -> bytes | None:
    for key, value in headers:
        if key == name:
            return value
    return None


def is_event_stream(headers: Iterable[Header]) -> bool:
    return (header(headers, b"content-type") or b"").startswith(b"text/event-stream")


def has_token(value: bytes, token: bytes) -> bool:
    """Whether the comma-separated `value` of a header holds `token`, in any case."""
    return token in (part.strip() for part in value.lower().split(b","))


def is_listed(headers: Iterable[Header], name: bytes, token: bytes) -> bool:
    """Whether a comma-separated header holds `token`, in any of its lines and any case."""
    return any(has_token(value, token) for key, value in headers if key == name)


def _kept(headers: Iterable[Header], drop: frozenset[bytes]) -> list[Header]:
    """`headers` without those in `drop` and those that `connection` names as of that connection only."""
    kept: list[Header] = []
    listed: set[bytes] = set()
    for item in headers:
        if item[0] not in drop:
            kept.append(item)
        elif item[0] == b"connection" and item[1].lower() not in _PLAIN_CONNECTION:
            listed |= {part.strip() for part in item[1].lower().split(b",")}
    return [item for item in kept if item[0] not in listed] if listed else kept


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
    return tuple(_kept(headers, _NOT_TO_ENGINE))


def for_client(headers: Iterable[Header], secret: bytes = b"") -> list[Header]:
    """An engine's headers for the client; one that echoes the engine's key (`secret`) is dropped."""
    kept = _kept(headers, _NOT_TO_CLIENT)
    return [item for item in kept if secret not in item[1]] if secret else kept


def unbuffered(headers: Iterable[Header]) -> list[Header]:
    """What a stream's `headers` lack for proxies to pass it on as it comes."""
    present = {name for name, _ in headers}
    return [item for item in _UNBUFFERED if item[0] not in present]


def lines(headers: Iterable[Header]) -> bytes:
    """`headers` as a head has them, each with its line end."""
    return b"".join([b"%b: %b\r\n" % item for item in headers])


def headers_in(lines: bytes) -> list[Header]:
    """What `lines` were made of."""
    pairs = (line.partition(b": ") for line in lines.split(b"\r\n")[:-1])
    return [(name, value) for name, _, value in pairs]


Frame = tuple[bytes, bytes, bytes]
"""A request's head but for its length and its id: what stands before, between and after them."""


def request_frame(path: bytes, host: bytes, lines: bytes, more: bytes) -> Frame:
    """`more` are lines too, at the end."""
    before = b"POST %b HTTP/1.1\r\nhost: %b\r\ncontent-length: " % (path, host)
    return before, b"\r\n%bx-request-id: " % lines, b"\r\n%b\r\n" % more


def response_head(status: int, lines: bytes, more: bytes = b"") -> bytes:
    return _status_line(status) + lines + more + b"\r\n"


@lru_cache(maxsize=128)
def _status_line(status: int) -> bytes:
    return b"HTTP/1.1 %d %b\r\n" % (status, _REASONS.get(status, b"Unknown"))


def request_id(headers: Iterable[Header], minted: str) -> str:
    """The client's `x-request-id` where it is safe to log and forward, else `minted`."""
    given = header(headers, b"x-request-id")
    return given.decode("ascii") if given is not None and _SAFE_ID.fullmatch(given) else minted


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST_CHUNK = b"0\r\n\r\n"
