import asyncio
import logging
import time

import pytest
from failing import ask, complete
from harness import running, until
from kv_publisher import publisher, removed, stored
from msgspec.structs import replace
from raw_engine import whole
from reloading import reloadable

from gateway.core.engine import Engine, Facts
from gateway.core.index import Index
from gateway.edge.kvfeed import Endpoints
from gateway.edge.kvfeeds import KvFeeds, endpoints_of
from gateway.edge.target import EngineTarget

LOG = logging.getLogger("test.kvfeeds")
BLOCK = 16


def target(kv_events: str, url: str = "http://10.0.0.1:8000") -> EngineTarget:
    return EngineTarget(name="a", url=url, kv_events=kv_events)


@pytest.mark.parametrize(
    ("kv_events", "url", "events", "replay"),
    [
        ("auto", "http://10.0.0.1:8000/v1", "tcp://10.0.0.1:5557", "tcp://10.0.0.1:5558"),
        ("auto", "https://[::1]", "tcp://[::1]:5557", "tcp://[::1]:5558"),
        ("tcp://b:6000", "http://a", "tcp://b:6000", "tcp://b:6001"),
        ("tcp://[::1]:6000?replay=7000", "http://a", "tcp://[::1]:6000", "tcp://[::1]:7000"),
        ("tcp://b:6000?replay=off", "http://a", "tcp://b:6000", None),
    ],
)
def test_where_events_are_asked_for(kv_events, url, events, replay):
    assert endpoints_of(target(kv_events, url), "vllm") == Endpoints(events, replay)


def test_auto_is_for_engines_that_publish():
    assert [
        kind for kind in ("vllm", "sglang", "llamacpp", "trtllm") if endpoints_of(target("auto"), kind)
    ] == [
        "vllm",
        "sglang",
    ]
    assert endpoints_of(target("tcp://b:6000"), "trtllm") is not None
    assert endpoints_of(target("off"), "vllm") is None


def engine(block_tokens: int = BLOCK) -> Engine:
    made = Engine("a", "http://a")
    made.facts = Facts(kind="vllm", block_tokens=block_tokens)
    return made


async def test_an_engine_is_followed_from_its_detection_until_it_is_removed():
    a = engine()
    index = Index({"a": a})
    feeds = KvFeeds(index, time.monotonic, LOG)
    async with publisher() as source:
        feeds.fit(target(source.setting), a)
        source.publish(stored(1, 2, block_tokens=BLOCK))

        async def has_blocks():
            return len(index.residences["a"].held)

        assert await until(has_blocks) == 2
        followed = index.residences["a"]
        feeds.fit(target(source.setting), a)
        assert index.residences["a"] is followed

        a.facts = replace(a.facts, block_tokens=32)
        feeds.fit(target(source.setting), a)
        assert index.residences["a"].block_tokens == 32

        feeds.fit(target("off"), a)
        assert not index.residences
        feeds.restarted("a")
        assert not feeds.are_degraded
        await feeds.close()


async def test_without_an_engine_to_follow_there_is_nothing():
    feeds = KvFeeds(Index({}), time.monotonic, LOG)

    feeds.fit(target("off"), engine())

    assert feeds.shown({}) == {"engines": {}}
    assert len(asyncio.all_tasks()) == 1
    await feeds.close()


async def test_a_socket_that_cannot_be_had_fails_nothing_else_and_is_tried_again(caplog):
    a = engine()
    index = Index({"a": a})
    feeds = KvFeeds(index, time.monotonic, LOG)

    feeds.fit(target("tcp://*:5557"), a)

    assert "engine a: no KV events, tcp://*:5557 cannot be connected to: Invalid argument" in caplog.text
    assert feeds.shown({}) == {"engines": {"a": {"state": "failed", "events_endpoint": "tcp://*:5557"}}}
    assert not index.residences
    assert feeds.are_degraded
    feeds.restarted("a")
    feeds.fit(target("tcp://127.0.0.1:1"), a)
    assert feeds.shown({})["engines"]["a"]["state"] == "connecting"
    assert list(index.residences) == ["a"]
    assert not feeds.are_degraded
    feeds.fit(target("tcp://*:5557"), a)
    assert not index.residences
    feeds.remove("a")
    assert not feeds.are_degraded
    await feeds.close()


async def test_an_engine_that_does_not_publish_is_told(caplog):
    caplog.set_level(logging.INFO)
    a = engine()
    a.facts = replace(a.facts, kind="llamacpp")
    feeds = KvFeeds(Index({"a": a}), time.monotonic, LOG)

    feeds.fit(target("off"), a)
    assert not caplog.text
    feeds.fit(target("auto"), a)

    assert "engine a: kv_events: not for llamacpp" in caplog.text
    await feeds.close()


