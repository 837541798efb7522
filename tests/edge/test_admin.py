import base64
import json
import logging
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from edge_values import a_record, a_snapshot, an_engine
from prometheus_client.parser import text_string_to_metric_families

from gateway.config import ConfigError, Problem
from gateway.edge.admin import AdminDeps, is_local_name, make_app
from gateway.edge.metrics import Metrics
from gateway.edge.page import dashboard
from gateway.edge.records import RecentRecords
from gateway.edge.reload import CannotReload, Reload
from gateway.edge.views import Missing, Views


class Gateway:
    """A gateway with two engines and two finished requests, as the admin port sees it."""

    def __init__(self):
        self.draining = {"a": False, "b:8000": False}
        self.recent = RecentRecords()
        self.metrics = Metrics(snapshot=self.snapshot, known_models=lambda: {"m"}, version="1.2.3")
        for number in (1, 2):
            record = a_record(id=f"r-{number}")
            self.recent.add(record)
            self.metrics.observe(record)

    def snapshot(self):
        return a_snapshot(*(an_engine(name=name, draining=on) for name, on in self.draining.items()))

    def drain(self, name, on):
        if name not in self.draining:
            return False
        self.draining[name] = on
        return True

    def explain(self, api, body):
        if not body:
            raise ValueError("The body is empty.")
        return {"bytes": len(body), "api": api}

    async def reload(self):
        return ["engines.b: added"]

    def deps(self, **changes):
        values = {
            "snapshot": self.snapshot,
            "metrics": self.metrics.render,
            "process_metrics": self.metrics.render_process,
            "records": self.recent.told,
            "drain": self.drain,
            "explain": self.explain,
            "degraded": self.metrics.degradations,
            "funnel": lambda: self.metrics.funnel.state(self.snapshot(), 0.0),
            "version": "1.2.3",
            "reload": self.reload,
            "last_reload": lambda: Reload(last_at="2026-01-02T03:04:05.678Z"),
            "config": lambda: {"listen": "127.0.0.1:8900"},
            "max_body_bytes": lambda: 32 << 20,
            "operating_point": lambda: {"sentence": "Nothing measured yet."},
            "started_at_s": 100.0,
            "clock": lambda: 142.5,
        }
        return AdminDeps(**(values | changes))


