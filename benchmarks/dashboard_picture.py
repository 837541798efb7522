"""The dashboard's picture in the README, made anew: python benchmarks/dashboard_picture.py [--seconds 240]

Four simulated engines, a real gateway and agents of three clients that hold conversations, in this process.
One client writes the time into its system prompt until half of the time is over, and a mark says so. Then a
headless Chromium takes the picture. With --keep the gateway stays up, for looking around.
"""

import argparse
import asyncio
import base64
import contextlib
import itertools
import logging
import os
import random
import struct
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import uvloop

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from browser import chromium  # noqa: E402
from harness import Running, running  # noqa: E402

from gateway.sim.server import SimEngine  # noqa: E402
from gateway.sim.settings import SimSettings  # noqa: E402

MODEL = "Qwen/Qwen3-Coder-30B"
SPEED = 1.0
ENGINES = {
    "gpu-a": {"slots": 16, "kv_tokens": 64_000, "prefill_rate": 5000.0, "decode_rate": 28.0},
    "gpu-b": {"slots": 16, "kv_tokens": 64_000, "prefill_rate": 5000.0, "decode_rate": 28.0},
    "gpu-c": {"slots": 8, "kv_tokens": 40_000, "prefill_rate": 3500.0, "decode_rate": 22.0},
    "studio": {"slots": 4, "kv_tokens": 96_000, "prefill_rate": 1500.0, "decode_rate": 15.0,
               "kind": "llamacpp"},
}  # fmt: skip
WIDTH, HEIGHT = 1280, 1760
PAUSE_S, TURNS, BURST = 2.0, 14, 5
CHARS = 4


class Client(NamedTuple):
    """`system_tokens` are its system prompt's, with the time at its start while it `tells_time`."""

    name: str
    agents: int
    system_tokens: int
    session_header: str
    tells_time: bool = False


CLIENTS = (
    Client("claude-cli/2.1", 22, 5000, "x-claude-code-session-id"),
    Client("codex_cli_rs/0.60", 15, 3500, "session_id"),
    Client("nightly-review/1.4", 7, 2500, "x-session-id", tells_time=True),
)
SYLLABLES = ("ba", "co", "de", "fi", "gu", "ha", "je", "ki", "lo", "mu", "na", "po", "qui", "ra", "zen")
DICE = random.Random


def prose(dice: random.Random, tokens: int) -> str:
    """A text of so many simulated tokens, which have four characters each."""
    words: list[str] = []
    length = 0
    while length < tokens * CHARS:
        word = "".join(dice.choices(SYLLABLES, k=dice.randint(1, 3)))
        words.append(word)
        length += len(word) + 1
    return " ".join(words)[: tokens * CHARS]


class Agents:
    """Closed loops: each agent asks, reads the answer, thinks, goes on; after some turns it begins anew."""

    def __init__(self, gateway: Running) -> None:
        self.is_fixed = False
        self._gateway = gateway
        self._numbers = itertools.count()

    async def play(self) -> None:
        async with asyncio.TaskGroup() as group:
            for client in CLIENTS:
                system = prose(DICE(client.name), client.system_tokens)
                for number in range(client.agents):
                    group.create_task(self._agent(client, system, DICE(f"{client.name} {number}")))

    async def _agent(self, client: Client, system: str, dice: random.Random) -> None:
        await asyncio.sleep(dice.uniform(0, 20))
        while True:
            await self._conversation(client, system, dice)

    async def _conversation(self, client: Client, system: str, dice: random.Random) -> None:
        session = f"{client.name} {next(self._numbers)}"
        turns = [{"role": "user", "content": prose(dice, dice.randint(500, 2500))}]
        for turn in range(dice.randint(3, TURNS)):
            answer = await self._ask(
                client, session, self._system(client, system), turns, dice.randint(30, 110)
            )
            asked = prose(dice, dice.randint(60, 900))
            turns += [{"role": "assistant", "content": answer}, {"role": "user", "content": asked}]
            if turn == 3 and dice.random() < 0.15:
                await self._burst(client, system, turns, dice)
            await asyncio.sleep(dice.expovariate(1 / PAUSE_S))

    async def _burst(
        self, client: Client, system: str, turns: list[dict[str, str]], dice: random.Random
    ) -> None:
        """Sub-agents that all begin with what their parent has said so far."""
        begun = [
            self._ask(
                client,
                f"{client.name} {next(self._numbers)}",
                self._system(client, system),
                [*turns, {"role": "user", "content": prose(dice, 80)}],
                60,
            )
            for _ in range(BURST)
        ]
        await asyncio.gather(*begun)

    def _system(self, client: Client, system: str) -> str:
        tells_time = client.tells_time and not self.is_fixed
        return f"The time is {datetime.now(UTC).isoformat()}.\n{system}" if tells_time else system

    async def _ask(
        self, client: Client, session: str, system: str, turns: list[dict[str, str]], tokens: int
    ) -> str:
        tools = [{"type": "function", "function": {"name": "apply_patch", "parameters": {"type": "object"}}}]
        body: dict[str, Any] = {
            "model": MODEL,
            "messages": [{"role": "system", "content": system}, *turns],
            "stream": True,
            "max_tokens": tokens,
        }
        if client.session_header != "x-session-id":
            body["tools"] = tools
        headers = {"user-agent": client.name, client.session_header: session}
        # One that gives up goes on with its next turn, as people do.
        with contextlib.suppress(TimeoutError, aiohttp.ClientError):
            await self._gateway.post("/v1/chat/completions", body, headers=headers)
        return prose(DICE(session + str(len(turns))), tokens)


