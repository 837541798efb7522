"""The control plane's questions to engines: the only user of aiohttp's client in the edge."""

import ssl
from collections.abc import Mapping

import aiohttp

from gateway.core.engine import Probe
from gateway.edge.tls import trouble
from gateway.engines.base import Answer

_MAX_ANSWER_BYTES = 8 << 20


class NoTls(Exception):
    """There is somebody, but no TLS connection, for the reason that this says."""


class Asker:
    """No proxies from the environment, no cookies, no redirects that take a key along."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=self._timeout,
            trust_env=False,
        )

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def ask(
        self,
        url: str,
        headers: Mapping[str, str],
        timeout_s: float | None = None,
        tls: ssl.SSLContext | None = None,
        body: bytes | None = None,
    ) -> Answer | Probe:
        """The answer, whatever its status, or what the lack of one means. A `body`, JSON, is posted. Raises
        `NoTls`."""
        assert self._session is not None, "start() comes first"
        timeout = aiohttp.ClientTimeout(total=timeout_s) if timeout_s else self._timeout
        try:
            async with self._session.request(
                "GET" if body is None else "POST",
                url,
                headers=headers if body is None else {**headers, "Content-Type": "application/json"},
                data=body,
                allow_redirects=False,
                timeout=timeout,
                ssl=tls or True,
            ) as response:
                read = bytearray()
                async for chunk in response.content.iter_chunked(1 << 16):
                    read += chunk
                    if len(read) > _MAX_ANSWER_BYTES:
                        return Probe.ERROR
                lowered = {name.lower(): value for name, value in response.headers.items()}
                return Answer(status=response.status, headers=lowered, body=bytes(read))
        except TimeoutError:
            return Probe.SLOW
        except aiohttp.ClientSSLError as error:
            raise NoTls(trouble(error.__cause__)) from None
        except aiohttp.ClientConnectorError:
            return Probe.REFUSED
        except (aiohttp.ClientError, OSError):
            return Probe.ERROR
