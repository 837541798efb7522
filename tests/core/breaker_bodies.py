"""Request bodies like those of agents, and how to change them by what they mean."""

import copy
import random
from collections.abc import Callable
from typing import Any

Json = Any


class Body:
    """A request body, changed by what it means and not by how an API writes it."""

    def __init__(self, api: str, data: dict[str, Json]) -> None:
        self.api, self.data = api, copy.deepcopy(data)

    def copy(self) -> "Body":
        return Body(self.api, self.data)

    @property
    def items(self) -> list[Json]:
        return self.data["input" if self.api == "responses" else "messages"]

    @property
    def tools(self) -> list[Json]:
        return self.data["tools"]

    def part(self, index: int) -> str:
        return f"{'input' if self.api == 'responses' else 'messages'}[{index}]"

    def system(self) -> tuple[Callable[[], str], Callable[[str], None], str]:
        """How to read and to write the longest system text, and its part."""
        if self.api == "messages":
            blocks = self.data["system"]
            if isinstance(blocks, str):
                return (
                    (lambda: self.data["system"]),
                    (lambda text: self.data.update(system=text)),
                    "system[0]",
                )
            index = max(range(len(blocks)), key=lambda at: len(blocks[at]["text"]))
            return (
                (lambda: blocks[index]["text"]),
                (lambda text: blocks[index].update(text=text)),
                f"system[{index}]",
            )
        if self.api == "responses" and self.data.get("instructions"):
            return (
                (lambda: self.data["instructions"]),
                (lambda text: self.data.update(instructions=text)),
                "instructions",
            )
        item = self.items[0]
        name = "input[0]" if self.api == "responses" else "system[0]"
        return (lambda: text_of(item)), (lambda text: set_text(item, text)), name

    def put_in_system(self, line: str, share: float = 0.3) -> "Body":
        """A line of its own, so far into the text."""
        read, write, _ = self.system()
        text = read()
        at = text.find("\n", int(len(text) * share))
        at = at if at >= 0 else text.find(" ", int(len(text) * share))
        write(f"{text[:at]}\n{line}\n{text[at + 1 :]}")
        return self

    def say(self, role: str, text: str) -> "Body":
        kind = "output_text" if role == "assistant" else "input_text"
        if self.api == "responses":
            self.items.append(
                {
                    "type": "message",
                    "role": role,
                    "id": f"msg_{len(self.items)}",
                    "content": [{"type": kind, "text": text}],
                }
            )
        else:
            self.items.append({"role": role, "content": text})
        return self

    def talk(self, turns: int, start: int = 0) -> "Body":
        """So many turns of an agent that reads files."""
        for turn in range(start, start + turns):
            self.say("assistant", f"I look at the module for {NAMES[turn % len(NAMES)]} first.")
            self.say("user", f"{tool_output(turn)}\nGo on with {NAMES[(turn + 3) % len(NAMES)]}.")
        return self

    def ask(self, text: str) -> "Body":
        """Another first question, and nothing after it."""
        first = next(at for at, it in enumerate(self.items) if it.get("role") == "user")
        del self.items[first:]
        return self.say("user", text)


def text_of(item: dict[str, Json]) -> str:
    content = item["content"]
    return content if isinstance(content, str) else content[0]["text"]


def set_text(item: dict[str, Json], text: str) -> None:
    if isinstance(item["content"], str):
        item["content"] = text
    else:
        item["content"][0]["text"] = text


NAMES = ("parsing", "billing", "the queue", "retries", "the cache", "logging", "routing", "the tests")


def tool_output(seed: int, lines_count: int = 30) -> str:
    rng = random.Random(seed)
    words = ("value", "result", "entry", "table", "handler", "index", "stream", "record", "header", "socket")
    lines = []
    for n in range(lines_count):
        name, value = f"{rng.choice(words)}_{rng.choice(words)}", f"{rng.choice(words)}({rng.choice(words)})"
        lines.append(f"{' ' * (4 * (n % 3))}{name} = {value}")
    return "\n".join(lines)


_RULES = (
    "Prefer editing files that exist over creating new ones",
    "Never print secrets, keys or tokens into the terminal",
    "Read a file before you change it, and keep to its style",
    "Run the tests that cover what you have changed",
    "Explain in one sentence why a command is needed",
    "Do not commit unless the user has asked for it",
    "Quote paths with spaces in shell commands",
    "Search with the tools for that and not with the shell",
)


def system_text(seed: int, size: int) -> str:
    """Markdown like that of a coding agent."""
    rng = random.Random(seed)
    lines = [f"You are agent number {seed}, a careful assistant for software engineering.", ""]
    while sum(map(len, lines)) < size:
        lines += [f"## {rng.choice(NAMES).capitalize()} and {rng.choice(NAMES)}", ""]
        for _ in range(rng.randint(3, 9)):
            lines.append(f"- **{rng.choice(_RULES)}**, also for {rng.choice(NAMES)} ({rng.randint(1, 99)}).")
        lines.append("")
    return "\n".join(lines)


def tool(name: str, seed: int, field: str) -> Json:
    rng = random.Random(seed)
    properties = {
        word: {
            "type": rng.choice(("string", "integer", "boolean")),
            "description": f"The {word} of {rng.choice(NAMES)}.",
        }
        for word in rng.sample(
            ("path", "pattern", "limit", "offset", "command", "timeout", "query", "force"), 4
        )
    }
    return {
        "name": name,
        "description": f"Use this for {rng.choice(NAMES)}.\n{system_text(seed, 400)}",
        field: {"type": "object", "properties": properties, "required": list(properties)[:2]},
    }


TOOL_NAMES = [
    f"{verb}_{noun}"
    for noun in ("file", "shell", "web", "task", "note")
    for verb in ("read", "write", "run", "list")
]


def chat_body(seed: int = 1, size: int = 9_000) -> Body:
    tools = [
        {"type": "function", "function": tool(name, at, "parameters")} for at, name in enumerate(TOOL_NAMES)
    ]
    messages = [
        {"role": "system", "content": system_text(seed, size)},
        {"role": "user", "content": "Please look at the parser: it is slow for long lines."},
    ]
    return Body("chat", {"model": "m", "messages": messages, "tools": tools, "stream": True})


def messages_body(seed: int = 2, size: int = 14_000) -> Body:
    tools = [tool(name, at, "input_schema") for at, name in enumerate(TOOL_NAMES)]
    system = [
        {"type": "text", "text": "You are an agent in a terminal."},
        {"type": "text", "text": system_text(seed, size), "cache_control": {"type": "ephemeral"}},
    ]
    content = [{"type": "text", "text": "Please look at the parser: it is slow for long lines."}]
    messages = [{"role": "user", "content": content}]
    return Body(
        "messages", {"model": "m", "messages": messages, "system": system, "tools": tools, "max_tokens": 99}
    )


def responses_body(seed: int = 3, size: int = 30_000) -> Body:
    tools = [
        {"type": "function", **tool(name, at, "parameters"), "strict": False}
        for at, name in enumerate(TOOL_NAMES)
    ]
    body = Body("responses", {"model": "m", "input": [], "tools": tools, "store": False})
    body.say("developer", system_text(seed, size))
    return body.say("user", "Please look at the parser: it is slow for long lines.")


BODIES = {"chat": chat_body(), "messages": messages_body(), "responses": responses_body()}
