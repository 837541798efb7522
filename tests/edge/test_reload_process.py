"""`python -m gateway serve` as people run it: its signals, its flags, its file."""

import asyncio
import contextlib
import re
import signal
import sys

import aiohttp
import pytest
import yaml
from harness import until
from raw_engine import raw_engine, whole

OK = b'{"ok":1}'


async def complete(call):
    call.write(whole(OK))


@pytest.fixture
async def engine():
    async with raw_engine(complete) as engine:
        yield engine


class Process:
    """`admin` and `api` are base URLs; `log` holds the lines so far."""

    def __init__(self, process, http):
        self.process = process
        self.http = http
        self.log = []
        self.api = self.admin = ""

    async def read(self):
        async for line in self.process.stderr:
            text = line.decode()
            found = re.search(r"serving on (http://\S+), admin and dashboard on (http://\S+)", text)
            self.log.append(text)
            if found:
                self.api, self.admin = found[1], found[2]

    def said(self, text):
        async def is_so():
            return any(text in line for line in self.log)

        return until(is_so)

    async def state(self):
        async with self.http.get(f"{self.admin}/api/state") as response:
            return await response.json()

    async def names(self):
        return [it["name"] for it in (await self.state())["engines"]]

    async def is_called(self, *names):
        async def is_so():
            return await self.names() == list(names)

        await until(is_so)


@contextlib.asynccontextmanager
async def serving(*options):
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway", "serve", "--admin", "127.0.0.1:0", *options),
        stderr=asyncio.subprocess.PIPE,
    )
    async with aiohttp.ClientSession() as http:
        it = Process(process, http)
        reading = asyncio.create_task(it.read())
        try:
            await it.said("serving on")
            yield it
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
                try:
                    async with asyncio.timeout(10):
                        await process.wait()
                except TimeoutError:
                    process.kill()
                    await process.wait()
            await reading


def write(path, *engines, **sections):
    other = path.with_suffix(".new")
    other.write_text(yaml.safe_dump({"listen": "127.0.0.1:0", "engines": list(engines), **sections}))
    other.rename(path)


async def test_sighup_and_the_file_itself_bring_another_configuration(tmp_path, engine):
    path = tmp_path / "gateway.yaml"
    write(path, engine.entry(name="a"))
    async with serving("--config", str(path)) as it:
        await it.is_called("a")
        write(path, engine.entry(name="b"))
        it.process.send_signal(signal.SIGHUP)
        await it.said("configuration reloaded: engines.a: removed; engines.b: added")
        assert await it.names() == ["b"]
        write(path, engine.entry(name="c"))
        await it.is_called("c")
        path.write_text("engines: [")
        await it.said("configuration not reloaded, the old one stays in force")
        state = await it.state()
        assert (state["reload"]["ok"], state["reload"]["problems"][0]["line"]) == (False, 1)
        async with it.http.post(f"{it.api}/v1/chat/completions", json={"model": "m"}) as response:
            assert await response.read() == OK
        it.process.send_signal(signal.SIGTERM)
        assert await it.process.wait() == 0


async def test_flags_go_before_the_file_after_a_reload_too(tmp_path, engine):
    path = tmp_path / "gateway.yaml"
    write(path, {"url": "http://127.0.0.1:1", "name": "of-the-file"})
    flags = ("--engine", f"{engine.url},name=flag,kind=openai,slots=2", "--listen", "127.0.0.1:0")
    async with serving("--config", str(path), *flags) as it:
        write(path, {"url": "http://127.0.0.1:2"}, listen="127.0.0.1:7", admission={"max_queue": 3})
        async with it.http.post(f"{it.admin}/api/reload") as response:
            assert await response.json() == {"changed": ["admission.max_queue: 512 -> 3"]}
        assert await it.names() == ["flag"]


async def test_sighup_without_a_file_ends_nothing(engine):
    async with serving("--engine", engine.url, "--listen", "127.0.0.1:0") as it:
        it.process.send_signal(signal.SIGHUP)
        await it.said("there is no file to reload")
        async with it.http.get(f"{it.api}/healthz") as response:
            assert response.status == 200
