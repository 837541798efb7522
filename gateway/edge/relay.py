"""The data plane's front: what each request is, who may send it, and where it goes.

Not an aiohttp handler: a bare `Protocol` with llhttp relays several times the requests of one that does as
little (`benchmarks/hot_path.py`; docs/architecture.md has the figures).
"""

import asyncio
import logging
from collections.abc import Callable
from functools import lru_cache
from urllib.parse import unquote

import msgspec

from gateway.config import LimitsConfig
from gateway.core.engine import Engine, Health
from gateway.core.request import Outcome, Record
from gateway.edge.auth import Key, Keyring
from gateway.edge.catalog import Catalog
from gateway.edge.client import ClientConnection
from gateway.edge.dispatcher import Dispatcher
from gateway.edge.exchange import Exchange
from gateway.edge.intake import Envelope, Intake, Taken
from gateway.edge.keepalive import Keepalive
from gateway.edge.pools import Pools
from gateway.edge.trace import WallClock, refusal_record
from gateway.edge.upstream import Pool
from gateway.engines.base import Dialect
from gateway.wire import paths, query
from gateway.wire.body import shown
from gateway.wire.errors import BadRequest, error_body, retry_headers, status_of
from gateway.wire.reader import Head, Incoming

_SWEEP_S = 0.25
_FLUSH_S = 0.02
_JSON = (b"content-type", b"application/json")
_NO_SUCH_PATH = (
    "There is no {} here. This gateway serves /v1/chat/completions, /v1/completions, /v1/embeddings, "
    "/v1/models, /tokenize, /detokenize and any other POST below /v1/."
)
_METHODS = {"models": b"GET", "healthz": b"GET", "readyz": b"GET", "root": b"GET"}


