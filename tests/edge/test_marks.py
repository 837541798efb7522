"""Marks, and what was different before and after one."""

import json
from pathlib import Path
from typing import Any

import pytest
from edge_values import a_record
from fleet import ask, entries, fleet, probe_often, simulated, words
from harness import Running, chat, until
from reloading import reloadable

from gateway.core.request import Outcome
from gateway.core.samples import Samples
from gateway.edge.marks import MAX_MARKS, MAX_TEXT_CHARS, Mark, Marks, grouped
from gateway.edge.views import Missing


class Clock:
    """Seconds after noon."""

    def __init__(self) -> None:
        self.at_s = 0

    def __call__(self) -> str:
        return time(self.at_s)


def time(at_s: int) -> str:
    return f"2026-12-01T{12 + at_s // 3600:02d}:{at_s // 60 % 60:02d}:{at_s % 60:02d}.000Z"


class Day:
    """Marks and requests at times of the test's own."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.samples = Samples()
        self.marks = Marks(
            self.samples, self.clock, time(0), engines=lambda: ["a", "b"], models=lambda: ["m"]
        )

    def mark(self, at_s: int, text: str, by: Any = "user") -> Mark:
        self.clock.at_s = at_s
        return self.marks.set(text, by)

    def request(self, at_s: int, cached_tokens: int | None = 500, **more: Any) -> None:
        made = {"time": time(at_s), "duration_ms": 500.0, "ttft_ms": 100.0, "prompt_tokens": 1000}
        self.samples.ended(a_record(cached_tokens=cached_tokens, **made | more))

    async def compare(self, at_s: int, **query: str) -> dict[str, Any]:
        self.clock.at_s = at_s
        return dict(await self.marks.compare(query))


def counted(told: dict[str, Any]) -> tuple[int, int, int]:
    return told["before"]["requests"], told["across_requests"], told["after"]["requests"]


def seconds(told: dict[str, Any]) -> tuple[float, float]:
    return told["before"]["seconds"], told["after"]["seconds"]


# Setting them


def test_a_mark_has_a_name_a_text_a_time_and_who_set_it() -> None:
    day = Day()
    assert day.mark(60, "slots doubled") == Mark("m1", "slots doubled", time(60), "user")
    assert day.mark(61, "  two\nlines\x1b[31m \ud800 ").text == "two lines [31m"
    assert len(day.mark(62, "x" * 1000).text) == MAX_TEXT_CHARS


def test_the_gateway_sets_marks_for_what_it_notices() -> None:
    day = Day()
    day.marks.reloaded(["engines.b: added", "routing.policy: cost -> prefix"])
    day.marks.reloaded([])
    day.marks.restarted("a")
    marks = day.marks.views().gets["/api/marks"]({})
    assert [(it.mark, it.by, it.text) for it in marks["marks"]] == [  # type: ignore[index]
        ("m1", "reload", "configuration reloaded: engines.b: added; routing.policy: cost -> prefix"),
        ("m2", "restart", "engine a restarted"),
    ]


def test_marks_are_bounded_and_names_are_not_used_again() -> None:
    day = Day()
    for number in range(MAX_MARKS + 5):
        day.mark(number, f"text {number}")
    state = day.marks.views().state["marks"]()
    assert [it.mark for it in state] == [f"m{number}" for number in range(986, 1006)]  # type: ignore[attr-defined]
    with pytest.raises(Missing, match=r"No mark 'm5'\. Marks, newest first: m1005 \(text 1004\), m1004"):
        day.marks.compare({"mark": "m5"})


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[]", b'"text"', b'{"text": 1}', b'{"text": " \\n "}', b"\xff", b"[" * 100_000]
)
def test_a_body_without_a_text_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="text"):
        Day().marks.post(body)


# Comparing


async def test_before_is_from_the_mark_before_and_after_until_the_next() -> None:
    day = Day()
    for at_s in (10, 100, 200, 210, 300, 310, 320, 400):
        day.request(at_s)
    day.mark(150, "one")
    day.mark(250, "two")
    day.mark(350, "three")
    told = await day.compare(500, mark="m2")
    assert counted(told) == (2, 0, 3)
    assert seconds(told) == (100, 100)
    assert (told["before"]["from"], told["after"]["until"]) == (time(150), time(350))
    assert counted(await day.compare(500, mark="one")) == (2, 0, 2)
    newest = await day.compare(500)
    assert newest["mark"].text == "three"
    assert (counted(newest), seconds(newest)) == ((3, 0, 1), (100, 150))


async def test_minutes_limit_both_sides() -> None:
    day = Day()
    for at_s in (100, 500, 580, 610, 700, 1000):
        day.request(at_s)
    day.mark(600, "slots doubled")
    told = await day.compare(2000, mark="m1", minutes="2")
    assert (counted(told), seconds(told)) == ((2, 0, 2), (120, 120))
    assert counted(await day.compare(2000, mark="m1", minutes="0.5")) == (1, 0, 1)
    assert seconds(await day.compare(2000, mark="m1", minutes="600")) == (600, 1400)


@pytest.mark.parametrize("minutes", ["", "0", "-1", "nan", "inf", "ten", "1e9"])
async def test_minutes_that_are_none_are_refused(minutes: str) -> None:
    day = Day()
    day.mark(1, "one")
    with pytest.raises(ValueError, match="minutes must be a number above 0"):
        day.marks.compare({"minutes": minutes})


async def test_a_mark_is_found_by_name_by_text_and_by_a_part_of_it() -> None:
    day = Day()
    day.mark(60, "Slots doubled")
    day.mark(120, "m1 is what this one says")
    day.mark(180, "slots doubled again")
    for wanted, mark in {
        "m1": "m1",
        "slots doubled": "m1",
        "doubled": "m3",
        "M1 IS": "m2",
        "": "m3",
    }.items():
        assert (await day.compare(300, mark=wanted))["mark"].mark == mark, wanted


def test_without_marks_it_says_how_to_set_one() -> None:
    with pytest.raises(Missing, match="No mark has been set yet"):
        Day().marks.compare({})


async def test_a_reload_and_its_restarts_are_one_change_with_nothing_between() -> None:
    """What ran between them belongs to neither side."""
    day = Day()
    for at_s in (50, 130, 150, 500):
        day.request(at_s)
    day.mark(100, "slots to be doubled")
    day.mark(120, "configuration reloaded", "reload")
    day.mark(140, "engine a restarted", "restart")
    for wanted in ("m1", "m2", "m3"):
        told = await day.compare(600, mark=wanted)
        assert [it.mark for it in told["marks"]] == ["m1", "m2", "m3"]
        assert (counted(told), seconds(told)) == ((1, 1, 2), (100, 460))


async def test_requests_between_a_users_mark_and_another_are_a_side() -> None:
    day = Day()
    for at_s in (50, 110, 130):
        day.request(at_s)
    day.mark(100, "first round")
    day.mark(120, "configuration reloaded", "reload")
    assert counted(await day.compare(200, mark="m1")) == (1, 0, 1)
    assert counted(await day.compare(200, mark="m2")) == (1, 0, 1)


def test_which_marks_are_one_change() -> None:
    def groups(busy: bool) -> list[list[str]]:
        whose: list[Any] = ["user", "user", "restart", "reload", "restart", "user"]
        marks = [
            Mark(f"m{at}", "x", time(at), by)
            for at, by in zip((0, 59, 60, 119, 180, 181), whose, strict=True)
        ]
        return [[it.mark for it in group] for group in grouped(marks, lambda _one, _other: busy)]

    assert groups(busy=True) == [["m0"], ["m59"], ["m60", "m119"], ["m180"], ["m181"]]
    assert groups(busy=False) == [["m0", "m59", "m60", "m119"], ["m180", "m181"]]
    assert grouped([], lambda _one, _other: True) == []


async def test_the_outer_ends_can_be_other_marks() -> None:
    day = Day()
    for at_s in (50, 150, 250, 350, 450):
        day.request(at_s)
    for at_s in (100, 200, 300, 400):
        day.mark(at_s, f"at {at_s}")
    assert counted(await day.compare(500, mark="m2")) == (1, 0, 1)
    assert counted(await day.compare(500, mark="m2", **{"from": "start"})) == (2, 0, 1)
    assert counted(await day.compare(500, mark="m2", until="m4")) == (1, 0, 2)
    assert counted(await day.compare(500, mark="m3", until="now", **{"from": "m1"})) == (2, 0, 2)
    limited = await day.compare(500, mark="m3", until="now", minutes="1", **{"from": "m1"})
    assert (counted(limited), seconds(limited)) == ((1, 0, 1), (60, 60))
    for query in ({"from": "m3"}, {"until": "m1"}):
        with pytest.raises(ValueError, match="m2 must lie between from and until"):
            day.marks.compare({"mark": "m2", **query})
    with pytest.raises(Missing, match="No mark 'm9'"):
        day.marks.compare({"mark": "m2", "from": "m9"})


async def test_one_engine_can_be_looked_at() -> None:
    day = Day()
    for engine, model in (("a", "m"), ("b", "m"), ("b", "n")):
        day.request(50, engine=engine, model=model)
    day.mark(100, "engine b restarted", "restart")
    assert counted(await day.compare(200, engine="b")) == (2, 0, 0)
    assert counted(await day.compare(200, engine="b", model="n")) == (1, 0, 0)
    told = await day.compare(200)
    assert counted(told) == (3, 0, 0)
    assert told["sentence"] == "Nothing to compare: no request in the 100 s after."


async def test_an_engine_or_a_model_that_there_is_not_is_no_empty_comparison() -> None:
    day = Day()
    day.mark(100, "one")
    for query, told in (
        ({"engine": "nope"}, "No engine 'nope'. Engines: a, b."),
        ({"engine": ""}, "No engine ''. Engines: a, b."),
        ({"model": "nope"}, "No model 'nope'. Models: m."),
        ({"engine": "a", "model": "x" * 500}, f"No model '{'x' * 100}'. Models: m."),
    ):
        with pytest.raises(Missing) as refused:
            day.marks.compare(query)
        assert str(refused.value) == told
    assert counted(await day.compare(200, engine="a", model="m")) == (0, 0, 0)
    # One that is gone has its requests still.
    day.request(210, engine="gone", model="old")
    assert counted(await day.compare(220, engine="gone", model="old")) == (0, 0, 1)
    for number in range(20):
        day.request(230, model=f"n{number:02d}")
    with pytest.raises(Missing, match=r"Models: m, n00, n01, .*, n08 and 12 more\.$"):
        day.marks.compare({"model": "nope"})


async def test_requests_that_failed_are_told_from_those_without_a_report() -> None:
    day = Day()
    day.request(50, cached_tokens=None)
    day.request(60, cached_tokens=None, outcome=Outcome.CLIENT_DISCONNECT)
    day.mark(100, "one")
    told = (await day.compare(200))["before"]
    assert (told["requests"], told["unknown_requests"], told["failed_requests"]) == (2, 1, 1)
    assert (told["prompt_tokens"], told["prefill_tokens"].total) == (None, None)


async def test_what_is_told_is_json_and_names_what_was_compared() -> None:
    day = Day()
    for number in range(100):
        day.request(10 + number // 10, 400 + number)
    for number in range(100):
        day.request(200 + number // 10, 700 + number, workload_class="json" if number % 2 else "chat")
    day.mark(100, "slots doubled")
    told = await day.compare(300)
    before, after = told["before"], told["after"]
    assert before["hit_rate"].value == pytest.approx(0.4495)
    assert after["hit_rate"].value == pytest.approx(0.7495)
    assert (before["ttft_p50_ms"].value, before["is_cut"]) == (100.0, False)
    assert before["prefill_tokens"].total == 55_050
    assert set(told["classes"]) == {"chat", "json"}
    assert told["sentence"].startswith(
        "Hit rate 45.0 % before, 75.0 % after: 30.0 points higher, more than chance"
    )


# The real thing


async def get(gateway: Running, path: str) -> tuple[int, dict[str, Any]]:
    async with gateway.http.get(f"{gateway.admin}{path}") as response:
        return response.status, await response.json()


async def mark(gateway: Running, text: str) -> dict[str, Any]:
    async with gateway.http.post(f"{gateway.admin}/api/mark", json={"text": text}) as response:
        assert response.status == 200
        return await response.json()


async def test_requests_on_both_sides_of_a_mark(tmp_path: Path) -> None:
    body = chat("What now?", system=words(1000, "A system prompt."), stream=True)
    body["stream_options"] = {"include_usage": True}
    async with fleet(tmp_path, 1, prefill_rate=50_000.0) as (gateway, _):
        before = [await ask(gateway, body | {"max_tokens": 3}) for _ in range(2)]
        set_ = await mark(gateway, "slots doubled")
        assert (set_["mark"], set_["text"], set_["by"]) == ("m1", "slots doubled", "user")
        after = [await ask(gateway, body) for _ in range(3)]
        status, told = await get(gateway, "/api/compare?mark=m1")
        assert (status, told["mark"]) == (200, set_)
        for side, answers in (("before", before), ("after", after)):
            of, prompt = told[side], sum(it.usage["prompt_tokens"] for it in answers)
            delivered = sum(it.delivered for it in answers)
            assert (of["requests"], of["prompt_tokens"]) == (len(answers), prompt)
            assert of["hit_rate"]["value"] == pytest.approx(delivered / prompt)
            assert of["prefill_tokens"]["total"] == prompt - delivered
            assert of["hit_rate"]["low"] is None
            assert of["ttft_p50_ms"]["value"] > 0
        assert told["after"]["hit_rate"]["value"] > told["before"]["hit_rate"]["value"]
        assert set(told["classes"]) == {"chat"}
        assert "system prompt" not in json.dumps(told)
        assert (await gateway.state())["marks"] == (await get(gateway, "/api/marks"))[1]["marks"] == [set_]


async def test_errors_name_what_exists(tmp_path: Path) -> None:
    async with fleet(tmp_path, 1) as (gateway, _):
        status, told = await get(gateway, "/api/compare")
        assert (status, told["error"]["code"]) == (404, "not_found")
        assert "prefix-gateway mark TEXT" in told["error"]["message"]
        await mark(gateway, "one")
        status, told = await get(gateway, "/api/compare?mark=m9")
        assert (status, told["error"]["message"]) == (404, "No mark 'm9'. Marks, newest first: m1 (one).")
        assert (await get(gateway, "/api/compare?minutes=x"))[0] == 400
        async with gateway.http.post(f"{gateway.admin}/api/mark", data=b"slots doubled") as response:
            assert response.status == 400
            assert '{"text": "slots doubled"}' in (await response.json())["error"]["message"]


async def test_a_reload_sets_a_mark_that_says_what_changed(tmp_path: Path) -> None:
    async with simulated(2) as engines, reloadable(tmp_path, entries(engines[:1])) as it:
        await it.change(entries(engines))
        await it.change(entries(engines))
        marks = (await get(it.running, "/api/marks"))[1]["marks"]
        assert [(it["by"], it["text"]) for it in marks] == [
            ("reload", "configuration reloaded: engines.b: added")
        ]
        it.path.write_text("engines: none")
        assert (await it.reload())[0] == 400
        assert len((await get(it.running, "/api/marks"))[1]["marks"]) == 1


async def test_an_engine_that_restarts_sets_a_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probe_often(monkeypatch)
    async with fleet(tmp_path, 1) as (gateway, engines):
        await ask(gateway, chat("hello"))
        await engines[0].close()
        await engines[0].start()

        async def marked() -> list[dict[str, Any]]:
            return (await gateway.state())["marks"]

        marks = await until(marked)
        assert [(it["by"], it["text"]) for it in marks] == [("restart", "engine a restarted")]
