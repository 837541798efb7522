"""Whether what breaks prefixes is found in the prompts of real clients, and nothing else.

usage: python benchmarks/breakers/pairs.py --data DIR --clients DIR [--verbose]

DIR of `--data` has `agent-prompts/` (gemini-cli, OpenHands, Roo Code), that of `--clients` captured requests
(`{"body": {...}}` in `*.json`). Each prompt is changed in every way of `tests/core/breaker_*.py`, and the
pair is shown to the gateway's own code, with a session named and without. Prints a table by kind and the
misses; exit code 1 if there are any.
"""

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TRAILING_COMMA = re.compile(r",(\s*[\]}])")
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "core")]

from breaker_bodies import Body  # noqa: E402
from breaker_pairs import Pair  # noqa: E402
from breaker_seeing import BREAKS, HARMLESS, NEEDS_SESSION, found  # noqa: E402


def captured(clients: Path) -> Iterator[tuple[str, Body]]:
    for path in sorted(clients.glob("*.json")):
        data = json.loads(path.read_text())["body"]
        api = "responses" if "input" in data else "messages" if "system" in data else "chat"
        yield path.stem, Body(api, data)


def prompted(data: Path, tools: list[Any]) -> Iterator[tuple[str, Body]]:
    """Each system prompt in a body of each API by turns, with tools of a real client."""
    texts: dict[str, str] = {}
    for path in sorted((data / "agent-prompts").glob("*prompt*.json")):
        for at, it in enumerate(json.loads(path.read_text())):
            if len(it["text"]) > 4_000:
                texts.setdefault(it["text"], f"{path.name.split('.')[0]}-{at}")
    for at, (text, name) in enumerate(texts.items()):
        yield name, body_of(("chat", "messages", "responses")[at % 3], text, tools)


def body_of(api: str, text: str, tools: list[Any]) -> Body:
    question = "Please look at the parser: it is slow for long lines."
    if api == "messages":
        renamed = [{"input_schema" if key == "parameters" else key: it[key] for key in it} for it in tools]
        messages = [{"role": "user", "content": question}]
        return Body(api, {"model": "m", "system": text, "messages": messages, "tools": renamed})
    if api == "chat":
        wrapped = [{"type": "function", "function": it} for it in tools]
        messages = [{"role": "system", "content": text}, {"role": "user", "content": question}]
        return Body(api, {"model": "m", "messages": messages, "tools": wrapped})
    typed = [{"type": "function", **it} for it in tools]
    return Body(api, {"model": "m", "instructions": text, "input": [], "tools": typed}).say("user", question)


def gemini_tools(data: Path) -> list[Any]:
    """Those whose snapshot can be read as JSON: quotes in them are not escaped."""
    tools: dict[str, Any] = {}
    for it in json.loads((data / "agent-prompts" / "gemini-cli.tool_declarations.json").read_text()):
        try:
            declared = json.loads(TRAILING_COMMA.sub(r"\1", it["text"]), strict=False)
        except ValueError:
            continue
        schema = declared.pop("parametersJsonSchema", {"type": "object"})
        tools.setdefault(declared["name"], {**declared, "parameters": schema})
    return list(tools.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--clients", type=Path, required=True)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    clients = dict(captured(options.clients))
    bodies = {**clients, **dict(prompted(options.data, gemini_tools(options.data)))}
    right: Counter[str] = Counter()
    wrong: list[str] = []
    skipped = 0
    for name, body in bodies.items():
        for change in (*BREAKS, *HARMLESS):
            try:
                pair = change(body.copy())
            except (KeyError, IndexError, LookupError, StopIteration):
                skipped += 1  # A client without tools has none to shuffle.
                continue
            for is_named in (True, False):
                if is_named or change not in NEEDS_SESSION:
                    judge(name, pair, is_named, right, wrong)
    for name, pair in of_clients(clients):
        judge(name, pair, True, right, wrong)
    report(bodies, right, wrong, skipped)
    return bool(wrong)


def of_clients(clients: dict[str, Body]) -> Iterator[tuple[str, Pair]]:
    """Captured requests as they came: two sessions, and a request for a title."""
    for one, other in (("claude-code-1", "claude-code-2"), ("codex-1", "codex-2")):
        if one in clients and other in clients:
            yield one, Pair("two sessions", clients[one], clients[other], other_session=True)
    if "opencode-title" in clients:
        yield "opencode-1", Pair("title", clients["opencode-1"], clients["opencode-title"])


def judge(name: str, pair: Pair, is_named: bool, right: Counter[str], wrong: list[str]) -> None:
    sessions = (7, 8 if pair.other_session else 7) if is_named else (0, 0)
    broken = found(pair, sessions)
    got = ("", "") if broken is None else (broken.kind, broken.part)
    if got == (pair.kind, pair.part):
        right[pair.kind or "harmless"] += 1
    else:
        wrong.append(
            f"{name}: {pair.name} ({'a' if is_named else 'no'} session): {pair.kind, pair.part}, found {got}"
        )


def report(bodies: dict[str, Body], right: Counter[str], wrong: list[str], skipped: int) -> None:
    print(f"{len(bodies)} prompts, {len(BREAKS)} changes that break and {len(HARMLESS)} that do not")
    print("\n| kind | pairs right |\n|---|---:|")
    for kind, count in sorted(right.items()):
        print(f"| {kind} | {count} |")
    print(f"\n{right.total()} right, {len(wrong)} wrong, {skipped} do not apply")
    print("\n".join(wrong[:60]))


if __name__ == "__main__":
    sys.exit(main())
