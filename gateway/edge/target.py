"""One engine as configured, and what holds for it once it has been detected."""

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from msgspec.structs import replace

from gateway.config import EngineConfig, engine_context
from gateway.core.engine import Facts, SlotSource
from gateway.engines.registry import DIALECTS


@dataclass(frozen=True, kw_only=True)
class EngineTarget:
    """One engine as configured. None for `slots` or `kv_tokens` is "auto"; `api_key` is sent as a bearer.

    `url` may end in `/`, `/v1` or `/v1/`. `tls` is for an https one, made from the file `ca` if that is set;
    None is the system's certificates.
    """

    name: str
    url: str
    kind: str = "auto"
    slots: int | None = None
    kv_tokens: int | None = None
    api_key: str | None = field(default=None, repr=False)
    ca: str | None = None
    tls: ssl.SSLContext | None = None
    kv_events: str = "off"

    def connects_like(self, other: "EngineTarget") -> bool:
        """Whether a connection to the one serves the other."""
        return (self.url, self.api_key, self.tls) == (other.url, other.api_key, other.tls)


def targets(
    engines: Sequence[EngineConfig], before: Mapping[str, EngineTarget] | None = None
) -> dict[str, EngineTarget]:
    """By name, in order. Where url and `ca` are as they were `before`, so is the TLS context; else there is
    one for each `ca`, since each that verifies by the system's store holds all of that. Raises `TlsProblem`.
    """
    context = cache(engine_context)
    out: dict[str, EngineTarget] = {}
    for it in engines:
        was = before.get(it.name) if before else None
        ca = it.ca or None
        tls = None
        if it.is_https:
            same = was is not None and (was.url, was.ca) == (it.url, ca)
            tls = was.tls if was is not None and same else context(ca)
        out[it.name] = EngineTarget(
            name=it.name,
            url=it.url,
            kind=it.kind,
            slots=it.slots,
            kv_tokens=it.kv_tokens,
            api_key=it.api_key.get_secret_value() if it.api_key else None,
            ca=ca,
            tls=tls,
            kv_events=it.kv_events,
        )
    return out


def base_url(url: str) -> str:
    """`url` without the `/v1` that people copy along: paths of probes and calls start with a slash."""
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


def settle(facts: Facts, target: EngineTarget) -> tuple[Facts, list[str]]:
    """What holds for an engine when configuration and detection are put together, and what to warn of.

    A configured cap never exceeds the engine's own: what is sent beyond it waits inside the engine,
    where nobody sees it.
    """
    warnings: list[str] = []
    if target.kv_tokens is not None:
        facts = replace(facts, kv_tokens=target.kv_tokens)
    if not facts.models:
        warnings.append("it names no models: GET /v1/models had none to read (is its api_key set?)")
    if target.slots is not None:
        slots, declared = target.slots, facts.slots_declared
        if declared is not None and declared < slots:
            warnings.append(f"configured {slots} > engine {declared}: {declared} slots are used")
            slots = declared
        facts = replace(facts, slots=slots, slots_source=SlotSource.CONFIGURED)
    elif facts.slots_source is SlotSource.ASSUMED:
        setting = DIALECTS[facts.kind].cap_setting
        hint = f" (N is its {setting})" if setting else ""
        warnings.append(
            f"{facts.slots} slots are assumed, the engine does not tell: set --engine URL,slots=N{hint}"
        )
    return facts, warnings
