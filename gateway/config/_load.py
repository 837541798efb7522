"""File, flags and environment into one checked `Config`, with every problem reported at once."""

import difflib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError

from gateway.config import _source
from gateway.config._changes import fixed
from gateway.config._models import Config, keys_at
from gateway.config._problems import ConfigError, Path, Problem
from gateway.config._rules import report_conflicts
from gateway.config._source import Source

_ENGINE_OPTIONS = ("name", "kind", "slots", "kv_tokens", "api_key", "ca")
_MESSAGES = {
    "missing": "is required",
    "bool_parsing": "use true or false",
    "bool_type": "use true or false",
    "string_type": "must be text, not a list or keys and values",
    "tuple_type": "must be a list (each item starts with '- ')",
    "dict_type": "must hold keys and values",
    "model_type": "must hold keys and values",
    "model_attributes_type": "must hold keys and values",
}


def load(path: FilePath, env: Mapping[str, str]) -> Config:
    """The configuration file at `path`; `env` fills its `${NAME}`. Raises `ConfigError`."""
    return from_args((), path=path, env=env)


def from_args(
    engines: Sequence[str] = (),
    *,
    listen: str | None = None,
    admin: str | None = None,
    store: str | None = None,
    workers: int = 1,
    path: FilePath | None = None,
    env: Mapping[str, str] | None = None,
    instead_of: Config | None = None,
) -> Config:
    """What `serve` was asked for: flags replace what the file at `path` says, if there is one.

    Any `engines` (`URL,slots=16,kind=vllm,name=a,kv_tokens=N,api_key=K`) replace all engines of the
    file. Raises `ConfigError`; also for what differs from `instead_of` and cannot while the gateway runs.
    """
    source = Source(env=env or {}) if path is None else _source.read(path, env or {})
    if engines:
        source.drop("engines")
        for index, flag in enumerate(engines):
            _put_engine(source, index, flag)
    for key, value in (("listen", listen), ("admin", admin), ("store", store)):
        if value is not None:
            source.drop(key)
            source.put((key,), value, f"--{key}")
    # The default of admin_token is `${ADMIN_TOKEN:-}`, so that flags alone can open the admin port.
    if source.env.get("ADMIN_TOKEN"):
        source.data.setdefault("admin_token", source.env["ADMIN_TOKEN"])
    if workers != 1:
        message = f"one process per gateway in this release; use --workers 1 (got {workers})"
        source.problems.append(Problem("", message, "--workers"))
    return _checked(source, instead_of)


def check(path: FilePath, env: Mapping[str, str]) -> list[str]:
    """What `check-config` prints: a line `FILE:LINE: key.path: message` for each problem."""
    try:
        load(path, env)
    except ConfigError as error:
        return [str(problem) for problem in error.problems]
    return []


def redacted(config: Config) -> dict[str, Any]:
    """The settings under their public keys, with credentials hidden, ready for JSON."""
    return config.model_dump(mode="json", by_alias=True)


def _put_engine(source: Source, index: int, flag: str) -> None:
    url, *options = re.split(r",(?=\w+=)", flag)
    at: Path = ("engines", index)
    source.places[at] = ("--engine", None)
    source.put((*at, "url"), url, "--engine")
    for option in options:
        key, _, value = option.partition("=")
        if key not in _ENGINE_OPTIONS:
            known = ", ".join(f"{name}=" for name in _ENGINE_OPTIONS)
            source.report((*at, key), f"unknown option; use {known}")
        elif key in source.data["engines"][index]:
            source.report((*at, key), "given twice")
        else:
            source.put((*at, key), value, "--engine")


def _checked(source: Source, instead_of: Config | None) -> Config:
    unreadable = bool(source.problems) and () in source.reported
    config: Config | None = None
    if not unreadable:
        report_conflicts(source)
        try:
            config = Config.model_validate(source.data)
        except ValidationError as error:
            for found in error.errors(include_url=False):
                source.report(tuple(found["loc"]), _message(source, found))
    for key in fixed(instead_of, config) if instead_of and config else ():
        source.report((key,), "cannot change while running; restart")
    if source.problems or config is None:
        # Flags come first, having no line.
        raise ConfigError(sorted(source.problems, key=lambda problem: problem.line or 0))
    return config


def _message(source: Source, error: Mapping[str, Any]) -> str:
    path: Path = tuple(error["loc"])
    kind, value = str(error["type"]), error["input"]
    if kind == "extra_forbidden":
        return _unknown_key(path)
    reason = error.get("ctx", {}).get("error")
    if isinstance(reason, ValueError):
        message = str(reason)
    else:
        message = _MESSAGES.get(kind) or str(error["msg"]).replace("Input should be", "should be")
    shown = source.shown(path, value)
    return f"{message} (got {shown})" if shown and kind != "missing" else message


def _unknown_key(path: Path) -> str:
    known = keys_at(path[:-1])
    close = difflib.get_close_matches(str(path[-1]), known, n=1)
    if close:
        return f"unknown key; did you mean {close[0]}?"
    return f"unknown key; known here: {', '.join(known)}"
