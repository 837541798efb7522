"""The reference names everything that the code has, and nothing else."""

import re
from pathlib import Path

import click
import pytest
from edge_values import a_snapshot, an_engine
from pydantic import BaseModel

from gateway import cli
from gateway.config import Config
from gateway.core.request import Grant, Outcome, Request, Route
from gateway.edge.metrics import Metrics
from gateway.edge.trace import Trace
from gateway.wire import errors, http1, paths

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "reference.md").read_text()


def section(title: str) -> str:
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#+ |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, title
    return found[1]


def first_column(text: str) -> set[str]:
    """Code spans in the first cell of each table row, without labels and arguments."""
    cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return {re.sub(r"\{.*", "", span) for cell in cells for span in re.findall(r"`([^`]+)`", cell)}


def test_every_metric_is_documented_and_every_documented_metric_exists():
    metrics = Metrics(snapshot=lambda: a_snapshot(an_engine()), known_models=lambda: ["m"], version="1")
    exported = set(re.findall(r"^# TYPE prefix_gateway_(\S+) ", metrics.render().decode(), re.MULTILINE))
    tables = section("Metrics").split("| `degraded` kind")
    assert first_column(tables[0]) == exported


def test_every_degradation_is_documented():
    table = section("Metrics").split("| `degraded` kind", 1)[1]
    places = ("app.py", "edge/metrics.py", "edge/observation.py")
    source = "".join((ROOT / "gateway" / place).read_text() for place in places)
    documented = first_column(table)
    assert documented
    assert all(f'"{kind}"' in source for kind in documented)
    kinds = r'"(\w+_(?:stale|missing|assumed|mismatch|lost|refused|invalid))"'
    assert set(re.findall(kinds, source)) == documented


def test_every_error_code_is_documented_with_its_status():
    rows = dict(re.findall(r"^\| `(\w+)` \| (\S+) \|", section("Errors"), re.MULTILINE))
    statuses = {code: str(status) for code, status in errors.STATUS.items()}
    assert rows == statuses | {"engine_truncated": "in-band", "engine_error": "in-band"}


def test_every_response_header_is_documented():
    grant = Grant(
        key=1,
        engine="a",
        model="m",
        route=Route.LOAD,
        attempt=1,
        width=1,
        predicted_tokens=0,
        best_tokens=0,
        queue_s=0.0,
    )
    lines = Trace(0.0).lines(Request(key=1, id="x", api="chat", model="m"), grant)
    sent = {name.decode() for name, _ in http1.headers_in(lines)}
    sent |= {name.decode() for name, _ in errors.retry_headers(1.0)} | {"x-gateway-reject-reason"}
    assert first_column(section("Response headers")) == sent


def test_every_route_and_outcome_is_documented():
    assert all(f"`{route}`" in section("Response headers") for route in Route)
    assert all(outcome in section("Metrics") for outcome in Outcome)


def settings_of(model: type[BaseModel], prefix: str = "") -> set[str]:
    keys = set()
    for name, field in model.model_fields.items():
        key = prefix + (field.alias or name)
        inner = [
            it
            for it in (field.annotation, *getattr(field.annotation, "__args__", ()))
            if isinstance(it, type)
        ]
        section_model = next((it for it in inner if issubclass(it, BaseModel)), None)
        if section_model is None:
            keys.add(key)
        else:
            many = "[]" if section_model is not field.annotation else ""
            keys |= settings_of(section_model, f"{key}{many}.")
    return keys


def test_every_setting_is_documented():
    assert first_column(section("Settings")) == settings_of(Config)


def test_every_command_and_option_is_documented():
    rows = {}
    for line in section("Commands").splitlines():
        if line.startswith("| `prefix-gateway "):
            name, options = line.split("|")[1:3]
            rows[name.strip(" `").removeprefix("prefix-gateway ")] = set(re.findall(r"`(--[\w-]+)`", options))
    common = {"--log-level", "--log-format", "--version"}
    commands = {
        name: {option for param in command.params if isinstance(param, click.Option) for option in param.opts}
        for top, group in cli.cli.commands.items()
        for name, command in (
            ((f"{top} {sub}", it) for sub, it in group.commands.items())
            if isinstance(group, click.Group)
            else [(top, group)]
        )
    }
    assert rows == {name: options - common for name, options in commands.items()}
    assert all(common <= options for options in commands.values())


@pytest.mark.parametrize("api", sorted(set(paths.APIS) - {"other", "models"}))
def test_every_api_path_is_documented(api):
    known = re.findall(r"`(?:POST |GET )?(/[\w/]+)`", section("API port"))
    assert any(target is not None and target.api == api for target in map(paths.target, known))
