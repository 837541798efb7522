"""Another configuration while the real gateway runs."""

import asyncio
import hashlib
import logging
import os
import threading
from pathlib import Path

import pytest
from failing import OK, STREAMED, complete, no_lease_is_left
from harness import chat, running, until
from raw_client import connect, request
from raw_engine import END, chunk, event, raw_engine, seen, stream_head, whole
from reloading import reloadable, written

from gateway.edge.reload import ConfigFile

POLL_S = 0.05


def ask(model="m", *headers, stream=False, path="/v1/chat/completions"):
    return request(chat("hello", model=model, stream=stream), *headers, path=path)


async def answer(gateway, *args, **more):
    async with connect(gateway) as client:
        client.send(ask(*args, **more))
        return await client.answer()


async def hold(call):
    await call.left.wait()


async def stream_begins(call):
    call.write(stream_head(), chunk(event("a")))


async def ready(it, name, slots=4):
    async def is_so():
        return any(
            (view["name"], view["health"], view["leaving"], view["slots"]) == (name, "ready", False, slots)
            for view in (await it.running.state())["engines"]
        )

    await until(is_so)


# Engines


async def test_an_engine_that_is_added_is_used(tmp_path, pair):
    a, b = pair.values()
    async with reloadable(tmp_path, [a.entry(name="a")]) as it:
        assert await it.change([a.entry(name="a"), b.entry(name="b")]) == ["engines.b: added"]
        await ready(it, "b")
        assert await it.change([b.entry(name="b")]) == ["engines.a: removed"]
        assert (await answer(it.running)).headers["x-gateway-engine"] == "b"
        assert (await it.running.state())["config"]["engines"][0]["name"] == "b"


async def test_a_stream_runs_to_its_last_byte_on_an_engine_that_is_removed_meanwhile(tmp_path, pair):
    a, b = pair.values()
    a.handler = stream_begins
    async with (
        reloadable(tmp_path, [a.entry(name="a")]) as it,
        connect(it.running) as client,
    ):
        client.send(ask(stream=True))
        call = await seen(a)
        assert (await client.head()).status == 200
        assert await client.chunk() == event("a")
        await it.change([b.entry(name="b")])
        await ready(it, "b")
        assert await it.names() == ["b", "a"]
        assert (await it.running.engine("a"))["leaving"]
        assert await it.running.metric("in_flight", engine="a") == 1
        assert (await answer(it.running)).headers["x-gateway-engine"] == "b"
        rest = STREAMED.removeprefix(event("a"))
        call.write(chunk(rest), END)
        assert await client.chunk() == rest
        # The terminating chunk: nothing was cut off.
        assert await client.chunk() == b""

        async def gone():
            return await it.names() == ["b"]

        await until(gone)
        assert (await it.running.records())[0]["engine"] == "a"

        async def closed():
            return not it.running.gateway._pools._retired

        await until(closed)


async def test_a_removed_engine_vanishes_from_the_metrics_and_is_probed_no_more(tmp_path, pair):
    a, b = pair.values()
    async with reloadable(tmp_path, [a.entry(name="gone"), b.entry(name="b")]) as it:
        for _ in range(4):
            await answer(it.running)
        assert await it.running.metric("engine_up", engine="gone") == 1
        await it.change([b.entry(name="b")])
        async with it.running.http.get(f"{it.running.admin}/metrics") as response:
            assert 'engine="gone"' not in await response.text()
        assert "gone" not in it.running.gateway._prober._watches

        async def closed():
            return not it.running.gateway._pools._retired

        await until(closed)


async def test_another_url_under_the_same_name_is_another_engine(tmp_path, pair):
    a, b = pair.values()
    a.handler = hold
    async with (
        reloadable(tmp_path, [a.entry(name="x", slots=1)]) as it,
        connect(it.running) as first,
        connect(it.running) as second,
    ):
        first.send(ask())
        call = await seen(a)
        second.send(ask())

        async def queued():
            return len((await it.running.state())["waiting"]) == 1

        await until(queued)
        changed = await it.change([b.entry(name="x", slots=1)])
        assert changed == [f"engines.x.url: {a.url} -> {b.url}"]
        # Whoever waited gets the new one; the old one finishes what it has.
        assert (await second.answer()).status == 200
        assert (len(a.calls), len(b.calls)) == (1, 1)
        call.write(whole(OK))
        assert (await first.answer()).body == OK
        await until(lambda: lonely(it, "x"))
        await no_lease_is_left(it.running)