@asynccontextmanager
async def serving(gateway, **changes):
    runner = web.AppRunner(make_app(gateway.deps(**changes)), handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        async with aiohttp.ClientSession(f"http://127.0.0.1:{runner.addresses[0][1]}") as client:
            yield client
    finally:
        await runner.cleanup()


async def answer(client, method, path, **options):
    async with client.request(method, path, **options) as response:
        return response.status, await response.json()


async def test_the_state_is_the_snapshot_with_what_else_the_dashboard_needs():
    async with serving(Gateway()) as client:
        status, state = await answer(client, "GET", "/api/state")
    assert status == 200
    assert [engine["name"] for engine in state["engines"]] == ["a", "b:8000"]
    assert state["engines"][0]["slots_source"] == "discovered"
    assert state["running"][0]["id"] == "r-2"
    assert (state["waiting"], state["max_queue"], state["policy"]) == ([], 512, "cost")
    assert (state["version"], state["uptime_s"]) == ("1.2.3", 42.5)
    kinds = ("metrics_stale", "usage_missing", "slots_assumed", "cap_mismatch")
    assert state["degraded"] == dict.fromkeys(kinds, False)
    lost = {"cold": 400, "spilled": 400, "queued_elsewhere": 0, "pending": 0, "evicted": 176}
    assert state["funnel"] == {
        "requests": 2,
        "prompt": 2000,
        "infinite": 1600,
        "best": 1600,
        "predicted": 1200,
        "delivered": 1024,
        "hit_rate": 0.512,
        "lost": {**lost, "engine_disagrees": 0},
        "unknown_requests": 0,
        "sentence": "Too little traffic to say: 2 requests with cached tokens reported since the start.",
    }
    assert state["config"] == {"listen": "127.0.0.1:8900"}
    assert state["reload"] == {"last_at": "2026-01-02T03:04:05.678Z", "ok": True, "problems": []}


async def test_the_hit_rate_is_null_before_any_engine_reported():
    gateway = Gateway()
    gateway.metrics = Metrics(snapshot=gateway.snapshot, known_models=set, version="1")
    async with serving(gateway) as client:
        _, state = await answer(client, "GET", "/api/state")
    assert state["funnel"]["hit_rate"] is None


async def test_metrics_are_the_gateways_and_the_processs_in_one_valid_page():
    async with serving(Gateway()) as client, client.get("/metrics") as response:
        text = await response.text()
        assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    names = [family.name for family in text_string_to_metric_families(text)]
    assert {"prefix_gateway_requests", "python_info"} <= set(names)
    assert len(names) == len(set(names))
    assert 'prefix_gateway_requests_total{api="chat",engine="a",model="m",outcome="ok"} 2.0' in text


async def test_recent_requests_come_newest_first():
    async with serving(Gateway()) as client:
        _, everything = await answer(client, "GET", "/api/requests")
        _, one = await answer(client, "GET", "/api/requests?limit=1")
    assert [record["id"] for record in everything["requests"]] == ["r-2", "r-1"]
    assert [record["id"] for record in one["requests"]] == ["r-2"]


@pytest.mark.parametrize(("query", "limit"), [("", 100), ("?limit=1", 1), ("?limit=1000", 1000)])
async def test_the_limit_reaches_the_records(query, limit):
    asked = []
    async with serving(Gateway(), records=lambda limit: asked.append(limit) or []) as client:
        await answer(client, "GET", "/api/requests" + query)
    assert asked == [limit]


@pytest.mark.parametrize("limit", ["0", "1001", "-1", "1e2", "", "ten", "%D9%A3", "9" * 5000])
async def test_a_bad_limit_is_refused_with_the_range(limit):
    async with serving(Gateway()) as client:
        status, body = await answer(client, "GET", f"/api/requests?limit={limit}")
    assert status == 400
    assert body["error"]["code"] == "invalid_request"
    assert "1 to 1000" in body["error"]["message"]


async def test_an_odd_model_name_does_not_take_the_listing_down():
    gateway = Gateway()
    gateway.recent.add(a_record(model="m\ud800"))
    async with serving(gateway) as client:
        status, body = await answer(client, "GET", "/api/requests?limit=1")
    assert (status, body["requests"][0]["model"]) == (200, "m\ufffd")


async def test_explain_gets_the_body_as_it_was_sent():
    async with serving(Gateway()) as client:
        assert await answer(client, "POST", "/api/explain", data=b'{"a": 1}') == (
            200,
            {"bytes": 8, "api": ""},
        )


async def test_explain_is_told_which_api_a_body_is_for():
    async with serving(Gateway()) as client:
        _, by_query = await answer(client, "POST", "/api/explain?api=messages", data=b"{}")
        _, by_header = await answer(client, "POST", "/api/explain", data=b"{}", headers={"x-api": "chat"})
    assert (by_query["api"], by_header["api"]) == ("messages", "chat")


async def test_explain_says_what_is_wrong_with_a_body():
    async with serving(Gateway()) as client:
        status, body = await answer(client, "POST", "/api/explain", data=b"")
    assert (status, body) == (400, {"error": {"message": "The body is empty.", "code": "invalid_request"}})


async def test_explain_refuses_a_body_over_the_limit_and_names_it():
    async with serving(Gateway(), max_body_bytes=lambda: 100) as client:
        status, body = await answer(client, "POST", "/api/explain", data=b"x" * 101)
    assert (status, body["error"]["code"]) == (413, "body_too_large")
    assert "100 bytes" in body["error"]["message"]


async def test_explain_answers_a_body_that_does_not_unpack():
    headers = {"Content-Encoding": "gzip"}
    async with serving(Gateway()) as client:
        status, body = await answer(client, "POST", "/api/explain", data=b"no gzip", headers=headers)
    assert (status, body["error"]["code"]) == (400, "invalid_request")


async def test_an_engine_is_drained_and_undrained_by_name():
    gateway = Gateway()
    async with serving(gateway) as client:
        drained = await answer(client, "POST", "/api/engines/b:8000/drain")
        assert drained == (200, {"engine": "b:8000", "draining": True})
        assert gateway.draining == {"a": False, "b:8000": True}
        undrained = await answer(client, "POST", "/api/engines/b%3A8000/undrain")
        assert undrained == (200, {"engine": "b:8000", "draining": False})
        assert gateway.draining == {"a": False, "b:8000": False}


@pytest.mark.parametrize("action", ["drain", "undrain"])
async def test_draining_an_unknown_engine_lists_the_known_ones(action):
    async with serving(Gateway()) as client:
        status, body = await answer(client, "POST", f"/api/engines/c/{action}")
    assert (status, body["error"]["code"]) == (404, "unknown_engine")
    assert "a, b:8000" in body["error"]["message"]


async def test_an_unknown_path_lists_the_paths():
    async with serving(Gateway()) as client:
        status, body = await answer(client, "GET", "/v1/models")
    assert (status, body["error"]["code"]) == (404, "not_found")
    for path in ("GET /metrics", "GET /api/state", "POST /api/explain"):
        assert path in body["error"]["message"]


async def test_a_wrong_method_names_the_right_one():
    gateway = Gateway()
    async with serving(gateway) as client:
        status, body = await answer(client, "GET", "/api/engines/a/drain")
    assert (status, body["error"]["code"]) == (405, "method_not_allowed")
    assert "POST" in body["error"]["message"]
    assert not gateway.draining["a"]


async def test_a_failure_is_a_500_whose_log_line_holds_no_request_text(caplog):
    def explain(api, body):
        raise KeyError(body.decode())

    with caplog.at_level(logging.ERROR):
        async with serving(Gateway(), explain=explain) as client:
            status, body = await answer(client, "POST", "/api/explain", data=b"my secret prompt")
    assert (status, body["error"]["code"]) == (500, "internal_error")
    assert "KeyError" in caplog.text
    assert "test_admin.py" in caplog.text
    assert "secret" not in caplog.text + json.dumps(body)


async def test_the_dashboard_comes_with_the_policy_that_is_made_for_it():
    async with serving(Gateway()) as client, client.get("/") as response:
        page = await response.read()
        assert response.status == 200
        assert response.content_type == "text/html"
        assert response.headers["Content-Security-Policy"] == dashboard().policy
    assert page == dashboard().body


@pytest.mark.parametrize("path", ["/", "/metrics", "/api/state", "/api/requests", "/nothing"])
@pytest.mark.parametrize(
    "given",
    [
        None,
        "Bearer wrong",
        "Bearer",
        "Basic s3cret",
        "s3cret",
        "Bearer s3cretx",
        "Bearer é",
        "Basic bTp4",
        "Basic !",
    ],
)
async def test_with_a_token_set_nothing_answers_without_it(path, given):
    headers = {} if given is None else {"Authorization": given}
    async with serving(Gateway(), token="s3cret") as client:
        status, body = await answer(client, "GET", path, headers=headers)
    assert (status, body["error"]["code"]) == (401, "unauthorized")


async def test_a_post_without_the_token_changes_nothing():
    gateway = Gateway()
    async with serving(gateway, token="s3cret") as client:
        status, _ = await answer(client, "POST", "/api/engines/a/drain")
    assert (status, gateway.draining["a"]) == (401, False)


# What a browser sends once its user has typed the token, with and without a user name.
BASIC = [f"Basic {base64.b64encode(pair).decode()}" for pair in (b":s3cret", b"me:s3cret")]


@pytest.mark.parametrize("given", ["Bearer s3cret", "bearer s3cret", *BASIC])
async def test_the_token_opens_the_port_under_any_host_name(given):
    headers = {"Authorization": given, "Host": "gateway.example.com"}
    async with serving(Gateway(), token="s3cret") as client:
        status, _ = await answer(client, "GET", "/api/state", headers=headers)
    assert status == 200


async def test_healthz_answers_without_a_token_and_under_any_name():
    async with serving(Gateway(), token="s3cret") as client:
        assert await answer(client, "GET", "/healthz", headers={"Host": "x.example.com"}) == (
            200,
            {"status": "ok"},
        )
    async with serving(Gateway()) as client:
        assert await answer(client, "GET", "/healthz", headers={"Host": "x.example.com"}) == (
            200,
            {"status": "ok"},
        )


def test_an_empty_token_is_refused_rather_than_taken_for_one():
    with pytest.raises(ValueError, match="empty"):
        make_app(Gateway().deps(token=""))


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8901", "localhost:8901", "[::1]:8901", "10.1.2.3", "gateway:8901", "gateway"]
)
async def test_an_open_port_answers_to_local_names(host):
    async with serving(Gateway()) as client:
        status, _ = await answer(client, "GET", "/api/state", headers={"Host": host})
    assert status == 200