@contextlib.contextmanager
def quiet() -> Iterator[Any]:
    with open(os.devnull, "w") as log:
        yield log


# Chromium's own PNG is three times as large, for a page that has few colours.
PIXELS = """(async () => {
  const image = new Image();
  image.src = "data:image/png;base64,%s";
  await image.decode();
  const canvas = new OffscreenCanvas(image.width, image.height), pen = canvas.getContext("2d");
  pen.drawImage(image, 0, 0);
  const bytes = new Uint8Array(pen.getImageData(0, 0, image.width, image.height).data.buffer);
  let text = "";
  for (let at = 0; at < bytes.length; at += 32768)
    text += String.fromCharCode(...bytes.subarray(at, at + 32768));
  return btoa(text);
})()"""


def with_palette(rgba: bytes) -> bytes:
    """A PNG of 256 colours: the most frequent ones, and then always the one farthest from those chosen."""
    pixels = [rgba[at : at + 3] for at in range(0, len(rgba), 4)]
    palette: list[bytes] = []
    place: dict[bytes, tuple[int, int]] = {}
    frequent = [colour for colour, _ in Counter(pixels).most_common()]
    while len(palette) < min(256, len(frequent)):
        by_frequency = len(palette) < 128
        chosen = frequent[len(palette)] if by_frequency else max(place, key=lambda it: place[it][0])
        palette.append(chosen)
        for colour in frequent:
            distance = sum((a - b) ** 2 for a, b in zip(chosen, colour, strict=True))
            if colour not in place or distance < place[colour][0]:
                place[colour] = (distance, len(palette) - 1)
    lines = (bytes(place[it][1] for it in pixels[at : at + WIDTH]) for at in range(0, len(pixels), WIDTH))
    drawn = zlib.compress(b"".join(b"\0" + line for line in lines), 9)
    head = struct.pack(">IIBBBBB", WIDTH, len(pixels) // WIDTH, 8, 3, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"PLTE", b"".join(palette)), (b"IDAT", drawn), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    )


async def picture(url: str, out: Path, scheme: str) -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        async with chromium(Path(profile)) as tab:
            await tab.size(WIDTH, HEIGHT)
            await tab.media(prefers_color_scheme=scheme)
            await tab.open(url)
            await tab.until("sources.every((it) => it.goodAt !== null || it.error !== null)")
            await tab.run("document.querySelector('#marks button')?.click()")
            # The bars move to their places, and the mark is compared.
            await asyncio.sleep(2)
            png = await tab.picture()
            complaints = list(tab.complaints)
            await tab.open("about:blank#")
            png = with_palette(base64.b64decode(await tab.run(PIXELS % base64.b64encode(png).decode())))
            print(f"{out}: {len(png):,} bytes; complaints: {complaints or 'none'}")
            await asyncio.to_thread(out.write_bytes, png)


async def mark(gateway: Running, text: str) -> None:
    async with gateway.http.post(f"{gateway.admin}/api/mark", json={"text": text}) as response:
        print(f"mark: {response.status}")


async def main(arguments: argparse.Namespace) -> None:
    async with contextlib.AsyncExitStack() as stack:
        entries = []
        for name, it in ENGINES.items():
            settings = SimSettings(**{"dev": True, "model": MODEL, "jitter": 0.1, "speed": SPEED, **it})
            engine = await stack.enter_async_context(SimEngine(settings))
            entries.append({"name": name, "url": engine.url})
        log = stack.enter_context(quiet())
        path = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        gateway = await stack.enter_async_context(running(path, entries, access_log=log))
        print(f"dashboard: {gateway.admin}/", flush=True)
        agents = Agents(gateway)
        # The agents leave in the middle of their answers when it is over.
        logging.getLogger("aiohttp.server").disabled = True
        playing = asyncio.create_task(agents.play())
        try:
            await asyncio.sleep(arguments.seconds / 2)
            await mark(gateway, "nightly-review no longer tells the time")
            agents.is_fixed = True
            await asyncio.sleep(arguments.seconds / 2)
            await picture(gateway.admin + "/", arguments.out, arguments.scheme)
            if arguments.keep:
                await asyncio.Event().wait()
        finally:
            playing.cancel()
            await asyncio.gather(playing, return_exceptions=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=240.0, help="of traffic (240)")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images" / "dashboard.png")
    parser.add_argument("--scheme", choices=("light", "dark"), default="light")
    parser.add_argument("--keep", action="store_true", help="stay up afterwards")
    with contextlib.suppress(KeyboardInterrupt, aiohttp.ClientError):
        uvloop.run(main(parser.parse_args()))
