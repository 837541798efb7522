"""What differs between the configuration in force and the one to replace it."""

from collections.abc import Iterator, Mapping
from typing import Any

from gateway.config._models import AuthKeyConfig, Config, EngineConfig
from gateway.config._section import Section

FIXED = ("listen", "admin", "admin_token", "tls", "cors", "store")
"""Used once, at the start."""


def fixed(old: Config, new: Config) -> list[str]:
    """Keys that differ and cannot while the gateway runs."""
    return [key for key in FIXED if getattr(old, key) != getattr(new, key)]


def changes(old: Config, new: Config) -> list[str]:
    """All that differs, a line each: `engines.a.slots: 4 -> 8`, `auth.keys.team: removed`. No secrets."""
    return list(_between(old, new, ""))


def _between(old: Section, new: Section, at: str) -> Iterator[str]:
    shown_old, shown_new = (it.model_dump(mode="json", by_alias=True) for it in (old, new))
    for name, field in type(new).model_fields.items():
        before, after = getattr(old, name), getattr(new, name)
        key = field.alias or name
        where = f"{at}.{key}" if at else key
        if before == after:
            continue
        if isinstance(after, Section):
            yield from _between(before, after, where)
        elif isinstance(after, Mapping):
            yield from _by_name(before, after, where)
        elif _are_named(before) and _are_named(after):
            yield from _by_name({it.name: it for it in before}, {it.name: it for it in after}, where)
        elif shown_old[key] == shown_new[key]:
            # A secret, which both show as stars.
            yield f"{where}: changed"
        else:
            yield f"{where}: {_shown(shown_old[key])} -> {_shown(shown_new[key])}"


def _are_named(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(it, EngineConfig | AuthKeyConfig) for it in value)


def _by_name(old: Mapping[str, Any], new: Mapping[str, Any], at: str) -> Iterator[str]:
    for name in dict.fromkeys([*old, *new]):
        before, after = old.get(name), new.get(name)
        if before is None or after is None:
            yield f"{at}.{name}: {'added' if before is None else 'removed'}"
        elif isinstance(before, Section):
            yield from _between(before, after, f"{at}.{name}")
        elif before != after:
            yield f"{at}.{name}: changed"


def _shown(value: object) -> str:
    return "none" if value is None else str(value)
