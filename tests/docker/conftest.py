"""Images and a running stack in a real Docker daemon (`make test-docker`)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from testcontainers.compose import DockerCompose
from testcontainers.core.docker_client import DockerClient
from testcontainers.core.image import DockerImage

from streamydb.local.broker import free_port
from streamydb.testing.database import wait_for

SOURCES = Path(__file__).resolve().parents[2]
BASE = os.environ.get("STREAMYDB_TEST_BASE_IMAGE", "python:3.11-slim-bookworm")
PROMETHEUS = """
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
RUN apt-get update && apt-get install -y --no-install-recommends prometheus \
 && rm -rf /var/lib/apt/lists/* && install -d -o nobody -g nogroup /prometheus
USER nobody
ENTRYPOINT ["prometheus"]
"""
"""Debian's Prometheus, for machines that reach no registry of images."""

_PARTS = ("broker", "topics", "pipeline", "read-model", "facade", "prometheus")


@pytest.fixture(scope="session")
def daemon() -> Any:
    """The Docker daemon that the environment names."""
    client = DockerClient(timeout=120).client
    client.ping()
    return client


@pytest.fixture(scope="session")
def image(daemon: Any) -> Iterator[str]:  # noqa: ARG001 - it must be there
    """The image of every role, built from this checkout on the base image that is named."""
    with DockerImage(
        SOURCES,
        tag="streamydb-test",
        dockerfile_path="docker/Dockerfile",
        clean_up=False,
        buildargs={"BASE_IMAGE": BASE},
    ) as built:
        yield str(built)


@pytest.fixture(scope="session")
def prometheus_image(
    daemon: Any,  # noqa: ARG001 - it must be there
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[str]:
    """An image of Prometheus: the one that is named, else Debian's."""
    named = os.environ.get("PROMETHEUS_IMAGE")
    if named:
        yield named
        return
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / "Dockerfile").write_text(PROMETHEUS)
    with DockerImage(
        folder, tag="streamydb-test-prometheus", clean_up=False, buildargs={"BASE_IMAGE": BASE}
    ) as built:
        yield str(built)


class Stack:
    """The containers of docker/compose.yaml."""

    def __init__(self, daemon: Any, project: str, port: int, token: str) -> None:
        """Look at the containers of one project."""
        self._daemon = daemon
        self._project = project
        self._token = token
        self.port = port

    def container(self, service: str) -> Any:
        """The container of a service."""
        labels = [
            f"com.docker.compose.project={self._project}",
            f"com.docker.compose.service={service}",
        ]
        (found,) = self._daemon.containers.list(all=True, filters={"label": labels})
        return found

    def healthy(self, *services: str) -> bool:
        """Whether all of these say that they are well."""
        states = [self.container(service).attrs["State"] for service in services]
        return all(state.get("Health", {}).get("Status") == "healthy" for state in states)

    def await_healthy(self, *services: str, timeout_s: float = 240) -> None:
        """Wait until all of these are well."""
        wait_for(lambda: self.healthy(*services), f"{', '.join(services)} to be well", timeout_s)

    def run(self, service: str, *command: str) -> tuple[int, str]:
        """Run a command in a container: its exit code and what it printed."""
        code, output = self.container(service).exec_run(list(command))
        return code, output.decode()

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """Ask the facade, as a client with a token; the JSON that comes back."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            data,
            method=method,
            headers={"Authorization": f"Bearer {self._token}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            error.add_note(error.read().decode())
            raise

    def answers(self, method: str, path: str, body: Any = None) -> bool:
        """Whether the facade answers without an error."""
        try:
            self.request(method, path, body)
        except (urllib.error.URLError, OSError):
            return False
        return True


@pytest.fixture(scope="module")
def stack(
    daemon: Any, image: str, prometheus_image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    """The whole of docker/compose.yaml but Grafana, started; removed at the end."""
    folder = tmp_path_factory.mktemp("stack")
    secrets = folder / "secrets"
    subprocess.run([SOURCES / "docker" / "make-tokens.sh", secrets], check=True)
    os.chmod(folder, 0o755)  # noqa: PTH101, S103 - containers run as other users
    project, port = f"streamydb-test-{uuid.uuid4().hex[:8]}", free_port()
    environment = {
        "COMPOSE_PROJECT_NAME": project, "STREAMYDB_IMAGE": image, "STREAMYDB_PORT": str(port),
        "STREAMYDB_SECRETS": str(secrets), "PROMETHEUS_IMAGE": prometheus_image,
        "PROMETHEUS_PORT": str(free_port(besides=port)),
    }  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        compose = DockerCompose(
            SOURCES / "docker",
            "compose.yaml",
            wait=False,
            services=list(_PARTS),
            docker_command_path=_compose_command(folder),
        )
        with compose:
            compose.services = None  # `down` takes all of them away
            made = Stack(daemon, project, port, (secrets / "app-token").read_text())
            made.await_healthy("broker", "pipeline", "read-model", "facade")
            wait_for(lambda: made.answers("PUT", "/v1/kv/first", 0), "a first verdict", 240)
            yield made


def _compose_command(folder: Path) -> str:
    """`docker`, if it has the compose plug-in; else a stand-in that calls docker-compose."""
    tried = subprocess.run(["docker", "compose", "version"], check=False, capture_output=True)
    if tried.returncode == 0:
        return "docker"
    if shutil.which("docker-compose") is None:
        pytest.fail("neither `docker compose` nor `docker-compose` is there")
    stand_in = folder / "docker"
    stand_in.write_text('#!/bin/sh\nshift\nexec docker-compose "$@"\n')
    stand_in.chmod(0o755)
    return str(stand_in)


def environment_of(container: Any) -> Mapping[str, str]:
    """The environment that a container was started with."""
    pairs = (entry.partition("=") for entry in container.attrs["Config"]["Env"])
    return {name: value for name, _, value in pairs}
