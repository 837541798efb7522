import gzip
import zlib
from collections.abc import Iterable

import pytest
from engines import recordings
from engines.recordings import VLLM
from hypothesis import given
from splits import cut_lists, in_sizes, pieces, ways
from streams import DELTA, DONE, ERROR, REPORTED, ROLE, STOP, USAGE

from gateway.core.request import Usage
from gateway.wire import inflate
from gateway.wire.inflate import Inflater, InflatingPump

STREAM = ROLE + DELTA + STOP + USAGE + DONE
JSON = b'{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1}}'


def packed(data: bytes, wbits: int) -> bytes:
    packer = zlib.compressobj(wbits=wbits)
    return packer.compress(data) + packer.flush()


def flushed(events: Iterable[bytes], wbits: int = 31) -> bytes:
    """Each event sent on its way at once, as a server's gzip middleware does it."""
    packer = zlib.compressobj(wbits=wbits)
    return b"".join(packer.compress(it) + packer.flush(zlib.Z_SYNC_FLUSH) for it in events) + packer.flush()


def fed(encoding: bytes, parts: Iterable[bytes], *, stream: bool = True) -> InflatingPump:
    pump = InflatingPump(encoding, stream=stream)
    sent = list(parts)
    assert b"".join(map(pump.feed, sent)) + pump.end() == b"".join(sent)
    return pump


FORMATS = [(b"gzip", 31), (b"x-gzip", 31), (b" GZIP ", 31), (b"deflate", 15), (b"deflate", -15)]


@pytest.mark.parametrize(("encoding", "wbits"), FORMATS)
def test_a_stream_is_read_in_any_split(encoding: bytes, wbits: int) -> None:
    for body in (flushed([ROLE, DELTA, STOP, USAGE, DONE], wbits), packed(STREAM, wbits)):
        for parts in ways(body):
            pump = fed(encoding, parts)
            assert (pump.usage, pump.started, pump.whole, pump.failed) == (REPORTED, True, True, None)


@pytest.mark.parametrize(("encoding", "wbits"), FORMATS)
def test_json_is_read_in_any_split(encoding: bytes, wbits: int) -> None:
    for parts in ways(packed(JSON, wbits)):
        assert fed(encoding, parts, stream=False).usage == REPORTED


@given(cut_lists)
def test_a_recorded_stream_is_read_in_any_split(cuts: list[int]) -> None:
    body = gzip.compress(recordings.answer(VLLM, "chat-stream-usage").body)
    usage = fed(b"gzip", pieces(body, cuts)).usage
    assert (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens) == (304, 256, 6)


def test_the_first_token_shows_as_soon_as_it_is_flushed() -> None:
    packer = zlib.compressobj(wbits=31)
    pump = InflatingPump(b"gzip", stream=True)
    pump.feed(packer.compress(b": ping\n\n") + packer.flush(zlib.Z_SYNC_FLUSH))
    assert not pump.started
    pump.feed(packer.compress(DELTA) + packer.flush(zlib.Z_SYNC_FLUSH))
    assert pump.started
    assert not pump.whole


def test_an_error_inside_is_seen() -> None:
    assert fed(b"gzip", [gzip.compress(ERROR)]).failed is not None


def test_several_gzip_files_are_one_answer() -> None:
    body = gzip.compress(ROLE + DELTA) + gzip.compress(STOP + USAGE) + b"\0\0" + gzip.compress(DONE) + b"\0"
    for parts in ways(body):
        pump = fed(b"gzip", parts)
        assert (pump.usage, pump.whole) == (REPORTED, True)


@pytest.mark.parametrize("stream", [True, False])
def test_no_body_passes(stream: bool) -> None:
    pump = fed(b"gzip", [], stream=stream)
    assert (pump.whole, pump.started, pump.usage) == (True, False, Usage())


def test_a_stream_that_stops_before_its_end_is_not_whole() -> None:
    body = flushed([ROLE, DELTA])
    assert not fed(b"gzip", [body]).whole
    assert not fed(b"gzip", [body[:-9]]).whole


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        (b"gzip", STREAM),
        (b"gzip", gzip.compress(STREAM)[:-8] + b"\xff" * 8),
        (b"deflate", b"\xff" * 40),
        (b"deflate", packed(STREAM, 15) + b"more"),
        (b"br", b"\x0b\x02\x80abc\x03"),
        (b"zstd", b"\x28\xb5\x2f\xfd"),
        (b"gzip, gzip", gzip.compress(gzip.compress(STREAM))),
        (b"", STREAM),
    ],
)
def test_what_cannot_be_read_passes_and_is_taken_for_whole(encoding: bytes, body: bytes) -> None:
    for parts in ways(body):
        pump = fed(encoding, parts)
        assert pump.whole
        assert pump.failed is None


def test_what_was_read_before_it_broke_counts() -> None:
    pump = fed(b"gzip", [flushed([ROLE, DELTA, USAGE])[:-9], b"\xff" * 40])
    assert (pump.usage, pump.started, pump.whole) == (REPORTED, True, True)


def test_a_bomb_is_let_go_after_one_feed() -> None:
    inflater = Inflater(b"gzip")
    bomb = gzip.compress(bytes(64 * 1024 * 1024))
    assert len(bomb) < 100_000
    assert len(inflater.feed(bomb)) == inflate.MAX_FEED_BYTES
    assert inflater.lost
    assert inflater.feed(bomb) == b""


def test_a_bomb_of_many_small_files_is_let_go_too() -> None:
    inflater = Inflater(b"gzip")
    bomb = gzip.compress(bytes(100_000)) * 100
    assert len(inflater.feed(bomb)) == inflate.MAX_FEED_BYTES
    assert inflater.lost


def test_a_bomb_in_small_pieces_is_let_go_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inflate, "MAX_TOTAL_BYTES", 1024 * 1024)
    inflater = Inflater(b"gzip")
    parts = in_sizes(gzip.compress(bytes(8 * 1024 * 1024)), 64)
    out = [len(inflater.feed(part)) for part in parts]
    assert inflater.lost
    assert 1024 * 1024 < sum(out) < 1024 * 1024 + 64 * 1100
