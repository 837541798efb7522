"""The settings of the gateway, one frozen model per section. Names and defaults are public.

Attributes carry their unit (`max_wait_s`, `max_body_bytes`) where the key in the file (`max_wait`,
`max_body`) takes a unit in its value. `None` for `slots` and `kv_tokens` means `auto`.
"""

import re
import ssl
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    PlainSerializer,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from gateway.config._aliases import ModelsConfig
from gateway.config._kvevents import PUBLISHING, check_auto, kv_endpoint
from gateway.config._normalize import NormalizeRule
from gateway.config._section import Section
from gateway.config._tls import server_context
from gateway.config._units import (
    Address,
    format_duration,
    format_size,
    is_off,
    parse_address,
    parse_count,
    parse_count_or_auto,
    parse_duration,
    parse_interval_or_off,
    parse_size,
)
from gateway.core.router import Policy
from gateway.engines.registry import DIALECTS, refusal

Priority = Literal["high", "normal", "low"]

# The metrics use these label values for "no engine" and "not one of the configured".
_RESERVED_NAMES = frozenset({"none", "other"})
_REDACTED = "**********"


def _positive(value: float) -> float:
    if value <= 0:
        raise ValueError("must be greater than zero")
    return value


def _secret(value: object) -> object:
    return None if value == "" else value


_Seconds = Annotated[float, BeforeValidator(parse_duration), PlainSerializer(format_duration)]
_Timeout = Annotated[_Seconds, AfterValidator(_positive)]
_Bytes = Annotated[int, BeforeValidator(parse_size), PlainSerializer(format_size)]
_CountFrom0 = Annotated[int, BeforeValidator(partial(parse_count, minimum=0))]
_CountFrom1 = Annotated[int, BeforeValidator(partial(parse_count, minimum=1))]
_Auto = Annotated[
    int | None,
    BeforeValidator(parse_count_or_auto),
    PlainSerializer(lambda value: "auto" if value is None else value),
]
_Interval = Annotated[
    float | None,
    BeforeValidator(parse_interval_or_off),
    PlainSerializer(lambda value: "off" if value is None else format_duration(value)),
]
_Listen = Annotated[Address, BeforeValidator(parse_address), PlainSerializer(str)]
_Secret = Annotated[SecretStr | None, BeforeValidator(_secret)]


def _off_only(value: str, way_out: str) -> str:
    if is_off(value):
        return "off"
    raise ValueError(f"only off is available in this release; {way_out}")


def host_port(url: str) -> str:
    """`host:port` of an engine's URL, the engine's name where none is given. `ValueError` if it has none."""
    parts = urlsplit(url)
    if not parts.hostname:
        raise ValueError("the URL has no host")
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        raise ValueError("the URL's port must be a number from 1 to 65535")
    return str(Address(parts.hostname, port or default_port(parts.scheme)))


def default_port(scheme: str) -> int:
    return 443 if scheme == "https" else 80


