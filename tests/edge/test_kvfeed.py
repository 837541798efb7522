import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Sequence

import pytest
from kv_publisher import BLOCK, Publisher, publisher, removed, stored

from gateway.core.events import BlockEvent, Removed, Stored
from gateway.edge import kvfeed
from gateway.edge.kvfeed import Endpoints, KvFeed
from gateway.edge.kvsocket import SUBSCRIBER, Context, KvSocket, SocketError

LOG = logging.getLogger("test.kvfeed")
LOST = "lost"


class Heard:
    """What a feed said, in order: events, and that those before do not count."""

    def __init__(self) -> None:
        self.said: list[BlockEvent | str] = []
        self.history: list[BlockEvent] = []

    def hear(self, events: Sequence[BlockEvent], *, is_history: bool) -> None:
        self.said += events
        if is_history:
            self.history += events

    def lose(self) -> None:
        self.said.append(LOST)

    async def until(self, *expected: BlockEvent | str) -> None:
        """Waits until this is all that it said since the last loss."""
        async with asyncio.timeout(10):
            while self.now != list(expected):
                await asyncio.sleep(0.005)

    @property
    def now(self) -> list[BlockEvent | str]:
        said = [LOST, *self.said]
        return said[len(said) - said[::-1].index(LOST) :]


@contextlib.asynccontextmanager
async def following(source: Publisher, heard: Heard) -> AsyncIterator[KvFeed]:
    replay = None if source.keeps is None else f"tcp://127.0.0.1:{source.replay_port}"
    endpoints = Endpoints(f"tcp://127.0.0.1:{source.port}", replay)
    context = Context()
    feed = KvFeed(
        "a", endpoints, BLOCK,
        context=context, hear=heard.hear, lose=heard.lose, clock=time.monotonic, log=LOG,
    )  # fmt: skip
    try:
        await source.subscribed()
        yield feed
    finally:
        feed.close()
        feed.close()
        context.term()


@pytest.mark.parametrize("has_topic", [True, False])
async def test_what_was_published_before_is_asked_for_and_comes_first(has_topic):
    heard = Heard()
    async with publisher(has_topic=has_topic) as source:
        source.publish(stored(1, 2))
        source.publish(stored(3, after=2))
        async with following(source, heard):
            source.publish(removed(3))
            await heard.until(Stored([1, 2]), Stored([3], 2), Removed([3]))
            assert source.asked == [0]
            assert heard.history[:2] == [Stored([1, 2]), Stored([3], 2)]


async def test_without_a_replay_it_begins_with_what_comes():
    heard = Heard()
    async with publisher(keeps=None) as source:
        source.publish(stored(1))
        async with following(source, heard) as feed:
            source.publish(stored(2))
            await heard.until(Stored([2]))
            assert heard.history == []
            assert not feed.is_degraded


async def test_what_the_publisher_dropped_is_asked_for():
    heard = Heard()
    async with publisher() as source, following(source, heard) as feed:
        source.publish(stored(1))
        await heard.until(Stored([1]))
        source.drops = True
        source.publish(stored(2))
        source.drops = False
        source.publish(stored(3))
        await heard.until(Stored([1]), Stored([2]), Stored([3]))
        assert source.asked == [0, 1]
        assert Stored([2]) not in heard.history
        assert not feed.is_degraded


async def test_what_cannot_be_had_any_more_is_a_loss(caplog):
    heard = Heard()
    async with publisher(keeps=1) as source, following(source, heard) as feed:
        source.publish(stored(1))
        await heard.until(Stored([1]))
        source.drops = True
        source.publish(stored(2))
        source.publish(stored(3))
        source.drops = False
        source.publish(stored(4))
        await heard.until(Stored([4]))
        assert feed.is_degraded
        assert feed.losses == 1
        assert "KV events were lost" in caplog.text


async def test_a_loss_is_shown_for_a_while(monkeypatch):
    monkeypatch.setattr(kvfeed, "LOST_S", 0.0)
    heard = Heard()
    async with publisher(keeps=None) as source, following(source, heard) as feed:
        source.publish(stored(1))
        await heard.until(Stored([1]))
        source.drops = True
        source.publish(stored(2))
        source.drops = False
        source.publish(stored(3))
        await heard.until(Stored([3]))
        assert feed.losses == 1
        assert not feed.is_degraded


async def test_a_batch_that_cannot_be_read_is_a_loss():
    heard = Heard()
    async with publisher() as source, following(source, heard) as feed:
        source.publish(stored(1))
        await heard.until(Stored([1]))
        source.publish_bytes(b"no msgpack")
        source.publish(stored(2))
        await heard.until(Stored([2]))
        assert feed.losses == 1
        assert feed.decoder.errors == 1


