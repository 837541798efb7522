"""Hours of load on one gateway: does memory stay, is everything counted, is nothing left behind?

usage: python benchmarks/relay/soak.py [--seconds 1800] [--out .cache/soak.json]  (make soak SECONDS=1800)

A real gateway process and two engine processes (engine.py). First the load (load.py) is as much as goes, then
60 % of it; a tenth of the clients leave, inside their request, right behind it or inside the answer. Each
minute one engine is killed (SIGKILL) and started again. At the end: no lease is held, memory has not grown by
more than 0.5 MB a minute since minute 10 (a run below 15 minutes cannot tell, and says so), the sum of
requests_total is what was sent, and the log has no error. Exit code 1 if one of these does not hold. The RSS
of every second is written to --out.
"""

import argparse
import asyncio
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections import deque
from pathlib import Path

import uvloop
from load import Load

from gateway.sim.ports import free_port

ROOT = Path(__file__).parents[2]
SLOTS, KV_TOKENS, SESSIONS = 48, 400_000, 150
PEAK_S, CALIBRATION_S, SHARE, MOST_AT_ONCE = 3.0, 5.0, 0.6, 300
FIRST_KILL_S = 2.0
"""The most that is ever in flight, and a kill amidst it, come first: a peak is no leak."""
WARM_S, LONG_S, PEAK_EVERY_S = 600.0, 900.0, 300.0
MOST_MB_PER_MINUTE = 0.5
FRESH, REPEATED = 10**9, 300
"""Different conversations. In a short run they come again, since tables of what was seen are not full yet."""
_BAD = re.compile(rb"\bERROR\b|Traceback|[Ee]xception|\bCRITICAL\b")
_COLUMNS = "    time  req/s      sent        ok refused  cut  left  in flight  queued  RSS MB"


class Gateway:
    """The process, what its log says beside the access log, and its metrics."""

    def __init__(self, engines: list[int], folder: str) -> None:
        self.port, self.admin_port = free_port(), free_port()
        config = {
            "listen": f"127.0.0.1:{self.port}",
            "admin": f"127.0.0.1:{self.admin_port}",
            "engines": [
                {"name": f"e{n}", "url": f"http://127.0.0.1:{port}", "slots": SLOTS, "kv_tokens": KV_TOKENS}
                for n, port in enumerate(engines)
            ],
        }
        path = Path(folder, "gateway.yaml")
        path.write_text(json.dumps(config))
        command = [sys.executable, "-m", "gateway", "serve", "--config", str(path)]
        self.process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE)
        self.access_lines = 0
        self.log: deque[bytes] = deque(maxlen=10_000)
        self.bad: list[bytes] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if line.startswith(b"time="):
                self.access_lines += 1
                continue
            self.log.append(line)
            if _BAD.search(line):
                self.bad.append(line)

    async def sum_of(self, name: str) -> float:
        url = f"http://127.0.0.1:{self.admin_port}/metrics"
        text = await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=10).read().decode())
        rows = re.findall(rf"^prefix_gateway_{name}(?:\{{.*\}})? (\S+)$", text, re.MULTILINE)
        return sum(map(float, rows))

    async def ready(self) -> None:
        url = f"http://127.0.0.1:{self.port}/readyz"
        for _ in range(200):
            try:
                await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=1).read())
                return
            except OSError:
                await asyncio.sleep(0.1)
        raise SystemExit(f"the gateway is not ready:\n{b''.join(self.log).decode()}")

    @property
    def rss_mb(self) -> float:
        """Linux tells it in pages, other systems through ps in KB."""
        try:
            pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
            return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
        except FileNotFoundError:
            told = subprocess.run(["ps", "-o", "rss=", "-p", str(self.process.pid)], capture_output=True)
            return int(told.stdout) / 1024

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(150)
        self._reader.join(10)
        return code


