"""The dashboard in a real browser."""

from pathlib import Path

import pytest
from browser import CHROMIUM
from dashboards import (
    LOADED,
    LOST,
    NO_WINDOW,
    Shown,
    a_breaker,
    a_funnel,
    a_session,
    a_window,
    admin_port,
    browser,
    four,
    opened,
    pages,
)
from edge_values import RUNNING, a_record, a_snapshot, a_waiting, an_engine
from fleet import ask, fleet, words
from harness import chat
from msgspec.structs import replace

from gateway.core.engine import SlotSource
from gateway.core.health import Health

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium")

TOLD = ("kind", "part", "client", "model", "sentence", "before", "after", "fix")
EVIL = "<img src=x onerror=hacked=1><script>hacked=1</script>\"'&" + "x" * 80
CELLS = "(it) => [it.getAttribute('class'), it.getAttribute('d').split('M').length - 1]"
"""Their kind and how many a path draws."""
UNREPORTED = {"hit_rate": None, "prompt_tokens": None, "cached_tokens": None, "reported_requests": 0}
ADMIN_404 = "404 (Not Found)"


async def test_an_empty_gateway_shows_that_nothing_is_known():
    shown = Shown(
        snapshot=replace(a_snapshot(), running=()),
        gets=pages(
            funnel=a_funnel(
                windows=four(m1=NO_WINDOW, m10=NO_WINDOW, h1=NO_WINDOW, all=NO_WINDOW),
                by={},
                worth={},
                series=[],
            ),
            breakers={"requests_checked": 0, "breakers": []},
            sessions={"sessions": []},
            marks={"marks": []},
        ),
    )  # fmt: skip
    async with opened(shown) as tab:
        text = await tab.text("body")
        assert await tab.text("#rate") == "unknown"
        assert await tab.text("#ttft") == "unknown"
        assert await tab.text("#saved") == "unknown"
        assert "no request has ended yet" in text
        assert "Nothing waits." in text
        for odd in ("NaN", "undefined", "null", "Infinity", "0.0\u00a0%", "[object"):
            assert odd not in text
        assert tab.complaints == []


async def test_a_gateway_with_traffic_shows_its_engines_and_hits(tmp_path):
    async with fleet(tmp_path, 2, slots=4) as (gateway, _), browser() as tab:
        for turn in range(3):
            body = chat("and now?" * turn, system=words(400, "one prompt"), stream=True, max_tokens=4)
            assert (await ask(gateway, body)).status == 200
        await tab.open(gateway.admin + "/")
        await tab.until("document.querySelectorAll('#recent tbody tr').length === 3")
        await tab.until("document.querySelector('#rate').textContent !== '–'")

        state = await gateway.state()
        rate = state["funnel"]["hit_rate"]
        assert rate > 0.3
        assert await tab.text("#rate") == f"{100 * rate:.1f}\u00a0%"
        assert await tab.run("[...document.querySelectorAll('.engine h3 b')].map(it => it.textContent)") == [
            "a",
            "b",
        ]
        assert await tab.run("document.querySelectorAll('#split g').length") == 3
        assert "in flight" in await tab.text("#point")
        # Pages that another part has not added are told as such, on the page and by the browser itself.
        assert [it for it in tab.complaints if ADMIN_404 not in it] == []


