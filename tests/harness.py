"""The real gateway in process, on ephemeral ports, and what tests do with it."""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TextIO

import aiohttp
import yaml

from gateway.app import Gateway
from gateway.config import Config, load
from gateway.edge.reload import ConfigFile

_GRACE = "2s"


def free_config(engines: list[dict[str, Any]], **sections: Any) -> dict[str, Any]:
    return {"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "engines": engines, **sections}


class Running:
    """A started gateway with an HTTP client. `api` and `admin` are base URLs."""

    def __init__(self, gateway: Gateway, http: aiohttp.ClientSession) -> None:
        self.gateway = gateway
        self.http = http
        self.api = f"{gateway.scheme}://{gateway.listen}"
        self.admin = f"http://{gateway.admin}"

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.gateway.listen.rpartition(":")
        return host.strip("[]"), int(port)

    async def state(self) -> dict[str, Any]:
        async with self.http.get(f"{self.admin}/api/state") as response:
            return await response.json()

    async def engine(self, name: str) -> dict[str, Any]:
        return next(it for it in (await self.state())["engines"] if it["name"] == name)

    async def records(self) -> list[dict[str, Any]]:
        """Newest first."""
        async with self.http.get(f"{self.admin}/api/requests?limit=1000") as response:
            return (await response.json())["requests"]

    async def metric(self, name: str, **labels: str) -> float:
        """Sum of `prefix_gateway_{name}` over the series that carry `labels`; 0 where there is none."""
        async with self.http.get(f"{self.admin}/metrics") as response:
            text = await response.text()
        total = 0.0
        for line in text.splitlines():
            series, _, value = line.rpartition(" ")
            head, _, tail = series.partition("{")
            if head == f"prefix_gateway_{name}" and all(f'{k}="{v}"' in tail for k, v in labels.items()):
                total += float(value)
        return total

    async def post(self, path: str, body: Any, **kwargs: Any) -> tuple[int, dict[str, str], bytes]:
        """`body` is encoded unless it is bytes. Returns status, lower-case headers, body."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with self.http.post(f"{self.api}{path}", data=data, **kwargs) as response:
            return response.status, {k.lower(): v for k, v in response.headers.items()}, await response.read()


@contextlib.asynccontextmanager
async def running(
    tmp_path: Path,
    engines: list[dict[str, Any]],
    access_log: TextIO | None = None,
    file: Callable[[Path], ConfigFile] | None = None,
    change: Callable[[Config], Config] = lambda config: config,
    **sections: Any,
) -> AsyncIterator[Running]:
    """A gateway in front of `engines` (configuration entries), with further configuration sections. Only with
    a `file` of `gateway.yaml` it can be reloaded.

    `change` is for values that the configuration itself would refuse, such as shorter times.

    A test that fails while requests run waits for them no longer than `_GRACE`.
    """
    path = tmp_path / "gateway.yaml"
    limits = {"shutdown_grace": _GRACE, **sections.pop("limits", {})}
    path.write_text(yaml.safe_dump(free_config(engines, limits=limits, **sections)))
    log = logging.getLogger("prefix_gateway")
    source = file(path) if file else None
    gateway = Gateway(change(load(path, {})), log, access_log=access_log, file=source)
    await gateway.start()
    timeout = aiohttp.ClientTimeout(total=60)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as http:
        try:
            yield Running(gateway, http)
        finally:
            await gateway.stop()


def with_keepalive(seconds: float) -> Callable[[Config], Config]:
    """A `change` to signs of life after less than the second that the configuration asks for."""

    def change(config: Config) -> Config:
        admission = config.admission.model_copy(update={"keepalive_s": seconds})
        return config.model_copy(update={"admission": admission})

    return change


async def until(condition: Callable[[], Awaitable[Any]], seconds: float = 10.0) -> Any:
    """Poll until `condition` is true, and return what it gave; fail after `seconds`."""
    result: Any = None
    try:
        async with asyncio.timeout(seconds):
            while not (result := await condition()):
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"not so within {seconds} s; last: {result!r}") from None
    return result


def chat(text: str, *, system: str = "", model: str = "sim-model", **fields: Any) -> dict[str, Any]:
    messages = [{"role": "system", "content": system}] if system else []
    return {"model": model, "messages": [*messages, {"role": "user", "content": text}], **fields}
