"""docker/compose.yaml, started: it serves, is observed, ends cleanly and survives kills."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from streamydb.testing.database import wait_for
from tests.docker.conftest import SOURCES, Stack, environment_of

pytestmark = pytest.mark.timeout(1200)

METRIC = re.compile(r"streamydb_[a-z_]+")
ROLES = ("broker", "pipeline", "read-model", "facade")


def prometheus(stack: Stack, path: str) -> Any:
    """Ask Prometheus, inside its container's network."""
    address = f"http://prometheus:9090{path}"
    program = f"import urllib.request as u; print(u.urlopen({address!r}).read().decode())"
    code, output = stack.run("facade", "python", "-c", program)
    assert code == 0, output
    return json.loads(output)["data"]


def targets_up(stack: Stack) -> bool:
    """Connect's is not: that role runs with a profile of its own."""
    found = prometheus(stack, "/api/v1/targets")["activeTargets"]
    health = {each["labels"]["job"]: each["health"] for each in found}
    assert health.pop("connect") != "up"
    return health == {"pipeline": "up", "read-model": "up", "facade": "up"}


def checked(stack: Stack) -> None:
    """The database equals a serial replay of its log."""
    code, output = stack.run("pipeline", "streamydb", "check")
    assert code == 0, output
    assert "equal to the serial replay" in output


def test_it_serves(stack: Stack) -> None:
    assert stack.request("PUT", "/v1/kv/hello", "world")["status"] == "committed"
    assert stack.request("GET", "/v1/kv/hello") == "world"
    transfer = {"id": "t1", "updates": [{"op": "add", "key": "n", "by": 5}], "reads": ["n"]}
    assert stack.request("POST", "/v1/transactions", transfer)["reads"] == {"n": 5}
    checked(stack)


def test_every_metric_of_alerts_and_dashboard_is_there(stack: Stack) -> None:
    stack.request("POST", "/v1/transactions", {"updates": [], "asserts": {"never": 1}})
    wait_for(lambda: targets_up(stack), "all targets to be up", 60)
    rules = prometheus(stack, "/api/v1/rules")["groups"][0]["rules"]
    written = yaml.safe_load((SOURCES / "docker/prometheus/alerts.yml").read_text())
    assert len(rules) == len(written["groups"][0]["rules"])
    dashboard = (SOURCES / "docker/grafana/dashboards/streamydb.json").read_text()
    asked = set(METRIC.findall(json.dumps(written) + dashboard))
    asked -= {"streamydb_facade_problems_total"}  # there is none before the first problem

    def all_there() -> bool:
        return asked <= set(prometheus(stack, "/api/v1/label/__name__/values"))

    wait_for(all_there, f"{asked} to be scraped", 60)
    wait_for(
        lambda: {
            rule["health"] for rule in prometheus(stack, "/api/v1/rules")["groups"][0]["rules"]
        } == {"ok"},
        "all alerts to be evaluated", 60,
    )  # fmt: skip


def test_containers_run_as_nobody_special_and_hold_no_secret(stack: Stack) -> None:
    named = environment_of(stack.container("facade"))["STREAMYDB_SERVE_TOKENS_FILE"]
    assert named == "/run/secrets/tokens"
    for role in ROLES:
        container = stack.container(role)
        assert stack.run(role, "id", "-u") == (0, "10001\n")
        assert container.attrs["HostConfig"]["CapDrop"] == ["ALL"]
        assert stack._token not in json.dumps(container.attrs)
        assert stack._token not in container.logs().decode()
    code, output = stack.run("facade", "cat", "/run/secrets/tokens")
    assert code == 0
    assert stack._token not in output


def test_sigterm_ends_every_role_cleanly(stack: Stack) -> None:
    before = stack.request("PUT", "/v1/kv/before", 1)["seq"]
    for role in ("facade", "read-model", "pipeline", "broker"):
        container = stack.container(role)
        container.stop(timeout=90)
        container.reload()
        assert container.attrs["State"]["ExitCode"] == 0, (role, container.logs()[-2000:].decode())
    for role in reversed(("facade", "read-model", "pipeline", "broker")):
        stack.container(role).start()
        if role != "facade":
            stack.await_healthy(role)
    stack.await_healthy(*ROLES)
    wait_for(lambda: stack.answers("PUT", "/v1/kv/after", 0), "an answer to a write", 120)
    assert stack.request("GET", "/v1/kv/before") == 1
    assert stack.request("PUT", "/v1/kv/after", 1)["seq"] > before
    checked(stack)


@pytest.mark.parametrize("role", ["pipeline", "read-model", "broker"])
def test_sigkill_of_a_role_is_survived(stack: Stack, role: str) -> None:
    """The container's first process is killed; the restart policy starts it again."""
    stack.await_healthy(*ROLES)
    assert stack.request("PUT", f"/v1/kv/{role}", 1)["status"] == "committed"
    container = stack.container(role)
    starts = container.attrs["RestartCount"]
    code, output = stack.run(role, "bash", "-c", "kill -KILL $(pgrep -P 1 | head -n 1)")
    assert code in {0, 137}, output
    wait_for(lambda: stack.container(role).attrs["RestartCount"] > starts, "the restart", 60)
    stack.await_healthy(*ROLES)
    wait_for(lambda: stack.answers("PUT", "/v1/kv/again", 2), "an answer to a write", 120)
    assert stack.request("GET", f"/v1/kv/{role}") == 1
    checked(stack)


def test_the_image_needs_no_network_and_is_layered(daemon: Any, image: str) -> None:
    code = "from streamydb.local.jars import cached; assert cached('broker') and cached('pipeline')"
    daemon.containers.run(
        image, ["-c", code], entrypoint="python", network_mode="none", remove=True, read_only=True
    )
    found = daemon.images.get(image)
    config = found.attrs["Config"]
    assert config["User"] == "streamydb"
    assert config["Healthcheck"]["Test"]
    assert set(config["Volumes"]) == {"/data", "/read-model"}
    layers = found.history()
    newest = next(layer for layer in layers if "wheels" in layer["CreatedBy"])
    assert newest["Size"] < 20_000_000, "a change of our own code is a small layer"
    assert "PASSWORD" not in json.dumps(layers).upper()
