"""The rules that span keys, on data that may still be wrong in other ways."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from gateway.config._models import Config, host_port
from gateway.config._problems import Path, key_of
from gateway.config._source import Source
from gateway.config._tls import TlsProblem, engine_context, server_context
from gateway.config._units import Address, parse_address

_Item = Mapping[str, Any]

_CHAINED = "points at another alias, and aliases are followed once; name the model"
_ITSELF = "a served model goes before an alias of its name; give the pool another name"


def report_conflicts(source: Source) -> None:
    """Adds a problem to `source` for each rule between keys that its data breaks."""
    engines = source.data.get("engines")
    if not engines:
        source.report(("engines",), "no engine; add one under engines:, or pass --engine http://HOST:PORT")
    auth = source.data.get("auth")
    keys = auth.get("keys") if isinstance(auth, dict) else None
    for path, message in (
        *_repeated(engines, ("engines",), "name", _engine_name),
        *_repeated(engines, ("engines",), "url", _engine_place),
        *_repeated(keys, ("auth", "keys"), "name", lambda key: key.get("name")),
        *_repeated(keys, ("auth", "keys"), "sha256", lambda key: str(key.get("sha256", "")).lower()),
        *_odd_targets(source.data.get("models")),
        *_odd_files(source),
    ):
        source.report(path, message)
    _check_addresses(source)


def _engine_name(engine: _Item) -> object:
    if "name" in engine:
        return engine["name"]
    try:
        return host_port(str(engine.get("url", "")).strip())
    except ValueError:
        return None


def _engine_place(engine: _Item) -> object:
    try:
        url = str(engine.get("url", "")).strip()
        return host_port(url) + re.sub(r"^\w+://[^/]*|(/v1)?/*$", "", url)
    except ValueError:
        return None


def _repeated(
    items: object, at: Path, key: str, value_of: Callable[[_Item], object]
) -> Iterator[tuple[Path, str]]:
    seen: dict[str, int] = {}
    for index, item in enumerate(items if isinstance(items, list) else ()):
        value = value_of(item) if isinstance(item, dict) else None
        if not isinstance(value, str) or not value:
            continue
        if value in seen:
            yield (*at, index, key), f"must differ from the {key} of {key_of((*at, seen[value]))}"
        seen.setdefault(value, index)


def _odd_targets(models: object) -> Iterator[tuple[Path, str]]:
    aliases = models.get("aliases") if isinstance(models, dict) else None
    if not isinstance(aliases, dict):
        return
    for name, target in aliases.items():
        at = ("models", "aliases", name)
        if isinstance(target, list):
            yield from _odd_members(at, name, target, aliases)
        elif target != name and _is_alias(target, aliases):
            yield at, _CHAINED


def _odd_members(at: Path, name: str, pool: Sequence[object], aliases: _Item) -> Iterator[tuple[Path, str]]:
    seen: dict[str, int] = {}
    for index, item in enumerate(pool):
        model = item.get("model") if isinstance(item, dict) else item
        if not isinstance(model, str):
            continue
        if model in seen:
            yield (*at, index), f"must differ from {key_of((*at, seen[model]))}"
        elif model == name:
            yield (*at, index), _ITSELF
        elif _is_alias(model, aliases):
            yield (*at, index), _CHAINED
        seen.setdefault(model, index)


def _odd_files(source: Source) -> Iterator[tuple[Path, str]]:
    """What is wrong with the PEM files, whose paths are shown unless the environment gave them."""
    tls = source.data.get("tls")
    cert, key = (tls.get("cert"), tls.get("key")) if isinstance(tls, dict) else (None, None)
    if cert and key:
        yield from _problem_of(source, ("tls",), lambda: server_context(str(cert), str(key)))
    elif cert or key:
        missing, given = ("key", "cert") if cert else ("cert", "key")
        yield ("tls", missing), f"is required with tls.{given}"
    engines = source.data.get("engines")
    for index, engine in enumerate(engines if isinstance(engines, list) else ()):
        if not isinstance(engine, dict) or not engine.get("ca"):
            continue
        at, ca = ("engines", index), str(engine["ca"])
        if str(engine.get("url", "")).strip().startswith("https://"):
            yield from _problem_of(source, at, partial(engine_context, ca))
        else:
            yield (*at, "ca"), "is for https engines only; the url of this one begins with http"


def _problem_of(source: Source, at: Path, make: Callable[[], object]) -> Iterator[tuple[Path, str]]:
    try:
        make()
    except TlsProblem as problem:
        path = (*at, problem.key)
        value: Any = source.data
        for part in path:
            value = value[part]
        # Nothing of `tls.key`: somebody may have pasted the private key where its path should be.
        shown = source.shown(path, value)
        yield path, f"{problem} (got {shown})" if shown else str(problem)


def _is_alias(model: object, aliases: _Item) -> bool:
    return isinstance(model, str) and model in aliases and aliases[model] != model


def _address(source: Source, key: str) -> Address | None:
    try:
        return parse_address(source.data.get(key, Config.model_fields[key].default))
    except ValueError:
        return None


def _check_addresses(source: Source) -> None:
    admin, listen = _address(source, "admin"), _address(source, "listen")
    if admin is None:
        return
    if not admin.is_loopback and not source.data.get("admin_token"):
        if ("admin",) in source.places:
            source.places.setdefault(("admin_token",), source.places[("admin",)])
        source.report(
            ("admin_token",),
            f"is required when admin ({admin}) is not a loopback address: "
            "set it or ADMIN_TOKEN, or use admin: 127.0.0.1:8901",
        )
    if admin.port and admin == listen:
        source.report(("admin",), f"must differ from listen (both are {admin})")
