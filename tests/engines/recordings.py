"""The answers of real engines under `recorded/`: read by the tests of dialects, wire formats and prober."""

import json
from dataclasses import dataclass
from pathlib import Path

from gateway.engines.base import Answer

ROOT = Path(__file__).parent / "recorded"
VLLM = "vllm-0.32.0"
LLAMACPP = "llama.cpp-b10434"


@dataclass(frozen=True)
class Recording:
    """One exchange: the request line and body as sent, and what came back."""

    method: str
    path: str
    request_body: bytes
    answer: Answer


def load(engine: str, name: str) -> Recording:
    """Reads `recorded/<engine>/<name>.http`: request line, body, `---`, status, headers, blank, body."""
    raw = (ROOT / engine / f"{name}.http").read_bytes()
    request, _, rest = raw.partition(b"\n---\n")
    line, _, request_body = request.partition(b"\n")
    method, _, path = line.decode().partition(" ")
    head, _, body = rest.partition(b"\n\n")
    status, *fields = head.decode().splitlines()
    pairs = (field.partition(":") for field in fields)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    return Recording(method, path, request_body, Answer(status=int(status), headers=headers, body=body))


def answer(engine: str, name: str) -> Answer:
    """The answer of a recording alone."""
    return load(engine, name).answer


def server_info() -> Answer:
    """vLLM's `/server_info?config_format=json` in dev mode."""
    body = (ROOT / VLLM / "server_info-dev-mode.json").read_bytes()
    assert json.loads(body)
    return Answer(status=200, headers={}, body=body)


def answered(body: bytes | str, status: int = 200) -> Answer:
    """An answer made up for a test."""
    return Answer(status=status, headers={}, body=body.encode() if isinstance(body, str) else body)
