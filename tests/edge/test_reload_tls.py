"""Https engines while the configuration changes."""

import ssl

import pytest
import trustme
from certificates import ca_file, server_context
from failing import OK, ask, complete
from harness import until
from raw_engine import raw_engine
from reloading import reloadable

from gateway.config import TlsProblem


@pytest.fixture
async def engine():
    async with raw_engine(complete, tls=server_context()) as engine:
        yield engine


@pytest.fixture
def ca(tmp_path):
    return ca_file(tmp_path)


@pytest.fixture
def wrong_ca(tmp_path):
    directory = tmp_path / "wrong"
    directory.mkdir()
    return ca_file(directory, trustme.CA())


async def becomes(it, health, name="a"):
    async def is_so():
        return (await it.running.engine(name))["health"] == health

    await until(is_so)


async def test_an_engine_is_trusted_with_another_ca_from_then_on(tmp_path, engine, ca, wrong_ca):
    async with reloadable(tmp_path, [engine.entry(name="a", ca=wrong_ca)]) as it:
        await becomes(it, "down")
        assert await it.change([engine.entry(name="a", ca=ca)]) == [f"engines.a.ca: {wrong_ca} -> {ca}"]
        await becomes(it, "ready")
        assert (await ask(it.running)).body == OK


async def test_an_engine_is_trusted_no_more_with_another_ca(tmp_path, engine, ca, wrong_ca):
    async with reloadable(tmp_path, [engine.entry(name="a", ca=ca)]) as it:
        assert (await ask(it.running)).status == 200
        await it.change([engine.entry(name="a", ca=wrong_ca)])
        answer = await ask(it.running)
        assert answer.status == 502
        assert "its certificate is not trusted" in answer.error["message"]
        await becomes(it, "down")


async def test_an_engine_may_go_from_http_to_https(tmp_path, engine, ca):
    async with raw_engine(complete) as plain, reloadable(tmp_path, [plain.entry(name="a")]) as it:
        assert (await ask(it.running)).body == OK
        await it.change([engine.entry(name="a", ca=ca)])
        await becomes(it, "ready")
        assert (await ask(it.running)).body == OK
        assert [call.path for call in engine.calls] == ["/v1/chat/completions"]


async def test_an_https_engine_that_stays_keeps_its_connection(tmp_path, engine, ca):
    entry = engine.entry(name="a", ca=ca)
    async with reloadable(tmp_path, [entry]) as it:
        await ask(it.running)
        pool = it.running.gateway._pools["a"]
        [connection] = pool._idle
        await it.change([entry, engine.entry(name="b", ca=ca, url=f"{engine.url}/b")])
        assert it.running.gateway._pools["a"] is pool
        assert pool.idle() is connection


async def test_a_ca_that_cannot_be_used_leaves_the_old_in_force(tmp_path, engine, ca):
    bad = tmp_path / "bad.pem"
    bad.write_text("no certificate")
    async with reloadable(tmp_path, [engine.entry(name="a", ca=ca)]) as it:
        it.write([engine.entry(name="a", ca=str(bad))])
        status, body = await it.reload()
        assert status == 400
        [problem] = body["error"]["problems"]
        assert problem["key"] == "engines[0].ca"
        assert "holds no certificate" in problem["message"]
        assert (await ask(it.running)).body == OK


async def test_a_ca_that_goes_after_it_was_checked_leaves_the_old_in_force(
    tmp_path, engine, ca, wrong_ca, monkeypatch
):
    def gone(ca):
        raise TlsProblem("ca", "cannot be read: No such file or directory")

    async with reloadable(tmp_path, [engine.entry(name="a", ca=ca)]) as it:
        monkeypatch.setattr("gateway.edge.target.engine_context", gone)
        it.write([engine.entry(name="a", ca=wrong_ca)], models={"aliases": {"other": "m"}})
        status, body = await it.reload()
        assert status == 400
        [problem] = body["error"]["problems"]
        assert (problem["key"], problem["message"]) == (
            "engines",
            "ca: cannot be read: No such file or directory",
        )
        assert (await it.running.state())["config"]["models"]["aliases"] == {}
        assert (await ask(it.running)).body == OK


async def test_what_a_replaced_engine_is_not_trusted_for_is_not_told_of_the_new_one(tmp_path, engine, ca):
    untrusted = ssl.SSLCertVerificationError("certificate verify failed")
    untrusted.verify_message = "unable to get local issuer certificate"
    async with raw_engine(complete) as plain, reloadable(tmp_path, [engine.entry(name="a", ca=ca)]) as it:
        gateway = it.running.gateway
        before = gateway._pools["a"]
        await it.change([plain.entry(name="a")])
        await becomes(it, "ready")
        gateway._suspect("a", before, untrusted)
        assert gateway.dispatcher.scheduler.engines["a"].health == "ready"
        await it.change([plain.entry(name="b")])
        gateway._suspect("a", before, untrusted)
        assert await it.names() == ["b"]
        gateway._suspect("b", gateway._pools["b"], untrusted)
        assert gateway.dispatcher.scheduler.engines["b"].trouble.startswith("its certificate is not trusted")
