"""A request's query on its way to an engine: verbatim, but for credentials."""

from urllib.parse import unquote_plus

# Google's API takes its key as `key`, RFC 6750 (section 2.3) a bearer token as `access_token`.
_CREDENTIALS = frozenset(
    (
        "key",
        "api_key",
        "api-key",
        "apikey",
        "x-api-key",
        "access_token",
        "auth_token",
        "token",
        "subscription-key",
    )
)


def for_engine(query: str) -> str:
    """`query` with its question mark, without the parameters that may hold a client's key; empty if nothing
    is left. Parameters are separated by `&`, and by `;` for servers that still take that."""
    if not query:
        return ""
    pairs = []
    for pair in query.split("&"):
        parts = pair.split(";")
        kept = [part for part in parts if not _is_credential(part)]
        if kept:
            pairs.append(pair if len(kept) == len(parts) else ";".join(kept))
    return "?" + "&".join(pairs) if pairs else ""


def _is_credential(part: str) -> bool:
    return unquote_plus(part.partition("=")[0]).strip().lower() in _CREDENTIALS
