"""The report as one HTML file, read as text and opened in a browser."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from html import escape, unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from doctor_values import (
    a_capped_round,
    a_failed,
    a_paced_round,
    a_ramp,
    a_refused,
    capped_findings,
    findings,
)

from gateway.doctor.page import page
from gateway.doctor.report import Report
from gateway.doctor.seen import Findings, Role

MADE_AT = "measured on 2026-01-02 at 03:04 UTC"
EVIL = "</title></pre><script>document.body.remove()</script><img src=x>&'\""

CHROMIUM = shutil.which("chromium")


class Reader(HTMLParser):
    """What elements there are, with their attributes, and the text of all."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def names(self) -> set[str]:
        return {tag for tag, _ in self.elements}

    def of_class(self, tag: str, name: str) -> list[dict[str, str | None]]:
        return [
            attrs for it, attrs in self.elements if it == tag and name in (attrs.get("class") or "").split()
        ]


def read(of: Findings, rate: float | None = None) -> Reader:
    reader = Reader(page(Report(of, rate), MADE_AT))
    assert reader.open == []
    return reader


def test_the_page_says_what_the_report_says() -> None:
    report = Report(capped_findings(4), 5.0)

    text = read(capped_findings(4), 5.0).text

    for said in (
        report.headline(),
        report.cost_sentence(),
        report.rate_sentence(),
        report.advice,
        *report.verdict.why,
    ):
        assert said
        assert said in text
    assert MADE_AT in text
    assert "m at http://127.0.0.1:8000" in text
    assert "Each request: 512 prompt tokens, 33 output tokens, streamed." in text


def test_the_staircase_has_a_row_for_each_stream() -> None:
    reader = read(findings([a_capped_round(2, 2), a_capped_round(4, 2)], max_concurrency=4))

    assert [it["x"] for it in reader.of_class("rect", "prefill")] == [
        "0.000%",
        "0.000%",
        "50.000%",
        "50.000%",
    ]
    assert [it["width"] for it in reader.of_class("rect", "waiting")] == ["50.000%", "50.000%"]
    assert [it["width"] for it in reader.of_class("rect", "decoding")] == ["40.000%"] * 4
    assert "3: waiting 2.00 s, prefill 400 ms, decoding 1.60 s" in reader.text
    (svg,) = reader.of_class("svg", "staircase")
    assert svg["aria-label"] == "4 requests over 4.00 s; 2 of them waited before they began"


def test_figures_are_there_as_tables_too() -> None:
    html = page(Report(capped_findings(4)), MADE_AT)

    assert "<td>8</td><td>4</td><td>21.4</td><td>5.56</td><td>3480</td><td>6560</td>" in html
    assert "<td>5</td><td>6.160</td><td>0.400</td><td>5.760</td><td>12.320</td>" in html


def test_the_curves_mark_the_limit_and_the_rate_that_was_asked_for() -> None:
    reader = read(capped_findings(4), 5.0)

    assert [it["x1"] for it in reader.of_class("line", "limit")] == ["50.00%", "50.00%"]
    assert len(reader.of_class("line", "wanted")) == 1
    assert "limit 4" in reader.text
    assert "5 wanted" in reader.text
    assert len(reader.of_class("circle", "dot")) == 10


def test_a_rate_above_what_streams_get_stands_above_the_curve() -> None:
    (line,) = read(capped_findings(4), 12.0).of_class("line", "wanted")
    lowest = min(float(it["cy"] or 0) for it in read(capped_findings(4), 12.0).of_class("circle", "dot")[5:])

    assert float(line["y1"] or 0) < lowest


def test_without_first_tokens_there_is_no_curve_of_a_stream() -> None:
    reader = read(capped_findings(4, streamed=False))

    assert len(reader.of_class("svg", "curve")) == 1
    assert reader.of_class("rect", "running")
    assert "answer p50 ms" in reader.text
    assert "of time to the answer is waiting, 16 at once60%" in reader.text


def test_without_a_limit_there_is_none_to_mark() -> None:
    reader = read(findings(a_ramp(64)))

    assert reader.of_class("line", "limit") == []
    assert reader.of_class("rect", "waiting") == []
    assert "limitnone found" in reader.text
    assert "is waiting" not in reader.text
    assert "before its first token" in reader.text


def test_one_point_is_a_curve_too() -> None:
    (dot, _) = read(findings([a_capped_round(1, 1)])).of_class("circle", "dot")

    assert dot["cx"] == "50.00%"


def test_labels_that_would_touch_are_left_out_but_not_the_last() -> None:
    rounds = [a_capped_round(n, 64) for n in (1, 2, 4, 8, 16, 30, 32)]

    reader = read(findings(rounds, max_concurrency=32))

    labels = [it["x"] for it in reader.of_class("text", "halo")]
    assert len(labels) == 2 * 6
    assert labels[5] == "92.00%"


def test_many_streams_are_low_rows_with_a_number_at_every_fifth() -> None:
    reader = read(capped_findings(12, 64, max_concurrency=64))

    (svg,) = reader.of_class("svg", "staircase")
    assert svg["height"] == str(9 * 64)
    assert len(reader.of_class("text", "note")) == 13


def test_of_very_many_streams_the_first_are_drawn() -> None:
    reader = read(findings([a_capped_round(40, 40), a_capped_round(130, 40)], max_concurrency=130))

    assert len(reader.of_class("rect", "decoding")) == 100
    assert "30 more are not drawn." in reader.text


def test_what_failed_is_drawn_and_noted() -> None:
    reader = read(findings([a_capped_round(2, 2, more=[a_refused(2), a_failed(3, error="reset")])]))

    assert len(reader.of_class("rect", "failed")) == 2
    assert "1 of 4 requests failed: reset (1)." in reader.text
    assert "no answer (429) after 10 ms" in reader.text


