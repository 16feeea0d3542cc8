"""Prometheus says that its configuration is right, and that each alert fires when it should."""

from __future__ import annotations

from typing import Any

import pytest

from tests.docker.conftest import SOURCES

pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize(
    "command",
    [
        ["check", "config", "--syntax-only", "/etc/prometheus/prometheus.yml"],
        ["check", "rules", "/etc/prometheus/alerts.yml"],
        ["test", "rules", "/tests/alerts_test.yml"],
    ],
    ids=["configuration", "rules", "alerts"],
)
def test_promtool(daemon: Any, prometheus_image: str, command: list[str]) -> None:
    mounts = {
        str(SOURCES / "docker" / "prometheus"): {"bind": "/etc/prometheus", "mode": "ro"},
        str(SOURCES / "tests" / "docker"): {"bind": "/tests", "mode": "ro"},
    }
    said = daemon.containers.run(
        prometheus_image, command, entrypoint="promtool", volumes=mounts, network_mode="none",
        remove=True, stderr=True,
    ).decode()  # fmt: skip
    assert "SUCCESS" in said