async def lonely(it, name):
    return await it.names() == [name]


async def test_who_only_a_removed_engine_could_serve_is_told_so(tmp_path, engine):
    engine.handler = hold
    async with raw_engine(complete, models=("other",)) as other:
        both = [engine.entry(name="a", slots=1), other.entry(name="b")]
        async with (
            reloadable(tmp_path, both) as it,
            connect(it.running) as first,
            connect(it.running) as second,
        ):
            first.send(ask())
            call = await seen(engine)
            second.send(ask())

            async def queued():
                return len((await it.running.state())["waiting"]) == 1

            await until(queued)
            await it.change(both[1:])
            refused = await second.answer()
            assert (refused.status, refused.error["code"]) == (503, "no_ready_engine")
            call.write(whole(OK))
            assert (await first.answer()).status == 200
            assert (await answer(it.running)).status == 404


async def test_other_slots_change_the_cap_and_nothing_else(tmp_path, engine):
    engine.handler = hold
    async with reloadable(tmp_path, [engine.entry(name="a", slots=1)]) as it:
        async with connect(it.running) as first, connect(it.running) as second:
            first.send(ask())
            await seen(engine)
            second.send(ask())
            before = it.running.gateway.dispatcher.scheduler.engines["a"]
            assert await it.change([engine.entry(name="a", slots=2)]) == ["engines.a.slots: 1 -> 2"]
            await seen(engine, 2)
            for call in engine.calls:
                call.write(whole(OK))
            assert (await first.answer()).body == (await second.answer()).body == OK
        assert it.running.gateway.dispatcher.scheduler.engines["a"] is before
        assert (await it.running.engine("a"))["slots"] == 2


async def test_an_engine_that_stays_keeps_what_is_known_of_it(tmp_path, pair):
    a, b = pair.values()
    usage = (
        b'{"usage":{"prompt_tokens":400,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":0}}}'
    )

    async def counted(call):
        call.write(whole(usage))

    a.handler = counted
    async with reloadable(tmp_path, [a.entry(name="a")]) as it:
        body = chat("x" * 4000, model="m")
        assert (await it.running.post("/v1/chat/completions", body))[0] == 200
        before = await it.running.engine("a")
        assert before["blocks"] > 0
        await it.running.http.post(f"{it.running.admin}/api/engines/a/drain")
        await it.change([a.entry(name="a"), b.entry(name="b")], admission={"max_wait": "9s"})
        after = await it.running.engine("a")
        assert after["blocks"] == before["blocks"]
        assert after["draining"]


async def test_another_key_of_an_engine_is_sent_with_the_next_request(tmp_path, engine):
    engine.handler = stream_begins
    async with (
        reloadable(tmp_path, [engine.entry(name="a", api_key="old-secret")]) as it,
        connect(it.running) as client,
    ):
        client.send(ask(stream=True))
        call = await seen(engine)
        assert call.headers["authorization"] == "Bearer old-secret"
        await client.head()
        changed = await it.change([engine.entry(name="a", api_key="new-secret")])
        assert changed == ["engines.a.api_key: changed"]
        engine.handler = complete
        assert (await answer(it.running)).status == 200
        assert engine.calls[-1].headers["authorization"] == "Bearer new-secret"
        call.write(chunk(STREAMED.removeprefix(event("a"))), END)
        assert await client.chunk() == event("a")
        assert await client.chunk() == STREAMED.removeprefix(event("a"))


async def test_an_engine_that_is_another_kind_now_is_detected_again(tmp_path, engine):
    async with reloadable(tmp_path, [engine.entry(name="a")]) as it:
        assert (await it.running.engine("a"))["kind"] == "openai"
        changed = await it.change([engine.entry(name="a", kind="lmdeploy")])
        assert changed == ["engines.a.kind: openai -> lmdeploy"]

        async def is_so():
            return (await it.running.engine("a"))["kind"] == "lmdeploy"

        await until(is_so)
        assert (await it.running.engine("a"))["restarts"] == 0


async def test_an_engine_that_comes_back_still_counts_what_runs_there(tmp_path, pair):
    a, b = pair.values()
    a.handler = hold
    both = [a.entry(name="a", slots=1), b.entry(name="b", slots=1)]
    async with reloadable(tmp_path, both[:1]) as it, connect(it.running) as first:
        first.send(ask())
        call = await seen(a)
        await it.change(both[1:])
        await it.change(both)
        await ready(it, "a", 1)
        assert await it.names() == ["b", "a"]
        assert (await it.running.engine("a"))["in_flight"] == 1
        call.write(whole(OK))
        assert (await first.answer()).body == OK
        await no_lease_is_left(it.running)


