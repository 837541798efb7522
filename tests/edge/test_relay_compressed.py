"""Answers that an engine has compressed: they pass as they are, and are read all the same."""

import asyncio
import gzip
import json
import zlib

import pytest
from failing import ask, no_lease_is_left
from harness import chat, running
from raw_client import connect, request
from raw_engine import DONE, END, answers, chunk, event, seen, stream_head, whole

GZIP = b"content-encoding: gzip"
USAGE = {"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
JSON_BODY = json.dumps({"choices": [], "usage": USAGE}).encode()
USAGE_EVENT = b"data: " + JSON_BODY + b"\n\n"
EVENTS = [event("a"), event("b", "stop"), USAGE_EVENT, DONE]


def flushed(events: list[bytes]) -> list[bytes]:
    packer = zlib.compressobj(wbits=31)
    parts = [packer.compress(it) + packer.flush(zlib.Z_SYNC_FLUSH) for it in events]
    return [*parts, packer.flush()]


def tokens(record: dict) -> tuple:
    return record["prompt_tokens"], record["cached_tokens"], record["completion_tokens"]


async def test_a_compressed_answer_passes_and_its_usage_is_read(alone, engine):
    packed = gzip.compress(JSON_BODY)
    engine.handler = answers(whole(packed, GZIP))
    answer = await ask(alone, False, "accept-encoding: gzip")
    assert (answer.body, answer.headers["content-encoding"]) == (packed, "gzip")
    assert answer.headers["content-length"] == str(len(packed))
    assert "accept-encoding" not in engine.calls[0].headers
    [record] = await alone.records()
    assert (record["outcome"], tokens(record)) == ("ok", (7, 4, 2))


@pytest.mark.parametrize("size", [1, 10, 1000])
async def test_a_compressed_stream_passes_and_is_read(alone, engine, size):
    packed = b"".join(flushed(EVENTS))
    cut = [chunk(packed[at : at + size]) for at in range(0, len(packed), size)]
    engine.handler = answers(stream_head(GZIP), *cut, END)
    answer = await ask(alone, True)
    assert (answer.body, answer.ended) == (packed, True)
    assert answer.headers["x-accel-buffering"] == "no"
    [record] = await alone.records()
    assert (record["outcome"], record["stream"], tokens(record)) == ("ok", True, (7, 4, 2))
    assert record["ttft_ms"] is not None


async def test_each_flushed_event_passes_at_once(alone, engine):
    parts = flushed(EVENTS)
    go_on = asyncio.Event()

    async def handler(call):
        call.write(stream_head(GZIP), chunk(parts[0]))
        await go_on.wait()
        call.write(*map(chunk, parts[1:]), END)

    engine.handler = handler
    async with connect(alone) as client:
        client.send(request(chat("hello", model="m", stream=True)))
        await client.head()
        assert await client.chunk() == parts[0]
        go_on.set()
        assert await client.chunk()


async def test_an_error_inside_a_compressed_stream_is_counted(alone, engine):
    failure = b'data: {"error": {"message": "CUDA", "code": 500}}\n\n'
    engine.handler = answers(stream_head(GZIP), chunk(gzip.compress(event("a") + failure)), END)
    assert (await ask(alone, True)).ended
    assert (await alone.records())[0]["outcome"] == "engine_error"


@pytest.mark.parametrize(
    "headers", [[b"content-length: 0"], [b"transfer-encoding: chunked"]], ids=["length", "chunked"]
)
@pytest.mark.parametrize("kind", [b"application/json", b"text/event-stream"])
async def test_no_body_passes(alone, engine, headers, kind):
    head = [b"HTTP/1.1 200 OK", b"content-type: " + kind, GZIP, *headers, b"", b""]
    engine.handler = answers(b"\r\n".join(head), END if b"chunked" in headers[0] else b"")
    answer = await ask(alone, True)
    assert (answer.status, answer.body, answer.ended) == (200, b"", True)


@pytest.mark.parametrize(
    ("encoding", "body"),
    [(b"gzip", b"not gzip at all"), (b"br", b"\x0b\x02\x80abc\x03"), (b"zstd", b"\x28\xb5\x2f\xfd")],
)
@pytest.mark.parametrize("stream", [True, False])
async def test_what_cannot_be_read_passes_with_unknown_usage(alone, engine, encoding, body, stream):
    header = b"content-encoding: " + encoding
    if stream:
        engine.handler = answers(stream_head(header), chunk(body), END)
    else:
        engine.handler = answers(whole(body, header))
    answer = await ask(alone, stream)
    assert (answer.body, answer.ended) == (body, True)
    [record] = await alone.records()
    assert (record["outcome"], tokens(record), record["ttft_ms"]) == ("ok", (None, None, None), None)


async def test_a_compressed_stream_that_ends_too_early_is_cut(alone, engine):
    """No error event can be written into it."""
    packed = b"".join(flushed(EVENTS[:1]))
    engine.handler = answers(stream_head(GZIP), chunk(packed), END)
    answer = await ask(alone, True)
    assert (answer.status, answer.ended) == (200, False)
    [record] = await alone.records()
    assert (record["outcome"], record["code"]) == ("engine_truncated", "engine_truncated")
    await no_lease_is_left(alone)


async def test_a_compressed_stream_whose_engine_dies_is_cut(alone, engine):
    parts = flushed(EVENTS)

    async def handler(call):
        call.write(stream_head(GZIP), chunk(parts[0]))
        await asyncio.sleep(0.05)
        call.reset()

    engine.handler = handler
    answer = await ask(alone, True)
    assert (answer.body, answer.ended) == (parts[0], False)
    assert (await alone.records())[0]["outcome"] == "engine_truncated"
    await no_lease_is_left(alone)


async def test_a_compressed_answer_keeps_the_models_real_name(tmp_path, engine):
    packed = gzip.compress(b'{"model":"m"}')
    engine.handler = answers(whole(packed, GZIP))
    aliases = {"aliases": {"fast": "m"}}
    async with running(tmp_path, [engine.entry()], models=aliases) as gateway, connect(gateway) as client:
        client.send(request(chat("hello", model="fast")))
        assert (await client.answer()).body == packed
    assert b'"m"' in (await seen(engine)).body
