"""Conversations, and how clients of each API write them."""

import base64
import json
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from hypothesis import strategies as st

from gateway.wire.openai import read

Body = dict[str, Any]
APIS = ("chat", "messages", "responses")


@dataclass(frozen=True)
class Tool:
    name: str
    description: str
    schema: Body


@dataclass(frozen=True)
class Round:
    """An assistant's text, its calls as (tool, arguments) and what each of them gave."""

    text: str
    calls: tuple[tuple[str, Body], ...] = ()
    results: tuple[str, ...] = ()


@dataclass(frozen=True)
class Exchange:
    """`image`: its bytes, none where empty."""

    user: str
    image: bytes = b""
    rounds: tuple[Round, ...] = ()


@dataclass(frozen=True)
class Conversation:
    system: str = ""
    tools: tuple[Tool, ...] = ()
    exchanges: tuple[Exchange, ...] = field(default=(Exchange("hi"),))

    def first(self, exchanges: int) -> "Conversation":
        return replace(self, exchanges=self.exchanges[:exchanges])


class Client:
    """Writes bodies in ways that may differ and mean the same, as `random` has it."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def body(self, api: str, it: Conversation) -> Body:
        body = {"chat": self._chat, "messages": self._messages, "responses": self._responses}[api](it)
        return {"model": "m", "temperature": self._random.random(), **body}

    def bytes(self, api: str, it: Conversation) -> bytes:
        indent = self._random.choice((None, 2))
        return json.dumps(
            self._shuffled(self.body(api, it)), ensure_ascii=self._random.random() < 0.5, indent=indent
        ).encode()

    def canonical(self, api: str, it: Conversation) -> bytes:
        return read(api, self.bytes(api, it)).canonical

    def _chat(self, it: Conversation) -> Body:
        messages: list[Body] = []
        if it.system:
            messages.append({"role": "system", "content": self._content(it.system, "text")})
        for exchange in it.exchanges:
            image = {"type": "image_url", "image_url": {"url": _url(exchange.image), "detail": "auto"}}
            messages.append({"role": "user", "content": self._user(exchange, "text", image)})
            for said in exchange.rounds:
                messages += self._chat_round(said)
        tools = [
            {"type": "function", "function": {"name": tool.name, "description": tool.description,
                                              "parameters": tool.schema}}
            for tool in it.tools
        ]  # fmt: skip
        return {"messages": messages, "user": self._id()} | ({"tools": tools} if tools else {})

    def _chat_round(self, said: Round) -> list[Body]:
        message: Body = {"role": "assistant", "content": said.text or None}
        if said.calls:
            message["tool_calls"] = [
                {"id": self._id(), "type": "function", "function": {"name": name, "arguments": _json(given)}}
                for name, given in said.calls
            ]
        else:
            message["content"] = said.text
        results = [
            {"role": "tool", "tool_call_id": self._id(), "content": self._content(text, "text")}
            for text in said.results
        ]
        return [message, *results]

    def _messages(self, it: Conversation) -> Body:
        messages: list[Body] = []
        for exchange in it.exchanges:
            data = base64.b64encode(exchange.image).decode()
            image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
            messages.append({"role": "user", "content": self._user(exchange, "text", image)})
            for said in exchange.rounds:
                messages += self._messages_round(said)
        tools = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.schema}
            | self._cache_mark()
            for tool in it.tools
        ]
        body: Body = {"messages": messages, "max_tokens": 5, "metadata": {"user_id": self._id()}}
        if it.system:
            body["system"] = self._content(it.system, "text")
        return body | ({"tools": tools} if tools else {})

    def _messages_round(self, said: Round) -> list[Body]:
        blocks: list[Body] = [{"type": "text", "text": said.text}] if said.text or not said.calls else []
        blocks += [
            {"type": "tool_use", "id": self._id(), "name": name, "input": given} for name, given in said.calls
        ]
        results = [
            {"type": "tool_result", "tool_use_id": self._id(), "content": self._content(text, "text")}
            | self._cache_mark()
            for text in said.results
        ]
        return [{"role": "assistant", "content": blocks}] + (
            [{"role": "user", "content": results}] if results else []
        )

    def _responses(self, it: Conversation) -> Body:
        items: list[Body] = []
        for exchange in it.exchanges:
            image = {"type": "input_image", "image_url": _url(exchange.image)}
            content = self._user(exchange, "input_text", image)
            items.append(self._item({"role": "user", "content": content}))
            for said in exchange.rounds:
                items += self._responses_round(said)
        tools = [
            {"type": "function", "name": tool.name, "description": tool.description,
             "parameters": tool.schema}
            for tool in it.tools
        ]  # fmt: skip
        body: Body = {"input": items, "client_metadata": {"turn_id": self._id()}, "store": False}
        if it.system:
            body["instructions"] = it.system
        return body | ({"tools": tools} if tools else {})

    def _responses_round(self, said: Round) -> list[Body]:
        items: list[Body] = []
        if said.text or not said.calls:
            content = self._content(said.text, "output_text")
            items.append(self._item({"role": "assistant", "content": content}))
        for name, given in said.calls:
            items.append({"type": "function_call", "id": self._id(), "call_id": self._id(),
                          "name": name, "arguments": _json(given), "status": "completed"})  # fmt: skip
        results = [
            {"type": "function_call_output", "call_id": self._id(), "output": it} for it in said.results
        ]
        return items + results

    def _item(self, item: Body) -> Body:
        return {"type": "message", "id": self._id(), **item} if self._random.random() < 0.5 else item

    def _user(self, exchange: Exchange, kind: str, image: Body) -> Any:
        if not exchange.image:
            return self._content(exchange.user, kind)
        return [{"type": kind, "text": exchange.user}, image]

    def _content(self, text: str, kind: str) -> Any:
        as_parts: list[Body] = [{"type": kind, "text": text} | self._cache_mark()]
        return self._random.choice((text, as_parts))

    def _cache_mark(self) -> Body:
        return {"cache_control": {"type": "ephemeral"}} if self._random.random() < 0.3 else {}

    def _id(self) -> str:
        return f"id_{self._random.getrandbits(64):x}"

    def _shuffled(self, value: Any, path: str = "") -> Any:
        """Every object's keys in another order, but for those that reach a prompt: a schema's."""
        if isinstance(value, list):
            return [self._shuffled(it, path) for it in value]
        if not isinstance(value, dict) or path in ("parameters", "input_schema", "input"):
            return value
        keys = list(value)
        self._random.shuffle(keys)
        return {key: self._shuffled(value[key], "" if key == "input" and not path else key) for key in keys}


def _url(image: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(image).decode()}"


def _json(value: Body) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


WORDS = st.text(st.characters(min_codepoint=32, exclude_categories=["Cs"]), min_size=1, max_size=30)
_NAMES = st.sampled_from(["read", "run", "edit_file"])
_SCHEMAS = st.dictionaries(WORDS, st.booleans() | WORDS, max_size=3).map(
    lambda properties: {"type": "object", "properties": properties, "required": list(properties)}
)
_ARGUMENTS = st.dictionaries(WORDS, WORDS | st.integers(-9, 9), max_size=2)


@st.composite
def _calling(draw: Any) -> Round:
    calls = draw(st.lists(st.tuples(_NAMES, _ARGUMENTS), min_size=1, max_size=2))
    results = draw(st.lists(WORDS, min_size=len(calls), max_size=len(calls)))
    return Round(draw(st.just("") | WORDS), tuple(calls), tuple(results))


_ROUNDS = st.builds(lambda calling, last: (*calling, *last), st.lists(_calling(), max_size=2),
                    st.lists(st.builds(Round, WORDS), max_size=1))  # fmt: skip
_IMAGES = st.sampled_from([b"", b"", b"\x89PNG"])
EXCHANGES = st.builds(Exchange, WORDS, _IMAGES, _ROUNDS)
CONVERSATIONS = st.builds(
    Conversation,
    st.just("") | WORDS,
    st.lists(st.builds(Tool, _NAMES, WORDS, _SCHEMAS), max_size=2).map(tuple),
    st.lists(EXCHANGES, min_size=1, max_size=3).map(tuple),
)
