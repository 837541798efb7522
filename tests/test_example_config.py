"""config/example.yaml shows every key at its default, and the compose file's gateway starts."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from gateway.config import Config, from_args, load, redacted

CONFIG = Path(__file__).parent.parent / "config"
EXAMPLE = CONFIG / "example.yaml"

PUBLIC_KEYS = {
    "": "listen admin admin_token engines models routing admission limits usage normalize show_prompt_text "
    "tls cors auth store",
    "engines": "name url kind slots kv_tokens kv_events api_key ca classes",
    "models": "aliases echo_alias",
    "routing": "policy",
    "admission": "max_queue max_queue_bytes max_wait priority_header keepalive",
    "limits": "max_body max_connections header_timeout connect_timeout first_byte_timeout answer_timeout "
    "idle_timeout write_timeout keepalive_timeout shutdown_grace",
    "usage": "inject",
    "tls": "cert key",
    "cors": "origins",
    "auth": "keys",
}


def public_keys() -> set[str]:
    return {f"{section}.{key}".lstrip(".") for section, keys in PUBLIC_KEYS.items() for key in keys.split()}


def uncommented() -> str:
    """The example with every setting in force: `#key:` is a setting, `# Text` is prose."""
    return re.sub(r"^(\s*)#(\S)", r"\1\2", EXAMPLE.read_text(), flags=re.MULTILINE)


def keys_of(value: Any, above: str = "") -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from keys_of(item, above)
    elif isinstance(value, dict) and above != "models.aliases":
        for key, inner in value.items():
            name = f"{above}.{key}" if above else key
            yield name
            yield from keys_of(inner, name)


def default_config() -> Config:
    return from_args(["http://127.0.0.1:8000", "http://127.0.0.1:8001"])


def test_the_example_as_it_is_means_the_defaults() -> None:
    assert load(EXAMPLE, {}) == default_config()


def test_every_setting_it_shows_is_the_default(tmp_path: Path) -> None:
    file = tmp_path / "all.yaml"
    file.write_text(uncommented())

    assert load(file, {}) == default_config()


def test_it_shows_every_public_key_and_the_models_have_no_other() -> None:
    assert set(keys_of(yaml.safe_load(uncommented()))) == public_keys()
    assert set(keys_of(redacted(default_config()))) == public_keys()


def test_compose_starts_two_engines_and_a_gateway_that_knows_both() -> None:
    compose = yaml.safe_load((CONFIG / "compose.yaml").read_text())
    services = compose["services"]
    assert set(services) == {"engine-a", "engine-b", "gateway"}

    config = load(CONFIG / compose["configs"]["gateway"]["file"], {"ADMIN_TOKEN": "t"})

    assert {engine.host for engine in config.engines} == {"engine-a", "engine-b"}
    for engine in config.engines:
        command = services[engine.host]["command"].split()
        assert command[command.index("--port") + 1] == str(engine.port)
    published = {port.rsplit(":", 1)[1] for port in services["gateway"]["ports"]}
    assert published == {str(config.listen.port), str(config.admin.port)}


def test_compose_mounts_the_configuration_where_the_image_reads_it() -> None:
    compose = yaml.safe_load((CONFIG / "compose.yaml").read_text())
    (mounted,) = compose["services"]["gateway"]["configs"]

    assert mounted["target"] in (CONFIG.parent / "Dockerfile").read_text()
    assert "ADMIN_TOKEN" in compose["services"]["gateway"]["environment"]
    assert compose["services"]["gateway"]["build"]["context"] == ".."


def test_compose_gives_running_requests_their_grace() -> None:
    compose = yaml.safe_load((CONFIG / "compose.yaml").read_text())
    config = load(CONFIG / "compose-gateway.yaml", {"ADMIN_TOKEN": "t"})

    stop_grace_s = int(compose["services"]["gateway"]["stop_grace_period"].removesuffix("s"))
    assert stop_grace_s > config.limits.shutdown_grace_s