def entry(it, source):
    return it.entry(name="a", kind="vllm") | {"kv_events": source.setting}


async def shown(gateway):
    async with gateway.http.get(f"{gateway.admin}/api/kv-events") as response:
        return (await response.json())["engines"]


PROMPT = "x" * 5000
ANSWER = b'{"object":"chat.completion","usage":{"prompt_tokens":1250,"completion_tokens":1,' \
         b'"prompt_tokens_details":{"cached_tokens":0}}}'  # fmt: skip


async def test_the_gateway_predicts_what_events_tell(tmp_path, engine):
    async with publisher() as source, running(tmp_path, [entry(engine, source)]) as gateway:
        await source.subscribed()

        async def store(call):
            source.publish(stored(*range(1, 79), block_tokens=BLOCK))
            call.write(whole(ANSWER))

        engine.handler = store
        body = {"model": "m", "messages": [{"role": "user", "content": PROMPT}]}
        await gateway.post("/v1/chat/completions", body)

        async def is_placed():
            it = (await shown(gateway))["a"]
            return (it["requests_placed"], it["blocks"]) == (1, 40)

        source.publish(removed(*range(41, 79)))
        await until(is_placed)
        engine.handler = complete
        _, headers, _ = await gateway.post("/v1/chat/completions", body)

        assert headers["x-gateway-predicted-cached-tokens"] == str(40 * BLOCK)
        assert (await shown(gateway))["a"] == {
            "state": "following",
            "events_endpoint": f"tcp://127.0.0.1:{source.port}",
            "replay_endpoint": f"tcp://127.0.0.1:{source.replay_port}",
            "blocks": 40,
            "block_tokens": BLOCK,
            "batches": 2,
            "events": 2,
            "skipped": 0,
            "unknown": 0,
            "errors": 0,
            "losses": 0,
            "requests_placed": 1,
            "requests_unplaced": 0,
        }


async def test_a_loss_is_a_degradation(tmp_path, engine):
    async with publisher(keeps=None) as source, running(tmp_path, [entry(engine, source)]) as gateway:
        await source.subscribed()
        assert await gateway.metric("degraded", kind="kv_events_lost") == 0
        source.publish(stored(1, block_tokens=BLOCK))
        source.drops = True
        source.publish(stored(2, block_tokens=BLOCK))
        source.drops = False
        source.publish(stored(3, block_tokens=BLOCK))

        async def is_degraded():
            return await gateway.metric("degraded", kind="kv_events_lost")

        await until(is_degraded)


async def test_an_engine_that_is_removed_is_not_followed_any_more(tmp_path, pair):
    a, b = pair.values()
    async with publisher() as source, reloadable(tmp_path, [entry(a, source), b.entry(name="b")]) as it:
        await source.subscribed()
        assert list(await shown(it.running)) == ["a"]
        await it.change([b.entry(name="b")])
        assert await shown(it.running) == {}
        await ask(it.running)


async def test_a_feed_can_be_switched_on_and_off_by_a_reload(tmp_path, engine):
    plain = engine.entry(name="a", kind="vllm")
    async with publisher() as source, reloadable(tmp_path, [plain]) as it:
        assert await shown(it.running) == {}
        changed = await it.change([entry(engine, source)])
        assert changed == [f"engines.a.kv_events: off -> {source.setting}"]

        async def is_followed():
            return "a" in await shown(it.running)

        await until(is_followed)
        await it.change([plain])

        async def is_not():
            return not await is_followed()

        await until(is_not)


STAR = "tcp://*:5557"


def unchecked(config):
    """As if the check of the configuration had let something through that no socket takes."""
    (a,) = config.engines
    return config.model_copy(update={"engines": (a.model_copy(update={"kv_events": STAR}),)})


async def test_an_engine_whose_events_cannot_be_had_is_ready_all_the_same(tmp_path, engine):
    plain = engine.entry(name="a", kind="vllm")
    async with running(tmp_path, [plain], change=unchecked) as gateway:
        assert (await gateway.engine("a"))["health"] == "ready"
        assert await gateway.metric("degraded", kind="kv_events_lost") == 1
        assert (await ask(gateway)).status == 200


async def test_a_reload_with_such_an_address_changes_nothing(tmp_path, pair):
    a, b = pair.values()
    plain = a.entry(name="a", kind="vllm")
    async with reloadable(tmp_path, [plain]) as it:
        it.write([plain | {"kv_events": STAR}, b.entry(name="b")])
        status, body = await it.reload()
        assert (status, body["error"]["code"]) == (400, "config_invalid")
        state = await it.running.state()
        assert [(one["name"], one["kv_events"]) for one in state["config"]["engines"]] == [("a", "off")]
        assert await it.names() == ["a"]
        assert not state["reload"]["ok"]
