"""Where KV events may come from, and what is refused since no socket could connect to it."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from gateway.config import Config, check, load


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "gateway.yaml"


def problems(file: Path, text: str, env: Mapping[str, str] | None = None) -> list[str]:
    """What `check` says, without the file's path."""
    file.write_text(text)
    return [line.removeprefix(str(file)) for line in check(file, env or {})]


def loaded(file: Path, text: str, env: Mapping[str, str] | None = None) -> Config:
    file.write_text(text)
    return load(file, env or {})


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("off", "off"),
        ("auto", "auto"),
        ("tcp://h:5557", "tcp://h:5557"),
        ("tcp://h:5557?replay=6000", "tcp://h:5557?replay=6000"),
        ("tcp://h:5557?replay=off", "tcp://h:5557?replay=off"),
        ("'tcp://[::1]:5557'", "tcp://[::1]:5557"),
        ("'tcp://[fe80::1%eth0]:5557'", "tcp://[fe80::1%eth0]:5557"),
        ("tcp://vllm_a-1.ns.svc:5557", "tcp://vllm_a-1.ns.svc:5557"),
        ("tcp://h:65535?replay=off", "tcp://h:65535?replay=off"),
        ("tcp://h:65535?replay=1", "tcp://h:65535?replay=1"),
    ],
)
def test_where_kv_events_are_published(file: Path, value: str, read: str) -> None:
    (engine,) = loaded(file, f"engines:\n- url: http://h:1\n  kv_events: {value}\n").engines
    assert engine.kv_events == read


@pytest.mark.parametrize(
    "value",
    [
        "'on'",
        "h:5557",
        "http://h:5557",
        "tcp://h",
        "tcp://:5557",
        "tcp://h:0",
        "tcp://h:70000",
        "tcp://h:1/x",
        "tcp://h:1?replay=0",
        "tcp://h:1?replay=65536",
        "tcp://h:1?topic=kv",
        "tcp://h:1?replay=1&replay=2",
        "tcp://u:p@h:1",
        "'tcp://[h]:1'",
        "'tcp://[::1'",
    ],
)
def test_where_kv_events_cannot_be_published(file: Path, value: str) -> None:
    (found,) = problems(file, f"engines:\n- url: http://h:1\n  kv_events: {value}\n")
    assert found.startswith(":3: engines[0].kv_events: use off, auto or tcp://host:port")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("tcp://*:5557", "* is for the engine; give its host"),
        ("tcp://*:6000?replay=6001", "* is for the engine; give its host"),
        ("tcp://h h:5557", "the host is none to connect to"),
        ("tcp://-:5557", "the host is none to connect to"),
        ("tcp://_x:5557", "the host is none to connect to"),
        ("tcp://a;b:5557", "the host is none to connect to"),
        ("tcp://\u00fc:5557", "the host is none to connect to"),
        ("tcp://[v1.a:b]:5557", "the host is none to connect to"),
        ("tcp://h:65535", "no port comes after 65535 for what was missed; add ?replay=PORT or ?replay=off"),
    ],
)
def test_where_zmq_could_not_connect_is_refused_with_the_reason(file: Path, value: str, message: str) -> None:
    (found,) = problems(file, f"engines:\n- url: http://h:1\n  kv_events: '{value}'\n")
    assert found.startswith(f":3: engines[0].kv_events: {message}")


def test_an_events_host_from_the_environment_is_not_shown(file: Path) -> None:
    text = "engines:\n- url: http://h:1\n  kv_events: tcp://${WHERE}:5557\n"
    (found,) = problems(file, text, {"WHERE": "in side"})
    assert "the host is none to connect to" in found
    assert "in side" not in found


@pytest.mark.parametrize("url", ["http://_x:1", "http://*:8000"])
def test_auto_needs_a_host_that_zmq_can_connect_to(file: Path, url: str) -> None:
    text = f"engines:\n- url: '{url}'\n  name: a\n  kv_events: auto\n"
    (found,) = problems(file, text)
    assert found.startswith(":4: engines[0].kv_events: auto takes the host of url")
    assert not problems(file, text + "  kind: llamacpp\n")
    assert not problems(file, text.replace("auto", "off"))


def test_of_an_engine_without_a_url_only_that_is_said(file: Path) -> None:
    (found,) = problems(file, "engines:\n- name: a\n  kv_events: auto\n")
    assert "engines[0].url: is required" in found
