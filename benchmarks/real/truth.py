"""Whether the gateway's hits are the engines' own: plays recorded agents and adds up three accounts of it.

The answers' usage, the engines' counters of cached tokens (vLLM `prefix_cache_hits`, llama-server
`prompt_tokens_cached`), and the gateway's `cached_tokens_delivered` with the losses by reason. Ends with 1
if they do not agree. The engines run already and are used by nobody else; a gateway is started for them.
"""

import argparse
import asyncio
import itertools
import json
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
from miniswe_systems import process, wait_for
from miniswe_trace import Cut, Session, Turn, load
from rich.console import Console
from rich.table import Table

TRACE = Path(__file__).parents[1] / "data" / "lmcache-agent-trace" / "miniswe.delta.jsonl.gz"
REASONS = ("cold", "spilled", "queued_elsewhere", "pending", "evicted", "engine_disagrees")
ENGINE_COUNTERS = ("vllm:prefix_cache_hits_total", "llamacpp:prompt_tokens_cached_total")
MOST_APART = 0.01
"""What the engines' counters may differ by: they count a preempted request twice."""

SETTLE_S = 1.0
START_LIMIT_S = 30.0


def main() -> int:
    args = _arguments()
    cut = Cut(
        sessions=args.sessions,
        turns=args.turns,
        prompt_chars=args.prompt_chars,
        output_tokens=args.output_tokens,
        think_s=0.5,
        start_gap_s=0.2,
    )
    folder = Path(tempfile.mkdtemp(prefix="truth-"))
    admin_port = args.port + 1
    command = [sys.executable, "-m", "gateway", "--log-level", "error", "serve"]
    for url in args.engine:
        command += ["--engine", url]
    command += ["--listen", f"127.0.0.1:{args.port}", "--admin", f"127.0.0.1:{admin_port}"]
    api, admin = f"http://127.0.0.1:{args.port}", f"http://127.0.0.1:{admin_port}"
    with process(command, folder / "gateway.log") as child:
        wait_for(child, f"{api}/readyz", None, START_LIMIT_S, folder / "gateway.log")
        told = asyncio.run(_compare(api, admin, args.engine, args.model, load(args.trace, cut)))
    return _show(told)


async def _compare(
    api: str, admin: str, engines: Sequence[str], model: str, sessions: Sequence[Session]
) -> dict[str, int]:
    timeout = aiohttp.ClientTimeout(total=300)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as http:
        engines_before = [await _engine(http, url) for url in engines]
        before = await _gateway(http, admin)
        played = await asyncio.gather(*(_session(http, api, model, it) for it in sessions))
        await asyncio.sleep(SETTLE_S)
        after = await _gateway(http, admin)
        engines_after = [await _engine(http, url) for url in engines]
    usages = list(itertools.chain.from_iterable(played))
    growth = sum(now - then for now, then in zip(engines_after, engines_before, strict=True))
    return {
        "requests": len(usages),
        "prompt, by the answers": sum(prompt for prompt, _ in usages),
        "cached, by the answers": sum(cached for _, cached in usages),
        "cached, by the engines": growth,
        **{name: after[name] - before[name] for name in after},
    }


async def _session(
    http: aiohttp.ClientSession, api: str, model: str, session: Session
) -> list[tuple[int, int]]:
    await asyncio.sleep(session.start_s)
    out = []
    for number, turn in enumerate(session.turns):
        await asyncio.sleep(turn.think_s)
        out.append(await _ask(http, api, _body(model, turn, stream=number % 3 != 2)))
    return out


def _body(model: str, turn: Turn, *, stream: bool) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": turn.prompt}],
        "max_tokens": turn.output_tokens,
        "temperature": 0,
        "stream": stream,
    }
    return body | {"stream_options": {"include_usage": True}} if stream else body


async def _ask(http: aiohttp.ClientSession, api: str, body: dict[str, Any]) -> tuple[int, int]:
    """Prompt and cached tokens, as the answer tells them. Raises RuntimeError if it does not."""
    async with http.post(f"{api}/v1/chat/completions", json=body) as response:
        text = await response.read()
    pieces = [text] if not body["stream"] else re.findall(rb"^data: (\{.*\})\r?$", text, re.MULTILINE)
    usage = next((found for it in reversed(pieces) if (found := json.loads(it).get("usage"))), None)
    if response.status != 200 or usage is None:
        raise RuntimeError(f"status {response.status}: {text[-300:]!r}")
    return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


async def _engine(http: aiohttp.ClientSession, url: str) -> int:
    page = await _page(http, url)
    for name in ENGINE_COUNTERS:
        if (value := _counter(page, name)) is not None:
            return value
    raise RuntimeError(f"{url}/metrics has none of {', '.join(ENGINE_COUNTERS)}")


async def _gateway(http: aiohttp.ClientSession, admin: str) -> dict[str, int]:
    page = await _page(http, admin)
    steps = ("prompt_tokens", "cached_tokens_best", "cached_tokens_predicted", "cached_tokens_delivered")
    out = {step: _counter(page, f"prefix_gateway_{step}_total") or 0 for step in steps}
    out["unknown requests"] = _counter(page, "prefix_gateway_cached_tokens_unknown_requests_total") or 0
    name = "prefix_gateway_prefix_loss_tokens_total"
    return out | {f"lost: {it}": _counter(page, name, f'reason="{it}"') or 0 for it in REASONS}


async def _page(http: aiohttp.ClientSession, url: str) -> str:
    async with http.get(f"{url}/metrics") as response:
        return await response.text()


def _counter(page: str, name: str, label: str = "") -> int | None:
    found = re.findall(rf"^{name}(\{{[^}}]*\}})? (\S+)$", page, re.MULTILINE)
    values = [float(value) for labels, value in found if label in labels]
    return int(sum(values)) if values else None


def _show(told: dict[str, int]) -> int:
    table = Table("tokens", "sum")
    for name, value in told.items():
        table.add_row(name, f"{value:,}")
    lost, delivered = sum(told[f"lost: {it}"] for it in REASONS), told["cached_tokens_delivered"]
    answers, engines = told["cached, by the answers"], told["cached, by the engines"]
    checks = {
        f"delivered {delivered:,} = the answers' {answers:,}": delivered == answers,
        f"delivered {delivered:,} = the engines' {engines:,} within 1 %": (
            abs(delivered - engines) <= MOST_APART * engines
        ),
        f"lost {lost:,} = prompt - delivered {told['prompt_tokens'] - delivered:,}": (
            lost == told["prompt_tokens"] - delivered
        ),
        "something was served from a cache": delivered > 0,
    }
    console = Console()
    console.print(table)
    for what, holds in checks.items():
        console.print(f"{'holds' if holds else 'FAILS'}: {what}", highlight=False)
    return 0 if all(checks.values()) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--engine", action="append", required=True, metavar="URL", help="once for each")
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--trace", type=Path, default=TRACE)
    parser.add_argument("--sessions", type=int, default=20)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--prompt-chars", type=int, default=16_000)
    parser.add_argument("--output-tokens", type=int, default=16)
    parser.add_argument("--port", type=int, default=18_850, help="this one and the next are used")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
