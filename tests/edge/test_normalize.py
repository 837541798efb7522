"""Rules of `normalize` between a client and its engine."""

import logging

import yaml
from harness import running
from raw_engine import answers, raw_engine, whole

from gateway.config import load
from gateway.wire import normalize

USAGE = b'{"usage":{"prompt_tokens":100,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":0}}}'
RULES = [{"rule": "replace", "in": "system", "pattern": r"\d\d:\d\d", "with": "00:00"}, "sort_tools"]


def body(time: str, *tools: str) -> bytes:
    listed = ", ".join(f'{{"name":"{name}"}}' for name in tools)
    return (
        f'{{"model": "m",  "messages": [{{"role":"system","content":"{"x" * 3000} {time}"}},'
        f'{{"role":"user","content":"at 12:34"}}], "tools": [{listed}]}}'
    ).encode()


async def test_engine_and_key_see_the_same_and_it_is_counted(tmp_path):
    async with (
        raw_engine(answers(whole(USAGE))) as engine,
        running(tmp_path, [engine.entry(name="a")], normalize=RULES) as gateway,
    ):
        for given in (body("12:34", "b", "a"), body("12:35", "a", "b"), body("00:00", "a", "b")):
            assert (await gateway.post("/v1/chat/completions", given))[0] == 200
        assert {call.body for call in engine.calls} == {body("00:00", "a", "b")}
        records = await gateway.records()
        assert [it["predicted_cached_tokens"] > 0 for it in records] == [True, True, False]
        async with gateway.http.post(f"{gateway.admin}/api/explain", data=body("23:59", "a", "b")) as dry:
            assert (await dry.json())["engines"][0]["predicted_cached_tokens"] > 0
        name = "normalized_requests_total"
        assert await gateway.metric(name, rule="replace") == 2
        assert await gateway.metric(name, rule="sort_tools") == 1


async def test_without_rules_a_body_stays_as_it_is(tmp_path):
    async with (
        raw_engine(answers(whole(USAGE))) as engine,
        running(tmp_path, [engine.entry(name="a")]) as gateway,
    ):
        given = body("12:34", "b", "a")
        assert (await gateway.post("/v1/chat/completions", given))[0] == 200
        assert engine.calls[0].body == given


async def test_the_log_names_the_rules_at_the_start(tmp_path, caplog):
    async with running(tmp_path, [{"name": "a", "url": "http://127.0.0.1:9"}], normalize=RULES) as gateway:
        with caplog.at_level(logging.INFO):
            gateway.gateway.tell_where()
        assert r"normalize: replace '\\d\\d:\\d\\d' in system; sort_tools" in caplog.text


async def test_other_rules_hold_from_a_reload_on(tmp_path):
    async with (
        raw_engine(answers(whole(USAGE))) as engine,
        running(tmp_path, [engine.entry(name="a")], normalize=["sort_tools"]) as gateway,
    ):
        path = tmp_path / "gateway.yaml"
        settings = yaml.safe_load(path.read_text()) | {"normalize": RULES[:1]}
        path.write_text(yaml.safe_dump(settings))
        gateway.gateway._prepare(load(path, {}))()
        assert (await gateway.post("/v1/chat/completions", body("12:34", "b", "a")))[0] == 200
        assert b"00:00" in engine.calls[0].body
        assert engine.calls[0].body.index(b'"b"') < engine.calls[0].body.index(b'"a"')


async def test_a_rule_that_fails_keeps_no_request_from_its_engine_and_is_told_once(
    tmp_path, caplog, monkeypatch
):
    def failing(body, edits):
        raise AssertionError("SECRET text")

    monkeypatch.setattr(normalize, "edited", failing)
    async with (
        raw_engine(answers(whole(USAGE))) as engine,
        running(tmp_path, [engine.entry(name="a")], normalize=RULES) as gateway,
    ):
        given = body("12:34", "b", "a")
        for _ in range(2):
            assert (await gateway.post("/v1/chat/completions", given))[0] == 200
        assert {call.body for call in engine.calls} == {given}
    told = [it.getMessage() for it in caplog.records if it.name == "gateway.edge.intake"]
    assert [it.split(" on ")[0] for it in told] == [
        "normalize: replace failed",
        "normalize: sort_tools failed",
    ]
    assert "SECRET" not in caplog.text
