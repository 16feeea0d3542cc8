"""A worker of Kafka Connect, standing alone, with Debezium's JDBC sink; and PostgreSQL for it."""

from __future__ import annotations

import asyncio
import json
import tarfile
from pathlib import Path
from typing import Any, Final

import asyncpg
import httpx

from streamydb.local.broker import free_port
from streamydb.local.java import find_java
from streamydb.local.launcher import LocalProcess, end_of_log
from streamydb.testing.database import wait_for
from tests.clients.toolchain import maven_jars

__all__ = ["Worker", "query", "sink"]

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
MAIN: Final = "org.apache.kafka.connect.cli.ConnectStandalone"
START_S_MAX: Final = 180.0


def sink(port: int, topic: str) -> dict[str, Any]:
    """Return the sink of docs/sinks.md for a topic and a server of PostgreSQL on this machine."""
    page = (ROOT / "docs" / "sinks.md").read_text("utf-8")
    connector: dict[str, Any] = json.loads(page.split("```json\n")[1].split("```")[0])
    url = f"jdbc:postgresql://127.0.0.1:{port}/postgres"
    connector["config"] |= {"topics": topic, "connection.url": url, "connection.username": "bench"}
    return connector


class Worker:
    """A worker in a folder; it may be killed and started again.

    Args:
        folder: its files.
        bootstrap: the broker.
        connector: the configuration of its one connector.
    """

    def __init__(self, folder: Path, bootstrap: str, connector: dict[str, Any]) -> None:
        """Write its files."""
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._name = connector["name"]
        self._url = f"http://127.0.0.1:{free_port()}"
        self._log = folder / "worker.log"
        settings = {
            "bootstrap.servers": bootstrap,
            "key.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "offset.storage.file.filename": str(folder / "offsets"),
            "offset.flush.interval.ms": "1000",
            "plugin.path": str(folder / "plugins"),
            "plugin.discovery": "service_load",
            "listeners": self._url,
        }
        properties = "".join(f"{name}={value}\n" for name, value in settings.items())
        (folder / "worker.properties").write_text(properties)
        (folder / "sink.json").write_text(json.dumps(connector))
        self._jars = maven_jars(HERE)
        for archive in self._jars.glob("*.tar.gz"):
            with tarfile.open(archive) as plugin:
                plugin.extractall(folder / "plugins", filter="data")
        self._process: LocalProcess | None = None

    def start(self) -> None:
        """Start it, and wait until its connector runs."""
        command = [
            str(find_java().path), "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp",
            str(self._jars / "*"), MAIN,
            str(self._folder / "worker.properties"), str(self._folder / "sink.json"),
        ]  # fmt: skip
        self._process = LocalProcess("worker", command, self._log, append=True)
        wait_for(self._runs, "the start of the worker", START_S_MAX)

    def state(self) -> dict[str, Any]:
        """What the worker says of its connector and the one task of it."""
        answer = httpx.get(f"{self._url}/connectors/{self._name}/status", timeout=10)
        return dict(answer.json()) if answer.is_success else {}

    def require_running(self) -> None:
        """Fail with the task's trace if it does not run."""
        tasks = self.state().get("tasks", [])
        assert [task["state"] for task in tasks] == ["RUNNING"], (tasks, end_of_log(self._log))

    def kill(self) -> None:
        """SIGKILL it."""
        if self._process is not None:
            self._process.kill_family()
            self._process = None

    def _runs(self) -> bool:
        assert self._process is not None
        assert self._process.alive, end_of_log(self._log)
        try:
            return bool(self.state().get("tasks"))
        except httpx.TransportError:
            return False


def query(dsn: str, statement: str) -> list[tuple[Any, ...]]:
    """Return the rows of a statement; none as long as a table is missing."""

    async def rows() -> list[tuple[Any, ...]]:
        connection = await asyncpg.connect(dsn)
        try:
            return [tuple(row) for row in await connection.fetch(statement)]
        except asyncpg.UndefinedTableError:
            return []
        finally:
            await connection.close()

    return asyncio.run(rows())
