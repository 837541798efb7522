"""From a whole HTTP request to the values the scheduler and the dialects work on."""

import itertools
import logging
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from xxhash import xxh3_64_intdigest

from gateway.core.blocks import chain
from gateway.core.call import Call, Header
from gateway.core.request import PRIORITY_NAMES, Member, Request
from gateway.core.splice import replace_value
from gateway.edge.auth import ANYBODY, Key
from gateway.edge.catalog import Catalog, Resolved
from gateway.wire import billing, http1, opaque
from gateway.wire.body import compact, model_of, parse_object, shown
from gateway.wire.errors import BadRequest
from gateway.wire.normalize import Rule, normalized
from gateway.wire.openai import Ask, read, read_object
from gateway.wire.paths import Target
from gateway.wire.recognition import READ_APIS, api_of

_log = logging.getLogger(__name__)

_MAX_WAIT_HEADER = b"x-gateway-max-wait-ms"

# In the order in which agents name their sessions: Claude Code, Codex, OpenCode, generic ones, chat
# front ends, other gateways. The body's own fields come after them (wire/openai.py).
_SESSION_HEADERS = (
    b"x-claude-code-session-id",
    b"session-id",
    b"session_id",
    b"x-session-id",
    b"x-session-affinity",
    b"x-opencode-session",
    b"thread-id",
    b"conversation_id",
    b"x-conversation-id",
    b"x-openwebui-chat-id",
    b"x-litellm-session-id",
    b"x-olla-session-id",
    b"x-grok-conv-id",
)
_NAMES_SESSION = frozenset(_SESSION_HEADERS)


class Envelope(Struct, frozen=True, kw_only=True):
    """All that a request says outside its body, for as long as its head comes again and the configuration is
    that of `epoch`. `session` is 0 and `request_id` empty where the client names none; `headers` are for the
    engine."""

    epoch: object
    api: str
    path: str
    query: str
    key: Key
    headers: tuple[Header, ...]
    content_type: bytes
    request_id: str
    session: int
    priority: int
    max_wait_s: float


class Taken(Struct, frozen=True):
    """`alias` is the name that the client used, where it is not the model's own. `opaque_type` is the
    content type of a body that is no JSON, else empty."""

    request: Request
    call: Call
    alias: str
    opaque_type: bytes = b""

    def call_for(self, model: str) -> Call:
        """The call as an engine understands it: with its `model` in the alias's place."""
        if not self.alias:
            return self.call
        body = self.call.body
        if self.opaque_type:
            return replace(self.call, body=opaque.renamed(body, self.opaque_type, model))
        return replace(self.call, body=replace_value(body, b"model", compact(model).encode()))


