"""config/grafana and config/prometheus ask only for what the gateway tells."""

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import yaml
from edge_values import a_record, a_snapshot, a_waiting, an_engine
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from gateway.core.concurrency import Concurrency
from gateway.core.operating import by_label
from gateway.edge.metrics import Metrics

CONFIG = Path(__file__).parent.parent / "config"
DASHBOARD = CONFIG / "grafana" / "dashboard.json"
RULES, ALERTS = CONFIG / "prometheus" / "rules.yml", CONFIG / "prometheus" / "alerts.yml"

OF_PROMETHEUS = {"job", "instance"}
"""Labels that are put on at a scrape."""

COMING = {
    "prefix_gateway_prefix_breaks_total": {"kind"},
}
"""Of the contract, and not told yet."""

METRIC = re.compile(r"(?<![\w:])(prefix_gateway_\w+)(\{[^}]*\})?")
RECORDED = re.compile(r"(?<![\w:])(\w+:prefix_gateway_\w+:\w+)(\{[^}]*\})?")
GROUPING = re.compile(r"\b(?:by|on|ignoring|group_left|group_right) \(([^)]*)\)")

Rule = dict[str, Any]


def told() -> dict[str, set[str]]:
    """Each series' name with its labels, of a gateway where everything has happened once."""
    engine = an_engine(inferred_cap=3)
    spent = by_label(Concurrency(0.0, 0.0).total(1.0).in_flight)
    snapshot = replace(a_snapshot(engine, waiting=(a_waiting(),)), concurrency_seconds=spent)
    metrics = Metrics(snapshot=lambda: snapshot, known_models=lambda: ["m"], version="1")
    metrics.observe(a_record())
    metrics.observe(a_record(cached_tokens=None))
    series: defaultdict[str, set[str]] = defaultdict(set)
    for family in text_string_to_metric_families(metrics.render().decode()):
        for sample in family.samples:
            series[sample.name] |= set(sample.labels)
    return {**COMING, **series}


TOLD = told()


def rules(path: Path) -> list[Rule]:
    return [rule for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]]


RECORDINGS = {rule["record"]: rule["expr"] for rule in rules(RULES)}
PANELS = [it for it in json.loads(DASHBOARD.read_text())["panels"] if it["type"] != "row"]
VARIABLES = json.loads(DASHBOARD.read_text())["templating"]["list"]


def dashboard_questions() -> list[str]:
    annotations = json.loads(DASHBOARD.read_text())["annotations"]["list"]
    of_variables = [it["query"]["query"] for it in VARIABLES if it["type"] == "query"]
    of_panels = [target["expr"] for panel in PANELS for target in panel["targets"]]
    return [*of_panels, *of_variables, *(it["expr"] for it in annotations)]


QUESTIONS = [*RECORDINGS.values(), *(rule["expr"] for rule in rules(ALERTS)), *dashboard_questions()]


def labels_of(recorded: str) -> set[str]:
    """What its name says that it is by, after the manual's level:metric:operations."""
    level = recorded.partition(":")[0]
    return set(level.split("_"))


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_metric_and_label_that_is_asked_for_exists(question):
    asked = METRIC.findall(question)
    recorded = RECORDED.findall(question)
    assert asked or recorded
    known = set(OF_PROMETHEUS)
    for name, selector in asked:
        assert name in TOLD
        known |= TOLD[name]
        assert set(re.findall(r"(\w+)\s*[=!]", selector)) <= TOLD[name] | OF_PROMETHEUS, name
    for name, selector in recorded:
        assert name in RECORDINGS
        known |= labels_of(name)
        assert set(re.findall(r"(\w+)\s*[=!]", selector)) <= labels_of(name), name
    for names in GROUPING.findall(question):
        assert set(filter(None, names.replace(" ", "").split(","))) <= known


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_recording_is_named_for_what_it_is_by(name):
    grouped = re.findall(r"by \(([^)]*)\)", RECORDINGS[name])
    kept = {label for labels in grouped for label in labels.replace(" ", "").split(",")} - {"le"}
    assert labels_of(name) == kept


@pytest.mark.parametrize("name", [it for it in RECORDINGS if "ratio" in it])
def test_a_ratio_is_of_sums_and_unknown_rather_than_zero(name):
    numerator, denominator = RECORDINGS[name].split(" / ", 1)
    assert numerator.startswith("sum by")
    assert "sum by" in denominator
    assert "> 0" in denominator


@pytest.mark.parametrize("alert", rules(ALERTS), ids=lambda alert: alert["alert"])
def test_an_alert_says_what_happened_and_what_to_type(alert):
    told_by = alert["annotations"]
    assert alert["alert"].startswith("PrefixGateway")
    assert alert["labels"]["severity"] in ("info", "warning", "critical")
    assert alert["for"]
    assert all(told_by[it].strip() for it in ("summary", "description", "runbook"))
    assert re.search(r"curl -s|prefix-gateway ", told_by["runbook"])


@pytest.mark.parametrize("alert", rules(ALERTS), ids=lambda alert: alert["alert"])
def test_an_alert_names_only_labels_that_it_has(alert):
    text = " ".join(alert["annotations"].values())
    grouped = GROUPING.findall(alert["expr"])
    of_metrics = [TOLD[name] | OF_PROMETHEUS for name, _ in METRIC.findall(alert["expr"])]
    of_recordings = [labels_of(name) for name, _ in RECORDED.findall(alert["expr"])]
    has = set(grouped[0].replace(" ", "").split(",")) if grouped else (of_recordings or of_metrics)[0]
    assert set(re.findall(r"\$labels\.(\w+)", text)) <= has


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_panel_asks_the_chosen_prometheus(panel):
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    assert panel["datasource"] == chosen
    assert panel["targets"]
    assert all(target["datasource"] == chosen for target in panel["targets"])
    assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


def test_the_dashboard_is_laid_out_without_overlaps():
    spots = [it["gridPos"] for it in json.loads(DASHBOARD.read_text())["panels"]]
    taken = set()
    for spot in spots:
        cells = {
            (x, y)
            for x in range(spot["x"], spot["x"] + spot["w"])
            for y in range(spot["y"], spot["y"] + spot["h"])
        }
        assert spot["x"] + spot["w"] <= 24
        assert not cells & taken
        taken |= cells
    ids = [it["id"] for it in json.loads(DASHBOARD.read_text())["panels"]]
    assert len(set(ids)) == len(ids)


def test_variables_are_those_that_are_used():
    used = set(re.findall(r"\$\{?(\w+)", DASHBOARD.read_text())) - {"__rate_interval", "__range", "__all"}
    assert used == {it["name"] for it in VARIABLES}


def test_every_alert_that_was_promised_is_there():
    names = {rule["alert"].removeprefix("PrefixGateway") for rule in rules(ALERTS)}
    assert names >= {
        "HitRateFell",
        "HitRateFellSinceYesterday",
        "QueueGrows",
        "CapBelowConfigured",
        "UsageMissing",
        "EngineDown",
        "Degraded",
        "PrefixBreaks",
    }