async def test_twenty_reloads_lose_none_of_two_hundred_requests(tmp_path):
    async def slowly(call):
        await asyncio.sleep(0.02)
        if b'"stream": true' in call.body:
            call.write(stream_head(), chunk(event("a")))
            await asyncio.sleep(0.02)
            call.write(chunk(STREAMED.removeprefix(event("a"))), END)
        else:
            call.write(whole(OK))

    async with raw_engine(slowly) as a, raw_engine(slowly) as b, raw_engine(slowly) as c:
        engines = {"a": a, "b": b, "c": c}

        def some(turn: int) -> list[dict]:
            """One engine is missing, each time another; `x` stands for each in turn; caps change."""
            names = ["a", "b", "c"]
            del names[turn % 3]
            return [
                engines[name].entry(name="x" if place else name, slots=1 + turn % 2)
                for place, name in enumerate(names)
            ]

        async with reloadable(tmp_path, some(0)) as it:
            answers = [
                asyncio.create_task(patient(it.running, stream=number % 2 == 0)) for number in range(200)
            ]
            for turn in range(1, 21):
                await it.change(some(turn))
                done = sum(task.done() for task in answers)
                await until(lambda done=done: more_done(answers, done))
            ended = await asyncio.gather(*answers)
            assert [it for it in ended if it[0] != 200] == []
            assert {it[2] for it in ended} == {OK, STREAMED}
            await no_lease_is_left(it.running)
        assert sum(len(engine.calls) for engine in engines.values()) == 200


async def more_done(tasks, than):
    done = sum(task.done() for task in tasks)
    return done > than or done == len(tasks)


async def patient(gateway, stream):
    """Its answer may take longer than a raw client waits."""
    body = chat("hello", model="m", stream=stream)
    status, headers, data = await gateway.post("/v1/chat/completions", body)
    return status, headers.get("x-gateway-engine"), data


# The rest


async def test_a_key_that_is_removed_does_not_open_the_next_request(tmp_path, engine):
    keys = [{"name": name, "sha256": hashlib.sha256(name.encode()).hexdigest()} for name in ("old", "stays")]
    engine.handler = hold
    entry = engine.entry(name="a")
    async with (
        reloadable(tmp_path, [entry], auth={"keys": keys}) as it,
        connect(it.running) as client,
    ):
        client.send(ask("m", "authorization: Bearer old"))
        call = await seen(engine)
        assert await it.change([entry], auth={"keys": keys[1:]}) == ["auth.keys.old: removed"]
        assert (await answer(it.running, "m", "authorization: Bearer old")).status == 401
        call.write(whole(OK))
        assert (await client.answer()).body == OK
        # On the same connection, too.
        client.send(ask("m", "authorization: Bearer old"))
        assert (await client.answer()).status == 401


async def test_keys_that_are_all_removed_are_warned_of(tmp_path, engine, caplog):
    keys = [{"name": "k", "sha256": "0" * 64}]
    async with reloadable(tmp_path, [engine.entry()], auth={"keys": keys}) as it:
        await it.change([engine.entry()])
        assert "no API keys are configured" in caplog.text


async def test_an_alias_that_is_added_is_known_at_once(tmp_path, engine):
    async with reloadable(tmp_path, [engine.entry()]) as it:
        assert (await answer(it.running, "fast")).status == 404
        assert await it.change([engine.entry()], models={"aliases": {"fast": "m"}}) == [
            "models.aliases.fast: added"
        ]
        assert (await answer(it.running, "fast")).status == 200
        assert b'"model": "m"' in engine.calls[-1].body or b'"model":"m"' in engine.calls[-1].body


async def test_signs_of_life_are_sent_from_the_next_request_on(tmp_path, engine):
    engine.handler = hold
    entry = engine.entry(slots=1)
    async with reloadable(tmp_path, [entry]) as it, connect(it.running) as client:
        changed = await it.change([entry], admission={"keepalive": "1s"})
        assert changed == ["admission.keepalive: off -> 1s"]
        client.send(ask("m", stream=True))
        assert (await client.head()).status == 200
        assert await client.chunk() == b": keepalive\n\n"