@pytest.mark.parametrize(
    "host", ["evil.example.com", "evil.example.com:8901", "127.0.0.1.evil.com", "evil.com."]
)
async def test_an_open_port_refuses_names_that_a_web_site_could_point_here(host):
    async with serving(Gateway()) as client:
        status, body = await answer(client, "GET", "/api/state", headers={"Host": host})
    assert (status, body["error"]["code"]) == (403, "forbidden_host")


@pytest.mark.parametrize(
    ("name", "is_local"),
    [
        ("a.localhost", True),
        ("localhost.", True),
        ("LOCALHOST", True),
        ("::ffff:127.0.0.1", True),
        ("localhost.evil.com", False),
        ("notlocalhost.com", False),
        ("1.2.3.4.5", False),
        ("a:b", False),
    ],
)
def test_local_names_are_told_from_public_ones(name, is_local):
    assert is_local_name(name) is is_local


@pytest.mark.parametrize("token", [None, "s3cret"])
@pytest.mark.parametrize("origin", ["https://evil.example.com", "http://127.0.0.1:1", "null"])
async def test_another_web_site_cannot_drain_an_engine(token, origin):
    gateway = Gateway()
    headers = {"Origin": origin} | ({"Authorization": f"Bearer {token}"} if token else {})
    async with serving(gateway, token=token) as client:
        status, body = await answer(client, "POST", "/api/engines/a/drain", headers=headers)
    assert (status, body["error"]["code"]) == (403, "forbidden_origin")
    assert not gateway.draining["a"]


