import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from aiohttp import web
from msgspec.structs import replace

from gateway.core.engine import Facts, LoadReport, Probe, SlotSource
from gateway.core.events import Discovered, EngineEvent, Probed, ProberHint, Reported, Restarted
from gateway.core.facts import Billing
from gateway.edge.prober import Prober
from gateway.edge.target import EngineTarget, base_url, settle

LOG = logging.getLogger("test.prober")
LIMIT_S = 10.0


class FakeEngine:
    """An HTTP server whose answers a test sets by path; what is not set is a 404."""

    def __init__(self) -> None:
        self.port = 0
        self.asked: list[str] = []
        self.keys: set[str | None] = set()
        self.answers: dict[str, tuple[int, str]] = {}
        self.before: Callable[[str], Awaitable[None]] | None = None
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def set(self, path: str, body: object, status: int = 200) -> None:
        self.answers[path] = (status, body if isinstance(body, str) else json.dumps(body))

    async def start(self) -> None:
        """Listens, after `stop` on the same port again."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _answer(self, request: web.Request) -> web.Response:
        self.asked.append(request.path)
        self.keys.add(request.headers.get("authorization"))
        if self.before is not None:
            await self.before(request.path)
        status, body = self.answers.get(request.path, (404, ""))
        headers = {"location": "/elsewhere"} if 300 <= status < 400 else {}
        return web.Response(status=status, text=body, headers=headers)


class Seen:
    """Takes the events as a scheduler would, and lets a test wait for them."""

    def __init__(self, interval_s: float = 0.05) -> None:
        self.interval_s = interval_s
        self.events: list[tuple[str, EngineEvent]] = []
        self._more = asyncio.Event()

    def __call__(self, name: str, event: EngineEvent) -> ProberHint:
        self.events.append((name, event))
        self._more.set()
        return ProberHint(self.interval_s)

    def of(self, name: str) -> list[EngineEvent]:
        return [event for engine, event in self.events if engine == name]

    def clear(self) -> None:
        self.events.clear()

    async def until(self, *expected: EngineEvent | type[EngineEvent], name: str = "a") -> list[EngineEvent]:
        """Waits for the events in that order, others between them; gives all that were seen."""
        async with asyncio.timeout(LIMIT_S):
            while not _in_order(expected, self.of(name)):
                self._more.clear()
                await self._more.wait()
        return self.of(name)


def _in_order(expected: tuple[object, ...], seen: list[EngineEvent]) -> bool:
    rest = iter(seen)
    return all(
        any(event == want or (isinstance(want, type) and isinstance(event, want)) for event in rest)
        for want in expected
    )


def models(owner: str) -> object:
    return {"data": [{"id": "m", "owned_by": owner}]}


def llamacpp(engine: FakeEngine, slots: int = 2) -> None:
    engine.set("/v1/models", models("llamacpp"))
    engine.set("/props", {"total_slots": slots, "default_generation_settings": {"n_ctx": 100}})
    engine.set("/health", {"status": "ok"})
    engine.set("/slots", [{"is_processing": False}] * slots)


def vllm(engine: FakeEngine, started_at: int = 100, queries: int = 5) -> None:
    engine.set("/v1/models", models("vllm"))
    engine.set("/health", "")
    engine.set(
        "/metrics",
        f"process_start_time_seconds {started_at}\n"
        'vllm:num_requests_running{engine="0"} 1\n'
        f'vllm:prefix_cache_queries_total{{engine="0"}} {queries}\n',
    )


def loading(engine: FakeEngine) -> None:
    for path in ("/v1/models", "/props", "/health", "/slots"):
        engine.set(path, {"error": {"message": "Loading model"}}, 503)


@pytest.fixture
async def engine() -> AsyncIterator[FakeEngine]:
    fake = FakeEngine()
    await fake.start()
    yield fake
    await fake.stop()


@asynccontextmanager
async def probing(
    seen: Callable[[str, EngineEvent], ProberHint], *targets: EngineTarget, timeout_s: float = 2.0
) -> AsyncIterator[Prober]:
    prober = Prober(targets, seen, lambda: 7.0, LOG, timeout_s=timeout_s, facts_timeout_s=timeout_s)
    await prober.start()
    try:
        yield prober
    finally:
        await prober.close()


def target(engine: FakeEngine, **more: object) -> EngineTarget:
    return EngineTarget(name="a", url=engine.url, **more)  # type: ignore[arg-type]


async def test_a_llama_server_is_detected_from_its_url(engine: FakeEngine) -> None:
    llamacpp(engine)
    seen = Seen()
    async with probing(seen, target(engine)):
        events = await seen.until(Discovered, Probed, Reported)
    assert isinstance(events[0], Discovered)
    facts = events[0].facts
    assert (facts.kind, facts.models, facts.slots, facts.kv_tokens) == ("llamacpp", ("m",), 2, 200)
    assert events[1:3] == [
        Probed(probe=Probe.OK),
        Reported(report=LoadReport(asked_at=7.0, running=0)),
    ]
    assert "/metrics" not in engine.asked


async def test_a_vllm_is_detected_and_its_assumed_slots_are_said(
    engine: FakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    vllm(engine)
    seen = Seen()
    async with probing(seen, target(engine)):
        events = await seen.until(Discovered, Probed, Reported, Probed, Reported)
    assert isinstance(events[0], Discovered)
    assert (events[0].facts.kind, events[0].facts.slots) == ("vllm", 256)
    warnings = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == [
        "engine a: 256 slots are assumed, the engine does not tell: "
        "set --engine URL,slots=N (N is its --max-num-seqs, default 256)"
    ]


async def test_a_detected_engine_is_asked_what_becomes_of_the_billing_line(engine: FakeEngine) -> None:
    llamacpp(engine)
    engine.set("/v1/messages/count_tokens", {"input_tokens": 13})
    seen = Seen()
    async with probing(seen, target(engine)):
        events = await seen.until(Discovered)
    discovered = next(it for it in events if isinstance(it, Discovered))
    assert discovered.facts.billing is Billing.DROPPED
    assert engine.asked.count("/v1/messages/count_tokens") == 3


async def test_empty_200s_to_everything_but_the_models_are_another_server(engine: FakeEngine) -> None:
    engine.set("/v1/models", models("mock"))
    for path in ("/props", "/metrics", "/health", "/slots"):
        engine.set(path, "")
    seen = Seen()
    async with probing(seen, target(engine)):
        events = await seen.until(Discovered, Probed(probe=Probe.OK), Probed(probe=Probe.OK))
    assert events[0] == Discovered(facts=Facts(kind="openai", models=("m",)))
    assert not any(isinstance(event, Reported) for event in events)


def test_a_configured_kind_that_is_unknown_is_refused() -> None:
    with pytest.raises(ValueError, match="engine a: unknown kind wllm"):
        Prober([EngineTarget(name="a", url="http://x", kind="wllm")], Seen(), lambda: 0.0, LOG)


async def test_a_configured_kind_is_not_identified(engine: FakeEngine) -> None:
    vllm(engine)
    seen = Seen()
    async with probing(seen, target(engine, kind="openai")):
        events = await seen.until(Discovered, Probed)
    assert events[0] == Discovered(facts=Facts(kind="openai", models=("m",)))
    assert set(engine.asked) == {"/v1/models"}


async def test_the_engines_key_goes_along_and_stays_out_of_repr(engine: FakeEngine) -> None:
    llamacpp(engine)
    seen = Seen()
    with_key = target(engine, api_key="sesame")
    async with probing(seen, with_key):
        await seen.until(Discovered, Reported, Reported)
    assert engine.keys == {"Bearer sesame"}
    assert "sesame" not in repr(with_key)


async def test_a_redirect_is_an_answer_and_is_not_followed(engine: FakeEngine) -> None:
    llamacpp(engine)
    engine.set("/health", "", 302)
    seen = Seen()
    async with probing(seen, target(engine)):
        await seen.until(Discovered, Probed(probe=Probe.OK), Probed(probe=Probe.OK))
    assert "/elsewhere" not in engine.asked


async def test_proxies_of_the_environment_are_not_used(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    llamacpp(engine)
    seen = Seen()
    async with probing(seen, target(engine)):
        await seen.until(Discovered)


async def test_an_engine_that_is_not_there_yet_is_found_when_it_comes(engine: FakeEngine) -> None:
    llamacpp(engine)
    await engine.stop()
    seen = Seen()
    async with probing(seen, target(engine)):
        await seen.until(Probed(probe=Probe.REFUSED), Probed(probe=Probe.REFUSED))
        await engine.start()
        events = await seen.until(Discovered, Probed(probe=Probe.OK))
    assert Restarted() not in events
    assert Probed(probe=Probe.OK) not in events[: events.index(next(filter(_is_discovery, events)))]


def _is_discovery(event: EngineEvent) -> bool:
    return isinstance(event, Discovered)


async def test_an_unknown_name_is_refused() -> None:
    seen = Seen()
    async with probing(seen, EngineTarget(name="a", url="http://engine.invalid")):
        await seen.until(Probed(probe=Probe.REFUSED))


async def test_an_engine_that_loads_is_detected_when_it_has_loaded(engine: FakeEngine) -> None:
    loading(engine)
    seen = Seen()
    async with probing(seen, target(engine)):
        before = list(await seen.until(Probed(probe=Probe.LOADING), Probed(probe=Probe.LOADING)))
        llamacpp(engine)
        events = await seen.until(Discovered, Probed(probe=Probe.OK))
    assert all(event == Probed(probe=Probe.LOADING) for event in before)
    assert Restarted() not in events


@pytest.mark.parametrize("status", [500, 503])
async def test_an_error_of_the_engine_is_reported_and_passes(engine: FakeEngine, status: int) -> None:
    vllm(engine)
    seen = Seen()
    async with probing(seen, target(engine)):
        await seen.until(Discovered, Probed(probe=Probe.OK))
        engine.set("/health", "", status)
        await seen.until(Probed(probe=Probe.ERROR))
        seen.clear()
        engine.set("/health", "")
        events = await seen.until(Probed(probe=Probe.OK), Reported)
    assert Restarted() not in events


async def test_a_health_that_does_not_answer_in_time_is_slow(engine: FakeEngine) -> None:
    vllm(engine)
    answer = asyncio.Event()

    async def wait(path: str) -> None:
        if path == "/health":
            await answer.wait()

    engine.before = wait
    seen = Seen()
    async with probing(seen, target(engine), timeout_s=0.2):
        await seen.until(Discovered, Probed(probe=Probe.OK), Probed(probe=Probe.SLOW))
        answer.set()
        events = await seen.until(Probed(probe=Probe.SLOW), Probed(probe=Probe.OK))
    assert Restarted() not in events


async def test_a_process_with_another_marker_is_another_one_even_if_it_was_never_seen_gone(
    engine: FakeEngine,
) -> None:
    props = {"total_slots": 2, "default_generation_settings": {"n_ctx": 100}}
    llamacpp(engine)
    engine.set("/props", {**props, "media_marker": "<one>"})
    seen = Seen()
    async with probing(seen, target(engine)):
        before = await seen.until(Discovered, Reported, Reported)
        engine.set("/props", {**props, "media_marker": "<two>"})
        await seen.until(Restarted, Discovered, Probed(probe=Probe.OK), Reported)
    assert Restarted() not in before


async def test_an_answer_without_end_is_an_error(engine: FakeEngine) -> None:
    engine.set("/v1/models", "x" * (9 << 20))
    seen = Seen()
    async with probing(seen, target(engine)):
        await seen.until(Probed(probe=Probe.ERROR))


async def test_an_engine_that_hangs_up_is_an_error() -> None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        seen = Seen()
        async with probing(seen, EngineTarget(name="a", url=f"http://127.0.0.1:{port}")):
            await seen.until(Probed(probe=Probe.ERROR))


@pytest.mark.parametrize(("started_at", "queries"), [(101, 5), (100, 4)])
async def test_another_start_time_or_fallen_counters_are_a_restart(
    engine: FakeEngine, started_at: int, queries: int
) -> None:
    vllm(engine)
    seen = Seen()
    async with probing(seen, target(engine)):
        await seen.until(Discovered, Reported)
        seen.clear()
        vllm(engine, started_at, queries)
        events = await seen.until(Restarted, Discovered, Probed, Reported)
    after = events[events.index(Restarted()) :]
    assert [type(event) for event in after[:4]] == [Restarted, Discovered, Probed, Reported]
    assert events.count(Restarted()) == 1


async def test_an_engine_that_comes_back_is_another_one_and_detected_again(engine: FakeEngine) -> None:
    llamacpp(engine)
    seen = Seen()
    async with probing(seen, target(engine)):
        await seen.until(Discovered, Probed(probe=Probe.OK))
        await engine.stop()
        await seen.until(Probed(probe=Probe.REFUSED))
        seen.clear()
        llamacpp(engine, slots=3)
        await engine.start()
        events = await seen.until(Restarted, Discovered, Probed(probe=Probe.OK), Reported)
    back = events[events.index(Restarted()) :]
    assert [type(event) for event in back[:4]] == [Restarted, Discovered, Probed, Reported]
    assert isinstance(back[1], Discovered)
    assert back[1].facts.slots == 3
    assert Probed(probe=Probe.OK) not in events[: events.index(Restarted())]


async def test_an_engine_whose_start_time_stayed_was_only_out_of_reach(engine: FakeEngine) -> None:
    vllm(engine)
    seen = Seen()
    async with probing(seen, target(engine)):
        await seen.until(Discovered, Reported)
        await engine.stop()
        await seen.until(Probed(probe=Probe.REFUSED))
        await engine.start()
        events = await seen.until(Probed(probe=Probe.REFUSED), Probed(probe=Probe.OK), Reported)
    assert Restarted() not in events


async def test_an_engine_that_comes_back_without_a_start_time_is_another_one(engine: FakeEngine) -> None:
    vllm(engine)
    seen = Seen()
    async with probing(seen, target(engine)):
        await seen.until(Discovered, Reported)
        await engine.stop()
        await seen.until(Probed(probe=Probe.REFUSED))
        engine.set("/metrics", "", 404)
        await engine.start()
        await seen.until(Restarted, Discovered, Probed(probe=Probe.OK))


async def test_an_engine_that_loads_again_is_another_one(engine: FakeEngine) -> None:
    llamacpp(engine)
    seen = Seen()
    async with probing(seen, target(engine)):
        await seen.until(Discovered, Probed(probe=Probe.OK))
        loading(engine)
        await seen.until(Probed(probe=Probe.LOADING))
        llamacpp(engine)
        await seen.until(Probed(probe=Probe.LOADING), Restarted, Discovered, Probed(probe=Probe.OK))


async def test_a_fact_that_cannot_be_had_is_assumed_after_three_attempts_and_said(
    engine: FakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    llamacpp(engine)
    engine.set("/props", "", 500)
    seen = Seen()
    async with probing(seen, target(engine)):
        events = await seen.until(Discovered, Probed(probe=Probe.OK))
    assert engine.asked.count("/props") == 3
    assert events[:2] == [Probed(probe=Probe.ERROR)] * 2
    assert isinstance(events[2], Discovered)
    assert events[2].facts.slots_source is SlotSource.ASSUMED
    assert "engine a: GET /props gave no usable answer (error): what it tells is assumed" in caplog.messages


async def test_a_fact_that_comes_late_is_waited_for(engine: FakeEngine) -> None:
    llamacpp(engine)
    engine.set("/props", "", 503)
    seen = Seen()
    async with probing(seen, target(engine)):
        await seen.until(Probed(probe=Probe.ERROR))
        llamacpp(engine)
        events = await seen.until(Discovered)
    (discovered,) = filter(_is_discovery, events)
    assert isinstance(discovered, Discovered)
    assert discovered.facts.slots_source is SlotSource.DISCOVERED


async def test_without_its_models_an_engine_is_never_taken_as_known(engine: FakeEngine) -> None:
    llamacpp(engine)
    engine.set("/v1/models", "", 500)
    seen = Seen()
    async with probing(seen, target(engine, kind="llamacpp")):
        events = await seen.until(*[Probed(probe=Probe.ERROR)] * 5)
        assert not any(map(_is_discovery, events))
        llamacpp(engine)
        await seen.until(Discovered)


async def test_a_path_that_hangs_during_detection_is_a_gap(engine: FakeEngine) -> None:
    llamacpp(engine)
    never = asyncio.Event()

    async def wait(path: str) -> None:
        if path == "/props":
            await never.wait()

    engine.before = wait
    seen = Seen()
    async with probing(seen, target(engine), timeout_s=0.1):
        events = await seen.until(Discovered)
        never.set()
    assert events[:2] == [Probed(probe=Probe.SLOW)] * 2


async def test_a_load_that_cannot_be_read_is_no_report(engine: FakeEngine) -> None:
    llamacpp(engine)
    engine.set("/slots", "", 501)
    seen = Seen()
    async with probing(seen, target(engine)):
        events = await seen.until(Discovered, *[Probed(probe=Probe.OK)] * 3)
    assert not any(isinstance(event, Reported) for event in events)


async def test_the_time_of_a_report_is_that_of_its_question(engine: FakeEngine) -> None:
    llamacpp(engine)
    now = 1.0

    async def tick(path: str) -> None:
        nonlocal now
        now = 2.0 if path == "/slots" else 1.0

    engine.before = tick
    seen = Seen()
    prober = Prober([target(engine)], seen, lambda: now, LOG)
    await prober.start()
    await seen.until(Discovered, Reported)
    await prober.close()
    reports = [event.report for event in seen.of("a") if isinstance(event, Reported)]
    assert set(reports) == {LoadReport(asked_at=1.0, running=0)}


async def test_the_next_probe_comes_when_the_hint_says_or_at_a_wake(engine: FakeEngine) -> None:
    llamacpp(engine)
    seen = Seen(interval_s=3600.0)
    async with probing(seen, target(engine)) as prober:
        await seen.until(Discovered, Probed, Reported)
        seen.clear()
        prober.wake("a")
        await seen.until(Probed(probe=Probe.OK), Reported)


async def test_engines_do_not_wait_for_each_other(engine: FakeEngine) -> None:
    llamacpp(engine)
    never = asyncio.Event()
    async with AsyncExitStack() as stack:
        stuck = FakeEngine()
        await stuck.start()
        stack.push_async_callback(stuck.stop)

        async def wait(_: str) -> None:
            await never.wait()

        stuck.before = wait
        seen = Seen()
        async with probing(seen, EngineTarget(name="b", url=stuck.url), target(engine), timeout_s=3600.0):
            await seen.until(Discovered, Reported, Reported)
            assert seen.of("b") == []
        never.set()


async def test_an_unexpected_error_is_said_once_and_probing_goes_on(
    engine: FakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    llamacpp(engine)
    seen = Seen()
    failures = 3

    def fail(name: str, event: EngineEvent) -> ProberHint:
        nonlocal failures
        if failures:
            failures -= 1
            raise KeyError("boom")
        return seen(name, event)

    async with probing(fail, target(engine)) as prober:
        async with asyncio.timeout(LIMIT_S):
            while not seen.events:
                prober.wake("a")
                await asyncio.sleep(0.01)
        await seen.until(Discovered, Probed(probe=Probe.OK))
    assert caplog.messages.count("engine a: a probe failed: KeyError") == 1


async def test_no_event_comes_after_close(engine: FakeEngine) -> None:
    vllm(engine)
    asked, answer = asyncio.Event(), asyncio.Event()

    async def wait(path: str) -> None:
        if path == "/health":
            asked.set()
            await answer.wait()

    engine.before = wait
    seen = Seen()
    async with probing(seen, target(engine)):
        await seen.until(Discovered, Probed)
        async with asyncio.timeout(LIMIT_S):
            await asked.wait()
    count = len(seen.events)
    answer.set()
    await engine.stop()
    assert len(seen.events) == count
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("prober")]


async def test_a_prober_that_never_started_can_be_closed() -> None:
    await Prober([], Seen(), lambda: 0.0, LOG).close()


@pytest.mark.parametrize("ending", ["", "/", "/v1", "/v1/", "//"])
def test_the_base_of_a_url_has_no_v1(ending: str) -> None:
    assert base_url("http://host:8000" + ending) == "http://host:8000"
    assert base_url("http://host/llm" + ending) == "http://host/llm"


def test_a_base_url_keeps_a_name_that_ends_like_v1() -> None:
    assert base_url("http://host/xv1/") == "http://host/xv1"


DISCOVERED = Facts(
    models=("m",), slots=4, slots_source=SlotSource.DISCOVERED, slots_declared=4, kv_tokens=100
)
ASSUMED = Facts(models=("m",), slots=8, slots_source=SlotSource.ASSUMED)
SLOTS = [
    (DISCOVERED, None, 4, SlotSource.DISCOVERED, []),
    (DISCOVERED, 3, 3, SlotSource.CONFIGURED, []),
    (DISCOVERED, 4, 4, SlotSource.CONFIGURED, []),
    (DISCOVERED, 16, 4, SlotSource.CONFIGURED, ["configured 16 > engine 4: 4 slots are used"]),
    (ASSUMED, 16, 16, SlotSource.CONFIGURED, []),
    (
        *(ASSUMED, None, 8, SlotSource.ASSUMED),
        ["8 slots are assumed, the engine does not tell: set --engine URL,slots=N"],
    ),
    (
        *(replace(ASSUMED, kind="ollama", slots=1), None, 1, SlotSource.ASSUMED),
        [
            "1 slots are assumed, the engine does not tell: set --engine URL,slots=N"
            " (N is its OLLAMA_NUM_PARALLEL, default 1)"
        ],
    ),
]


@pytest.mark.parametrize(("facts", "configured", "slots", "source", "warnings"), SLOTS)
def test_a_configured_cap_is_settled_with_the_engines_own(
    facts: Facts, configured: int | None, slots: int, source: SlotSource, warnings: list[str]
) -> None:
    settled, said = settle(facts, EngineTarget(name="a", url="http://x", slots=configured))
    assert (settled.slots, settled.slots_source, said) == (slots, source, warnings)
    assert settled.slots_declared == facts.slots_declared


def test_a_configured_kv_size_holds_and_else_the_engines() -> None:
    assert settle(DISCOVERED, EngineTarget(name="a", url="http://x", kv_tokens=7))[0].kv_tokens == 7
    assert settle(DISCOVERED, EngineTarget(name="a", url="http://x"))[0] == DISCOVERED


def test_an_engine_without_model_names_is_warned_of() -> None:
    facts = Facts(slots_source=SlotSource.DISCOVERED)
    _, said = settle(facts, EngineTarget(name="a", url="http://x"))
    assert said == ["it names no models: GET /v1/models had none to read (is its api_key set?)"]


async def test_an_engine_that_comes_is_probed_and_one_that_goes_is_not(engine: FakeEngine) -> None:
    llamacpp(engine)
    seen = Seen()
    async with probing(seen) as prober:
        prober.add(target(engine))
        await seen.until(Discovered, Probed, Reported)
        prober.remove("a")
        asked = len(engine.asked)
        prober.wake("a")
        await asyncio.sleep(0.2)
        assert len(engine.asked) == asked


async def test_no_event_comes_of_an_engine_that_goes_while_it_is_asked(engine: FakeEngine) -> None:
    llamacpp(engine)
    asking, answer = asyncio.Event(), asyncio.Event()

    async def wait(_: str) -> None:
        asking.set()
        await answer.wait()

    engine.before = wait
    seen = Seen()
    async with probing(seen, target(engine)) as prober:
        await asking.wait()
        prober.remove("a")
        answer.set()
        await asyncio.sleep(0.1)
        assert seen.events == []


async def test_other_slots_are_told_at_once_and_nothing_is_asked(engine: FakeEngine) -> None:
    llamacpp(engine)
    seen = Seen(interval_s=60.0)
    async with probing(seen, target(engine)) as prober:
        await seen.until(Discovered, Probed, Reported)
        asked = list(engine.asked)
        prober.change(target(engine, slots=1))
        last = seen.of("a")[-1]
        assert isinstance(last, Discovered)
        assert (last.facts.slots, last.facts.slots_source) == (1, SlotSource.CONFIGURED)
        prober.change(target(engine, kv_tokens=77))
        last = seen.of("a")[-1]
        assert isinstance(last, Discovered)
        assert (last.facts.slots, last.facts.slots_source) == (2, SlotSource.DISCOVERED)
        assert last.facts.kv_tokens == 77
        assert engine.asked == asked


async def test_slots_that_change_before_the_engine_was_seen_hold_once_it_is(engine: FakeEngine) -> None:
    await engine.stop()
    seen = Seen(interval_s=0.05)
    async with probing(seen, target(engine)) as prober:
        await seen.until(Probed(probe=Probe.REFUSED))
        prober.change(target(engine, slots=1))
        llamacpp(engine)
        await engine.start()
        events = await seen.until(Probed(probe=Probe.REFUSED), Discovered)
        discovered = next(it for it in events if isinstance(it, Discovered))
        assert discovered.facts.slots == 1


async def test_another_kind_or_key_is_detected_anew_and_is_no_restart(engine: FakeEngine) -> None:
    vllm(engine)
    seen = Seen()
    async with probing(seen, target(engine)) as prober:
        await seen.until(Discovered, Probed, Reported)
        prober.change(target(engine, kind="openai"))
        await seen.until(Discovered, Probed, Reported, Discovered, Probed)
        prober.change(target(engine, kind="openai", api_key="k"))
        events = await seen.until(Discovered, Probed, Discovered, Probed, Discovered, Probed)
    kinds = [it.facts.kind for it in events if isinstance(it, Discovered)]
    assert kinds == ["vllm", "openai", "openai"]
    assert "Bearer k" in engine.keys
    assert not any(isinstance(it, Restarted) for it in events)
