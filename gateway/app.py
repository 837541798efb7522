"""The one place that wires everything together, starts it and stops it."""

import asyncio
import contextlib
import logging
import random
import signal
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TextIO

from aiohttp import web

from gateway import __version__
from gateway.config import Config, redacted
from gateway.core.concurrency import Concurrency
from gateway.core.engine import Engine, Health, Probe
from gateway.core.events import Discovered, EngineEvent, Probed, ProberHint, Restarted
from gateway.core.request import PRIORITY_NAMES, Record
from gateway.core.scheduler import Limits, Scheduler
from gateway.edge.admin import AdminDeps, make_app
from gateway.edge.allocator import keep_freed_memory
from gateway.edge.auth import Key, Keyring
from gateway.edge.breakers import PrefixWatch
from gateway.edge.caplog import CapLog
from gateway.edge.catalog import Catalog
from gateway.edge.cors import connection_kind, relay_kind
from gateway.edge.dispatcher import Dispatcher
from gateway.edge.explain import asked, explain
from gateway.edge.intake import Intake
from gateway.edge.kvfeeds import KvFeeds
from gateway.edge.listener import Listener
from gateway.edge.observation import Observation
from gateway.edge.operating import operating_point
from gateway.edge.pools import Pools
from gateway.edge.prober import Prober
from gateway.edge.relay import Relay
from gateway.edge.reload import ConfigFile, Reloader
from gateway.edge.target import EngineTarget, targets
from gateway.edge.tls import listener_options, trouble
from gateway.edge.upstream import Pool
from gateway.engines.base import Dialect
from gateway.engines.registry import dialect_for

_FLUSH_S = 0.2
_FIRST_PROBE_S = 2.0
_PROBE_S = {Health.READY: 2.0, Health.BUSY: 1.0}
_PROBE_ABSENT_S = 0.5
_PROBE_COOLING_S = 0.1


