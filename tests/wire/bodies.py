"""Request bodies, and what is read from them."""

import json
from typing import Any

from gateway.wire.openai import Ask, read

Body = dict[str, Any]
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}


def ask(api: str, **body: Any) -> Ask:
    return read(api, json.dumps(body).encode())


def canonical(**body: Any) -> bytes:
    return ask("chat", **body).canonical


def chat(*messages: Any, **body: Any) -> bytes:
    return canonical(messages=list(messages), **body)


def user(content: Any, **fields: Any) -> Body:
    return {"role": "user", "content": content, **fields}
