"""What is sent to an engine: built for each attempt by its dialect from what the client sent."""

from msgspec import Struct

Header = tuple[bytes, bytes]


class Call(Struct, frozen=True, kw_only=True):
    """A client's call, cleaned: canonical path, no hop-by-hop headers, no client credentials.

    `include_usage` is `stream_options.include_usage` as the client gave it, None where it did not.
    `body` is the client's bytes. Header names are lower case.
    """

    api: str
    path: str
    query: str
    headers: tuple[Header, ...]
    body: bytes
    stream: bool = False
    include_usage: bool | None = None


class Prepared(Struct, frozen=True, kw_only=True):
    """What goes to the engine. `withhold_usage`: the usage chunk was our wish, the client must not see it.
    `tells_cached`: the cached tokens in the answer's usage, if any, are a count and not filled in."""

    path: str
    headers: tuple[Header, ...]
    body: bytes
    withhold_usage: bool = False
    tells_cached: bool = True