async def test_the_funnel_follows_its_window():
    async with opened(Shown(snapshot=a_snapshot(an_engine()))) as tab:
        assert await tab.text("#rate") == "62.0\u00a0%"
        assert "Capacity loses most." in await tab.text("#funnel-sentence")
        lost = await tab.run("[...document.querySelectorAll('#losses .tokens')].map(it => it.textContent)")
        assert lost == [str(it) for it in LOST.values()]
        assert "19.0\u00a0% new text, 0.0\u00a0% forgotten by all" in await tab.text("#losses")
        widths = await tab.run("[...document.querySelectorAll('#funnel .fill')].map(it => it.style.width)")
        assert widths == ["100%", "81%", "74%", "65.5%", "62%"]

        await tab.run(
            "[...document.querySelectorAll('#windows button')].find(it => it.innerText === 'all').click()"
        )
        assert "40.0\u00a0%" in await tab.text("#funnel")
        await tab.run("[...document.querySelectorAll('#windows button')][0].click()")
        assert "unknown" in await tab.text("#funnel")
        assert "no request with a report" in await tab.text("#loss-note")
        # The headline does not follow it: it is about now.
        assert await tab.text("#rate") == "62.0\u00a0%"

        await tab.run(
            "[...document.querySelectorAll('#bys button')].find(it => it.innerText === 'class').click()"
        )
        await tab.run("[...document.querySelectorAll('#windows button')][1].click()")
        assert "code" in await tab.text("#by")


async def test_slots_are_cells_by_what_they_do():
    engine = an_engine(slots=8, in_flight=4, cooling=1, foreign=2)
    full = an_engine(name="full", slots=2, in_flight=3, cooling=0, foreign=0)
    down = an_engine(name="down", health=Health.DOWN, slots=2, in_flight=0, cooling=0, foreign=0)
    running = (RUNNING, replace(RUNNING, id="r-3", width=2), replace(RUNNING, id="r-4", producing=False))
    shown = Shown(snapshot=replace(a_snapshot(engine, full, down), running=running))
    async with opened(shown) as tab:
        labels = await tab.run("[...document.querySelectorAll('.cells')].map(it => it.ariaLabel)")
        assert labels == [
            "Slots: 3 producing, 1 prefill, 1 cooling, 2 foreign, 1 idle",
            "Slots: 2 prefill, 1 beyond",
            "Slots: 2 shut",
        ]
        drawn = await tab.run(f"[...document.querySelector('.cells').children].map({CELLS})")
        assert drawn == [["producing", 3], ["prefill", 1], ["cooling", 1], ["foreign", 2], ["idle", 1]]
        assert "down" in await tab.text("#degraded")


async def test_what_is_not_known_is_never_zero():
    engine = an_engine(
        running=None,
        waiting=None,
        kv_usage=None,
        report_age_s=None,
        prefill_tokens_per_s=None,
        decode_tokens_per_s=None,
    )
    record = a_record(ttft_ms=None, cached_tokens=None, prompt_tokens=None)
    funnel = a_funnel(
        windows=four(m10=a_window(**{**NO_WINDOW, "unknown_requests": 7})),
        worth={"requests_per_hour_gained": None},
        by={"engine": {"mute": four(m10=a_window(**{**NO_WINDOW, "unknown_requests": 18}))}},
        unknown_engines={"a": "Start it with --enable-prompt-tokens-details."},
    )
    shown = Shown(
        snapshot=a_snapshot(engine),
        records=[record],
        degraded={"usage_missing": True, "metrics_stale": False},
        gets=pages(funnel=funnel, sessions={"sessions": [a_session(**UNREPORTED)]}),
    )
    async with opened(shown) as tab:
        assert "--enable-prompt-tokens-details" in await tab.text("#unknown-engines")
        assert "usage missing" in await tab.text("#degraded")
        assert "metrics stale" not in await tab.text("#degraded")
        card = await tab.text(".engine")
        assert "unknown, it does not report" in card
        assert "prefill unknown, decode unknown" in card
        row = await tab.run("[...document.querySelectorAll('#recent tbody td')].map(it => it.innerText)")
        assert row[5] == row[7] == row[9] == row[10] == "unknown"
        session = await tab.run(
            "[...document.querySelectorAll('#sessions tbody td')].map(it => it.innerText)"
        )
        assert session[5:8] == ["0 of 3", "unknown", "unknown"]
        by = await tab.run("[...document.querySelectorAll('#by tbody td')].map(it => it.innerText)")
        assert by == ["mute", *["unknown"] * 5, "0", "18"]
        assert "gained; told from 20 requests and 5 minutes on" in await tab.text("#worth")
        assert await tab.run("document.querySelector('#sessions .share-bar').hidden")
        assert await tab.text("#ttft") == "unknown"


