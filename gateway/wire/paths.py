"""Which API a path means. Tolerates a missing or doubled `/v1`, doubled and trailing slashes."""

import re
from urllib.parse import quote

from msgspec import Struct

_POST: dict[str, str] = {
    "chat/completions": "chat",
    "completions": "completions",
    "embeddings": "embeddings",
    "responses": "responses",
    "messages": "messages",
    "messages/count_tokens": "count_tokens",
    "rerank": "rerank",
    "score": "score",
    "tokenize": "tokenize",
    "detokenize": "detokenize",
}
_NO_V1 = frozenset(("tokenize", "detokenize"))
_GET = frozenset(("models", "healthz", "readyz", ""))
_AUTHORITY = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/]*")
_PLAIN = "/:@!$&'()*+,;="
APIS = (*_POST.values(), "models", "other")
STREAMING = frozenset(("chat", "completions", "messages", "responses"))
"""Those whose streams are server-sent events with an end of their own."""


class Target(Struct, frozen=True):
    """`api` names the API, `path` is the one canonical path an engine gets, `rest` a model id or empty."""

    api: str
    path: str
    rest: str = ""


def origin_form(path: str) -> str:
    """`path` without the scheme, host and credentials of an absolute URL."""
    return path if path.startswith("/") else _AUTHORITY.sub("", path)


def target(path: str) -> Target | None:
    """The API behind a decoded request path without its query; None where the gateway has nothing there.

    A path with dot segments is none of ours: an engine, or a proxy before it, would resolve them to
    something else than what was checked here. An absolute URL (RFC 9112, section 3.2.2) counts by its path.
    """
    parts = [part for part in origin_form(path).split("/") if part]
    if "." in parts or ".." in parts:
        return None
    has_v1 = bool(parts) and parts[0] == "v1"
    while parts and parts[0] == "v1":
        del parts[0]
    suffix = "/".join(parts)
    api = _POST.get(suffix)
    if api is not None:
        return Target(api, f"/{suffix}" if suffix in _NO_V1 else f"/v1/{suffix}")
    if suffix in _GET:
        return Target(suffix or "root", f"/v1/{suffix}")
    if parts[0] == "models":
        return Target("models", f"/v1/{suffix}", suffix[len("models/") :])
    # Quoted again: line ends and spaces in a decoded path would write a request of their own to the engine.
    return Target("other", f"/v1/{quote(suffix, _PLAIN)}") if has_v1 else None