class EngineConfig(Section):
    """One engine. `url` is without a trailing slash or `/v1`; `slots` a hard limit unless None (auto)."""

    name: str
    url: str
    kind: str = "auto"
    slots: _Auto = None
    kv_tokens: _Auto = None
    kv_events: str = "off"
    api_key: _Secret = None
    ca: str | None = None
    classes: tuple[str, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _named(cls, data: Any) -> Any:
        if not isinstance(data, dict) or "name" in data:
            return data
        try:
            return data | {"name": host_port(str(data.get("url", "")).strip())}
        except ValueError:
            # Only the URL is at fault, and its own check says so.
            return data | {"name": "unnamed"}

    @field_validator("name")
    @classmethod
    def _name(cls, name: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9._:\[\]-]{1,128}", name):
            raise ValueError(
                "use 1 to 128 letters, digits and . _ : - (it appears in headers, metrics and URLs)"
            )
        if name in _RESERVED_NAMES:
            raise ValueError("none and other are reserved for metrics; choose another name")
        return name

    @field_validator("url")
    @classmethod
    def _url(cls, url: str) -> str:
        parts = urlsplit(url.strip())
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ValueError("use a full URL such as http://10.0.0.1:8000")
        if "@" in parts.netloc:
            raise ValueError("takes no user:password@; put the engine's key in api_key")
        if parts.query or parts.fragment or re.search(r"[\s,]", url.strip()):
            raise ValueError("takes no query, fragment, comma or blank")
        host_port(url.strip())
        path = re.sub(r"(/v1)?/*$", "", parts.path.rstrip("/"))
        return f"{parts.scheme}://{parts.netloc}{path}"

    @field_validator("kind")
    @classmethod
    def _kind(cls, kind: str) -> str:
        if kind != "auto" and kind not in DIALECTS:
            raise ValueError(refusal(kind))
        return kind

    @field_validator("kv_events")
    @classmethod
    def _kv_events(cls, value: str, info: ValidationInfo) -> str:
        if is_off(value):
            return "off"
        if value == "auto":
            if info.data.get("kind") in PUBLISHING:
                check_auto(str(info.data.get("url", "")))
            return value
        return kv_endpoint(value)

    @field_validator("classes")
    @classmethod
    def _classes(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if value:
            raise ValueError("workload classes are not available in this release; use classes: []")
        return value

    @property
    def host(self) -> str:
        """Without brackets."""
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        parts = urlsplit(self.url)
        return parts.port or default_port(parts.scheme)

    @property
    def is_https(self) -> bool:
        return self.url.startswith("https://")

    @property
    def base_path(self) -> str:
        """What stands before `/v1` in this engine's paths, without a trailing slash; mostly empty."""
        return urlsplit(self.url).path


class RoutingConfig(Section):
    """Everything but `cost` is there to compare with."""

    policy: Policy = "cost"


class AdmissionConfig(Section):
    """The gateway's queue. `priority_header` names the request header that may lower a key's priority;
    `keepalive_s` is the silence after which a stream's client gets a sign of life, None for never."""

    max_queue: _CountFrom0 = 512
    max_queue_bytes: _Bytes = 256 * 2**20
    max_wait_s: _Seconds = Field(default=120.0, alias="max_wait")
    priority_header: str = "x-gateway-priority"
    keepalive_s: _Interval = Field(default=None, alias="keepalive")

    @field_validator("priority_header")
    @classmethod
    def _header(cls, name: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name):
            raise ValueError("must be the name of an HTTP header")
        return name.lower()


class LimitsConfig(Section):
    """What one client or engine may take. `answer_timeout` is for a JSON answer's first byte, its last."""

    max_body_bytes: _Bytes = Field(default=32 * 2**20, alias="max_body", ge=1)
    max_connections: _CountFrom1 = 10_000
    header_timeout_s: _Timeout = Field(default=10.0, alias="header_timeout")
    connect_timeout_s: _Timeout = Field(default=5.0, alias="connect_timeout")
    first_byte_timeout_s: _Timeout = Field(default=600.0, alias="first_byte_timeout")
    answer_timeout_s: _Timeout = Field(default=3600.0, alias="answer_timeout")
    idle_timeout_s: _Timeout = Field(default=300.0, alias="idle_timeout")
    write_timeout_s: _Timeout = Field(default=60.0, alias="write_timeout")
    keepalive_timeout_s: _Timeout = Field(default=75.0, alias="keepalive_timeout")
    shutdown_grace_s: _Seconds = Field(default=120.0, alias="shutdown_grace")


class UsageConfig(Section):
    """Whether an engine is asked for token counts that the client did not ask for.

    `off` leaves every body as it is; cached tokens of engines that need to be asked are then unknown.
    """

    inject: Literal["auto", "off"] = "auto"


class TlsConfig(Section):
    """Paths of PEM files; both or neither. The API port speaks TLS with them."""

    cert: str | None = None
    key: str | None = None

    @property
    def context(self) -> ssl.SSLContext | None:
        """Raises `TlsProblem` where the files have changed since they were checked."""
        return server_context(self.cert, self.key) if self.cert and self.key else None


class CorsConfig(Section):
    """Origins whose pages may use the API port from a browser: exact ones, or `*` alone for all."""

    origins: tuple[str, ...] = ()

    @field_validator("origins")
    @classmethod
    def _origins(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        for origin in origins:
            if origin != "*" and not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^\s/?#@A-Z]+", origin):
                raise ValueError(
                    "use origins as browsers send them, such as https://chat.example.org or "
                    "http://localhost:3000 (lower case, no path), or '*' for all"
                )
        if "*" in origins and len(origins) > 1:
            raise ValueError("'*' allows all origins; use it alone")
        return origins


class AuthKeyConfig(Section):
    """A client's key, known by its SHA-256 only."""

    name: str = Field(min_length=1)
    sha256: Annotated[str, PlainSerializer(lambda _: _REDACTED)]
    priority: Priority = "normal"
    requests_per_minute: None = None
    tokens_per_minute: None = None

    @field_validator("sha256")
    @classmethod
    def _digest(cls, value: str) -> str:
        if not re.fullmatch(r"[0-9A-Fa-f]{64}", value):
            raise ValueError('must be 64 hex digits: printf %s "$KEY" | sha256sum')
        return value.lower()

    @field_validator("requests_per_minute", "tokens_per_minute", mode="before")
    @classmethod
    def _later(cls, value: object) -> None:
        if value is not None:
            raise ValueError(
                "limits per key are not available in this release; leave it out and use priority"
            )


class AuthConfig(Section):
    """Without keys the API port is open to whoever reaches it."""

    keys: tuple[AuthKeyConfig, ...] = ()


class Config(Section):
    """All settings. Made by `load` and `from_args`, which also check the rules between sections."""

    listen: _Listen = Address("127.0.0.1", 8900)
    admin: _Listen = Address("127.0.0.1", 8901)
    admin_token: _Secret = None
    engines: tuple[EngineConfig, ...]
    models: ModelsConfig = ModelsConfig()
    routing: RoutingConfig = RoutingConfig()
    admission: AdmissionConfig = AdmissionConfig()
    limits: LimitsConfig = LimitsConfig()
    usage: UsageConfig = UsageConfig()
    normalize: tuple[NormalizeRule, ...] = ()
    show_prompt_text: bool = False
    tls: TlsConfig = TlsConfig()
    cors: CorsConfig = CorsConfig()
    auth: AuthConfig = AuthConfig()
    store: str = "memory"

    @field_validator("store")
    @classmethod
    def _store(cls, value: str) -> str:
        if value.startswith(("redis://", "rediss://", "unix://")):
            raise ValueError(
                "a shared store is not available in this release; use store: memory and one gateway"
            )
        if value != "memory":
            raise ValueError("use store: memory")
        return value


def keys_at(path: tuple[str | int, ...]) -> list[str]:
    """The keys that the section at `path` knows, as the file spells them."""
    model: type[BaseModel] = Config
    for part in path:
        if isinstance(part, str):
            fields = {field.alias or name: field for name, field in model.model_fields.items()}
            annotation = fields[part].annotation if part in fields else None
            model = next(_sections_in(annotation), model)
    return [field.alias or name for name, field in model.model_fields.items()]


def _sections_in(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _sections_in(inner)