async def test_hostile_names_are_text_and_fit_on_a_phone():
    engine = an_engine(name=EVIL, models=(EVIL,), cap_note=EVIL, kind=EVIL, url=EVIL)
    waiting = a_waiting(id=EVIL, model=EVIL, engine=EVIL, why=EVIL)
    snapshot = replace(
        a_snapshot(engine, waiting=(waiting,)), running=(replace(RUNNING, id=EVIL, model=EVIL, engine=EVIL),)
    )
    shown = Shown(
        snapshot=snapshot,
        records=[a_record(model=EVIL, engine=EVIL, id=EVIL, code=EVIL, outcome="engine_error")],
        degraded={EVIL: True},
        point={"sentence": EVIL, "slots": 2, "seconds_at": {"0": 1.0, "1": 2.0}},
        gets=pages(
            funnel=a_funnel(sentence=EVIL, by={"engine": {EVIL: four()}}, unknown_engines={EVIL: EVIL}),
            breakers={
                "requests_checked": 1, "breaks": 1, "tokens_per_hour": 1, "kinds": {EVIL: 1}, "skipped": 0,
                "breakers": [a_breaker(**dict.fromkeys(TOLD, EVIL))],
            },
            sessions={"sessions": [a_session(session=EVIL, client=EVIL, model=EVIL, engine=EVIL)]},
            marks={"marks": [{"mark": EVIL, "text": EVIL, "at": "2026-01-02T03:02:00Z", "by": "user"}]},
            compare={"sentence": EVIL},
        ),
    )  # fmt: skip
    async with opened(shown) as tab:
        await tab.run("document.querySelector('#marks button').click()")
        await tab.until("document.querySelector('#compare').textContent.includes('onerror')")
        assert await tab.run("typeof hacked") == "undefined"
        assert await tab.run("document.images.length") == 0
        assert await tab.run("document.scripts.length") == 1
        assert EVIL in await tab.text("#engines")
        for width in (360, 768, 1400):
            await tab.size(width, 800, mobile=width < 500)
            assert await tab.run("document.documentElement.scrollWidth") <= width
        assert tab.complaints == []


CONTRASTS = Path(__file__).with_name("contrasts.js").read_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_every_text_can_be_read_in_light_and_dark(scheme):
    engines = [
        an_engine(cap_note="configured 16, runs 4 at once"),
        an_engine(name="b", health=Health.DOWN, slots_source=SlotSource.ASSUMED),
    ]
    shown = Shown(
        snapshot=a_snapshot(*engines, waiting=(a_waiting(),)),
        records=[
            a_record(),
            a_record(outcome="engine_error", cached_tokens=None),
            a_record(outcome="client_disconnect"),
        ],
        degraded={"cap_mismatch": True},
        point={"sentence": "99 % at most 3.", "slots": 4, "seconds_at": {"0": 5.0, "1": 2.0}},
        gets=pages(funnel=a_funnel(unknown_engines={"a": "Switch it on."})),
    )
    async with opened(shown) as tab:
        await tab.media(prefers_color_scheme=scheme)
        background = await tab.run("getComputedStyle(document.body).backgroundColor")
        assert background == {"light": "rgb(245, 245, 241)", "dark": "rgb(14, 17, 19)"}[scheme]
        assert await tab.run(CONTRASTS) == []
        await tab.run(
            "document.body.classList.add('stale'); document.querySelector('#banner').hidden = false"
        )
        assert await tab.run(CONTRASTS) == []