async def test_the_ports_own_pages_may_post():
    async with serving(Gateway()) as client:
        headers = {"Origin": "http://localhost:8901", "Host": "localhost:8901"}
        status, _ = await answer(client, "POST", "/api/engines/a/drain", headers=headers)
    assert status == 200


async def test_a_reload_tells_what_has_changed():
    async with serving(Gateway()) as client:
        assert await answer(client, "POST", "/api/reload") == (200, {"changed": ["engines.b: added"]})


async def test_an_invalid_file_is_answered_with_every_problem():
    async def invalid():
        raise ConfigError([Problem("engines[0].slots", "too few", "g.yaml", 7), Problem("listen", "no", "f")])

    async with serving(Gateway(), reload=invalid) as client:
        status, body = await answer(client, "POST", "/api/reload")
    assert (status, body["error"]["code"]) == (400, "config_invalid")
    assert body["error"]["problems"] == [
        {"key": "engines[0].slots", "message": "too few", "source": "g.yaml", "line": 7},
        {"key": "listen", "message": "no", "source": "f", "line": None},
    ]


async def test_a_gateway_without_a_file_cannot_reload():
    async def none():
        raise CannotReload("There is no file.")

    async with serving(Gateway(), reload=none) as client:
        status, body = await answer(client, "POST", "/api/reload")
    assert (status, body) == (409, {"error": {"message": "There is no file.", "code": "cannot_reload"}})


async def test_other_parts_add_their_pages_calls_and_fields():
    def missing(query):
        raise Missing(f"No mark {query['mark']}.")

    def refused(body):
        raise ValueError(f"{len(body)} bytes are no mark.")

    async def later(body):
        return {"later": len(body)}

    views = Views(
        gets={"/api/told": lambda query: {"told": query}, "/api/missing": missing},
        posts={"/api/later": later, "/api/count": lambda body: {"bytes": len(body)}, "/api/refused": refused},
        state={"breakers": lambda: [1]},
    )
    async with serving(Gateway(), views=views) as client:
        assert await answer(client, "GET", "/api/told?a=1") == (200, {"told": {"a": "1"}})
        assert await answer(client, "POST", "/api/count", data=b"abc") == (200, {"bytes": 3})
        assert await answer(client, "POST", "/api/later", data=b"abc") == (200, {"later": 3})
        _, state = await answer(client, "GET", "/api/state")
        status, error = await answer(client, "GET", "/api/missing?mark=x")
        refusal, why = await answer(client, "POST", "/api/refused", data=b"abc")
    assert state["breakers"] == [1]
    assert (status, error["error"]) == (404, {"message": "No mark x.", "code": "not_found"})
    assert (refusal, why["error"]["message"]) == (400, "3 bytes are no mark.")