async def test_limits_of_the_queue_hold_from_the_next_request_on(tmp_path, engine):
    engine.handler = hold
    entry = engine.entry(slots=1)
    async with (
        reloadable(tmp_path, [entry]) as it,
        connect(it.running) as first,
        connect(it.running) as second,
    ):
        first.send(ask())
        await seen(engine)
        admission = {"max_queue": 0, "priority_header": "x-rank"}
        routing = {"policy": "round_robin"}
        assert await it.change([entry], admission=admission, routing=routing) == [
            "routing.policy: cost -> round_robin",
            "admission.max_queue: 512 -> 0",
            "admission.priority_header: x-gateway-priority -> x-rank",
        ]
        second.send(ask())
        assert (await second.answer()).error["code"] == "queue_full"
        second.send(ask("m", "x-rank: nonsense"))
        assert (await second.answer()).status == 400
        state = await it.running.state()
        assert (state["max_queue"], state["policy"]) == (0, "round_robin")
        await it.change([entry], admission={"max_queue": 9, "max_wait": "10ms"})
        second.send(ask())
        assert (await second.answer()).error["code"] == "queue_timeout"
        await complete(engine.calls[0])
        assert (await first.answer()).status == 200


async def test_limits_of_clients_hold_from_the_next_request_on(tmp_path, engine):
    async with reloadable(tmp_path, [engine.entry()]) as it, connect(it.running) as client:
        client.send(ask())
        assert (await client.answer()).status == 200
        # Half of a request that was begun under the old limit.
        whole_request = request(chat("x" * 3000, model="m"))
        client.send(whole_request[:500])
        async with connect(it.running) as other:
            changed = await it.change([engine.entry()], limits={"max_body": "1KiB"})
            assert changed == ["limits.max_body: 32MiB -> 1KiB"]
            client.send(whole_request[500:])
            assert (await client.answer()).status == 200
            client.send(whole_request)
            assert (await client.answer()).status == 413
            other.send(whole_request)
            assert (await other.answer()).status == 413
        explained = await it.running.http.post(f"{it.running.admin}/api/explain", data=b"x" * 2000)
        assert explained.status == 413


async def test_what_has_begun_goes_on_with_the_timeouts_that_it_began_with(tmp_path, engine):
    engine.handler = stream_begins
    entry = engine.entry(slots=1)
    async with (
        reloadable(tmp_path, [entry]) as it,
        connect(it.running) as streaming,
        connect(it.running) as queued,
        connect(it.running) as late,
    ):
        streaming.send(ask(stream=True))
        call = await seen(engine)
        await streaming.head()
        engine.handler = hold
        queued.send(ask())

        async def waits():
            return len((await it.running.state())["waiting"]) == 1

        await until(waits)
        await it.change([entry], limits={"idle_timeout": "10ms", "answer_timeout": "10ms"})
        call.write(chunk(event("b")))
        assert [await streaming.chunk(), await streaming.chunk()] == [event("a"), event("b")]
        # Longer than it takes the gateway to see that somebody's time is over.
        await asyncio.sleep(0.6)
        call.write(chunk(STREAMED.removeprefix(event("a"))), END)
        assert await streaming.chunk() == STREAMED.removeprefix(event("a"))
        call = await seen(engine, 2)
        await asyncio.sleep(0.6)
        call.write(whole(OK))
        assert (await queued.answer()).body == OK
        late.send(ask())
        assert (await late.answer()).error["code"] == "engine_timeout"


async def test_engines_are_asked_for_usage_or_not_from_the_next_request_on(tmp_path, engine):
    entry = engine.entry(name="a", kind="vllm")
    async with reloadable(tmp_path, [entry]) as it:
        await answer(it.running, stream=True)
        assert b"include_usage" in engine.calls[-1].body
        assert await it.change([entry], usage={"inject": "off"}) == ["usage.inject: auto -> off"]
        await answer(it.running, stream=True)
        assert b"include_usage" not in engine.calls[-1].body


async def test_connections_are_waited_for_as_long_as_the_new_limit_says(tmp_path, engine):
    async with reloadable(tmp_path, [engine.entry(name="a")]) as it:
        await it.change([engine.entry(name="a")], limits={"connect_timeout": "7s"})
        assert it.running.gateway._pools["a"].connect_timeout_s == 7.0


# What is refused


