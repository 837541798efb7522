"""The chart of the dashboard and its marks, and who served a session, in a real browser."""

from itertools import pairwise

import pytest
from browser import CHROMIUM, Tab
from dashboards import Shown, a_funnel, a_session, opened, pages

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium")

FLAGS = "[...document.querySelectorAll('#chart .flag')]"
BOXES = f"{FLAGS}.map(it => it.getBoundingClientRect()).map(it => [it.left, it.right])"
"""Left and right end of each, in pixels."""


def marks(*seconds: int, text: str = "more") -> dict[str, object]:
    """Set so many seconds after 03:00."""
    return {
        "marks": [
            {"mark": f"m{at}", "text": text, "by": "user", "at": f"2026-01-02T03:{s // 60:02}:{s % 60:02}Z"}
            for at, s in enumerate(seconds, 1)
        ]
    }


async def flags(tab: Tab) -> list[str]:
    await tab.until(f"{FLAGS}.length > 0")
    # Their boxes do not touch.
    boxes = sorted(await tab.run(BOXES))
    assert all(a[1] <= b[0] for a, b in pairwise(boxes))
    texts: list[str] = await tab.run(f"{FLAGS}.map(it => it.textContent)")
    return texts


async def test_marks_that_lie_close_share_a_label():
    gets = pages(marks=marks(60, 180, 181, 183, 300))
    async with opened(Shown(gets=gets)) as tab:
        assert await flags(tab) == ["m1", "m2–m4", "m5"]
        assert await tab.run("document.querySelectorAll('#chart line.mark').length") == 5
    many = pages(marks=marks(*range(0, 360, 2)))
    async with opened(Shown(gets=many)) as tab:
        shown = await flags(tab)
        assert len(shown) < 20
        assert (shown[0].startswith("m1–"), shown[-1].endswith("–m180")) == (True, True)


async def test_a_step_alone_is_a_dot_that_is_seen():
    funnel = a_funnel()
    for at, step in enumerate(funnel["series"]):
        step["prompt"] = 1000 if at == 2 else 0
    async with opened(Shown(gets=pages(funnel=funnel))) as tab:
        dot = "document.querySelector('#chart .dot-delivered')"
        assert await tab.run(f"{dot}.getBoundingClientRect().width") >= 5
        assert await tab.run("document.querySelectorAll('#chart circle').length") == 3
    async with opened(Shown()) as tab:
        assert await tab.run("document.querySelectorAll('#chart circle').length") == 0


async def test_the_text_of_a_mark_is_cut_and_its_title_is_not():
    text = "more memory " * 25
    async with opened(Shown(gets=pages(marks=marks(60, text=text)))) as tab:
        shown = await tab.text("#marks button")
        assert shown.endswith("…")
        assert len(shown) < 90
        assert await tab.run("document.querySelector('#marks button').title") == text


async def test_a_session_shows_all_its_engines_and_how_many_requests_were_reported():
    row = a_session(engine="b", engines=["a", "b"], requests=4, reported_requests=3)
    async with opened(Shown(gets=pages(sessions={"sessions": [row]}))) as tab:
        cells = await tab.run("[...document.querySelectorAll('#sessions tbody td')].map(it => it.innerText)")
        assert (cells[3], cells[5]) == ("2 engines: a, b", "3 of 4")
