"""The miniswe trace through the gateway and its rivals, in front of two real vLLM engines.

usage: python benchmarks/real/miniswe.py --vllm 'COMMAND with {port} {kv} {blocks} {seqs}' --rounds N
           --blocks 512|full --out FILE.jsonl
       python benchmarks/real/miniswe.py --report FILE.jsonl

One run has one configuration of two fresh engines. In each round every system plays the same sessions, from
empty caches and freshly started, at its defaults; the order rotates from round to round. README.md tells
how to install engines and rivals, and how to read the report.
"""

import argparse
import json
import os
import signal
import sys
import urllib.request
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from aiohttp import ClientError
from miniswe_play import EngineTrouble, Played, check_reset, play, read_funnel
from miniswe_report import Figures, encode, read, show
from miniswe_systems import (
    FULL_BLOCKS,
    GATEWAY,
    SYSTEMS,
    engine_command,
    engines,
    system,
    system_command,
    versions,
)
from miniswe_trace import Cut, Session, load
from msgspec import to_builtins
from rich.console import Console

DATA = Path(__file__).parents[1] / "data" / "lmcache-agent-trace" / "miniswe.delta.jsonl.gz"
ENGINES = 2
SHOWN_ERRORS = 3


def order(systems: Sequence[str], round_: int) -> list[str]:
    """Each system stands in each place equally often, so that what drifts over a round is no one's gain."""
    first = round_ % len(systems)
    return [*systems[first:], *systems[:first]]


def main() -> None:
    # A stop signal must pass through the context managers that end the engines.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    arguments = _arguments()
    try:
        if arguments.report:
            with arguments.report.open(encoding="utf-8") as lines:
                show(read(lines), Console(width=110))
        else:
            _measure(arguments)
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except (EngineTrouble, ClientError, ValueError, OSError) as error:
        raise SystemExit(f"miniswe: {str(error) or repr(error)}") from None


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--vllm", metavar="COMMAND", help="starts one engine; {port} {kv} {blocks} {seqs}")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--blocks", default="full", help="KV blocks an engine: a number, or full")
    parser.add_argument("--seqs", type=int, default=4, help="requests an engine runs at once")
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--trace", type=Path, default=DATA, help="miniswe.delta.jsonl, or .gz of it")
    parser.add_argument("--port", type=int, default=18800, help="first of eight ports")
    parser.add_argument("--out", type=Path, help="JSON lines are appended")
    parser.add_argument("--report", type=Path, metavar="FILE", help="only reads such a file")
    arguments = parser.parse_args()
    if not arguments.report and not (arguments.vllm and arguments.out):
        parser.error("--vllm and --out are needed, or --report")
    arguments.systems = arguments.systems.split(",")
    if unknown := set(arguments.systems) - set(SYSTEMS):
        parser.error(f"--systems: unknown {', '.join(sorted(unknown))}; known are {', '.join(SYSTEMS)}")
    if arguments.blocks != "full" and not arguments.blocks.isdigit():
        parser.error(f"--blocks is {arguments.blocks!r}; it takes a number, or full")
    arguments.blocks = FULL_BLOCKS if arguments.blocks == "full" else int(arguments.blocks)
    return arguments


def _measure(arguments: argparse.Namespace) -> None:
    cut = Cut()
    sessions = load(arguments.trace, cut)
    setting = {
        "kind": "setting",
        "run": datetime.now(UTC).isoformat(timespec="seconds"),
        "systems": versions(arguments.systems),
        "cut": to_builtins(cut),
        "requests": sum(len(session.turns) for session in sessions),
        "cores": os.cpu_count(),
    }
    folder = arguments.out.with_suffix(".logs")
    folder.mkdir(parents=True, exist_ok=True)
    with (
        engines(_engine_commands(arguments), folder) as urls,
        arguments.out.open("a", encoding="utf-8") as out,
    ):
        check_reset(urls, sessions[0].turns[0].prompt)
        setting["vllm"] = json.loads(_get(f"{urls[0]}/version"))["version"]
        print(json.dumps(setting), file=out, flush=True)
        for round_ in range(arguments.rounds):
            for place, name in enumerate(order(arguments.systems, round_)):
                played, funnel = _one(name, arguments, urls, sessions, folder)
                figures = _figures(played, name, arguments, (setting["run"], round_, place))
                print(encode(figures, _details(played) | funnel), file=out, flush=True)
                print(f"round {round_} {_short(figures)}", flush=True)


def _engine_commands(arguments: argparse.Namespace) -> dict[int, list[str]]:
    """By port. An engine's KV port is followed by its port for replays."""
    return {
        arguments.port + index: engine_command(
            arguments.vllm,
            port=arguments.port + index,
            kv_port=arguments.port + 4 + 2 * index,
            blocks=arguments.blocks,
            seqs=arguments.seqs,
        )
        for index in range(ENGINES)
    }


def _one(
    name: str, arguments: argparse.Namespace, urls: Sequence[str], sessions: Sequence[Session], folder: Path
) -> tuple[Played, dict[str, object]]:
    """What was played, and from the gateway where it lost cached tokens."""
    port, metrics_port = arguments.port + 2, arguments.port + 3
    command = system_command(
        name, port=port, metrics_port=metrics_port, engine_urls=urls, seqs=arguments.seqs, folder=folder
    )
    with system(command, port, folder / f"{name}.log") as base_url:
        played = play(base_url, urls, sessions)
        if name != GATEWAY:
            return played, {}
        return played, {"funnel_tokens": read_funnel(_get(f"http://127.0.0.1:{metrics_port}/metrics"))}


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        text: str = answer.read().decode()
    return text


def _figures(
    played: Played, name: str, arguments: argparse.Namespace, place: tuple[str, int, int]
) -> Figures:
    return Figures(
        run=place[0],
        round=place[1],
        place=place[2],
        system=name,
        blocks=arguments.blocks,
        seqs=arguments.seqs,
        hit_tokens=tuple(it.hits for it in played.counters),
        query_tokens=tuple(it.queries for it in played.counters),
        ttft_s=tuple(round(answer.ttft_s, 4) for answer in played.answers),
        errors=sum(bool(answer.error) for answer in played.answers),
        wall_s=round(played.wall_s, 2),
    )


def _details(played: Played) -> dict[str, object]:
    """What the answers' own usage says, beside the counters, and the first errors."""
    told = [answer.usage for answer in played.answers if answer.usage]
    return {
        "prompt_tokens": sum(usage.prompt_tokens or 0 for usage in told),
        "cached_tokens": sum(usage.cached_tokens or 0 for usage in told),
        "output_tokens": sum(usage.output_tokens or 0 for usage in told),
        "first_errors": [answer.error for answer in played.answers if answer.error][:SHOWN_ERRORS],
    }


def _short(figures: Figures) -> str:
    hits = sum(figures.hit_tokens) / max(1, sum(figures.query_tokens))
    return (
        f"{figures.system:14} hits {hits * 100:5.1f} %  TTFT p50 {figures.p50_s:5.2f} s"
        f"  p90 {figures.p90_s:5.2f} s  wall {figures.wall_s:5.1f} s  errors {figures.errors}"
    )


if __name__ == "__main__":
    main()