async def test_an_invalid_file_leaves_the_old_in_force_and_says_why(tmp_path, engine, caplog):
    async with reloadable(tmp_path, [engine.entry(name="a")]) as it:
        it.path.write_text(f"engines:\n- url: {engine.url}\n  name: b\n  slots: many\nadmision: {{}}\n")
        status, body = await it.reload()
        assert (status, body["error"]["code"]) == (400, "config_invalid")
        problems = [(problem["key"], problem["line"]) for problem in body["error"]["problems"]]
        assert problems == [("engines[0].slots", 4), ("admision", 5)]
        state = await it.running.state()
        assert [view["name"] for view in state["engines"]] == ["a"]
        assert (state["reload"]["ok"], state["reload"]["problems"]) == (False, body["error"]["problems"])
        assert state["reload"]["last_at"]
        assert state["degraded"]["config_invalid"]
        assert await it.running.metric("config_last_reload_success") == 0
        assert await it.running.metric("degraded", kind="config_invalid") == 1
        [line] = [it for it in caplog.records if "not reloaded" in it.message]
        assert line.levelno == logging.ERROR
        assert ":4: engines[0].slots: " in line.message
        assert ":5: admision: " in line.message
        assert (await answer(it.running)).status == 200
        assert await it.change([engine.entry(name="a")]) == []
        assert (await it.running.state())["reload"]["ok"]
        assert await it.running.metric("config_last_reload_success") == 1


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("listen", "127.0.0.1:1"),
        ("admin", "127.0.0.1:1"),
        ("admin_token", "other"),
        ("cors", {"origins": ["https://chat.example.org"]}),
    ],
)
async def test_what_cannot_change_refuses_the_whole_file(tmp_path, engine, key, value):
    async with reloadable(tmp_path, [engine.entry(name="a")]) as it:
        it.write([engine.entry(name="b")], **{key: value})
        line = 1 + [text.split(":")[0] for text in it.path.read_text().splitlines()].index(key)
        status, body = await it.reload()
        assert status == 400
        [problem] = body["error"]["problems"]
        assert (problem["key"], problem["line"]) == (key, line)
        assert problem["message"] == "cannot change while running; restart"
        assert str(value) not in str(body)
        assert await it.names() == ["a"]


async def test_there_is_nothing_to_reload_without_a_file(tmp_path, engine, caplog):
    async with running(tmp_path, [engine.entry()]) as gateway:
        async with gateway.http.post(f"{gateway.admin}/api/reload") as response:
            assert response.status == 409
            assert "--config" in (await response.json())["error"]["message"]
        gateway.gateway.reload()

        async def said():
            return "there is no file to reload" in caplog.text

        await until(said)
        assert await gateway.metric("config_last_reload_success") == 1


async def test_a_gateway_that_stops_takes_no_other_configuration(tmp_path, engine):
    engine.handler = hold
    async with reloadable(tmp_path, [engine.entry(name="a")]) as it, connect(it.running) as client:
        client.send(ask())
        call = await seen(engine)
        stopping = asyncio.create_task(it.running.gateway.stop())

        async def closed():
            return it.running.gateway._reloader._closed

        await until(closed)
        it.write([engine.entry(name="b")])
        assert (await it.reload())[0] == 409
        call.write(whole(OK))
        assert (await client.answer()).body == OK
        await stopping
        it.running.gateway.stop = nothing


async def nothing():
    pass


async def test_a_fault_of_the_gateway_itself_is_in_the_log_and_ends_nothing(tmp_path, engine, caplog):
    async with reloadable(tmp_path, [engine.entry(name="a")], poll_s=POLL_S) as it:
        file = it.running.gateway._file
        read, file.read = file.read, None
        it.write([engine.entry(name="b")])

        async def said():
            return "could not be reloaded" in caplog.text

        await until(said)
        reload = (await it.running.state())["reload"]
        assert (reload["ok"], reload["problems"][0]["message"]) == (False, "the gateway failed: TypeError")
        file.read = read
        it.write([engine.entry(name="c")])
        await until(lambda: lonely(it, "c"))


async def test_a_fault_while_it_is_put_in_force_is_not_told_as_the_old_one_in_force(
    tmp_path, engine, caplog, monkeypatch
):
    async with reloadable(tmp_path, [engine.entry(name="a")]) as it:
        dispatcher = it.running.gateway.dispatcher
        with monkeypatch.context() as patch:
            patch.setattr(dispatcher, "configure", None)
            it.write([engine.entry(name="b")])
            status, _ = await it.reload()
        assert status == 500
        (problem,) = (await it.running.state())["reload"]["problems"]
        assert problem["message"] == "the gateway failed: TypeError; what changed is in force in part only"
        assert "configuration reloaded in part" in caplog.text
        assert "the old one stays in force" not in caplog.text
        assert (await it.reload())[0] == 200
        await until(lambda: lonely(it, "b"))