def test_behind_a_limiter_the_rate_is_the_figure() -> None:
    rounds = [a_paced_round(4, 0.5), a_paced_round(12, 0.5, 0.1, role=Role.TINY)]

    reader = read(findings(rounds, tiny_s=0.1, max_concurrency=4))

    assert "limit2 requests/s" in reader.text
    assert len(reader.of_class("rect", "waiting")) == 3


def test_where_the_doctor_itself_is_the_limit_nothing_is_said_of_one() -> None:
    reader = read(capped_findings(4, client_streams=4))

    assert "The doctor's own client is the limit here." in reader.text
    assert "none found" not in reader.text


def test_a_page_without_a_date_has_none() -> None:
    assert '<p class="subject">m at http://127.0.0.1:8000</p>' in page(Report(capped_findings(4)))


def test_the_json_is_in_it_whole() -> None:
    of = capped_findings(4, model=EVIL)

    html = page(Report(of), MADE_AT)

    found = re.search(r"<pre>(.*?)</pre>", html, re.DOTALL)
    assert found is not None
    assert json.loads(unescape(found[1])) == json.loads(json.dumps(Report(of).as_json()))


def test_nothing_comes_from_elsewhere_and_nothing_runs() -> None:
    reader = read(capped_findings(4), 5.0)

    assert reader.names().isdisjoint({"script", "link", "img", "iframe", "object", "a", "form", "base"})
    assert not any(
        name.startswith("on") or name in ("src", "href", "style") for _, it in reader.elements for name in it
    )
    policies = [it["content"] for tag, it in reader.elements if tag == "meta" and "http-equiv" in it]
    assert len(policies) == 1
    assert str(policies[0]).startswith("default-src 'none'; style-src 'sha256-")


def test_what_the_endpoint_says_is_text_and_nothing_else() -> None:
    of = capped_findings(4, model=EVIL, url=f"http://h/{EVIL}", interrupted=EVIL)
    of.rounds.append(a_capped_round(1, 1, role=Role.TINY, more=[a_failed(error=EVIL)]))

    reader = read(of)

    assert reader.names().isdisjoint({"script", "img"})
    assert EVIL in reader.text
    assert escape(EVIL) in page(Report(of), MADE_AT)


def test_the_page_is_small() -> None:
    assert len(page(Report(capped_findings(12, 64, max_concurrency=64)), MADE_AT)) < 100_000


def test_nothing_measured_is_a_page_too() -> None:
    reader = read(findings([]))

    assert "Nothing was measured." in reader.text
    assert "svg" not in reader.names()


PROBE = """
<body><iframe width="%d" height="800"></iframe><script>
const frame = document.querySelector("iframe");
frame.onload = () => {
  const page = frame.contentDocument, bars = [...page.querySelectorAll("svg .decoding")];
  const texts = [...page.querySelectorAll("svg text")].map(it => it.getBoundingClientRect());
  const out = document.createElement("pre");
  out.textContent = JSON.stringify({
    text: page.body.innerText,
    width: page.documentElement.scrollWidth,
    bars: bars.filter(it => it.getBoundingClientRect().width > 1).length,
    leftmost: Math.min(...texts.map(it => it.left)), rightmost: Math.max(...texts.map(it => it.right)),
    decoding: getComputedStyle(bars[0]).fill,
  });
  out.id = "out";
  document.body.append(out);
};
frame.srcdoc = %s;
</script></body>
"""


@pytest.fixture
def browser(tmp_path: Path) -> Callable[[str, int], tuple[dict[str, Any], str]]:
    """Opens a page of a width; what a script beside it sees there, and what the browser complains of."""
    if CHROMIUM is None:
        pytest.skip("no chromium")
    name = CHROMIUM

    def open_page(html: str, width: int) -> tuple[dict[str, Any], str]:
        path = tmp_path / f"probe-{width}.html"
        path.write_text(PROBE % (width, json.dumps(html).replace("</", "<\\/")), encoding="utf-8")
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
        flags += [f"--user-data-dir={tmp_path}/profile", "--window-size=1400,900", "--dump-dom"]
        ran = subprocess.run(
            [name, *flags, path.as_uri()], capture_output=True, text=True, timeout=120, check=True
        )
        found = re.search(r'<pre id="out">(.*)</pre>', ran.stdout, re.DOTALL)
        assert found is not None, ran.stderr
        complaints = [line for line in ran.stderr.splitlines() if "CONSOLE" in line]
        return json.loads(unescape(found[1])), "\n".join(complaints)

    return open_page


@pytest.mark.parametrize("width", [1200, 390, 320])
def test_a_browser_shows_it_on_a_desk_and_on_a_phone(
    browser: Callable[[str, int], tuple[dict[str, Any], str]], width: int
) -> None:
    report = Report(capped_findings(4, model="a-model-with-a-very-long-name/" + "x" * 80), 5.0)

    seen, complaints = browser(page(report, MADE_AT), width)

    assert complaints == ""
    assert report.headline() in seen["text"]
    assert report.advice in seen["text"]
    assert seen["bars"] == 16
    assert seen["width"] <= width
    assert seen["leftmost"] >= 0
    assert seen["rightmost"] <= seen["width"]
    assert seen["decoding"] != "rgb(0, 0, 0)"


def test_a_browser_runs_nothing_that_gets_into_it(
    browser: Callable[[str, int], tuple[dict[str, Any], str]],
) -> None:
    html = page(Report(capped_findings(4)), MADE_AT).replace(
        "<main>", "<main><script>document.body.remove()</script>"
    )

    seen, complaints = browser(html, 1200)

    assert seen["bars"] == 16
    assert "Content Security Policy" in complaints
