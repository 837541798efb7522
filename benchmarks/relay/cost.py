"""What a change costs the relay: CPU of a request and of an event, in process, before and after, in pairs.

usage: python benchmarks/relay/cost.py [--against REF] [--rounds 5] [--seconds 1] [--only json,burst]

A whole gateway (index, cost, leases, metrics, access log) between connections that lead nowhere, so that no
kernel time is in it and two trees differ by what they do, not by the hour. The same calls run by turns in the
commit REF and in this tree, each time in a new process; the difference is the median over the rounds. Exit
code 1 if it is above what one feature may cost: 8 us a request, 1 us an event.
"""

import argparse
import asyncio
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

ROOT = Path(__file__).parents[2]
REQUEST_US, EVENT_US = 8.0, 1.0
EVENTS = 50
CONNECTIONS = 16
WARM_UP = 200
BATCHES = 7
SYSTEM = "You are a helpful assistant. " * 70
SHORT = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "hi"}]
LONG = [{"role": "user", "content": f"turn {n} " + "lorem ipsum dolor sit amet " * 250} for n in range(60)]
SCENARIOS = {
    "json": "2 KB prompt, JSON answer",
    "burst": "2 KB prompt, 32 events in one piece",
    "event": f"one of {EVENTS} events that come one by one",
    "long": "400 KB prompt, JSON answer",
}


class Nowhere(asyncio.Transport):
    """Takes everything at once; `began` is how much of it began an answer of 200."""

    began = 0

    def write(self, data: bytes) -> None:
        self.began += data.startswith(b"HTTP/1.1 200 ")

    def writelines(self, data: object) -> None:
        pass

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def can_write_eof(self) -> bool:
        return True

    def is_closing(self) -> bool:
        return False

    def resume_reading(self) -> None:
        pass

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default

    def abort(self) -> None:
        sys.exit("the gateway closed a connection: nothing was measured")

    close = write_eof = abort


def request(messages: list[dict[str, str]], stream: bool) -> bytes:
    body = json.dumps({"model": "m", "stream": stream, "messages": messages}, separators=(",", ":")).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


async def measure(scenario: str, seconds: float, log: TextIO) -> float:
    """Microseconds of CPU for one request, or for one event."""
    from gateway.app import Gateway
    from gateway.bench.relay.engine import Answers, Manner, serve
    from gateway.config import Config
    from gateway.edge.client import ClientConnection
    from gateway.edge.upstream import EngineConnection

    server = await serve(0, Manner())
    port = server.sockets[0].getsockname()[1]
    engine = {"name": "e", "url": f"http://127.0.0.1:{port}", "kind": "vllm", "slots": 1024}
    addresses = {"listen": "127.0.0.1:0", "admin": "127.0.0.1:0"}
    config = Config.model_validate({"engines": [engine], **addresses})
    gateway = Gateway(config, logging.getLogger("cost"), access_log=log)
    await gateway.start()
    pool = gateway._pools["e"]
    clients = [ClientConnection(gateway._relay) for _ in range(CONNECTIONS)]
    nowhere = Nowhere()
    for client in clients:
        client.connection_made(nowhere)
    engine_side = EngineConnection(pool)
    engine_side.connection_made(Nowhere())
    pool._all.add(engine_side)
    pool._keeps_streams = True
    answers = Answers(Manner())
    asks = request(LONG if scenario == "long" else SHORT, stream=scenario in ("burst", "event"))
    pieces = {
        "burst": [answers.burst],
        "event": [answers.stream_head, *[answers.event] * EVENTS, answers.tail],
    }.get(scenario, [answers.chat])

    asked = 0

    def run(count: int) -> None:
        nonlocal asked
        asked += count
        for number in range(count):
            engine_side.idle_since = sys.float_info.max
            pool._idle[:] = [engine_side]
            clients[number % CONNECTIONS].data_received(asks)
            for piece in pieces:
                engine_side.data_received(piece)

    cost_us = _least_us(run, seconds)
    finished = gateway.dispatcher.snapshot()
    assert not finished.running, "requests were left running"
    assert nowhere.began == asked, f"{asked} requests, {nowhere.began} answers"
    return cost_us / (EVENTS if scenario == "event" else 1)


def _least_us(run: Callable[[int], None], seconds: float) -> float:
    """The least of some batches: others' work on the machine only ever adds."""
    began = time.thread_time()
    run(WARM_UP)
    each_s = (time.thread_time() - began) / WARM_UP
    count = max(20, int(seconds / BATCHES / each_s))
    costs_s = []
    for _ in range(BATCHES):
        began = time.thread_time()
        run(count)
        costs_s.append((time.thread_time() - began) / count)
    return min(costs_s) * 1e6


def child(tree: Path, scenario: str, seconds: float) -> float:
    command = [sys.executable, __file__, "--child", scenario, "--seconds", str(seconds)]
    environment = os.environ | {"PYTHONPATH": str(tree)}
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=120)
    if done.returncode:
        sys.exit(f"{tree}: {scenario} could not be measured:\n{done.stderr}")
    return float(done.stdout)


@contextmanager
def checked_out(ref: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "tree")
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), ref], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def compare(ref: str, scenarios: list[str], rounds: int, seconds: float) -> bool:
    """Prints the table; whether every difference is within its budget."""
    print(f"{'':8}{ref[:12] + ' us':>16}{'here us':>10}{'difference':>12}   least to most   budget")
    holds = True
    with checked_out(ref) as tree:
        for scenario in scenarios:
            pairs = [(child(tree, scenario, seconds), child(ROOT, scenario, seconds)) for _ in range(rounds)]
            differences = sorted(after - before for before, after in pairs)
            before_us, after_us = (statistics.median(side) for side in zip(*pairs, strict=True))
            difference_us = statistics.median(differences)
            budget_us = EVENT_US if scenario == "event" else REQUEST_US
            verdict = "held" if difference_us <= budget_us else "NOT HELD"
            holds = holds and difference_us <= budget_us
            spread = f"{differences[0]:+.2f} to {differences[-1]:+.2f}"
            print(
                f"{scenario:8}{before_us:16.1f}{after_us:10.1f}{difference_us:+12.2f}{spread:>18}"
                f"   {budget_us:g} {verdict}"
            )
    return holds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--against", metavar="REF", default="HEAD~1")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="CPU time of each measurement")
    parser.add_argument("--only", default=",".join(SCENARIOS), help=f"of {', '.join(SCENARIOS)}")
    parser.add_argument("--child", choices=SCENARIOS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        import uvloop

        with open(os.devnull, "w") as log:
            print(uvloop.run(measure(arguments.child, arguments.seconds, log)))
        return
    scenarios = [name for name in arguments.only.split(",") if name in SCENARIOS]
    sys.exit(not compare(arguments.against, scenarios, arguments.rounds, arguments.seconds))


if __name__ == "__main__":
    main()
