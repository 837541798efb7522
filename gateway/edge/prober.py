"""Asking every engine, again and again, whether it lives, what it is and how much it runs.

One task for each engine; what is learned goes out as events, in order, through one synchronous callback.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence

from gateway.core.engine import Facts, LoadReport, Probe
from gateway.core.events import Discovered, EngineEvent, Probed, ProberHint, Reported, Restarted
from gateway.edge.asker import Asker, NoTls
from gateway.edge.rendering import learn_rendering
from gateway.edge.target import EngineTarget, base_url, settle
from gateway.engines.base import Answer, Dialect
from gateway.engines.reading import MODELS_PATH
from gateway.engines.registry import DIALECTS, IDENTIFY_PATHS, identify, read_first_answer, refusal

TIMEOUT_S = 2.0
FACTS_TIMEOUT_S = 15.0
"""vLLM's first /server_info collects facts about its host (2.8 s seen on 0.32.0, then 4 ms); giving up on
it would leave an assumed cap in front of a real one."""

# However often `wake` is called (once for each request that found no engine there), no engine gets more
# than this many probes a second.
_MIN_GAP_S = 0.05
# A server may answer 5xx to a path it does not know, for ever: then what there is has to do.
_DISCOVERY_ATTEMPTS = 3

OnEvent = Callable[[str, EngineEvent], ProberHint]


class Prober:
    """Probes all `targets`, and those that come, from `start()` to `close()`.

    `on_event` gets each engine's name and events and says when to ask that engine next. `clock` is the
    monotonic clock that the receiver of `LoadReport.asked_at` compares with. `timeout_s` bounds each
    single request, `facts_timeout_s` those of a detection. Raises ValueError for a target of an unknown kind.
    """

    def __init__(
        self,
        targets: Sequence[EngineTarget],
        on_event: OnEvent,
        clock: Callable[[], float],
        log: logging.Logger,
        *,
        timeout_s: float = TIMEOUT_S,
        facts_timeout_s: float = FACTS_TIMEOUT_S,
    ) -> None:
        for target in targets:
            if target.kind != "auto" and target.kind not in DIALECTS:
                raise ValueError(f"engine {target.name}: {refusal(target.kind)}")
        self._client = Asker(timeout_s)
        self._on_event = on_event
        self._clock = clock
        self._log = log
        self._facts_timeout_s = facts_timeout_s
        self._watches = {it.name: self._watch(it) for it in targets}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def start(self) -> None:
        """Starts probing at once. Nothing is known of any engine when this returns."""
        await self._client.open()
        for name in self._watches:
            self._run(name)

    async def close(self) -> None:
        """Ends all probes, those under way too; no event comes afterwards."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._tasks.clear()
        await self._client.close()

    def wake(self, name: str) -> None:
        """Probe this engine now: something else has just found it gone, or wants to know if it is free."""
        watch = self._watches.get(name)
        if watch is not None:
            watch.wake()

    def add(self, target: EngineTarget) -> None:
        self._watches[target.name] = self._watch(target)
        self._run(target.name)

    def remove(self, name: str) -> None:
        """No event of this engine comes any more."""
        del self._watches[name]
        self._tasks.pop(name).cancel()

    def change(self, target: EngineTarget) -> None:
        """Another configuration of an engine at the same URL. New slots and KV tokens are told at once."""
        if self._watches[target.name].change(target):
            self._tasks[target.name].cancel()
            self._run(target.name)

    def _watch(self, target: EngineTarget) -> "_Watch":
        return _Watch(target, self._client, self._on_event, self._clock, self._log, self._facts_timeout_s)

    def _run(self, name: str) -> None:
        self._tasks[name] = asyncio.create_task(self._watches[name].run(), name=f"prober {name}")


