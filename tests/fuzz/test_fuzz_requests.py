"""Mutated requests at the real server."""

import asyncio
import re
import time

import httptools
import pytest
from corpus import REQUESTS
from harness import running
from mutate import Mutator
from raw_client import connect
from raw_engine import raw_engine, whole
from watch import BUDGET_S, a_seed, all_is_over, no_exception

_AT_ONCE = 48
_PER_ROUND = 400
_LINE = re.compile(r"POST /[!-~]* HTTP/1\.1")
_FIELD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+: [^\r\n\0]*")


class Heads:
    """The answers in what a connection gave, as a client reads them."""

    def __init__(self, data: bytes) -> None:
        self.counted = 0
        self._own = True
        self._parser = httptools.HttpResponseParser(self)
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._own = True

    def on_header(self, name: bytes, _value: bytes) -> None:
        self._own = self._own and name != b"x-gateway-engine"

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        # A model list or a health check that is answered well is no request to an engine and not counted.
        self.counted += status >= 400 or (status >= 200 and not self._own)


async def plain(call) -> None:
    """What reaches an engine is one plain request, whatever the client sent."""
    assert _LINE.fullmatch(call.line), call.line
    fields = call.head.split(b"\r\n")[1:]
    assert all(_FIELD.fullmatch(it) for it in fields), call.head
    names = [it.partition(b":")[0].lower() for it in fields]
    for once in (b"host", b"content-length", b"x-request-id"):
        assert names.count(once) == 1, call.head
    for never in (b"transfer-encoding", b"connection", b"authorization", b"expect", b"upgrade"):
        assert never not in names, call.head
    call.write(whole(b'{"choices":[]}'))


async def answers_to(gateway, pieces: list[bytes]) -> int:
    """Number of counted answers; all bytes have been answered or refused when the gateway closes."""
    async with connect(gateway) as client:
        for piece in pieces:
            client.send(piece)
            await asyncio.sleep(0)
        try:
            return Heads(await client.until_closed()).counted
        except (httptools.HttpParserError, OSError, TimeoutError) as error:
            raise AssertionError(f"{error!r}, {client.reader!r} after {pieces!r}") from error


@pytest.mark.timeout(120 + BUDGET_S)
async def test_mutated_requests_are_answered_or_refused_and_each_is_counted_once(tmp_path, caplog):
    mutate = Mutator(a_seed())
    until_s = time.monotonic() + BUDGET_S * 0.45
    limits = {"header_timeout": "100ms", "keepalive_timeout": "100ms", "max_body": "1MiB"}
    sent = counted = 0
    async with (
        no_exception(caplog),
        raw_engine(plain) as engine,
        running(tmp_path, [engine.entry(name="a", slots=256)], limits=limits) as gateway,
    ):
        gate = asyncio.Semaphore(_AT_ONCE)

        async def one() -> int:
            data = mutate(mutate.random.choice(REQUESTS), REQUESTS)
            async with gate:
                return await answers_to(gateway, mutate.pieces(data))

        while time.monotonic() < until_s:
            counted += sum(await asyncio.gather(*(one() for _ in range(_PER_ROUND))))
            sent += _PER_ROUND
            await all_is_over(gateway, counted)
            assert engine.failures == []
        for record in await gateway.records():
            assert record["outcome"] in ("ok", "invalid", "rejected"), record
    print(f"{sent} mutated requests, {counted} answers, {len(engine.calls)} reached the engine")
    assert len(engine.calls) > sent / 10
