"""What operators are told: metrics, alerts, runbook and dashboard agree with what is exported."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from streamydb.facade import FacadeSettings, create_app
from streamydb.facade.server import server_of
from streamydb.kafka.connect import copier
from streamydb.pipeline.background import LogSampler
from streamydb.pipeline.markers import MarkerLoop
from streamydb.pipeline.progress import PipelineMetrics
from streamydb.read_model import ReadModel
from streamydb.read_model.service import registry_of
from streamydb.settings import Settings
from streamydb.testing.in_process import InProcess, scenario
from streamydb.testing.memory import MemoryDatabase
from tests.support.memory_copy import MemoryCopy
from tests.support.memory_topic import MemorySource, MemoryTopic

SOURCES = Path(__file__).resolve().parents[3]
PAGE = (SOURCES / "docs" / "operations.md").read_text("utf-8")
ALERTS = yaml.safe_load((SOURCES / "docker" / "prometheus" / "alerts.yml").read_text("utf-8"))
RULES: list[dict[str, Any]] = [rule for group in ALERTS["groups"] for rule in group["rules"]]
DASHBOARD = json.loads((SOURCES / "docker/grafana/dashboards/streamydb.json").read_text("utf-8"))
NAME = re.compile(r"streamydb_[a-z_]+")
TYPES = {"counter", "gauge", "histogram"}


def families(registry: CollectorRegistry) -> dict[str, str]:
    """Name and type of what a registry exports."""
    return {
        family.name + ("_total" if family.type == "counter" else ""): family.type
        for family in registry.collect()
    }


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Name and type of every metric of pipeline, read model, copy and facade."""
    settings = Settings(bootstrap="127.0.0.1:1", metrics_port=1)
    pipeline = PipelineMetrics()
    LogSampler(settings, pipeline.registry, MarkerLoop(settings))
    with ReadModel.open(tmp_path_factory.mktemp("m") / "model", "bank", write=True) as model:
        found = families(pipeline.registry) | families(registry_of(model))
    source = MemorySource(MemoryTopic(1))
    found |= families(copier.registry_of(copier.Copier("bank", source, MemoryCopy(1))))
    text: list[str] = []

    @scenario
    async def ask() -> None:
        database = MemoryDatabase()
        limits = FacadeSettings()
        app = create_app(database.model, database.log, database.changes, limits)
        server_of(app, limits, app.metrics)  # has metrics, too
        async with InProcess(app) as client:
            await client.request("PUT", "/v1/kv/a", b"1")
            await client.request("GET", "/v1/kv/missing")
            text.append((await client.request("GET", "/metrics")).body.decode())

    ask()
    for family in text_string_to_metric_families(text[0]):
        if not family.name.endswith("_created"):
            found[family.name + ("_total" if family.type == "counter" else "")] = family.type
    return found


def asked(expression: str) -> set[str]:
    """The metrics that an expression of PromQL names, as they are documented."""
    return {name.removesuffix("_bucket") for name in NAME.findall(expression)}


def test_the_table_of_metrics_is_what_is_exported(exported: dict[str, str]) -> None:
    rows = re.findall(r"^\| `(streamydb_[a-z_]+)` \| (\w+) \|", PAGE, re.MULTILINE)
    assert len(rows) == len(dict(rows))
    assert dict(rows) == exported


def test_names_follow_the_conventions(exported: dict[str, str]) -> None:
    assert set(exported.values()) <= TYPES
    for name, kind in exported.items():
        assert name.endswith("_total") == (kind == "counter"), name
        assert not re.search(r"_(ms|millis|minutes|kb|mb)(_|$)", name), f"{name}: base units"


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_every_alert_has_its_metrics_and_its_runbook(
    rule: dict[str, Any], exported: dict[str, str]
) -> None:
    assert asked(rule["expr"]) <= set(exported)
    assert asked(rule["expr"]) or rule["expr"].startswith("up{job=")
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert rule["annotations"]["summary"].endswith(".")
    name = rule["alert"]
    assert rule["annotations"]["runbook"] == f"docs/operations.md#{name.lower()}"
    sections = re.split(r"^### ", PAGE, flags=re.MULTILINE)
    (section,) = [text for text in sections if text.startswith(f"{name}\n")]
    assert len(section.split()) > 25, "a runbook says what it means and what to do"


def test_every_runbook_has_its_alert() -> None:
    runbook = PAGE.split("## Runbook\n")[1].split("\n## ")[0]
    headings = re.findall(r"^### (\w+)$", runbook, re.MULTILINE)
    assert headings == [rule["alert"] for rule in RULES]


def test_the_dashboard_asks_for_what_there_is(exported: dict[str, str]) -> None:
    panels = DASHBOARD["panels"]
    expressions = [target["expr"] for panel in panels for target in panel["targets"]]
    named = set().union(*map(asked, expressions))
    assert len(named) > 15
    assert named <= set(exported)
    assert {panel["datasource"]["uid"] for panel in panels} == {"prometheus"}
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len(panels), "no panel lies on another"
    datasource = SOURCES / "docker/grafana/provisioning/datasources/prometheus.yaml"
    assert yaml.safe_load(datasource.read_text())["datasources"][0]["uid"] == "prometheus"


def test_prometheus_and_compose_name_the_same_parts() -> None:
    compose = yaml.safe_load((SOURCES / "docker" / "compose.yaml").read_text("utf-8"))
    scraped = yaml.safe_load((SOURCES / "docker/prometheus/prometheus.yml").read_text("utf-8"))
    services = compose["services"]
    for job in scraped["scrape_configs"]:
        (target,) = job["static_configs"][0]["targets"]
        host, port = target.split(":")
        assert host == job["job_name"]
        told = services[host].get("environment", {}).get("STREAMYDB_METRICS_PORT", "8080")
        assert told == port
    for rule in RULES:
        for job in re.findall(r'up\{job="([^"]+)"\}', rule["expr"]):
            assert job in services
    assert scraped["rule_files"] == ["alerts.yml"]
    for name, service in services.items():
        assert "${" in service["image"], f"{name}: its image is a variable"
