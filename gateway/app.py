"""The one place that wires everything together, starts it and stops it."""

import asyncio
import contextlib
import logging
import random
import signal
import ssl
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, TextIO

from aiohttp import web

from gateway import __version__
from gateway.config import Config, EngineConfig, engine_context, redacted
from gateway.core.engine import Engine, Health, Probe
from gateway.core.events import Discovered, EngineEvent, Probed, ProberHint
from gateway.core.request import PRIORITY_NAMES, Record
from gateway.core.scheduler import Limits, Scheduler
from gateway.edge.accesslog import AccessLog
from gateway.edge.admin import AdminDeps, make_app
from gateway.edge.auth import Key, Keyring
from gateway.edge.catalog import Catalog
from gateway.edge.client import ClientConnection
from gateway.edge.cors import Cors, CorsConnection, CorsRelay
from gateway.edge.dispatcher import Dispatcher
from gateway.edge.explain import explain
from gateway.edge.intake import Intake
from gateway.edge.metrics import Metrics
from gateway.edge.prober import EngineTarget, Prober
from gateway.edge.records import RecentRecords
from gateway.edge.relay import Relay
from gateway.edge.tls import trouble
from gateway.edge.upstream import Pool
from gateway.engines.base import Dialect
from gateway.engines.registry import dialect_for

_FLUSH_S = 0.2
_BACKLOG = 4096
_FIRST_PROBE_S = 2.0
_PROBE_S = {Health.READY: 2.0, Health.BUSY: 1.0}
_PROBE_ABSENT_S = 0.5
_PROBE_COOLING_S = 0.1


