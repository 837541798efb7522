"""The admin port: metrics, state, recent requests, dry runs, drains, reloads. Nothing here serves clients."""

import asyncio
import base64
import binascii
import hmac
import inspect
import ipaddress
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from msgspec.structs import asdict

from gateway.config import ConfigError
from gateway.core.snapshot import Snapshot
from gateway.edge.metrics import CONTENT_TYPE
from gateway.edge.page import dashboard
from gateway.edge.records import encode_json
from gateway.edge.reload import CannotReload, Reload
from gateway.edge.views import Missing, Views
from gateway.wire.errors import STATUS, BadRequest

PATHS = (
    "GET /",
    "GET /metrics",
    "GET /api/state",
    "GET /api/requests?limit=",
    "GET /api/funnel",
    "GET /api/operating-point",
    "GET /api/kv-events",
    "GET /api/marks",
    "GET /api/compare?mark=",
    "POST /api/mark",
    "GET /api/breakers",
    "GET /api/sessions",
    "POST /api/explain",
    "POST /api/engines/{name}/drain",
    "POST /api/engines/{name}/undrain",
    "POST /api/reload",
    "GET /healthz",
)

DEFAULT_LIMIT, MAX_LIMIT = 100, 1000

_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminDeps:
    """What the admin port shows and does, as callables on the event loop.

    `process_metrics` alone runs in a thread. `drain(name, on)` is False for an unknown engine. `explain`
    takes the API that a request is said to be for, empty where nobody says, and its body; it raises
    `BadRequest`, or `ValueError` with a message, for what it cannot use. `reload` gives what has changed; it
    raises `ConfigError`, `CannotReload`. `config` is what is in force, with its secrets taken out.
    `started_at_s` is on `clock`. Without a `token` the port is open, which the configuration allows on
    loopback addresses only. `views` are shown beside what is named here.
    """

    snapshot: Callable[[], Snapshot]
    metrics: Callable[[], bytes]
    process_metrics: Callable[[], bytes]
    records: Callable[[int], Sequence[Mapping[str, object]]]
    operating_point: Callable[[], Mapping[str, object]]
    drain: Callable[[str, bool], bool]
    explain: Callable[[str, bytes], Mapping[str, object]]
    degraded: Callable[[], Mapping[str, bool | float]]
    funnel: Callable[[], Mapping[str, object]]
    reload: Callable[[], Awaitable[Sequence[str]]]
    last_reload: Callable[[], Reload]
    config: Callable[[], Mapping[str, object]]
    max_body_bytes: Callable[[], int]
    version: str
    views: Views = field(default_factory=Views)
    token: str | None = None
    started_at_s: float = 0.0
    clock: Callable[[], float] = time.monotonic


def make_app(deps: AdminDeps) -> web.Application:
    """The aiohttp application; the caller runs it and closes it.

    `ValueError` for an empty token: it would let anybody in who sends an empty one.
    """
    if deps.token == "":
        raise ValueError("the admin token is empty; None opens the port")
    admin = _Admin(deps)
    app = web.Application(
        middlewares=[_answer_errors, _guard(deps.token)],
    )
    app.add_routes(
        [
            web.get("/", admin.page),
            web.get("/metrics", admin.metrics),
            web.get("/api/state", admin.state),
            web.get("/api/requests", admin.requests),
            web.get("/api/operating-point", admin.operating_point),
            web.post("/api/explain", admin.explain),
            web.post("/api/engines/{name}/drain", admin.drain),
            web.post("/api/engines/{name}/undrain", admin.undrain),
            web.post("/api/reload", admin.reload),
            web.get("/healthz", admin.healthz),
            *[web.get(path, admin.get_of(view)) for path, view in deps.views.gets.items()],
            *[web.post(path, admin.post_of(view)) for path, view in deps.views.posts.items()],
        ]
    )
    return app


class _Admin:
    def __init__(self, deps: AdminDeps) -> None:
        self._deps = deps
        self._page = dashboard()

    async def page(self, _request: web.Request) -> web.Response:
        headers = _HEADERS | {"Content-Security-Policy": self._page.policy}
        return web.Response(body=self._page.body, content_type="text/html", charset="utf-8", headers=headers)

    async def metrics(self, _request: web.Request) -> web.Response:
        body = self._deps.metrics() + await asyncio.to_thread(self._deps.process_metrics)
        return web.Response(body=body, headers=_HEADERS | {"Content-Type": CONTENT_TYPE})

    async def state(self, _request: web.Request) -> web.Response:
        deps = self._deps
        snapshot = deps.snapshot()
        return _json(
            {
                **asdict(snapshot),
                "version": deps.version,
                "uptime_s": round(deps.clock() - deps.started_at_s, 3),
                "degraded": deps.degraded(),
                "funnel": deps.funnel(),
                "reload": deps.last_reload(),
                "config": deps.config(),
                **{name: view() for name, view in deps.views.state.items()},
            }
        )

    async def requests(self, request: web.Request) -> web.Response:
        text = request.query.get("limit", str(DEFAULT_LIMIT))
        limit = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(MAX_LIMIT)) else 0
        if not 1 <= limit <= MAX_LIMIT:
            return _error(400, "invalid_request", f"limit must be a whole number from 1 to {MAX_LIMIT}.")
        return _json({"requests": self._deps.records(limit)})

    async def operating_point(self, _request: web.Request) -> web.Response:
        return _json(self._deps.operating_point())

    def get_of(self, view: Callable[[Mapping[str, str]], object]) -> Handler:
        async def handler(request: web.Request) -> web.Response:
            return await _shown(partial(view, dict(request.query)))

        return handler

    def post_of(self, view: Callable[[bytes], object]) -> Handler:
        async def handler(request: web.Request) -> web.Response:
            return await self._with_body(request, view)

        return handler

    async def explain(self, request: web.Request) -> web.Response:
        api = request.query.get("api") or request.headers.get("x-api") or ""
        return await self._with_body(request, partial(self._deps.explain, api))

    async def _with_body(self, request: web.Request, view: Callable[[bytes], object]) -> web.Response:
        limit_bytes = self._deps.max_body_bytes()
        try:
            body = await request.clone(client_max_size=limit_bytes).read()
        except web.HTTPRequestEntityTooLarge:
            return _error(413, "body_too_large", f"The body is larger than the limit of {limit_bytes} bytes.")
        except web.RequestPayloadError:
            return _error(400, "invalid_request", "The body could not be read as its headers describe it.")
        return await _shown(partial(view, body))

    async def drain(self, request: web.Request) -> web.Response:
        return self._set_draining(request.match_info["name"], True)

    async def undrain(self, request: web.Request) -> web.Response:
        return self._set_draining(request.match_info["name"], False)

    async def reload(self, _request: web.Request) -> web.Response:
        try:
            return _json({"changed": await self._deps.reload()})
        except CannotReload as error:
            return _error(409, "cannot_reload", str(error))
        except ConfigError as error:
            message = "The configuration was not reloaded; the old one stays in force."
            return _error(400, "config_invalid", message, problems=error.problems)

    async def healthz(self, _request: web.Request) -> web.Response:
        return _json({"status": "ok"})

    def _set_draining(self, name: str, on: bool) -> web.Response:
        if not self._deps.drain(name, on):
            known = ", ".join(view.name for view in self._deps.snapshot().engines) or "none"
            return _error(404, "unknown_engine", f"No engine of that name. Engines: {known}.")
        return _json({"engine": name, "draining": on})