class Gateway:
    """A running gateway. `await start()`, then `listen` and `admin` say where; `await stop()` drains it.

    `access_log` gets a line for each request, in `log_format` text or json; None is stderr as it is when
    the gateway starts. What `file` says later replaces `config`.
    """

    def __init__(
        self,
        config: Config,
        log: logging.Logger,
        log_format: str = "text",
        access_log: TextIO | None = None,
        file: ConfigFile | None = None,
    ) -> None:
        self._config = config
        self._shown = redacted(config)
        self._file = file
        self._log = log
        self._log_format = log_format
        self._access_log = access_log
        self.listen = ""
        self.scheme = "http"
        self.admin = ""

    async def start(self) -> None:
        """Raises `OSError` where an address cannot be listened on."""
        config, loop = self._config, asyncio.get_running_loop()
        engines = [Engine(it.name, it.url) for it in config.engines]
        started_at = time.monotonic()
        concurrency = Concurrency(started_at, _wall_s() - started_at)
        limits, policy = _queue_limits(config), config.routing.policy
        scheduler = Scheduler(engines, limits, policy, random.random, concurrency=concurrency)
        self.dispatcher = Dispatcher(scheduler, loop, self._log)
        models = config.models
        self._catalog = Catalog(scheduler.engines, models.aliases, models.alias_of, int(_wall_s()))
        self._dialects: dict[str, Dialect] = {}
        self._caps_told = CapLog(self._log)
        self._kv_feeds = KvFeeds(scheduler.index, self.dispatcher.now, self._log)
        self.observation = Observation(
            kv_feeds=self._kv_feeds,
            snapshot=self.dispatcher.snapshot,
            known_models=lambda: list(self._catalog.models),
            version=__version__,
            degraded=self._degraded,
            reloaded=lambda: self._reloader.status.ok,
            timestamp=lambda: self._relay.wall.text(self.dispatcher.now()),
            since=concurrency.since,
            normalized=lambda: self._intake.normalized,
            access_log=sys.stderr if self._access_log is None else self._access_log,
            access_log_format=self._log_format,
            clock=self.dispatcher.now,
            prefixes=PrefixWatch(scheduler.index, self._catalog.billing, config.show_prompt_text),
        )
        waits, prefixes = config.admission, self.observation.prefixes
        self._intake = Intake(self._catalog, waits.max_wait_s, waits.priority_header, prefixes.came)
        self._intake.normalize(it.as_rule for it in config.normalize)
        self._targets = targets(config.engines)
        self._pools = Pools()
        for it in self._targets.values():
            self._pools.put(it.name, self._pool(it))
        self._relay = self._make_relay(loop)
        mark = self.observation.marks.reloaded
        self._reloader = Reloader(self._file, config, self._prepare, self._relay.timestamp, self._log, mark)
        self._prober = Prober(list(self._targets.values()), self._event, self.dispatcher.now, self._log)
        self._started_at_s = self.dispatcher.now()
        self._probed: dict[str, asyncio.Event] = {it.name: asyncio.Event() for it in config.engines}
        await self._prober.start()
        try:
            await self._first_probes()
            await self._open_ports(loop)
        except BaseException:
            await self._prober.close()
            await self._kv_feeds.close()
            raise
        self._flusher = asyncio.create_task(self._flush())
        self._reloader.start()

    async def stop(self) -> None:
        """Refuse what is new, finish what runs within `limits.shutdown_grace`, close.

        The port stays open until then: who connects meanwhile is told to go elsewhere, not left with a
        refused connection that looks like a crash.
        """
        await self._reloader.close()
        await self._relay.drain(self.grace_s)
        self._listener.close()
        await self._prober.close()
        await self._kv_feeds.close()
        self._relay.close()
        self.dispatcher.close()
        self._flusher.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._flusher
        self.observation.flush()
        await self._admin_runner.cleanup()

    def hurry(self) -> None:
        """Let `stop` wait no longer for what runs."""
        self._relay.hurry()

    @property
    def grace_s(self) -> float:
        """How long `stop` waits for what runs."""
        return self._config.limits.shutdown_grace_s

    def reload(self) -> None:
        """Use what the configuration file says now; the log tells what came of it."""
        self._reloader.soon()

    def tell_where(self) -> None:
        """In the log: where it serves, and whether it does so for anybody."""
        if not self._config.auth.keys:
            self._tell_open()
        if self._config.normalize:
            self._log.info("normalize: %s", "; ".join(map(str, self._config.normalize)))
        self._log.info(
            "serving on %s://%s, admin and dashboard on http://%s", self.scheme, self.listen, self.admin
        )

    def _tell_open(self) -> None:
        api = f"{self.scheme}://{self.listen}"
        self._log.warning("no API keys are configured: whoever reaches %s may use it", api)

    def _make_relay(self, loop: asyncio.AbstractEventLoop) -> Relay:
        config = self._config
        return relay_kind(config.cors.origins)(
            dispatcher=self.dispatcher,
            catalog=self._catalog,
            intake=self._intake,
            keyring=_keyring(config),
            pools=self._pools,
            dialect=self._dialects.__getitem__,
            limits=config.limits,
            keepalive_s=config.admission.keepalive_s,
            echo_alias=config.models.echo_alias,
            on_record=self._record,
            on_suspect=self._suspect,
            wall_time_s=_wall_s(),
            loop=loop,
            log=self._log,
        )

    def _pool(self, engine: EngineTarget) -> Pool:
        loop = asyncio.get_running_loop()
        return Pool(engine.url, engine.api_key, self._config.limits.connect_timeout_s, loop, engine.tls)

    def _prepare(self, new: Config) -> Callable[[], None]:
        """In a thread, since it reads files. Returns what puts `new` in force. Raises `TlsProblem`."""
        return partial(self._apply, new, targets(new.engines, self._targets))

    def _apply(self, new: Config, engines: dict[str, EngineTarget]) -> None:
        """In one go, with nothing between that could run; `new` has been checked whole."""
        old, self._config = self._config, new
        self._shown = redacted(new)
        self._catalog.apply(new.models.aliases, new.models.alias_of)
        self.observation.prefixes.show_text(new.show_prompt_text)
        self._intake.apply(new.admission.max_wait_s, new.admission.priority_header)
        self._intake.normalize(it.as_rule for it in new.normalize)
        self._relay.apply(
            _keyring(new), new.limits, echo_alias=new.models.echo_alias, keepalive_s=new.admission.keepalive_s
        )
        self.dispatcher.configure(_queue_limits(new), new.routing.policy)
        self._change_engines(engines)
        if old.auth.keys and not new.auth.keys:
            self._tell_open()

    def _change_engines(self, after: dict[str, EngineTarget]) -> None:
        before, self._targets = self._targets, after
        kept = {name for name, it in after.items() if name in before and before[name].url == it.url}
        for name in before.keys() - kept:
            self._prober.remove(name)
            self._kv_feeds.remove(name)
            self._pools.put_away(name)
            self._dialects.pop(name, None)
        for name, it in after.items():
            if name not in kept or not it.connects_like(before[name]):
                self._pools.put(name, self._pool(it))
            self._pools[name].connect_timeout_s = self._config.limits.connect_timeout_s
        for name in self._dialects:
            self._learn_dialect(name, self.dispatcher.scheduler.engines[name].facts.kind)
        come = [it for name, it in after.items() if name not in kept]
        gone = [name for name in before if name not in kept]
        self.dispatcher.change_engines(gone, [Engine(it.name, it.url) for it in come])
        self._catalog.refresh()
        for it in come:
            self._prober.add(it)
        for name in kept:
            if after[name] != before[name]:
                self._prober.change(after[name])

    async def _open_ports(self, loop: asyncio.AbstractEventLoop) -> None:
        config = self._config
        accepted = partial(connection_kind(self._relay), self._relay)
        self._listener = Listener(accepted, loop, self._log, **listener_options(config))
        await self._listener.open(config.listen.host, config.listen.port)
        self.scheme = "https" if config.tls.cert else "http"
        self.listen = _name(self._listener.address)
        token = config.admin_token.get_secret_value() if config.admin_token else None
        metrics = self.observation.metrics
        deps = AdminDeps(
            snapshot=self.dispatcher.snapshot,
            metrics=metrics.render,
            process_metrics=metrics.render_process,
            records=self.observation.records.told,
            operating_point=self._operating_point,
            drain=self._drain,
            explain=self._explain,
            degraded=metrics.degradations,
            funnel=self.observation.funnel,
            reload=self._reloader.reload,
            last_reload=lambda: self._reloader.status,
            config=lambda: self._shown,
            max_body_bytes=lambda: self._config.limits.max_body_bytes,
            version=__version__,
            views=self.observation.views(),
            token=token or None,
            started_at_s=self._started_at_s,
            clock=self.dispatcher.now,
        )
        self._admin_runner = web.AppRunner(make_app(deps), access_log=None, handler_cancellation=True)
        await self._admin_runner.setup()
        site = web.TCPSite(self._admin_runner, config.admin.host, config.admin.port)
        await site.start()
        self.admin = _name(self._admin_runner.addresses[0])

    async def _first_probes(self) -> None:
        """Engines that answer at once are known before the first request comes."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_PROBE_S):
                await asyncio.gather(*(event.wait() for event in self._probed.values()))

    def _event(self, name: str, event: EngineEvent) -> ProberHint:
        engine = self.dispatcher.scheduler.engines[name]
        if isinstance(event, Discovered):
            # Before the scheduler hears of it: what waits may be granted in the same call.
            self._learn_dialect(name, event.facts.kind)
        elif isinstance(event, Restarted):
            self.observation.marks.restarted(name)
        before = engine.health
        self.dispatcher.update(name, event)
        if engine.health is not before:
            self._tell_health(engine, before)
        self._caps_told.tell(engine)
        if isinstance(event, Discovered):
            self._kv_feeds.fit(self._targets[name], engine)
            self._catalog.refresh()
        elif isinstance(event, Restarted):
            self._kv_feeds.restarted(name)
        if name in self._probed:
            self._probed[name].set()
        if engine.cooling:
            return ProberHint(_PROBE_COOLING_S)
        return ProberHint(_PROBE_S.get(engine.health, _PROBE_ABSENT_S))

    def _learn_dialect(self, name: str, kind: str) -> None:
        self._dialects[name] = dialect_for(kind, inject_usage=self._config.usage.inject == "auto")

    def _tell_health(self, engine: Engine, before: Health) -> None:
        bad = engine.health in (Health.DOWN, Health.BUSY)
        level = logging.WARNING if bad else logging.INFO
        running = f", {len(engine.leases)} requests on it" if bad and engine.leases else ""
        why = f": {engine.trouble}" if engine.trouble else ""
        self._log.log(level, "engine %s: %s, was %s%s%s", engine.name, engine.health, before, why, running)

    def _record(self, record: Record) -> None:
        self.observation.ended(record)
        engine = self.dispatcher.scheduler.engines.get(record.engine)
        if engine is not None and engine.cooling:
            self._prober.wake(record.engine)

    def _suspect(self, name: str, pool: Pool | None, error: OSError | None) -> None:
        why = trouble(error)
        if why and self._pools.get(name) is pool:
            # As certain as a probe, and the request that meets it is to be told.
            self._event(name, Probed(probe=Probe.REFUSED, why=why))
        elif error is not None:
            self._log.warning("engine %s: no connection: %s", name, error)
        self._prober.wake(name)

    def _drain(self, name: str, on: bool) -> bool:
        if name not in self.dispatcher.scheduler.engines:
            return False
        self.dispatcher.drain(name, on)
        self._log.info("engine %s: %s", name, "draining" if on else "in service again")
        return True

    def _explain(self, api: str, body: bytes) -> Mapping[str, object]:
        return explain(self.dispatcher.scheduler, asked(self._intake, api, body), self.dispatcher.now())

    def _operating_point(self) -> Mapping[str, object]:
        concurrency, worked = self.dispatcher.scheduler.concurrency, self.observation.worked
        return operating_point(concurrency, worked, self.dispatcher.snapshot(), self.dispatcher.now())

    def _degraded(self) -> Mapping[str, bool | float]:
        refused = self._relay.refused_connections > 0
        return {"connections_refused": refused, "config_invalid": not self._reloader.status.ok}

    async def _flush(self) -> None:
        while True:
            await asyncio.sleep(_FLUSH_S)
            self.observation.flush()


async def run(config: Config, log: logging.Logger, log_format: str, file: ConfigFile | None = None) -> None:
    """Serve until SIGTERM or SIGINT; SIGHUP reloads `file`."""
    keep_freed_memory(log)
    gateway = Gateway(config, log, log_format, file=file)
    loop, stop = asyncio.get_running_loop(), asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            gateway.hurry()
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    await gateway.start()
    loop.add_signal_handler(signal.SIGHUP, gateway.reload)
    gateway.tell_where()
    await stop.wait()
    state = gateway.dispatcher.snapshot()
    log.info(
        "stopping: finishing %d running and %d queued requests, for %g s at most; a second signal ends that",
        len(state.running),
        len(state.waiting),
        gateway.grace_s,
    )
    await gateway.stop()


def _keyring(config: Config) -> Keyring:
    return Keyring([Key(it.name, it.sha256, PRIORITY_NAMES.index(it.priority)) for it in config.auth.keys])


def _queue_limits(config: Config) -> Limits:
    return Limits(max_queue=config.admission.max_queue, max_queue_bytes=config.admission.max_queue_bytes)


def _name(address: Any) -> str:
    host, port = address[0], address[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _wall_s() -> float:
    return time.time()  # noqa: TID251
