"""A running gateway's admin port, as commands ask it: one question, one answer."""

import asyncio
import os
import re
from collections.abc import Mapping
from typing import Any

import aiohttp
import msgspec
from msgspec import Struct

TIMEOUT_S = 30.0

_SHOWN_CHARS = 200
_NEVER_SENT = re.compile("[\0\ud800-\udfff]")
_GIVEN = "--admin-token, or ADMIN_TOKEN in the environment"


class CannotAsk(Exception):
    """No answer that is of use; the message is one line that says why."""


class _Error(Struct):
    message: str = ""


class _Refusal(Struct):
    error: _Error


_REFUSAL = msgspec.json.Decoder(_Refusal)


class Admin(Struct, frozen=True):
    """`url` is a base URL without a slash at its end."""

    url: str
    token: str | None = None

    def get(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        """Raises `CannotAsk`."""
        return asyncio.run(self._ask("GET", path, query, None))

    def post(self, path: str, query: Mapping[str, str], body: bytes) -> dict[str, Any]:
        """Raises `CannotAsk`."""
        return asyncio.run(self._ask("POST", path, query, body))

    async def _ask(
        self, method: str, path: str, query: Mapping[str, str], body: bytes | None
    ) -> dict[str, Any]:
        if has := _not_to_be_sent(self.token or ""):
            raise CannotAsk(f"{self.url}: the token has {has}: {_GIVEN}")
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, trust_env=False) as session,
                session.request(
                    method, self.url + path, params=query, data=body, headers=headers, allow_redirects=False
                ) as response,
            ):
                raw = await response.read()
        except TimeoutError:
            raise CannotAsk(f"{self.url}: no answer within {TIMEOUT_S:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise CannotAsk(f"{self.url}: {_why(error)}; is a gateway's admin port there?") from None
        if response.status != 200:
            raise CannotAsk(self._refusal(response.status, raw))
        try:
            told = msgspec.json.decode(raw)
        except ValueError:
            told = None
        if not isinstance(told, dict):
            raise CannotAsk(f"{self.url}: its answer is not that of a gateway's admin port")
        return told

    def _refusal(self, status: int, raw: bytes) -> str:
        try:
            message = _REFUSAL.decode(raw).error.message
        except ValueError:
            return f"{self.url}: answered {status}, not as a gateway's admin port does"
        if status == 401 and self.token:
            return f"{self.url}: the token was refused: {_GIVEN}"
        if status == 401:
            return f"{self.url}: wants its admin_token: {_GIVEN}"
        return message or f"{self.url}: answered {status}"


def _not_to_be_sent(token: str) -> str:
    """What no header may hold."""
    if "\n" in token or "\r" in token:
        return "a line end"
    return "a character that cannot be sent" if _NEVER_SENT.search(token) else ""


def _why(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):
        code = error.os_error.errno
        return f"no connection ({os.strerror(code) if code and code > 0 else error.os_error})"
    return (str(error) or type(error).__name__).replace("\n", " ")[:_SHOWN_CHARS]
