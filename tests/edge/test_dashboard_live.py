"""How the dashboard asks, in a real browser, and what it says when it gets no answer."""

import asyncio

import pytest
from aiohttp import web
from browser import CHROMIUM
from dashboards import (
    LOADED,
    Shown,
    admin_port,
    browser,
    opened,
)
from edge_values import a_snapshot, an_engine
from harness import until

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium")


async def test_figures_get_old_when_the_gateway_stops():
    shown = Shown(snapshot=a_snapshot(an_engine()))
    async with browser() as tab:
        async with admin_port(shown) as url:
            await tab.open(url + "/")
            await tab.until("document.querySelector('#live').classList.contains('on')")
            assert await tab.run("document.querySelector('#banner').hidden")
        await tab.until("document.body.classList.contains('stale')")
        told = await tab.text("#banner")
        assert "Old figures: stale since" in told
        assert "no connection to the gateway" in told
        assert await tab.text("#live") == "not live"
        assert await tab.run("document.title") == "old: prefix-gateway"
        assert float(await tab.run("getComputedStyle(document.querySelector('main')).opacity")) < 1
        assert "3 of 4 slots" in await tab.text("#engines")


async def test_a_gateway_that_comes_back_is_live_again():
    shown, is_down = Shown(snapshot=a_snapshot(an_engine())), asyncio.Event()

    @web.middleware
    async def sometimes(request, handler):
        if is_down.is_set() and request.path.startswith("/api"):
            raise web.HTTPServiceUnavailable
        return await handler(request)

    async with admin_port(shown, sometimes) as url, browser() as tab:
        is_down.set()
        await tab.open(url + "/")
        await tab.until("document.body.classList.contains('stale')")
        assert "No data yet: the gateway answered 50" in await tab.text("#banner")
        is_down.clear()
        await tab.until("document.querySelector('#live').classList.contains('on')")
        assert not await tab.run("document.body.classList.contains('stale')")
        assert await tab.run("document.querySelector('#banner').hidden")


async def test_a_token_that_is_no_longer_taken_is_told():
    shown = Shown(token="secret")
    is_revoked = asyncio.Event()

    @web.middleware
    async def revoked(request, handler):
        if is_revoked.is_set():
            return web.json_response({"error": {"message": "no"}}, status=401)
        return await handler(request)

    async with admin_port(shown, revoked) as url, browser() as tab:
        await tab.open(url.replace("http://", "http://me:secret@") + "/")
        await tab.until("document.querySelector('#live').classList.contains('on')")
        is_revoked.set()
        await tab.until("document.body.classList.contains('stale')")
        assert "admin token (401)" in await tab.text("#banner")


async def test_a_name_that_is_refused_is_told_in_the_gateways_words():
    @web.middleware
    async def refuse(request, handler):
        if request.path.startswith("/api"):
            return web.json_response({"error": {"message": "Use localhost."}}, status=403)
        return await handler(request)

    async with admin_port(Shown(), refuse) as url, browser() as tab:
        await tab.open(url + "/")
        await tab.until("document.body.classList.contains('stale')")
        assert "refuses this page (403): Use localhost." in await tab.text("#banner")


async def test_a_slow_gateway_is_never_asked_twice_at_once():
    open_now: dict[str, int] = {}
    most: dict[str, int] = {}
    asked: list[str] = []

    @web.middleware
    async def slow(request, handler):
        path = request.path
        asked.append(path)
        open_now[path] = open_now.get(path, 0) + 1
        most[path] = max(most.get(path, 0), open_now[path])
        if path.startswith("/api"):
            # Longer than the second after which a quick gateway is asked again.
            await asyncio.sleep(1.3)
        open_now[path] -= 1
        return await handler(request)

    async def asked_three_times():
        return asked.count("/api/state") >= 3

    async with admin_port(Shown(), slow) as url, browser() as tab:
        await tab.open(url + "/")
        await until(asked_three_times)
        assert set(most.values()) == {1}


async def test_parts_that_this_gateway_does_not_have_or_that_fail_are_told_and_the_rest_is_live():
    def broken(_query):
        raise KeyError("lost")

    shown = Shown(snapshot=a_snapshot(an_engine()), gets={"/api/sessions": broken})
    async with opened(shown) as tab:
        assert await tab.text("#breaks-note") == "This gateway has no /api/breakers."
        assert await tab.text("#funnel-note") == "This gateway has no /api/funnel."
        assert "answered 500" in await tab.text("#sessions-note")
        assert "unknown" in await tab.text("#loss-note")
        await tab.until("document.querySelector('#live').classList.contains('on')")


async def test_a_page_that_nobody_sees_asks_seldom_and_at_once_when_it_is_seen():
    asked: list[str] = []

    @web.middleware
    async def count(request, handler):
        asked.append(request.path)
        return await handler(request)

    async def asked_again():
        return len(asked) > before

    pauses_ms = "sources.map((it) => it.pauseMs)"
    async with admin_port(Shown(gets={}), count) as url, browser() as tab:
        await tab.open(url + "/")
        await tab.until(LOADED)
        # The state, requests, four paths that this gateway does not have, and the operating point.
        assert await tab.run(pauses_ms) == [1000, 5000, 60_000, 60_000, 60_000, 60_000, 15_000]
        await tab.run("Object.defineProperty(document, 'hidden', {value: true, configurable: true})")
        assert await tab.run(pauses_ms) == [10_000, 50_000, 60_000, 60_000, 60_000, 60_000, 150_000]
        await tab.run("sources.forEach((it) => clearTimeout(it.timer))")
        await tab.until("sources.every((it) => !it.asking)")
        before = len(asked)
        await tab.run("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
        await until(asked_again)