async def test_a_change_is_not_forgotten_when_whoever_asked_for_a_reload_leaves(tmp_path, engine):
    async with reloadable(tmp_path, [engine.entry(name="a")]) as it:
        file, reloader = it.running.gateway._file, it.running.gateway._reloader
        reading, go_on = threading.Event(), threading.Event()
        read = file.read

        def slowly(old):
            reading.set()
            go_on.wait(10)
            return read(old)

        file.read = slowly
        it.write([engine.entry(name="b")])
        asking = asyncio.create_task(reloader.reload())
        await asyncio.to_thread(reading.wait, 10)
        asking.cancel()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert await it.names() == ["a"]
        file.poll_s = file.settle_s = POLL_S
        reloader.start()
        await until(lambda: lonely(it, "b"))


# The file


async def test_a_file_that_is_written_in_place_is_seen(tmp_path, engine):
    async with reloadable(tmp_path, [engine.entry(name="a")], poll_s=POLL_S) as it:
        it.path.write_text(written([engine.entry(name="b")]))
        await until(lambda: lonely(it, "b"))


async def test_a_file_that_another_one_is_renamed_over_is_seen(tmp_path, engine):
    async with reloadable(tmp_path, [engine.entry(name="a")], poll_s=POLL_S) as it:
        it.write([engine.entry(name="b")])
        await until(lambda: lonely(it, "b"))
        assert (await it.running.state())["reload"]["ok"]


async def test_a_config_map_that_swaps_its_link_is_seen(tmp_path, engine):
    async with reloadable(tmp_path, [engine.entry(name="a")], poll_s=POLL_S) as it:
        # As kubelet does: gateway.yaml -> ..data/gateway.yaml, ..data -> a dated directory.
        for version, name in (("..1", "b"), ("..2", "c")):
            (tmp_path / version).mkdir()
            (tmp_path / version / "gateway.yaml").write_text(written([engine.entry(name=name)]))
            (tmp_path / "..data_tmp").symlink_to(version)
            (tmp_path / "..data_tmp").rename(tmp_path / "..data")
            if not it.path.is_symlink():
                it.path.unlink()
                it.path.symlink_to("..data/gateway.yaml")
            await until(lambda name=name: lonely(it, name))


async def test_a_file_that_is_gone_is_an_invalid_one_until_it_is_back(tmp_path, engine):
    async with reloadable(tmp_path, [engine.entry(name="a")], poll_s=POLL_S) as it:
        text = it.path.read_text()
        it.path.unlink()

        async def invalid():
            return not (await it.running.state())["reload"]["ok"]

        await until(invalid)
        assert (await answer(it.running)).status == 200
        it.path.write_text(text)

        async def valid():
            return (await it.running.state())["reload"]["ok"]

        await until(valid)


async def test_half_of_an_edit_is_not_used(tmp_path, pair):
    a, b = pair.values()
    both = [a.entry(name="a"), b.entry(name="b")]
    async with reloadable(tmp_path, both) as it:
        file = it.running.gateway._file
        looks = []

        def look():
            """The file as an editor writes it: valid each time, and each time another."""
            looks.append(len(looks))
            return bytes(looks[-1:]) if len(looks) < 9 else before

        before, real = file.digest, file.look
        file.look = look
        file.poll_s = file.settle_s = 0.001
        it.write(both[:1])
        it.running.gateway._reloader.start()

        async def looked_at():
            return len(looks) > 12

        await until(looked_at)
        assert await it.names() == ["a", "b"]
        assert (await it.running.state())["reload"]["last_at"] is None
        file.look = real
        await until(lambda: lonely(it, "a"))


def test_a_pipe_is_not_looked_into(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert ConfigFile(tmp_path / "pipe", lambda _: None).digest is None


def test_a_file_that_may_not_be_read_counts_as_none(tmp_path, monkeypatch):
    def refuse(_):
        raise PermissionError

    (tmp_path / "f").write_text("x")
    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert ConfigFile(tmp_path / "f", lambda _: None).digest is None