class _Watch:
    """One engine's task and what it remembers between probes."""

    def __init__(
        self,
        target: EngineTarget,
        client: Asker,
        on_event: OnEvent,
        clock: Callable[[], float],
        log: logging.Logger,
        facts_timeout_s: float,
    ) -> None:
        self._target = target
        self._facts_timeout_s = facts_timeout_s
        self._base = base_url(target.url)
        self._detected: Facts | None = None
        self._client = client
        self._on_event = on_event
        self._clock = clock
        self._log = log
        self._interval_s = ProberHint().interval_s
        self._woken = asyncio.Event()
        self._dialect: Dialect | None = None
        self._attempts = 0
        self._suspect = False
        self._identity: str | None = None
        self._last_probe: Probe | None = None
        self._why = ""
        self._last_report: LoadReport | None = None
        self._has_load = True
        self._said: set[str] = set()

    def wake(self) -> None:
        self._woken.set()

    def change(self, target: EngineTarget) -> bool:
        """Whether it must be detected again, and `run` begin anew."""
        before, self._target = self._target, target
        self._said.clear()
        if (before.kind, before.api_key) != (target.kind, target.api_key):
            self._dialect = self._identity = self._last_report = None
            self._has_load = True
            self._attempts = 0
            return True
        if self._detected is not None:
            self._discovered(self._detected, {})
        return False

    async def run(self) -> None:
        while True:
            self._woken.clear()
            try:
                await self._step()
            except Exception as error:
                self._say(logging.ERROR, f"a probe failed: {type(error).__name__}", error)
            await asyncio.sleep(_MIN_GAP_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, self._interval_s - _MIN_GAP_S)):
                    await self._woken.wait()

    async def _step(self) -> None:
        if self._dialect is None:
            await self._detect()
        else:
            await self._check(self._dialect)

    async def _check(self, dialect: Dialect) -> None:
        answer = await self._get(dialect.health_path)
        probe = answer if isinstance(answer, Probe) else dialect.read_health(answer)
        if probe is not Probe.OK:
            # llama.cpp says "loading" only once in its life, so it has begun another one.
            self._suspect = self._suspect or probe in (Probe.REFUSED, Probe.LOADING)
            self._probed(probe)
            return
        assert isinstance(answer, Answer)
        report = await self._load(dialect)
        if self._has_another_identity(dialect.read_identity(answer)) or self._is_another_process(report):
            self._restarted()
            await self._detect()
            return
        self._suspect = False
        self._probed(probe)
        self._reported(report)

    def _has_another_identity(self, identity: str | None) -> bool:
        last = self._identity
        self._identity = identity or last
        return identity is not None and last is not None and identity != last

    def _is_another_process(self, report: LoadReport | None) -> bool:
        """The engine's own start time decides where it is told; else a gap in its presence does."""
        last = self._last_report
        if report is None or last is None:
            return self._suspect
        if _fell(last.prefix_queries_tokens, report.prefix_queries_tokens):
            return True
        if last.started_at is not None and report.started_at is not None:
            return last.started_at != report.started_at
        return self._suspect

    def _restarted(self) -> None:
        self._log.warning("engine %s: restarted, detecting it again", self._target.name)
        self._dialect = self._detected = None
        self._suspect = False
        self._last_report = None
        self._has_load = True
        self._emit(Restarted())

    async def _detect(self) -> None:
        """Finds out the kind, then the facts; until that has worked, every probe starts here again."""
        answers: dict[str, Answer] = {}
        gaps: dict[str, Probe] = {}
        probe = await self._ask_first(answers)
        if probe is not Probe.OK:
            self._probed(probe)
            return
        kind = self._target.kind
        if kind == "auto":
            kind = await self._identify(answers, gaps)
        dialect = DIALECTS[kind]
        for path in dialect.facts_paths:
            await self._ask(path, answers, gaps, self._facts_timeout_s)
        self._attempts += 1
        if gaps and (MODELS_PATH in gaps or self._attempts < _DISCOVERY_ATTEMPTS):
            self._probed(next(iter(gaps.values())))
            return
        self._discovered(await learn_rendering(dialect.read_facts(answers), self._post), gaps)
        self._dialect = dialect
        if dialect.health_path in answers:
            self._identity = dialect.read_identity(answers[dialect.health_path])
        self._probed(Probe.OK)
        self._reported(await self._load(dialect))

    async def _ask_first(self, answers: dict[str, Answer]) -> Probe:
        """The one question that tells whether it makes sense to ask more."""
        if self._target.kind == "auto":
            path, read = MODELS_PATH, read_first_answer
        else:
            dialect = DIALECTS[self._target.kind]
            path, read = dialect.health_path, dialect.read_health
        answer = await self._get(path)
        if isinstance(answer, Probe):
            return answer
        answers[path] = answer
        return read(answer)

    async def _identify(self, answers: dict[str, Answer], gaps: dict[str, Probe]) -> str:
        for path in IDENTIFY_PATHS:
            await self._ask(path, answers, gaps)
            kind = identify(answers)
            if kind != "openai":
                return kind
        return "openai"

    async def _ask(
        self, path: str, answers: dict[str, Answer], gaps: dict[str, Probe], timeout_s: float | None = None
    ) -> None:
        """Adds the answer to `answers`, or to `gaps` what came instead of one that says anything.

        501 says something: the engine has the route and it is switched off.
        """
        if path in answers or path in gaps:
            return
        answer = await self._get(path, timeout_s)
        if isinstance(answer, Probe):
            gaps[path] = answer
        elif answer.status >= 500 and answer.status != 501:
            gaps[path] = Probe.ERROR
        else:
            answers[path] = answer

    async def _load(self, dialect: Dialect) -> LoadReport | None:
        """Where the route is not there, or is switched off, this process of the engine is not asked again."""
        if dialect.load_path is None or not self._has_load:
            return None
        asked_at = self._clock()
        answer = await self._get(dialect.load_path)
        if isinstance(answer, Probe):
            return None
        self._has_load = answer.status not in (404, 501) or self._last_report is not None
        return dialect.read_load(answer, asked_at)

    async def _get(
        self, path: str, timeout_s: float | None = None, body: bytes | None = None
    ) -> Answer | Probe:
        self._why = ""
        key = self._target.api_key
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            return await self._client.ask(self._base + path, headers, timeout_s, self._target.tls, body)
        except NoTls as error:
            self._why = str(error)
            return Probe.REFUSED

    async def _post(self, path: str, body: bytes) -> Answer | Probe:
        return await self._get(path, body=body)

    def _discovered(self, facts: Facts, gaps: Mapping[str, Probe]) -> None:
        self._detected = facts
        facts, warnings = settle(facts, self._target)
        self._attempts = 0
        self._log.info(
            "engine %s: %s, %d slots (%s), models: %s",
            *(self._target.name, facts.kind, facts.slots, facts.slots_source, ", ".join(facts.models)),
        )
        for path, probe in gaps.items():
            warnings.append(f"GET {path} gave no usable answer ({probe}): what it tells is assumed")
        for warning in warnings:
            self._say(logging.WARNING, warning)
        self._emit(Discovered(facts=facts))

    def _probed(self, probe: Probe) -> None:
        if probe is not self._last_probe:
            self._log.info("engine %s: probe %s", self._target.name, probe)
        self._last_probe = probe
        self._emit(Probed(probe=probe, why=self._why if probe is Probe.REFUSED else ""))

    def _reported(self, report: LoadReport | None) -> None:
        if report is not None:
            self._last_report = report
            self._emit(Reported(report=report))

    def _emit(self, event: EngineEvent) -> None:
        self._interval_s = self._on_event(self._target.name, event).interval_s

    def _say(self, level: int, message: str, error: Exception | None = None) -> None:
        """Says it once, however often it is found again."""
        if message not in self._said:
            self._said.add(message)
            self._log.log(level, "engine %s: %s", self._target.name, message, exc_info=error)


def _fell(before: float | None, after: float | None) -> bool:
    return before is not None and after is not None and after < before
