"""JSON answers of the simulated engine."""

from collections.abc import Callable

import msgspec
from aiohttp import web


def json_reply(body: object, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json")


def get_json(path: str, read: Callable[[], object]) -> web.RouteDef:
    """A GET route that answers what `read` returns."""

    async def handler(_: web.Request) -> web.Response:
        return json_reply(read())

    return web.get(path, handler)