class Gateway:
    """A running gateway. `await start()`, then `listen` and `admin` say where; `await stop()` drains it.

    `access_log` gets a line for each request, in `log_format` text or json; None is stderr as it is when
    the gateway starts.
    """

    def __init__(
        self,
        config: Config,
        log: logging.Logger,
        log_format: str = "text",
        access_log: TextIO | None = None,
    ) -> None:
        self._config = config
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
        limits = Limits(
            max_queue=config.admission.max_queue, max_queue_bytes=config.admission.max_queue_bytes
        )
        scheduler = Scheduler(engines, limits, config.routing.policy, random.random)
        self.dispatcher = Dispatcher(scheduler, loop, self._log)
        self._catalog = Catalog(
            scheduler.engines, config.models.aliases, config.models.alias_of, int(_wall_s())
        )
        self._dialects: dict[str, Dialect] = {}
        self._records = RecentRecords()
        access_log = sys.stderr if self._access_log is None else self._access_log
        self._access = AccessLog(access_log, "json" if self._log_format == "json" else "text")
        self.metrics = Metrics(
            snapshot=self.dispatcher.snapshot,
            known_models=lambda: list(self._catalog.models),
            version=__version__,
            degraded=self._degraded,
        )
        self._intake = Intake(self._catalog, config.admission.max_wait_s, config.admission.priority_header)
        self._engine_tls = _tls_by_engine(config.engines)
        self._relay = self._make_relay(loop)
        self._prober = Prober(
            [_target(it, self._engine_tls[it.name]) for it in config.engines],
            self._event,
            self.dispatcher.now,
            self._log,
        )
        self._started_at_s = self.dispatcher.now()
        self._probed: dict[str, asyncio.Event] = {it.name: asyncio.Event() for it in config.engines}
        await self._prober.start()
        try:
            await self._first_probes()
            await self._open_ports(loop)
        except BaseException:
            await self._prober.close()
            raise
        self._flusher = asyncio.create_task(self._flush())

    async def stop(self) -> None:
        """Refuse what is new, finish what runs within `limits.shutdown_grace`, close.

        The port stays open until then: who connects meanwhile is told to go elsewhere, not left with a
        refused connection that looks like a crash.
        """
        await self._relay.drain(self._config.limits.shutdown_grace_s)
        self._server.close()
        await self._prober.close()
        self._relay.close()
        self.dispatcher.close()
        self._flusher.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._flusher
        self._access.flush()
        await self._admin_runner.cleanup()

    def hurry(self) -> None:
        """Let `stop` wait no longer for what runs."""
        self._relay.hurry()

    def _make_relay(self, loop: asyncio.AbstractEventLoop) -> Relay:
        config = self._config
        keys = [Key(it.name, it.sha256, PRIORITY_NAMES.index(it.priority)) for it in config.auth.keys]
        pools = {
            it.name: Pool(
                it.url,
                it.api_key.get_secret_value() if it.api_key else None,
                config.limits.connect_timeout_s,
                loop,
                self._engine_tls[it.name],
            )
            for it in config.engines
        }
        origins = config.cors.origins
        make: Callable[..., Relay] = partial(CorsRelay, Cors(origins)) if origins else Relay
        return make(
            dispatcher=self.dispatcher,
            catalog=self._catalog,
            intake=self._intake,
            keyring=Keyring(keys),
            pools=pools,
            dialect=self._dialects.__getitem__,
            limits=config.limits,
            echo_alias=config.models.echo_alias,
            on_record=self._record,
            on_suspect=self._suspect,
            wall_time_s=_wall_s(),
            loop=loop,
            log=self._log,
        )

    async def _open_ports(self, loop: asyncio.AbstractEventLoop) -> None:
        config = self._config
        self._server = await loop.create_server(
            partial(_connection_kind(self._relay), self._relay),
            config.listen.host,
            config.listen.port,
            backlog=_BACKLOG,
            **_tls_options(config),
        )
        self.scheme = "https" if config.tls.cert else "http"
        self.listen = _name(self._server.sockets[0].getsockname())
        token = config.admin_token.get_secret_value() if config.admin_token else None
        deps = AdminDeps(
            snapshot=self.dispatcher.snapshot,
            metrics=self.metrics.render,
            process_metrics=self.metrics.render_process,
            records=self._records.latest,
            drain=self._drain,
            explain=self._explain,
            degraded=self.metrics.degradations,
            funnel=self.metrics.funnel,
            version=__version__,
            config=redacted(config),
            token=token or None,
            started_at_s=self._started_at_s,
            clock=self.dispatcher.now,
            max_body_bytes=config.limits.max_body_bytes,
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
            inject = self._config.usage.inject == "auto"
            self._dialects[name] = dialect_for(event.facts.kind, inject_usage=inject)
        before = engine.health
        self.dispatcher.update(name, event)
        if engine.health is not before:
            self._tell_health(engine, before)
        if isinstance(event, Discovered):
            self._catalog.refresh()
        self._probed[name].set()
        if engine.cooling:
            return ProberHint(_PROBE_COOLING_S)
        return ProberHint(_PROBE_S.get(engine.health, _PROBE_ABSENT_S))

    def _tell_health(self, engine: Engine, before: Health) -> None:
        bad = engine.health in (Health.DOWN, Health.BUSY)
        level = logging.WARNING if bad else logging.INFO
        running = f", {len(engine.leases)} requests on it" if bad and engine.leases else ""
        why = f": {engine.trouble}" if engine.trouble else ""
        self._log.log(level, "engine %s: %s, was %s%s%s", engine.name, engine.health, before, why, running)

    def _record(self, record: Record) -> None:
        self.metrics.observe(record)
        self._records.add(record)
        self._access.write(record)
        if record.engine and self.dispatcher.scheduler.engines[record.engine].cooling:
            self._prober.wake(record.engine)

    def _suspect(self, name: str, error: OSError | None) -> None:
        why = trouble(error)
        if why:
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

    def _explain(self, body: bytes) -> Mapping[str, object]:
        return explain(self.dispatcher.scheduler, self._intake.dry_run(body), self.dispatcher.now())

    def _degraded(self) -> Mapping[str, bool | float]:
        return {
            "access_log_lost": self._access.lost_lines > 0,
            "connections_refused": self._relay.refused_connections > 0,
        }

    async def _flush(self) -> None:
        while True:
            await asyncio.sleep(_FLUSH_S)
            self._access.flush()


async def run(config: Config, log: logging.Logger, log_format: str) -> None:
    """Serve until SIGTERM or SIGINT."""
    gateway = Gateway(config, log, log_format)
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            gateway.hurry()
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    await gateway.start()
    api = f"{gateway.scheme}://{gateway.listen}"
    if not config.auth.keys:
        log.warning("no API keys are configured: whoever reaches %s may use it", api)
    log.info("serving on %s, admin and dashboard on http://%s", api, gateway.admin)
    await stop.wait()
    state = gateway.dispatcher.snapshot()
    log.info(
        "stopping: finishing %d running and %d queued requests, for %g s at most; a second signal ends that",
        len(state.running),
        len(state.waiting),
        config.limits.shutdown_grace_s,
    )
    await gateway.stop()


def _tls_by_engine(engines: Sequence[EngineConfig]) -> dict[str, ssl.SSLContext | None]:
    """One for each `ca`, since each that verifies by the system's store holds all of that."""
    context = cache(engine_context)
    return {it.name: context(it.ca or None) if it.is_https else None for it in engines}


def _target(engine: EngineConfig, tls: ssl.SSLContext | None) -> EngineTarget:
    return EngineTarget(
        name=engine.name,
        url=engine.url,
        kind=engine.kind,
        slots=engine.slots,
        kv_tokens=engine.kv_tokens,
        api_key=engine.api_key.get_secret_value() if engine.api_key else None,
        tls=tls,
    )


def _connection_kind(relay: Relay) -> Callable[..., ClientConnection]:
    return CorsConnection if isinstance(relay, CorsRelay) else ClientConnection


def _tls_options(config: Config) -> dict[str, Any]:
    context = config.tls.context
    if context is None:
        return {}
    limits = config.limits
    return {
        "ssl": context,
        "ssl_handshake_timeout": limits.header_timeout_s,
        "ssl_shutdown_timeout": limits.write_timeout_s,
    }


def _name(address: Any) -> str:
    host, port = address[0], address[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _wall_s() -> float:
    return time.time()  # noqa: TID251
