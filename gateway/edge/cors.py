"""Browsers of other origins (CORS, the Fetch standard, https://fetch.spec.whatwg.org/#http-cors-protocol).

Only where `cors.origins` names some: these two classes then stand in for the relay and the client connection,
and without them no request pays for it.
"""

from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any

from gateway.core.call import Header
from gateway.edge.client import ClientConnection
from gateway.edge.relay import Relay, target_of
from gateway.wire import http1
from gateway.wire.reader import Incoming

EXPOSED = (
    b"x-request-id",
    b"x-gateway-engine",
    b"x-gateway-route",
    b"x-gateway-predicted-cached-tokens",
    b"x-gateway-queue-ms",
    b"x-gateway-reject-reason",
    b"server-timing",
    b"retry-after",
    b"retry-after-ms",
)
"""Answer headers that a page may read beyond those which it always may."""

_MAX_AGE = (b"access-control-max-age", b"7200")
"""Two hours, the longest that Chromium remembers a preflight (`kMaxPreflightResultTimeout`)."""
_VARY = (b"vary", b"origin")
_EXPOSE = (b"access-control-expose-headers", b", ".join(EXPOSED))
_CREDENTIALS = (b"access-control-allow-credentials", b"true")


class Cors:
    """Who may ask from where. `origins` are exact, or `*` for anybody."""

    def __init__(self, origins: Collection[str]) -> None:
        self._any = "*" in origins
        self._origins = frozenset(origin.encode() for origin in origins)

    def preflight(self, incoming: Incoming) -> list[Header] | None:
        """The answer's headers if `incoming` asks for leave and may have it."""
        if incoming.head.method != b"OPTIONS" or target_of(incoming.head.url.partition(b"?")[0]) is None:
            return None
        method = http1.header(incoming.head.headers, b"access-control-request-method")
        allowed = self._allowed(incoming)
        if method is None or not allowed:
            return None
        headers = [*allowed, (b"access-control-allow-methods", method), _MAX_AGE, _VARY]
        wanted = http1.header(incoming.head.headers, b"access-control-request-headers")
        if wanted is not None:
            headers.append((b"access-control-allow-headers", wanted))
        return headers

    def answer(self, incoming: Incoming, headers: Iterable[Header]) -> list[Header]:
        """An answer's `headers` with ours in the place of the engine's."""
        kept = [item for item in headers if not item[0].startswith(b"access-control-")]
        allowed = self._allowed(incoming)
        return [*kept, *allowed, _EXPOSE, _VARY] if allowed else [*kept, _VARY]

    def _allowed(self, incoming: Incoming) -> list[Header]:
        origin = http1.header(incoming.head.headers, b"origin")
        if origin is None:
            return []
        if self._any:
            # Never with credentials: any page could then ask in its visitor's name.
            return [(b"access-control-allow-origin", b"*")]
        if origin in self._origins:
            return [(b"access-control-allow-origin", origin), _CREDENTIALS]
        return []


class CorsRelay(Relay):
    """Answers preflights, which carry no key."""

    def __init__(self, cors: Cors, **parts: Any) -> None:
        super().__init__(**parts)
        self.cors = cors

    def serve(self, client: ClientConnection, incoming: Incoming) -> None:
        headers = self.cors.preflight(incoming)
        if headers is None:
            super().serve(client, incoming)
            return
        # Past `CorsConnection`, whose headers are those of an answer.
        ClientConnection.send_lines(client, 204, http1.lines(headers), None)
        client.end_body()


class CorsConnection(ClientConnection):
    """Every answer, an error too, says whether the page may read it."""

    def __init__(self, relay: CorsRelay) -> None:
        super().__init__(relay)
        self._cors = relay.cors

    def send_lines(self, status: int, lines: bytes, length: bytes | None) -> None:
        if self._incoming is not None:
            headers = self._cors.answer(self._incoming, http1.headers_in(lines))
            super().send_lines(status, http1.lines(headers), length)


def relay_kind(origins: Collection[str]) -> Callable[..., Relay]:
    return partial(CorsRelay, Cors(origins)) if origins else Relay


def connection_kind(relay: Relay) -> Callable[..., ClientConnection]:
    return CorsConnection if isinstance(relay, CorsRelay) else ClientConnection
