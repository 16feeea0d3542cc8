"""The probes of deploy/kubernetes and docker/ against a facade that answers for one host only."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from pydantic import SecretStr

from streamydb.facade import FacadeSettings, create_app
from streamydb.testing.in_process import InProcess, scenario
from streamydb.testing.memory import MemoryDatabase

TOP = Path(__file__).resolve().parents[3]
BEARER = "0123456789abcdef"
TOKENS = json.dumps([{"name": "app", "token": BEARER, "read": [""], "write": [""]}])
POD = "10.244.3.7:8080"
FOREIGN = [POD, "127.0.0.1:8080", "[fd00::7]:8080", "", "evil.example"]


def connect(database: MemoryDatabase) -> InProcess:
    limits = FacadeSettings(tokens=SecretStr(TOKENS), allowed_hosts=("db.example",))
    return InProcess(create_app(database.model, database.log, database.changes, limits))


def of_kubernetes() -> list[tuple[str, str]]:
    """Path and host of each HTTP probe of a facade: the kubelet names the pod's address."""
    text = (TOP / "deploy/kubernetes/base/facade.yaml").read_text("utf-8")
    workload = next(one for one in yaml.safe_load_all(text) if one["kind"] == "StatefulSet")
    facade = workload["spec"]["template"]["spec"]["containers"][0]
    assert "serve" in facade["args"]
    probes = [facade[kind] for kind in ("livenessProbe", "readinessProbe", "startupProbe")]
    assert not any("httpHeaders" in probe["httpGet"] for probe in probes)
    return [(probe["httpGet"]["path"], POD) for probe in probes]


def of_docker() -> list[tuple[str, str]]:
    """Path and host of the facade's health check in the compose file."""
    text = (TOP / "docker/compose.yaml").read_text("utf-8")
    check = yaml.safe_load(text)["services"]["facade"]["healthcheck"]["test"]
    urls = [urlsplit(url) for url in re.findall(r"http://[^']+", " ".join(check))]
    return [(url.path, url.netloc) for url in urls]


def test_there_are_probes() -> None:
    assert len(of_kubernetes()) == 3
    assert of_docker() == [("/health/ready", "127.0.0.1:8080")]


@pytest.mark.parametrize(("path", "host"), [*of_kubernetes(), *of_docker()])
@scenario
async def test_a_probe_is_answered(path: str, host: str) -> None:
    database = MemoryDatabase()
    async with connect(database) as client:
        assert (await client.request("GET", path, headers={"host": host})).status == 200
        assert (await client.request("HEAD", path, headers={"host": host})).status == 200


@pytest.mark.parametrize("host", FOREIGN)
@scenario
async def test_another_host_is_told_of_health_and_nothing_else(host: str) -> None:
    database = MemoryDatabase()
    sent = {"authorization": f"Bearer {BEARER}"}
    async with connect(database) as client:
        await client.request("PUT", "/v1/kv/a", b"1", {**sent, "host": "db.example"})
        own = (await client.request("GET", "/health/ready", headers={"host": "db.example"})).json()
        assert own["seq"] == 1
        paths = (await client.request("GET", "/schema", headers={"host": "db.example"})).json()
        answered = set()
        for path, item in paths["paths"].items():
            for method in item:
                target = re.sub(r"\{.*\}", "a", path)
                answer = await client.request(method.upper(), target, b"", {**sent, "host": host})
                if answer.status != 421:
                    answered.add((method, path))
        assert answered == {("get", "/health/live"), ("get", "/health/ready")}
        for target in ("/", "/schema", "/console/app.js", "//health/ready", "/health%2Fready"):
            answer = await client.request("GET", target, headers={"host": host})
            assert answer.status in {404, 421}, target
        told = await _ready(client, host)
        assert told == {**own, "seq": None, "ts_ms": None, "age_s": None, "waiting_s": None}
        database.model.broken = True
        told = await _ready(client, host)
        assert (told["detail"], told["health"]["why"]) == ("Not ready for reads.", [])


async def _ready(client: InProcess, host: str) -> Any:
    return (await client.request("GET", "/health/ready", headers={"host": host})).json()
