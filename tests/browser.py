"""A headless Chromium, driven by its DevTools protocol."""

import asyncio
import base64
import contextlib
import itertools
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

Json = dict[str, Any]

CHROMIUM = next(
    (it for it in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if it), None
)

_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--no-first-run", "--disable-extensions", "--disable-background-networking", "--remote-debugging-port=0",
)  # fmt: skip
_START_S, _ANSWER_S = 60.0, 60.0


class Tab:
    """One page. `complaints` is what it wrote to the console as an error, and every uncaught exception."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.complaints: list[str] = []
        self._socket = socket
        self._session = ""
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[Json]] = {}
        self._reader = asyncio.create_task(self._read())

    async def attach(self) -> None:
        target = await self.send("Target.createTarget", url="about:blank")
        attached = await self.send("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            await self.send(f"{domain}.enable")

    async def close(self) -> None:
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)

    async def send(self, method: str, **params: Any) -> Json:
        number = next(self._numbers)
        self._asked[number] = asyncio.get_running_loop().create_future()
        message: Json = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        await self._socket.send_json(message)
        async with asyncio.timeout(_ANSWER_S):
            return await self._asked[number]

    async def open(self, url: str) -> None:
        await self.send("Page.navigate", url=url)
        await self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    async def size(self, width: int, height: int, *, mobile: bool = False, scale: float = 1) -> None:
        await self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=mobile,
        )

    async def media(self, **features: str) -> None:
        """What the system prefers, as `prefers_color_scheme="dark"`."""
        told = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        await self.send("Emulation.setEmulatedMedia", features=told)

    async def run(self, script: str) -> Any:
        """The value of an expression, awaited where it is a promise."""
        got = await self.send(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True, userGesture=True
        )
        if "exceptionDetails" in got:
            raise AssertionError(_exception(got["exceptionDetails"]))
        return got["result"].get("value")

    async def until(self, script: str, seconds: float = 20.0) -> Any:
        """Waits until an expression is true, and gives its value."""
        value: Any = None
        try:
            async with asyncio.timeout(seconds):
                while not (value := await self.run(script)):
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"not so within {seconds} s: {script}; last: {value!r}") from None
        return value

    async def text(self, selector: str) -> str:
        return await self.run(f"document.querySelector({json.dumps(selector)}).innerText")

    async def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            await self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    async def picture(self, *, whole: bool = False) -> bytes:
        got = await self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(got["data"])

    async def _read(self) -> None:
        async for message in self._socket:
            self._take(json.loads(message.data))

    def _take(self, told: Json) -> None:
        if "id" in told:
            asked = self._asked.pop(told["id"])
            if asked.done():
                return
            if "error" in told:
                asked.set_exception(AssertionError(told["error"]["message"]))
            else:
                asked.set_result(told["result"])
        elif told["method"] == "Runtime.exceptionThrown":
            self.complaints.append(_exception(told["params"]["exceptionDetails"]))
        elif told["method"] == "Runtime.consoleAPICalled" and told["params"]["type"] == "error":
            self.complaints.append(str(told["params"]["args"]))
        elif told["method"] == "Log.entryAdded" and told["params"]["entry"]["level"] == "error":
            entry = told["params"]["entry"]
            self.complaints.append(f"{entry['text']} {entry.get('url', '')}".strip())


def _exception(details: Json) -> str:
    return str(details.get("exception", {}).get("description", details["text"]))


@contextlib.asynccontextmanager
async def chromium(profile: Path) -> AsyncIterator[Tab]:
    """A browser of its own, in an empty profile."""
    assert CHROMIUM is not None
    process = await asyncio.create_subprocess_exec(
        CHROMIUM,
        *_FLAGS,
        f"--user-data-dir={profile}",
        "about:blank",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        port, path = await _where(profile / "DevToolsActivePort")
        async with (
            aiohttp.ClientSession() as http,
            http.ws_connect(f"ws://127.0.0.1:{port}{path}", max_msg_size=0) as socket,
        ):
            tab = Tab(socket)
            try:
                await tab.attach()
                yield tab
            finally:
                await tab.close()
    finally:
        # Its helpers are in its session and outlive it otherwise.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def _where(file: Path) -> tuple[str, str]:
    """The port and path that the browser writes once it listens."""
    async with asyncio.timeout(_START_S):
        while len(lines := _lines(file)) < 2:
            await asyncio.sleep(0.05)
        return lines[0], lines[1]


def _lines(file: Path) -> list[str]:
    return file.read_text().split() if file.exists() else []
