"""The KV events of all engines that are to be followed."""

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from urllib.parse import parse_qs, urlsplit

from gateway.core.engine import Engine
from gateway.core.events import BlockEvent
from gateway.core.index import Index
from gateway.edge.kvfeed import Endpoints, KvFeed
from gateway.edge.kvsocket import Context, SocketError
from gateway.edge.target import EngineTarget

_TICK_S = 0.05
_DEFAULT_PORT = 5557
_PUBLISH = ("vllm", "sglang")
_AUTO = " and ".join(_PUBLISH)


class KvFeeds:
    """Follows engines from when they are known (`fit`) until they are removed. Without one that is to be
    followed it does nothing at all."""

    def __init__(self, index: Index, clock: Callable[[], float], log: logging.Logger) -> None:
        self._index = index
        self._clock = clock
        self._log = log
        self._feeds: dict[str, KvFeed] = {}
        self._failed: dict[str, Endpoints] = {}
        self._context: Context | None = None
        self._ticker: asyncio.Task[None] | None = None

    def fit(self, target: EngineTarget, engine: Engine) -> None:
        """An engine has been detected, perhaps again and as another kind, or is configured otherwise. Where
        no socket is to be had it serves without events, and the next call tries again."""
        kind = engine.facts.kind
        endpoints, feed = endpoints_of(target, kind), self._feeds.get(target.name)
        if endpoints is None:
            self.remove(target.name)
            if target.kv_events != "off":
                self._log.info("engine %s: kv_events: not for %s; auto is for %s", target.name, kind, _AUTO)
            return
        if feed and (feed.endpoints, feed.block_tokens) == (endpoints, engine.block_tokens):
            return
        self.remove(target.name)
        self._index.follow(engine)
        try:
            self._open(target.name, endpoints, engine.block_tokens)
        except SocketError as error:
            self._index.unfollow(target.name)
            self._failed[target.name] = endpoints
            words = "engine %s: no KV events, %s cannot be connected to: %s"
            self._log.warning(words, target.name, endpoints.events, error.strerror)

    def remove(self, name: str) -> None:
        self._failed.pop(name, None)
        feed = self._feeds.pop(name, None)
        if feed is not None:
            feed.close()
            self._index.unfollow(name)

    def restarted(self, name: str) -> None:
        if name in self._feeds:
            self._feeds[name].restarted()

    async def close(self) -> None:
        if self._ticker is not None:
            self._ticker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._ticker
        for feed in self._feeds.values():
            feed.close()
        self._feeds.clear()
        if self._context is not None:
            self._context.term()

    @property
    def are_degraded(self) -> bool:
        """Whether events of an engine were lost a short time ago, or none come."""
        return bool(self._failed) or any(it.is_degraded for it in self._feeds.values())

    def shown(self, query: Mapping[str, str]) -> Mapping[str, object]:
        """`GET /api/kv-events`."""
        del query
        failed = {
            name: {"state": "failed", "events_endpoint": it.events} for name, it in self._failed.items()
        }
        return {"engines": {name: self._shown(name, feed) for name, feed in self._feeds.items()} | failed}

    def _shown(self, name: str, feed: KvFeed) -> Mapping[str, object]:
        residence, decoder = self._index.residences[name], feed.decoder
        return {
            "state": feed.state,
            "events_endpoint": feed.endpoints.events,
            "replay_endpoint": feed.endpoints.replay,
            "blocks": len(residence.held),
            "block_tokens": feed.block_tokens,
            "batches": feed.batches,
            "events": decoder.events,
            "skipped": decoder.skipped,
            "unknown": decoder.unknown,
            "errors": decoder.errors,
            "losses": feed.losses,
            "requests_placed": residence.placed,
            "requests_unplaced": residence.unplaced,
        }

    def _open(self, name: str, endpoints: Endpoints, block_tokens: int) -> None:
        if self._context is None:
            self._context = Context()
            self._ticker = asyncio.create_task(self._tick(), name="KV events")
        self._feeds[name] = KvFeed(
            name,
            endpoints,
            block_tokens,
            context=self._context,
            hear=partial(self._hear, name),
            lose=partial(self._index.lose, name),
            clock=self._clock,
            log=self._log,
        )
        self._log.info("engine %s: connecting to %s for KV events", name, endpoints.events)

    def _hear(self, name: str, events: Sequence[BlockEvent], *, is_history: bool) -> None:
        self._index.hear(name, events, -math.inf if is_history else self._clock())

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            now = self._clock()
            for name, feed in self._feeds.items():
                self._index.place(name, now)
                feed.tick(is_silent=self._index.residences[name].is_silent(now))


def endpoints_of(target: EngineTarget, kind: str) -> Endpoints | None:
    """Where to ask, None: nowhere. Earlier batches are asked for at the next port where nothing else is said:
    publishers have no default for it, and the port after the events' is free where there is but one rank."""
    setting = target.kv_events
    if setting == "off" or (setting == "auto" and kind not in _PUBLISH):
        return None
    if setting == "auto":
        host = urlsplit(target.url).hostname or ""
        return _endpoints(host, _DEFAULT_PORT, str(_DEFAULT_PORT + 1))
    parts = urlsplit(setting)
    port = parts.port or _DEFAULT_PORT
    replay = parse_qs(parts.query).get("replay", [str(port + 1)])[0]
    return _endpoints(parts.hostname or "", port, replay)


def _endpoints(host: str, port: int, replay: str) -> Endpoints:
    at = f"tcp://[{host}]" if ":" in host else f"tcp://{host}"
    return Endpoints(f"{at}:{port}", None if replay == "off" else f"{at}:{replay}")