@web.middleware
async def _answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPNotFound:
        return _error(404, "not_found", f"No such path. Paths: {', '.join(PATHS)}.")
    except web.HTTPMethodNotAllowed as error:
        allowed = ", ".join(sorted(error.allowed_methods))
        message = f"{request.method} is not allowed here. Allowed: {allowed}."
        return _error(405, "method_not_allowed", message, {"Allow": allowed})
    except Exception as error:
        # The message may quote what the client sent, which is not for the log.
        _log.error("admin request failed: %s at %s", type(error).__name__, _where(error))
        return _error(500, "internal_error", "The gateway failed to answer; its log says where.")


def _guard(token: str | None) -> Middleware:
    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path == "/healthz":
            return await handler(request)
        if token is not None and not _has_token(request, token):
            message = "This port needs `Authorization: Bearer <admin_token>`, or the token as a password."
            # Basic is what a browser can ask its user for: the dashboard would be unreachable without it.
            return _error(401, "unauthorized", message, {"WWW-Authenticate": 'Basic realm="admin_token"'})
        if token is None and not is_local_name(_host_name(request.headers.get("Host", ""))):
            message = (
                "Without an admin_token this port answers to localhost, IP addresses and names without dots."
            )
            return _error(403, "forbidden_host", message)
        if request.method not in ("GET", "HEAD") and not _is_same_origin(request):
            return _error(403, "forbidden_origin", "Requests from other web sites are refused.")
        return await handler(request)

    return guard


def is_local_name(name: str) -> bool:
    """Whether a web site cannot have made this name point here (DNS rebinding).

    An attacker needs a name in the public DNS, so IP literals, `localhost` and names without a dot
    (containers, hosts of a search domain) are safe.
    """
    if "." not in name and ":" not in name:
        return True
    if name.lower().removesuffix(".").endswith(".localhost") or name.lower() == "localhost.":
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _host_name(host: str) -> str:
    """The name in a Host header: no port, no brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    name, _, port = host.rpartition(":")
    return name if name and port.isdigit() else host


def _is_same_origin(request: web.Request) -> bool:
    """Browsers send Origin with every POST, also with those that need no CORS preflight; curl sends none."""
    origin = request.headers.get("Origin")
    return origin is None or urlsplit(origin).netloc == request.headers.get("Host")


def _has_token(request: web.Request, token: str) -> bool:
    """As a bearer, or as the password of Basic under any user name."""
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    # Header bytes that are no UTF-8 come as surrogates; compare_digest refuses non-ASCII text.
    given_bytes = given.strip().encode("utf-8", "surrogateescape")
    if scheme.lower() == "basic":
        try:
            given_bytes = base64.b64decode(given_bytes, validate=True).partition(b":")[2]
        except binascii.Error:
            return False
    return hmac.compare_digest(given_bytes, token.encode()) and scheme.lower() in ("bearer", "basic")


def _where(error: Exception) -> str:
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    return "?" if frame is None else f"{frame.tb_frame.f_code.co_filename}:{frame.tb_lineno}"


def _json(value: object) -> web.Response:
    return web.Response(body=encode_json(value), content_type="application/json", headers=_HEADERS)


async def _shown(view: Callable[[], object]) -> web.Response:
    try:
        told = view()
        return _json(await told if inspect.isawaitable(told) else told)
    except BadRequest as refusal:
        return _error(STATUS[refusal.code], refusal.code, refusal.message)
    except Missing as missing:
        return _error(404, "not_found", str(missing))
    except ValueError as error:
        return _error(400, "invalid_request", str(error))


def _error(
    status: int, code: str, message: str, headers: Mapping[str, str] | None = None, **more: object
) -> web.Response:
    body = encode_json({"error": {"message": message, "code": code, **more}})
    merged = _HEADERS | dict(headers or {})
    return web.Response(status=status, body=body, content_type="application/json", headers=merged)