async def test_messages_of_something_else_are_counted_and_change_nothing():
    heard = Heard()
    async with publisher() as source, following(source, heard) as feed:
        source.publish(stored(1))
        source.publish_frames(b"hello")
        source.publish_frames(b"kv", b"short", b"")
        source.publish(stored(2))
        await heard.until(Stored([1]), Stored([2]))
        assert feed.decoder.errors == 2
        assert feed.losses == 0


async def test_an_engine_that_was_started_again_is_heard_from_its_start():
    heard = Heard()
    async with publisher() as source, following(source, heard):
        source.publish(stored(1))
        source.publish(stored(2))
        await heard.until(Stored([1]), Stored([2]))
        await source.stop()
        source.start(sent_s=100.0)
        source.publish(stored(11))
        await source.subscribed()
        source.publish(stored(12))
        await heard.until(Stored([11]), Stored([12]))


async def test_an_engine_that_the_prober_saw_restart_is_asked_for_all():
    heard = Heard()
    async with publisher() as source, following(source, heard) as feed:
        source.publish(stored(1))
        await heard.until(Stored([1]))
        feed.restarted()
        await heard.until(Stored([1]))
        assert source.asked == [0, 0]
        assert not feed.is_degraded


async def test_a_publisher_that_does_not_answer_is_followed_all_the_same(monkeypatch):
    monkeypatch.setattr(kvfeed, "ANSWER_S", 0.0)
    heard = Heard()
    async with publisher() as source:
        source.answers = False
        async with following(source, heard) as feed:
            source.publish(stored(1))
            assert feed.is_replaying
            feed.tick(is_silent=False)
            assert not feed.is_replaying
            source.publish(stored(2))
            await heard.until(Stored([1]), Stored([2]))


async def test_silence_is_shown_until_something_comes(caplog):
    heard = Heard()
    async with publisher() as source, following(source, heard) as feed:
        source.publish(stored(1))
        await heard.until(Stored([1]))
        feed.tick(is_silent=True)
        feed.tick(is_silent=True)
        assert heard.said[-1] == LOST
        assert feed.is_degraded
        assert caplog.text.count("no KV events come from") == 1
        source.publish(stored(2))
        await heard.until(Stored([2]))
        assert not feed.is_degraded


async def test_a_flood_leaves_the_loop_to_others():
    heard = Heard()
    async with publisher() as source, following(source, heard) as feed:
        source.publish(stored(0))
        await heard.until(Stored([0]))
        for number in range(1, 3000):
            source.publish(stored(*range(number * 100, number * 100 + 64)))
        turns = 0
        async with asyncio.timeout(10):
            while len(heard.now) < 3000:
                feed.tick(is_silent=False)
                await asyncio.sleep(0)
                turns += 1
        assert turns > 5
        assert feed.losses == 0


async def test_nothing_is_left_of_a_socket_that_cannot_connect():
    context = Context()
    with pytest.raises(SocketError):
        KvSocket(context, SUBSCRIBER, "tcp://*:5557", [].append, time.monotonic)
    # It would wait for a socket that is open.
    context.term()


async def test_a_replay_that_cannot_be_asked_for_is_one_that_does_not_answer(caplog, monkeypatch):
    monkeypatch.setattr(kvfeed, "ANSWER_S", 0.0)
    heard, context = Heard(), Context()
    async with publisher(keeps=None) as source:
        feed = KvFeed(
            "a", Endpoints(f"tcp://127.0.0.1:{source.port}", "tcp://*:1"), BLOCK,
            context=context, hear=heard.hear, lose=heard.lose, clock=time.monotonic, log=LOG,
        )  # fmt: skip
        await source.subscribed()
        assert "engine a: tcp://*:1 cannot be asked for earlier KV events: Invalid argument" in caplog.text
        feed.tick(is_silent=False)
        source.publish(stored(1))
        await heard.until(Stored([1]))
        feed.close()
        context.term()


async def test_it_is_connecting_until_something_was_read(caplog):
    heard = Heard()
    caplog.set_level(logging.INFO)
    async with publisher(keeps=None) as source, following(source, heard) as feed:
        source.publish_frames(b"hello")
        assert feed.state == "connecting"
        source.publish(stored(1))
        await heard.until(Stored([1]))
        assert feed.state == "following"
        assert feed.decoder.errors == 1
        assert caplog.text.count("engine a: following KV events at") == 1
        feed.restarted()
        assert feed.state == "connecting"


async def test_an_answer_without_batches_is_something_that_was_read():
    heard = Heard()
    async with publisher() as source, following(source, heard) as feed:
        assert feed.state == "connecting"
        async with asyncio.timeout(10):
            while feed.state != "following":
                await asyncio.sleep(0.005)
        assert heard.now == []
