"""Valid requests and answers of every kind that the gateway knows, as bytes to be mutated."""

import gzip
import json

from harness import chat
from raw_client import request
from raw_engine import DONE, END, chunk, event, stream_head, whole

_CHAT = json.dumps(chat("hello", system="You are. " * 60, model="m", temperature=0.5, n=2)).encode()
_STREAM = json.dumps(
    chat("caf\u00e9 \u65e5\u672c", model="m", stream=True, stream_options={"include_usage": True})
).encode()
_FORM = (
    b'--b\r\ncontent-disposition: form-data; name="model"\r\n\r\nm\r\n'
    b'--b\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\n\x00\xff\r\n--b--\r\n'
)
_TOOLS = {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]}


def _chunked(body: bytes) -> bytes:
    head = request(method="PUT").replace(b"PUT", b"POST", 1)[:-2]
    return head + b"transfer-encoding: chunked\r\n\r\n" + chunk(body[:30]) + chunk(body[30:]) + END


REQUESTS = [
    request(_CHAT, "authorization: Bearer k", "user-agent: fuzz", "x-request-id: r-1"),
    request(_STREAM, "content-type: application/json", "x-session-id: s"),
    request(chat("tools", model="m", **_TOOLS), "x-gateway-priority: low", "x-gateway-max-wait-ms: 5000"),
    request(_CHAT) + request(_STREAM),
    _chunked(_CHAT),
    _chunked(_STREAM) + request(_CHAT),
    request(_CHAT, version="1.0"),
    request(_CHAT, "connection: close"),
    request(_CHAT, "expect: 100-continue"),
    request(_CHAT, "connection: Upgrade, HTTP2-Settings", "upgrade: h2c", "http2-settings: AAEA"),
    request({"model": "m", "prompt": [[1, 2], [3]]}, path="/v1/completions"),
    request({"model": "m", "prompt": "text", "stream": True}, path="/v1/completions?beta=true&key=k"),
    request({"model": "m", "input": ["a", "b"]}, path="/v1/embeddings"),
    request({"model": "m", "system": "s", "messages": [], "max_tokens": 1}, path="/v1/messages?beta=true"),
    request({"model": "m", "content": "x"}, path="/tokenize"),
    request(_FORM, "content-type: multipart/form-data; boundary=b", path="/v1/audio/transcriptions"),
    request(path="/v1/models/m", method="GET"),
    request(path="/healthz", method="GET") + request(_CHAT),
    request(_CHAT, path="http://user:pass@gateway/v1/chat/completions"),
]

_USAGE = {"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
_TIMINGS = {"cache_n": 3, "prompt_n": 4, "prompt_ms": 1.5, "predicted_n": 2, "predicted_ms": 9.5}
_USAGE_EVENT = (
    b"data: " + json.dumps({"choices": [], "usage": _USAGE, "timings": _TIMINGS}).encode() + b"\n\n"
)
_JSON = json.dumps({"model": "m", "choices": [{"message": {"content": "hi"}}], "usage": _USAGE}).encode()
_EVENTS = event("a") + event("b", "stop") + _USAGE_EVENT + DONE
_MESSAGES = (
    b"event: message_start\n"
    b'data: {"type":"message_start","message":{"model":"m","usage":{"input_tokens":9}}}\n\n'
    b'event: message_delta\ndata: {"type":"message_delta","usage":{"output_tokens":16}}\n\n'
    b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
)


def _pieces(events: bytes, size: int) -> bytes:
    return b"".join(chunk(events[at : at + size]) for at in range(0, len(events), size)) + END


ANSWERS = [
    whole(_JSON),
    whole(_JSON, b"connection: close"),
    whole(_JSON, b"x-a: b", b"set-cookie: c=d", b"keep-alive: timeout=5"),
    whole(b'{"error":{"message":"no","code":400}}', status=b"400 Bad Request"),
    whole(b'{"error":{"message":"busy"}}', b"retry-after: 3", status=b"503 Service Unavailable"),
    whole(gzip.compress(_JSON), b"content-encoding: gzip"),
    b"HTTP/1.1 100 Continue\r\n\r\n" + whole(_JSON),
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n" + _JSON,
    stream_head() + chunk(_EVENTS) + END,
    stream_head(b"cache-control: no-store") + _pieces(_EVENTS, 5),
    stream_head() + _pieces(_EVENTS.replace(b"\n", b"\r\n"), 64),
    stream_head() + _pieces(b": ping\n\n" + _EVENTS, 1000),
    stream_head() + _pieces(b'data: {"error":{"message":"queue is full","code":503}}\n\n', 1000),
    stream_head() + _pieces(_MESSAGES, 40),
    stream_head(chunked=False) + _EVENTS,
    stream_head(b"content-encoding: gzip") + _pieces(gzip.compress(_EVENTS), 20),
    stream_head() + _pieces(event("x" * 50_000) + _EVENTS, 7000),
]
