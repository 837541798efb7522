"""The dashboard of a gateway that a test makes up: what each page says, and a browser on it."""

import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web
from browser import Tab, chromium
from edge_values import a_snapshot

from gateway.core.request import Record
from gateway.core.snapshot import Snapshot
from gateway.edge.admin import AdminDeps, make_app
from gateway.edge.reload import Reload
from gateway.edge.views import Views

Json = dict[str, Any]

AT = "2026-01-02T03:04:05.000Z"
LOST = {
    "cold": 190,
    "spilled": 50,
    "queued_elsewhere": 20,
    "pending": 14,
    "evicted": 75,
    "engine_disagrees": 31,
}
NOTHING = {
    "prompt": 0,
    "best": 0,
    "predicted": 0,
    "delivered": 0,
    "hit_rate": None,
    "unknown_requests": 0,
}
"""The funnel of the state; it has all that is known where there is no `/api/funnel`."""


def a_window(**changes: Any) -> Json:
    return {
        "requests": 12,
        "prompt": 1000,
        "infinite": 810,
        "best": 740,
        "predicted": 655,
        "delivered": 620,
        "hit_rate": 0.62,
        "lost": dict(LOST),
        "unknown_requests": 0,
        **changes,
    }


NO_WINDOW = a_window(
    requests=0,
    prompt=0,
    infinite=0,
    best=0,
    predicted=0,
    delivered=0,
    hit_rate=None,
    lost=dict.fromkeys(LOST, 0),
)


def four(**windows: Json) -> Json:
    """All windows alike but for those that are given, as `all=`, `m1=`, `m10=`, `h1=`."""
    names = {"1m": "m1", "10m": "m10", "1h": "h1", "all": "all"}
    return {name: windows.get(key, a_window()) for name, key in names.items()}


def a_funnel(**changes: Any) -> Json:
    return {
        "windows": four(m1=NO_WINDOW, all=a_window(prompt=20_000, delivered=8000, hit_rate=0.4)),
        "by": {
            "engine": {"a": four()},
            "model": {"m": four()},
            "class": {"code": four()},
            "key": {"": four()},
        },
        "worth": {
            "ttft_by_cached_share": [
                {"share": "75-100 %", "requests": 9, "ttft_p50_ms": 310.0, "ttft_p90_ms": 840.0}
            ],
            "prefill_seconds_saved": {"1m": 0.0, "10m": 90.0, "1h": 690.0, "all": 4100.0},
            "requests_per_hour_gained": 41.0,
        },
        "sentence": "Capacity loses most.",
        "unknown_engines": {},
        "series": [
            {
                "at": f"2026-01-02T03:{minute:02}:00.000Z",
                "seconds": 60,
                "requests": 4,
                "prompt": 0 if minute == 3 else 1000,
                "infinite": 810,
                "best": 740,
                "predicted": 655,
                "delivered": 500 + 20 * minute,
            }
            for minute in range(6)
        ],
        **changes,
    }


def a_breaker(**changes: Any) -> Json:
    return {
        "kind": "timestamp",
        "part": "system[0]",
        "scope": "family",
        "client": "codex",
        "model": "m",
        "count": 30,
        "tokens": 18_000,
        "tokens_per_hour": 9000,
        "first_at": AT,
        "last_at": AT,
        "before": "2026-··-··",
        "after": "2026-··-··",
        "sentence": "A time changes with each request.",
        "fix": "Put it at the end.",
        **changes,
    }


def a_session(**changes: Any) -> Json:
    return {
        "session": "00000000000000aa",
        "client": "codex",
        "model": "m",
        "engine": "a",
        "engines": ["a"],
        "workload_class": "code",
        "requests": 3,
        "reported_requests": 3,
        "prompt_tokens": 3000,
        "cached_tokens": 1500,
        "hit_rate": 0.5,
        "breaks": 1,
        "first_at": AT,
        "last_at": AT,
        **changes,
    }


def pages(**changes: Any) -> Mapping[str, Callable[[Mapping[str, str]], object]]:
    """What other parts add to the admin port, by path."""
    told = {
        "funnel": a_funnel(),
        "breakers": {
            "requests_checked": 90,
            "breaks": 30,
            "tokens_per_hour": 9000,
            "kinds": {"timestamp": 30},
            "breakers": [a_breaker()],
            "skipped": 0,
        },
        "sessions": {"sessions": [a_session()]},
        "marks": {
            "marks": [{"mark": "m1", "text": "more memory", "at": "2026-01-02T03:02:00Z", "by": "user"}]
        },
        "compare": {"sentence": "The hit rate rose."},
        **changes,
    }
    return {f"/api/{name}": (lambda _query, value=value: value) for name, value in told.items()}


@dataclass(kw_only=True)
class Shown:
    """What the admin port tells; a test changes it while the page is open."""

    snapshot: Snapshot = field(default_factory=a_snapshot)
    records: list[Record] = field(default_factory=list)
    funnel: Json = field(default_factory=lambda: dict(NOTHING))
    degraded: dict[str, bool | float] = field(default_factory=dict)
    point: Json = field(
        default_factory=lambda: {"sentence": "Nothing measured yet.", "slots": 0, "seconds_at": {}}
    )
    gets: Mapping[str, Callable[[Mapping[str, str]], object]] = field(default_factory=pages)
    token: str | None = None

    def deps(self) -> AdminDeps:
        async def reload() -> list[str]:
            return []

        return AdminDeps(
            snapshot=lambda: self.snapshot,
            metrics=bytes,
            process_metrics=bytes,
            records=lambda limit: self.records[:limit],
            operating_point=lambda: self.point,
            drain=lambda name, on: True,
            explain=lambda body: {},
            degraded=lambda: self.degraded,
            funnel=lambda: self.funnel,
            reload=reload,
            last_reload=Reload,
            config=dict,
            max_body_bytes=lambda: 1 << 20,
            version="1.2.3",
            views=Views(gets=self.gets),
            token=self.token,
            clock=lambda: 3600.0,
        )


@contextlib.asynccontextmanager
async def admin_port(shown: Shown, *middlewares: Any) -> AsyncIterator[str]:
    """The base URL of its admin port, with no `/` at the end."""
    app = make_app(shown.deps())
    app.middlewares.extend(middlewares)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def browser() -> AsyncIterator[Tab]:
    # The browser's helpers may still write there when it is removed.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        async with chromium(Path(profile)) as tab:
            # All of the page is in sight: what is not is neither laid out nor drawn.
            await tab.size(1400, 5000)
            yield tab


LOADED = "sources.every((it) => it.goodAt !== null || it.error !== null)"
"""Every page of the admin port has answered, or failed to."""


@contextlib.asynccontextmanager
async def opened(shown: Shown) -> AsyncIterator[Tab]:
    """The dashboard once everything has been asked for."""
    async with admin_port(shown) as url, browser() as tab:
        await tab.open(url + "/")
        await tab.until(LOADED)
        yield tab
