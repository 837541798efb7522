"""One request from its last byte to its record: the state machine of the data plane.

    WAITING -> CONNECTING -> SENT -> (HELD) -> RELAYING -> DONE

Until the client has got a byte (before RELAYING) an engine that fails may be replaced; after that never.
Every way out goes through `_close`, once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from gateway.core.call import Header, Prepared
from gateway.core.request import Grant, Outcome, Rejection, Usage
from gateway.edge.state import State
from gateway.edge.trace import Trace, outcome_of
from gateway.edge.upstream import EngineConnection, Pool
from gateway.wire.answers import AnswerReader
from gateway.wire.errors import error_body, retry_headers, status_of
from gateway.wire.inflate import InflatingPump
from gateway.wire.paths import STREAMING
from gateway.wire.pump import MAX_JSON_BYTES, JsonPump, SsePump, is_overload
from gateway.wire.usage import UNKNOWN, usage_in

if TYPE_CHECKING:
    from gateway.edge.intake import Taken
    from gateway.edge.keepalive import Receiver
    from gateway.edge.relay import Relay

_NOTHING_TO_SEND = Prepared(path="", headers=(), body=b"")
_BUSY = (429, 503)
_NOTHING_READ = JsonPump()
_NEVER = float("inf")
# A member looked up through its class costs 0.2 us on Python 3.11, and a request looks up some twenty.
_WAITING, _CONNECTING, _SENT, _HELD, _RELAYING, _DONE = State


class Exchange(Trace):
    """Applicant to the dispatcher, attempt to the connection pools, source of bytes to one client."""

    state = _WAITING
    deadline = _NEVER
    _grant: Grant | None = None
    _prepared = _NOTHING_TO_SEND
    _tells_cached = True
    _connection: EngineConnection | None = None
    _pool: Pool
    _pump: JsonPump | SsePump | InflatingPump = _NOTHING_READ
    is_heard = False
    _early = b""
    _connecting_at = 0.0

    def __init__(self, relay: Relay, client: Receiver, taken: Taken, key_name: str) -> None:
        self.received_at = relay.now()
        self.key_name = key_name
        self._relay = relay
        self._now = relay.now
        self._limits = relay.limits
        self._client = client
        self._request = taken.request
        self._taken: Taken | None = taken
        self._alias = taken.alias

    def __repr__(self) -> str:
        engine = self._grant.engine if self._grant else "-"
        return f"<Exchange {self._request.id} {self.state.value} engine={engine}>"

    @property
    def torn(self) -> bool:
        """Whether nothing may be sent to the client between what it has got and what is to follow."""
        return self.state is _RELAYING and self._pump.torn

    def begin(self) -> None:
        self._relay.dispatcher.submit(self._request, self, self.received_at)

    # From the dispatcher

    def granted(self, grant: Grant) -> None:
        self._connecting_at = self._now()
        relay, taken, engine = self._relay, self._taken, grant.engine
        assert taken is not None
        self._grant = grant
        is_first = grant.attempt == 1
        if is_first:
            self.queue_s = grant.queue_s
        prepared = relay.dialect(engine).prepare(taken.call_for(grant.model) if taken.alias else taken.call)
        self._prepared, self._tells_cached = prepared, prepared.tells_cached
        pool = self._pool = relay.pools[engine]
        # A retry never takes a kept connection: it would be the second to die of its age.
        if is_first and (connection := pool.idle()) is not None:
            self._send(connection)
            return
        self.sent_at = None
        self.state = _CONNECTING
        pool.connect(self)

    def rejected(self, rejection: Rejection) -> None:
        code = rejection.reason.value
        extra = [(b"x-gateway-reject-reason", code.encode())]
        outcome = Outcome.ENGINE_ERROR
        if status_of(code, self._request.api) != 502:
            outcome = Outcome.REJECTED
            extra += retry_headers(rejection.retry_after_s)
        self._fail(outcome, code, rejection.message, extra)

    def crashed(self, error: Exception) -> None:
        if self.state is not _DONE:
            self._drop_connection()
            message = f"The gateway failed: {type(error).__name__}."
            self._fail(Outcome.ENGINE_ERROR, "engine_unreachable", message)

    # From the pool and the connection

    def connected(self, connection: EngineConnection) -> None:
        if self.state is _CONNECTING:
            self._send(connection)
        else:
            connection.release()

    def connect_failed(self, error: OSError) -> None:
        if self.state is not _CONNECTING or self._grant is None:
            return
        self._relay.suspect(self._grant.engine, self._pool, error)
        self.state = _WAITING
        self._relay.dispatcher.retry(self._request.key, reached=False)

    def answered(self, connection: EngineConnection) -> None:
        if connection is not self._connection:
            return
        reader = connection.reader
        is_news = self.state is _SENT and reader.status > 0
        if is_news:
            head = reader.head
            passes = not (head.is_stream or self._alias) and head.encoding == b"identity"
            if passes and reader.complete and reader.status not in _BUSY:
                self._pass(connection, reader)
                return
            self._head(reader)
        if self.state is _RELAYING or self.state is _HELD:
            data = reader.take()
            if data and self.is_stream:
                self._events(data, connection)
            elif data and (out := self._pump.feed(data)):
                self._client.send_body(out)
            if reader.complete and self._connection is connection:
                self._complete(connection)
            elif self.state is _RELAYING:
                if data or is_news:
                    self._touch()
                self._client.flush()

    def flowed(self, piece: bytes) -> None:
        self._client.send_now(self._pump.feed(piece))
        self.is_heard = True

    def lost(self, connection: EngineConnection, error: Exception | None) -> None:
        if connection is not self._connection or self._grant is None:
            return
        self._connection = None
        self._relay.suspect(self._grant.engine, self._pool, None)
        if self.state is _RELAYING:
            what = "closed the connection before its answer ended"
            self._break("engine_truncated", Outcome.ENGINE_TRUNCATED, what)
        else:
            self._resend(reached=connection.all_written)

    # From the client

    def client_left(self) -> None:
        self._leave(Outcome.CLIENT_DISCONNECT)

    def pause(self) -> None:
        """The client reads slower than the engine writes: the engine waits, not our memory."""
        if self.state is _RELAYING and self._connection is not None:
            self._connection.pause_reading()
            self.deadline = self._now() + self._limits.write_timeout_s

    def resume(self) -> None:
        if self.state is _RELAYING and self._connection is not None:
            self._connection.resume_reading()
            self._touch()

    # From the clock

    def heard(self) -> None:
        """Events have come since the last sweep; to move the deadline for each would cost more."""
        self.is_heard = False
        self._touch()

    def expired(self) -> None:
        if self.state is _RELAYING and self._client.paused:
            self._leave(Outcome.CLIENT_TIMEOUT)
            self._client.abort()
        elif self.state is _RELAYING:
            silence = f"sent nothing for {self._limits.idle_timeout_s:g} s (limits.idle_timeout)"
            self._drop_connection()
            self._break("engine_timeout", Outcome.ENGINE_TIMEOUT, silence)
        elif self.state in (_SENT, _HELD):
            limit = "limits.first_byte_timeout" if self._request.stream else "limits.answer_timeout"
            engine = self._grant.engine if self._grant else "?"
            waited = self._now() - (self.sent_at or self.received_at)
            self._drop_connection()
            message = f"Engine {engine} did not answer within {waited:.0f} s ({limit})."
            self._fail(Outcome.ENGINE_TIMEOUT, "engine_timeout", message)

    def shut_down(self) -> None:
        """The grace is over."""
        if self.state is _RELAYING:
            self._drop_connection()
            self._break("shutting_down", Outcome.SHUTDOWN, "was cut off: the gateway is shutting down")
        elif self.state is not _DONE:
            self._drop_connection()
            self._fail(Outcome.SHUTDOWN, "shutting_down", "The gateway is shutting down. Retry.")

    # Inside

    def _send(self, connection: EngineConnection) -> None:
        now, taken, request, limits = self._now(), self._taken, self._request, self._limits
        assert taken is not None
        self.connect_s += now - self._connecting_at
        self._connection = connection
        self.state = _SENT
        self.deadline = now + (limits.first_byte_timeout_s if request.stream else limits.answer_timeout_s)
        head = self._pool.request_head(self._prepared, taken.call.query, request.id)
        connection.send(self, head, self._prepared.body)
        self.sent(self._now())

    def _pass(self, connection: EngineConnection, reader: AnswerReader) -> None:
        """What `_head`, a `JsonPump` and `_complete` come to for a plain answer that came in one piece."""
        client, request, grant, body = self._client, self._request, self._grant, reader.take()
        assert grant is not None
        self.answered_at = self._now()
        status = self.status = reader.status
        self.state = _RELAYING
        client.send_lines(status, reader.head.lines + self.lines(request, grant), reader.length)
        client.send_body(body)
        client.send_end()
        self._connection = None
        usage = usage_in(body) if status < 400 and len(body) <= MAX_JSON_BYTES else UNKNOWN
        connection.release()
        self._close(outcome_of(status, None), usage)
        client.end_body()

    def _head(self, reader: AnswerReader) -> None:
        self.answered_at = self._now()
        status = self.status = reader.status
        is_busy = status in _BUSY
        if is_busy and self._try_elsewhere():
            return
        head = reader.head
        self.is_stream = head.is_stream
        if head.encoding != b"identity":
            self._pump = InflatingPump(head.encoding, stream=head.is_stream)
        elif head.is_stream:
            self._pump = SsePump(withhold_usage=self._prepared.withhold_usage, alias=self._echo())
            self.state = _HELD
        else:
            self._pump = JsonPump(self._echo() if self._alias and status < 400 else None)
        if is_busy or self.state is not _HELD:
            # Of one that is busy there is no other to try any more, whatever follows.
            self._send_head()

    def _events(self, data: bytes, connection: EngineConnection) -> None:
        pump = self._pump
        out = pump.feed(data)
        if self.state is _HELD and isinstance(pump, SsePump):
            self._early += out
            if not pump.any_event:
                return
            if pump.failed and not pump.started and is_overload(pump.failed) and self._try_elsewhere():
                return
            out, self._early = self._early, b""
            self._send_head()
        if pump.started and self.first_token_at is None:
            self.first_token_at = self._now()
            self.inside_s = self._relay.dispatcher.first_token(self._request.key)
            connection.flows = connection.reader.length is None
        if out:
            self._client.send_body(out)

    def _complete(self, connection: EngineConnection) -> None:
        pump = self._pump
        if not self.is_stream:
            self._client.flush()
        rest = pump.end()
        broke_off = not (pump.whole or pump.failed) and self.status < 400 and self._request.api in STREAMING
        if self.state is _HELD:
            if broke_off and not pump.started:
                self._connection = None
                connection.release()
                self._resend(reached=True)
                return
            rest, self._early = self._early + rest, b""
            self._send_head()
        self._connection = None
        connection.release()
        if rest:
            self._client.send_body(rest)
        if broke_off:
            what = "ended its answer without the API's last event"
            self._break("engine_truncated", Outcome.ENGINE_TRUNCATED, what)
            return
        self._client.send_end()
        self._close(outcome_of(self.status, pump.failed))
        self._client.end_body()

    def _resend(self, *, reached: bool) -> None:
        """The engine failed before the client had a byte: another may be tried."""
        self.state = _WAITING
        self.deadline = _NEVER
        self.status, self._early, self._pump = 0, b"", _NOTHING_READ
        self._relay.dispatcher.retry(self._request.key, reached=reached)

    def _try_elsewhere(self) -> bool:
        """The engine is too busy: whether another one will be tried. Its answer is dropped if so."""
        held = connection, _, _, _, _ = (self._connection, self.state, self._early, self.status, self._pump)
        self._connection, self.state, self._early, self.status = None, _WAITING, b"", 0
        self._pump = _NOTHING_READ
        if self._relay.dispatcher.decline(self._request.key):
            if connection is not None:
                connection.abort()
            return True
        self._connection, self.state, self._early, self.status, self._pump = held
        return False

    def _touch(self) -> None:
        if not self._client.paused:
            self.deadline = self._now() + self._limits.idle_timeout_s

    def _echo(self) -> tuple[str, str] | None:
        """The model's real name and the one to show in its place."""
        if self._grant is None or not self._alias or not self._relay.echo_alias:
            return None
        return self._grant.model, self._alias

    def _send_head(self) -> None:
        connection, grant = self._connection, self._grant
        assert connection is not None
        assert grant is not None
        reader, head = connection.reader, connection.reader.head
        self.state = _RELAYING
        # Never sent again from here on: a long answer must not keep a prompt of megabytes.
        self._taken, self._prepared = None, _NOTHING_TO_SEND
        lines = head.lines + self.lines(self._request, grant)
        length = None
        if self.is_stream:
            lines += head.unbuffered
        elif not self._alias or self.status >= 400 or self._echo() is None:
            length = reader.length
        self._client.send_lines(self.status, lines, length)

    def _fail(self, outcome: Outcome, code: str, message: str, extra: list[Header] | None = None) -> None:
        """Answer with the gateway's own error; nothing has been sent yet."""
        api = self._request.api
        self.code, self.status = code, status_of(code, api)
        headers = [(b"x-request-id", self._request.id.encode()), *(extra or [])]
        if self._grant is not None:
            headers.append((b"x-gateway-engine", self._grant.engine.encode()))
        self._close(outcome)
        self._client.send_error(self.status, headers, error_body(code, message, api))

    def _break(self, code: str, outcome: Outcome, what: str) -> None:
        """End an answer that has begun: an in-band error, a cut connection for JSON or what is compressed."""
        engine = self._grant.engine if self._grant else "?"
        self.code = code
        self._close(outcome)
        message = f"Engine {engine} {what}. The answer is not complete. Retry."
        if isinstance(self._pump, SsePump):
            self._client.send_body(self._pump.truncated(code, message, self._request.api))
            self._client.end_body(close=True)
        else:
            self._client.break_off(error_body(code, message, self._request.api))

    def _leave(self, outcome: Outcome) -> None:
        if self.state is not _DONE:
            self._drop_connection()
            self._close(outcome)

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()

    def _close(self, outcome: Outcome, usage: Usage | None = None) -> None:
        if self.state is _DONE:
            return
        self.state = _DONE
        request, relay = self._request, self._relay
        if usage is None:
            usage = self._pump.usage if self.status < 400 else UNKNOWN
        if request.prompts > 1 or not self._tells_cached:
            # vLLM sums the prompts' tokens and reports one prompt's cached ones (seen on 0.32.0).
            usage = replace(usage, cached_tokens=None)
        now = relay.dispatcher.finish(request.key, outcome, usage, reached=self.sent_at is not None)
        relay.closed(self, self.record(request, self._grant, usage, outcome, relay.wall.text(now), now))