async def test_the_theme_that_was_chosen_stays():
    async with admin_port(Shown()) as url, browser() as tab:
        await tab.media(prefers_color_scheme="light")
        await tab.open(url + "/")
        for _ in range(2):
            await tab.run("document.querySelector('#theme').click()")
        assert await tab.text("#theme") == "theme: dark"
        assert await tab.run("getComputedStyle(document.body).backgroundColor") == "rgb(14, 17, 19)"
        await tab.send("Page.reload")
        await tab.until(f"document.readyState === 'complete' && {LOADED}")
        assert await tab.text("#theme") == "theme: dark"
        assert await tab.run("getComputedStyle(document.body).backgroundColor") == "rgb(14, 17, 19)"


async def test_the_keyboard_reads_the_chart_and_chooses_a_mark():
    async with opened(Shown()) as tab:
        await tab.until("document.querySelector('#marks button') !== null")
        assert await tab.run("document.querySelectorAll('#chart .flag').length") == 1
        assert "Hit rate over time, from 50.0" in await tab.run("document.querySelector('#chart').ariaLabel")
        # Nobody knows a rate at 03:03: the lines have a gap there, not a zero.
        assert (
            await tab.run(
                "document.querySelector('#chart path.delivered').getAttribute('d').split('M').length"
            )
            == 3
        )
        await tab.run("document.querySelector('#chart').focus()")
        await tab.press("ArrowLeft")
        assert "delivered 60.0\u00a0%, predicted 65.5\u00a0%, infinite cache 81.0\u00a0%" in await tab.text(
            "#time-read"
        )
        for _ in range(2):
            await tab.press("ArrowLeft")
        assert "unknown" in await tab.text("#time-read")
        await tab.run("document.querySelector('#marks button').focus()")
        await tab.send("Input.dispatchKeyEvent", type="keyDown", key="Enter", code="Enter", text="\r")
        await tab.until("document.querySelector('#compare').textContent === 'The hit rate rose.'")


async def test_who_wants_no_motion_gets_none():
    async with opened(Shown()) as tab:
        beat = "getComputedStyle(document.querySelector('.dot')).animationName"
        await tab.until("document.querySelector('#live').classList.contains('on')")
        assert await tab.run(beat) == "beat"
        await tab.media(prefers_reduced_motion="reduce")
        assert await tab.run(beat) == "none"


async def test_a_large_fleet_is_drawn_whole():
    engines = [an_engine(name=f"e{at}", slots=64, in_flight=40, cooling=0, foreign=0) for at in range(64)]
    running = tuple(
        replace(RUNNING, id=f"r-{at}", engine=f"e{at % 64}", producing=at % 3 != 0) for at in range(64 * 40)
    )
    waiting = tuple(a_waiting(id=f"w-{at}", position=at + 1) for at in range(500))
    shown = Shown(snapshot=replace(a_snapshot(*engines, waiting=waiting), running=running))
    async with opened(shown) as tab:
        drawn = await tab.run(f"[...document.querySelectorAll('.cells path')].map({CELLS})")
        assert sum(count for _, count in drawn) == 64 * 64
        assert await tab.run("document.querySelectorAll('#queue tbody tr').length") == 50
        assert "500 requests wait" in await tab.text("#queue-why")
        assert await tab.text("#waiting") == "500"


async def test_a_breaker_says_where_how_often_and_what_to_do():
    shown = pages()
    told = shown["/api/breakers"]({})
    told["breakers"].append(
        a_breaker(kind="reordered_tools", part="tools[3]", text_before="A", text_after="B")
    )
    async with opened(Shown(gets={**shown, "/api/breakers": lambda _query: told})) as tab:
        first, second = await tab.run(
            "[...document.querySelectorAll('#breakers li')].map(it => it.innerText)"
        )
        assert "timestamp in system[0] · family · codex · m · 30 times" in first
        assert "2026-··-··" in first
        assert "Fix: Put it at the end." in first
        assert "9,000 tokens/h" in first
        assert "reordered tools in tools[3]" in second
        assert "2026" not in second.partition("before")[2]
        assert "30 breaks in 90 requests" in await tab.text("#breaks-sum")