class Relay:
    """Owns the client connections and exchanges; everything they need hangs here."""

    def __init__(
        self,
        *,
        dispatcher: Dispatcher,
        catalog: Catalog,
        intake: Intake,
        keyring: Keyring,
        pools: Pools,
        dialect: Callable[[str], Dialect],
        limits: LimitsConfig,
        keepalive_s: float | None,
        echo_alias: bool,
        on_record: Callable[[Record], None],
        on_suspect: Callable[[str, Pool | None, OSError | None], None],
        wall_time_s: float,
        loop: asyncio.AbstractEventLoop,
        log: logging.Logger,
    ) -> None:
        self.dispatcher = dispatcher
        self.pools = pools
        self.dialect = dialect
        self.limits = limits
        self.echo_alias = echo_alias
        self.now = dispatcher.now
        self.suspect = on_suspect
        self.closing = False
        self._catalog = catalog
        self._intake = intake
        self._keyring = keyring
        self._epoch = object()
        self._on_record = on_record
        self.wall = WallClock(wall_time_s, self.now())
        self._loop = loop
        self._log = log
        self._keepalive_s = keepalive_s
        self._clients: set[ClientConnection] = set()
        self._exchanges: set[Exchange] = set()
        self._keepalives: dict[Exchange, Keepalive] = {}
        self._hurried = False
        self._idle = asyncio.Event()
        self._refused_connections = 0
        self._sweeper = loop.call_later(_SWEEP_S, self._sweep)

    def apply(
        self, keyring: Keyring, limits: LimitsConfig, *, echo_alias: bool, keepalive_s: float | None
    ) -> None:
        """For requests from now on; those that have arrived go on with what they began with."""
        self._keyring = keyring
        # What was made of heads that come again holds no more.
        self._epoch = object()
        self.limits = limits
        self.echo_alias = echo_alias
        self._keepalive_s = keepalive_s
        for client in self._clients:
            client.limit_body(limits.max_body_bytes)

    # Connections

    def register(self, client: ClientConnection) -> bool:
        if len(self._clients) >= self.limits.max_connections:
            self._refused_connections += 1
            if self._refused_connections == 1:
                self._log.warning(
                    "limits.max_connections (%d) reached: refusing connections", self.limits.max_connections
                )
            return False
        self._clients.add(client)
        return True

    def unregister(self, client: ClientConnection) -> None:
        self._clients.discard(client)

    @property
    def refused_connections(self) -> int:
        return self._refused_connections

    # Requests

    def serve(self, client: ClientConnection, incoming: Incoming) -> None:
        """One whole request. Answers at once, or opens an exchange that does."""
        head = incoming.head
        envelope = head.kept
        try:
            if not isinstance(envelope, Envelope) or envelope.epoch is not self._epoch:
                envelope = self._envelope(client, head)
                if envelope is None:
                    return
                head.kept = envelope
            taken = self._intake.take(envelope, incoming.body)
        except BadRequest as refusal:
            self.refuse(client, head, refusal)
            return
        if self._keepalive_s is None:
            exchange = Exchange(self, client, taken, envelope.key.name)
        else:
            exchange = self._kept_alive(client, taken, envelope.key)
        client.exchange = exchange
        self._exchanges.add(exchange)
        exchange.begin()

    def refuse(self, client: ClientConnection, head: Head, refusal: BadRequest) -> None:
        """Answer with the gateway's own error and count it, once."""
        target = target_of(head.url.partition(b"?")[0]) if head.url else None
        api = target.api if target is not None else "other"
        status = status_of(refusal.code, api)
        request_id = self._intake.request_id(head.headers)
        body = error_body(refusal.code, refusal.message, api, refusal.param)
        headers = [(b"x-request-id", request_id.encode())]
        outcome = Outcome.INVALID
        if refusal.code == "no_ready_engine":
            outcome = Outcome.REJECTED
            headers.append((b"x-gateway-reject-reason", refusal.code.encode()))
            headers += retry_headers(self.dispatcher.scheduler.retry_after_s())
        elif status == 405:
            headers.append((b"allow", b"GET, HEAD" if api in _METHODS else b"POST"))
        elif status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        self._tell(
            refusal_record(
                request_id,
                api,
                outcome=outcome,
                status=status,
                code=refusal.code,
                timestamp=self.timestamp(),
            )
        )
        client.send_error(status, headers, body)

    def closed(self, exchange: Exchange, record: Record) -> None:
        self._exchanges.discard(exchange)
        if self._keepalives:
            self._keepalives.pop(exchange, None)
        if self.closing and not self._exchanges:
            self._idle.set()
        self._tell(record)

    def timestamp(self) -> str:
        return self.wall.text(self.now())

    # Ending

    async def drain(self, grace_s: float) -> None:
        """Finish what runs and waits, to its last byte, for at most `grace_s`; then cut off the rest."""
        self.closing = True
        self.dispatcher.scheduler.close()
        for client in list(self._clients):
            client.shut_down()
        try:
            async with asyncio.timeout(grace_s):
                while self._exchanges and not self._hurried:
                    self._idle.clear()
                    await self._idle.wait()
                while any(client.unwritten for client in self._clients) and not self._hurried:
                    await asyncio.sleep(_FLUSH_S)
        except TimeoutError:
            self._log.warning("the shutdown grace is over")
        if self._exchanges:
            self._log.warning("cutting off %d requests", len(self._exchanges))
        for exchange in list(self._exchanges):
            exchange.shut_down()

    def hurry(self) -> None:
        """Let `drain` wait no longer."""
        self._hurried = True
        self._idle.set()

    def close(self) -> None:
        self._sweeper.cancel()
        for client in list(self._clients):
            client.abort()
        self.pools.close()

    # Inside

    def _check_method(self, method: bytes, target: paths.Target) -> None:
        wanted = _METHODS.get(target.api, b"POST")
        if method != wanted and not (wanted == b"GET" and method == b"HEAD"):
            raise BadRequest(
                f"{target.path} takes {wanted.decode()}, not {method.decode('latin-1')}.",
                "method_not_allowed",
            )

    def _envelope(self, client: ClientConnection, head: Head) -> Envelope | None:
        """What a head says, who may send it and where it is to go. None if it has been answered at once."""
        path, _, parameters = head.url.partition(b"?")
        target = target_of(path)
        if target is None:
            path_text = paths.origin_form(path.decode("latin-1"))
            raise BadRequest(_NO_SUCH_PATH.format(shown(path_text)), code="not_found")
        if target.api in _METHODS or head.method != b"POST":
            self._check_method(head.method, target)
            self._answer(client, head, target)
            return None
        key = self._keyring.admit(head.headers)
        parameters_text = query.for_engine(parameters.decode("latin-1")) if parameters else ""
        return self._intake.envelope(head.headers, target, parameters_text, key, self._epoch)

    def _answer(self, client: ClientConnection, head: Head, target: paths.Target) -> None:
        status, body = 200, b'{"status":"ok"}'
        if target.api == "readyz":
            status, body = self._readiness()
        elif target.api == "models":
            self._keyring.admit(head.headers)
            if target.rest:
                body = msgspec.json.encode(self._catalog.card(target.rest))
            else:
                body = msgspec.json.encode({"object": "list", "data": self._catalog.cards()})
        headers = [_JSON, (b"x-request-id", self._intake.request_id(head.headers).encode())]
        client.send_whole(status, headers, body)

    def _readiness(self) -> tuple[int, bytes]:
        engines = self.dispatcher.scheduler.engines.values()
        ready = any(engine.accepting for engine in engines) and not self.closing
        states = {engine.name: _state(engine) for engine in engines}
        word = "shutting_down" if self.closing else "ready" if ready else "no_ready_engine"
        return (200 if ready else 503), msgspec.json.encode({"status": word, "engines": states})

    def _kept_alive(self, client: ClientConnection, taken: Taken, key: Key) -> Exchange:
        request, period_s = taken.request, self._keepalive_s
        if period_s is None or not request.stream or request.api not in paths.STREAMING:
            return Exchange(self, client, taken, key.name)
        keepalive = Keepalive(client, request, period_s, self.now())
        exchange = Exchange(self, keepalive, taken, key.name)
        self._keepalives[exchange] = keepalive
        return exchange

    def _tell(self, record: Record) -> None:
        """Whoever counts and logs must not be able to keep an answer from its client."""
        try:
            self._on_record(record)
        except Exception:
            self._log.exception("the record of request %s could not be taken", record.id)

    def _sweep(self) -> None:
        """One timer for all timeouts of the data plane: what is due is told so."""
        self._sweeper = self._loop.call_later(_SWEEP_S, self._sweep)
        now = self.now()
        for client in [it for it in self._clients if it.deadline <= now and it.exchange is None]:
            client.expired()
        for exchange in self._exchanges:
            if exchange.is_heard:
                exchange.heard()
        for exchange in [it for it in self._exchanges if it.deadline <= now]:
            exchange.expired()
        for keepalive in list(self._keepalives.values()):
            keepalive.beat(now)
        self.pools.trim()


def _state(engine: Engine) -> str:
    draining = engine.draining and engine.health is not Health.DOWN
    return "draining" if draining else engine.health.value


@lru_cache(maxsize=128)
def target_of(path: bytes) -> paths.Target | None:
    """What a raw path asks for, if it is one of ours."""
    return paths.target(unquote(paths.origin_form(path.decode("latin-1")), errors="replace"))