class Intake:
    """`came` is told of each request with its parsed body."""

    def __init__(
        self,
        catalog: Catalog,
        max_wait_s: float,
        priority_header: str,
        came: Callable[[str, Mapping[str, Any], Sequence[Header], Request], None],
    ) -> None:
        self._catalog, self._tools_first = catalog, catalog.tools_first
        self._came = came
        self.apply(max_wait_s, priority_header)
        self.normalized: dict[str, int] = {}
        self.normalize(())
        self._numbers = itertools.count(1)
        self._id_prefix = secrets.token_hex(6)

    def apply(self, max_wait_s: float, priority_header: str) -> None:
        """For requests from now on."""
        self._max_wait_s = max_wait_s
        self._priority_header = priority_header.encode()

    def normalize(self, rules: Iterable[Rule]) -> None:
        """Rules for bodies from now on. `normalized` counts those that each kind has changed."""
        self._rules = tuple(rules)
        self._failed: set[str] = set()
        self.normalized = {rule.kind: self.normalized.get(rule.kind, 0) for rule in self._rules}

    def request_id(self, headers: Sequence[Header]) -> str:
        return http1.request_id(headers, f"{self._id_prefix}{next(self._numbers):08x}")

    def envelope(
        self, headers: Sequence[Header], target: Target, query: str, key: Key, epoch: object
    ) -> Envelope:
        """Raises `BadRequest`."""
        told = dict(reversed(headers))
        return Envelope(
            epoch=epoch,
            api=target.api,
            path=target.path,
            query=query,
            key=key,
            headers=http1.for_engine(headers),
            content_type=told.get(b"content-type", b""),
            request_id=http1.request_id(headers, ""),
            session=session_of(told, ""),
            priority=self._priority(told, key),
            max_wait_s=self._wait_s(told),
        )

    def take(self, envelope: Envelope, body: bytes) -> Taken:
        """Raises `BadRequest`."""
        api, content_type = envelope.api, envelope.content_type
        is_opaque = api == "other" and opaque.is_opaque(content_type, body)
        if self._rules and not is_opaque:
            body, kinds = self._normalized(api, body)
            for kind in kinds:
                self.normalized[kind] += 1
        if is_opaque:
            data, ask = None, Ask(model=opaque.model_in(body, content_type))
        else:
            data = parse_object(body)
            ask = read_object(api, data, len(body), self._tools_first)
        resolved = self._catalog.resolve(ask.model)
        call = Call(
            api=api,
            path=envelope.path,
            query=envelope.query,
            headers=envelope.headers,
            body=body,
            stream=ask.stream,
            include_usage=ask.include_usage,
        )
        request = self._request(ask, resolved, envelope, len(body))
        if data is not None:
            self._came(api, data, envelope.headers, request)
        return Taken(request, call, resolved.alias, content_type if is_opaque else b"")

    def dry_run(self, body: bytes, api: str = "") -> Request:
        """A body of `api`, one of `READ_APIS` or empty, as a request that is never sent. Without an `api` the
        body's fields tell. Raises `BadRequest`."""
        if api and api not in READ_APIS:
            raise BadRequest(f"'api' must be one of {', '.join(READ_APIS)}, not {shown(api)}.", param="api")
        api = api or api_of(parse_object(body))
        if self._rules:
            body, _ = self._normalized(api, body)
        ask = read(api, body, self._tools_first)
        resolved = self._catalog.resolve(ask.model)
        envelope = Envelope(
            epoch=None,
            api=api,
            path="",
            query="",
            key=ANYBODY,
            headers=(),
            content_type=b"",
            request_id="explain",
            session=0,
            priority=ANYBODY.priority,
            max_wait_s=self._max_wait_s,
        )
        return self._request(ask, resolved, envelope, len(body))

    def _normalized(self, api: str, body: bytes) -> tuple[bytes, list[str]]:
        asked = model_of(parse_object(body))
        names = {asked, *self._catalog.resolve(asked).models}
        return normalized(self._rules, api, body, names, self._rule_failed)

    def _rule_failed(self, rule: Rule, error: Exception) -> None:
        """Told once of each kind: a fault that one client's bodies bring out would fill the log."""
        if rule.kind not in self._failed:
            self._failed.add(rule.kind)
            # Without the error's text, which may be a prompt's.
            _log.warning(
                "normalize: %s failed on a body, which went on without it (%s); told once",
                rule.kind, type(error).__name__,
            )  # fmt: skip

    def _request(self, ask: Ask, resolved: Resolved, envelope: Envelope, body_bytes: int) -> Request:
        number = next(self._numbers)
        salt, canonical, prompt_bytes = ask.salt, ask.canonical, ask.prompt_bytes
        if billing.has_billing(canonical):
            fate = self._catalog.billing(envelope.api, resolved.models)
            canonical = billing.as_rendered(canonical, fate)
            prompt_bytes += len(canonical) - len(ask.canonical)
        pool = tuple([Member(it, chain(canonical, it, salt)) for it in resolved.pool])
        # By name these 16 would take 0.7 us more, 15 would not: msgspec keeps so many names at hand.
        return Request(
            number, envelope.request_id or f"{self._id_prefix}{number:08x}", envelope.api, resolved.real,
            pool[0].blocks if pool else chain(canonical, resolved.real, salt), prompt_bytes, body_bytes,
            ask.width, envelope.priority,
            envelope.session or (session_of({}, ask.session) if ask.session else 0),
            envelope.max_wait_s, ask.prompts, ask.stream, ask.token_ids, ask.workload, pool,
        )  # fmt: skip

    def _priority(self, told: Mapping[bytes, bytes], key: Key) -> int:
        """The key's; the header may only lower it."""
        given = told.get(self._priority_header)
        if given is None:
            return key.priority
        word = given.decode("latin-1").strip().lower()
        name = self._priority_header.decode()
        if word not in PRIORITY_NAMES:
            raise BadRequest(f"{name} must be high, normal or low, not {shown(word)}.", param=name)
        return max(key.priority, PRIORITY_NAMES.index(word))

    def _wait_s(self, told: Mapping[bytes, bytes]) -> float:
        """The client's own deadline in the queue; it may only shorten the configured one."""
        given = told.get(_MAX_WAIT_HEADER)
        if given is None:
            return self._max_wait_s
        name, value = _MAX_WAIT_HEADER.decode(), given.decode("latin-1")
        if not given.isdigit() or len(given) > 12:
            raise BadRequest(
                f"{name} must be a whole number of milliseconds, not {shown(value)}.", param=name
            )
        return min(self._max_wait_s, int(given) / 1000)


def session_of(told: Mapping[bytes, bytes], from_body: str) -> int:
    """The client's session as a hash, 0 where it names none. Never a credential, never an address."""
    if not _NAMES_SESSION.isdisjoint(told):
        value = next((value for name in _SESSION_HEADERS if (value := told.get(name))), b"")
        if value:
            return xxh3_64_intdigest(value) or 1
    return xxh3_64_intdigest(from_body.encode("utf-8", "surrogatepass")) or 1 if from_body else 0