class Engines:
    def __init__(self, ports: list[int]) -> None:
        self._ports = ports
        self._processes = [self._start(port) for port in ports]
        self.kills = 0

    def _start(self, port: int) -> subprocess.Popen[bytes]:
        script = Path(__file__).with_name("engine.py")
        return subprocess.Popen([sys.executable, str(script), str(port), str(KV_TOKENS)])

    async def kill_one_each(self, period_s: float) -> None:
        await asyncio.sleep(FIRST_KILL_S)
        while True:
            which = self.kills % len(self._ports)
            self._processes[which].kill()
            self._processes[which].wait()
            self.kills += 1
            await asyncio.sleep(1.0)
            self._processes[which] = self._start(self._ports[which])
            await asyncio.sleep(period_s - 1.0)

    def stop(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


def growth_mb_per_minute(series: list[tuple[float, float]]) -> float:
    """Slope of the least-squares line through (seconds, MB)."""
    if len(series) < 2:
        return 0.0
    slope, _ = statistics.linear_regression(*zip(*series, strict=True))
    return slope * 60.0


def counted_part(series: list[tuple[float, float]], seconds: float) -> list[tuple[float, float]]:
    """Of a long run the peak of each five minutes: the lengths of prompts (core/lengths.py) are kept in two
    halves, the older of which is dropped whenever the younger is full: memory goes up and down by 20 MB."""
    start = WARM_S if seconds >= LONG_S else seconds / 3
    counted = [(at, mb) for at, mb in series if start <= at <= seconds]
    if seconds < LONG_S:
        return counted
    peaks: dict[float, float] = {}
    for at, mb in counted:
        middle = at // PEAK_EVERY_S * PEAK_EVERY_S + PEAK_EVERY_S / 2
        if middle < seconds:
            peaks[middle] = max(mb, peaks.get(middle, 0.0))
    return sorted(peaks.items())


def has_grown(mb_per_minute: float, seconds: float) -> bool:
    """Whether memory grew by more than it may. A run that ends before tables are full and freed memory has
    been kept once (some ten minutes) cannot tell."""
    return seconds >= LONG_S and mb_per_minute >= MOST_MB_PER_MINUTE


async def watch(gateway: Gateway, load: Load, series: list[tuple[float, float]], line_s: float) -> None:
    loop = asyncio.get_running_loop()
    began, next_line, sent = loop.time(), line_s, 0
    print(_COLUMNS, flush=True)
    while True:
        await asyncio.sleep(1.0)
        at = loop.time() - began
        series.append((round(at, 1), round(gateway.rss_mb, 2)))
        if at >= next_line:
            in_flight, queued = await gateway.sum_of("in_flight"), await gateway.sum_of("queue_depth")
            ends = load.counts
            print(
                f"{at:7.0f}s {(load.sent - sent) / line_s:6.0f} {load.sent:9d} {ends['ok']:9d} "
                f"{ends['refused']:7d} {ends['cut'] + ends['truncated']:4d} {ends['left'] + ends['half']:5d} "
                f"{in_flight:10.0f} {queued:7.0f} {series[-1][1]:7.1f}",
                flush=True,
            )
            next_line, sent = next_line + line_s, load.sent


async def settled(gateway: Gateway, load: Load) -> tuple[float, float]:
    """Leases held and requests counted, once both are as they should be or after 15 s."""
    held, counted = -1.0, -1.0
    for _ in range(150):
        held, counted = await gateway.sum_of("in_flight"), await gateway.sum_of("requests_total")
        if held == 0 and counted == load.sent and load.running == 0:
            break
        await asyncio.sleep(0.1)
    return held, counted


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


async def soak(gateway: Gateway, engines: Engines, seconds: float, out: Path) -> list[str]:
    """What does not hold."""
    load = Load("127.0.0.1", gateway.port, SESSIONS, FRESH if seconds >= LONG_S else REPEATED, seed=1)
    await gateway.ready()
    loop = asyncio.get_running_loop()
    end_s = loop.time() + seconds
    series: list[tuple[float, float]] = []
    line_s = 60.0 if seconds >= 300 else max(5.0, seconds / 6)
    tasks = [
        asyncio.ensure_future(watch(gateway, load, series, line_s)),
        asyncio.ensure_future(engines.kill_one_each(min(60.0, seconds / 4))),
    ]
    await load.closed_loop(MOST_AT_ONCE, PEAK_S)
    most = await load.closed_loop(2 * SLOTS, CALIBRATION_S)
    print(f"at most {most:.0f} requests/s: going on with {SHARE * most:.0f}", flush=True)
    await load.open_loop(SHARE * most, end_s, MOST_AT_ONCE)
    held, counted = await settled(gateway, load)
    for task in tasks:
        task.cancel()
    load.close()
    slope = growth_mb_per_minute(counted_part(series, seconds))
    code = gateway.stop()
    ends = {**load.counts, "statuses": {str(status): n for status, n in sorted(load.statuses.items())}}
    figures = {
        "seconds": seconds, "requests_per_s": round(load.sent / seconds),
        "sent": load.sent, "counted": counted, "access_log_lines": gateway.access_lines,
        "kills": engines.kills, "ends": ends, "in_flight": held,
        "mb_per_minute": round(slope, 3), "rss_mb": series,
    }  # fmt: skip
    await asyncio.to_thread(write, out, json.dumps(figures))
    print(json.dumps({name: value for name, value in figures.items() if name != "rss_mb"}, indent=1))
    wrong = {
        f"{held:.0f} slots are still leased": held != 0,
        f"{load.running} requests had no end": load.running != 0,
        f"{counted:.0f} requests were counted, {load.sent} sent": counted != load.sent,
        f"{gateway.access_lines} lines in the access log, {load.sent} sent": gateway.access_lines
        != load.sent,
        f"memory grew by {slope:.2f} MB/min": has_grown(slope, seconds),
        "errors in the log: " + b"".join(gateway.bad[:20]).decode(errors="replace"): bool(gateway.bad),
        f"the gateway ended with exit code {code}": code != 0,
        "no request succeeded": not load.counts["ok"],
    }
    return [what for what, is_so in wrong.items() if is_so]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=1800.0)
    parser.add_argument("--out", type=Path, default=ROOT / ".cache" / "soak.json")
    arguments = parser.parse_args()
    ports = [free_port(), free_port()]
    engines = Engines(ports)
    with tempfile.TemporaryDirectory() as folder:
        gateway = Gateway(ports, folder)
        try:
            wrong = uvloop.run(soak(gateway, engines, arguments.seconds, arguments.out))
        finally:
            gateway.process.kill()
            engines.stop()
    held = "all checks hold"
    if arguments.seconds < LONG_S:
        held = f"all other checks hold; memory is judged from {LONG_S:.0f} s on"
    print("\n".join(["FAILED", *wrong]) if wrong else held)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
