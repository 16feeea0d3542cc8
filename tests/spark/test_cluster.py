"""The job under `spark-submit`: on this machine alone, on a standalone cluster, on `local-cluster`.

Each runs a load, stops gracefully, resumes, and ends with a serial replay of the log.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
from typer.testing import CliRunner

from streamydb.cli import app
from streamydb.local.broker import free_port
from streamydb.local.launcher import LocalProcess
from streamydb.testing.database import Database, wait_for
from tests.support.bank import transfers
from tests.support.submitted import SPARK_HOME, Submitted, environment

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

SOURCES = Path(__file__).resolve().parents[2]


def runs_stops_and_resumes(database: Database) -> None:
    with database as db:
        db.load(transfers(150))
        assert db.assert_serial().ok
        assert db.stop_pipeline() == 0
        assert db.status().state == "stopped"
        db.load(transfers(100, seed=2))
        db.start_pipeline()
        assert db.assert_serial().transactions > 250


class Cluster(NamedTuple):
    """A standalone cluster: its master's URL and its workers' processes."""

    url: str
    workers: list[LocalProcess]


@contextmanager
def standalone_cluster(folder: Path, workers: int = 1, cores: int = 2) -> Iterator[Cluster]:
    """A master and workers in processes of their own."""
    master = free_port()
    port = free_port(besides=master)
    url = f"spark://127.0.0.1:{master}"
    spark_class = str(SPARK_HOME / "bin" / "spark-class")
    at = ["--host", "127.0.0.1"]
    worker = [
        "org.apache.spark.deploy.worker.Worker", *at, "--webui-port", "0", "--cores", str(cores),
        "--memory", "2g", "--work-dir", str(folder / "work"), url,
    ]  # fmt: skip
    commands = [
        ["org.apache.spark.deploy.master.Master", *at, "--port", str(master),
         "--webui-port", str(port)],
        *[worker] * workers,
    ]  # fmt: skip
    processes: list[LocalProcess] = []
    try:
        for number, command in enumerate(commands):
            log = folder / f"cluster.{number}.log"
            processes.append(
                LocalProcess("cluster", [spark_class, *command], log, environment=environment())
            )

        def ready() -> bool:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/", timeout=5) as page:
                    return b'"aliveworkers" : %d' % workers in page.read()
            except OSError:
                return False

        wait_for(ready, "the cluster", 60)
        yield Cluster(url, processes[1:])
    finally:
        for process in processes:
            process.kill_family()


@pytest.mark.long
def test_spark_submit_on_a_standalone_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    with (
        standalone_cluster(tmp_path) as cluster,
        Submitted(tmp_path, shards=2, master=cluster.url) as db,
    ):
        db.load(transfers(150))
        assert db.assert_serial().ok
        wait_for(lambda: leads_elsewhere(db), "a beat of the pipeline, which is alone", 30)
        assert db.stop_pipeline() == 0
        db.assert_quiet()


def leads_elsewhere(db: Database) -> bool:
    """Return True if `status` on another machine says that the database is executed."""
    where = ["--home", str(db.folder / "another-machine"), "--bootstrap", db.broker.bootstrap]
    done = CliRunner().invoke(app, ["status", "--json", *where])
    told = json.loads(done.stdout)
    roles = [(one["role"], one["pipeline"]) for one in told["elsewhere"]]
    assert roles in ([], [("leading", *db.place.incarnations())])
    return done.exit_code == 0


@pytest.mark.long
def test_it_resumes_on_a_standalone_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    with standalone_cluster(tmp_path) as cluster:
        runs_stops_and_resumes(Submitted(tmp_path, shards=2, master=cluster.url))


@pytest.mark.fault(2, "SIGKILL of one of two Spark workers")
@pytest.mark.long
def test_a_worker_of_two_is_lost_under_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one takes over its shard, and everything is executed as if nothing had been."""
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    with (
        standalone_cluster(tmp_path, workers=2, cores=2) as cluster,
        Submitted(tmp_path, shards=2, master=cluster.url) as db,
    ):
        db.load(transfers(500))
        db.assert_serial()
        below = [psutil.Process(worker.pid).children(recursive=True) for worker in cluster.workers]
        assert all(below), "both workers run an executor"
        pid, seq = db.status().pid, db.status().seq or 0
        db.load(transfers(3_000, seed=2))
        wait_for(lambda: (db.status().seq or 0) > seq, "the load to be under way")
        assert cluster.workers[0].kill_family() > 1
        db.load(transfers(3_000, seed=3))
        report = db.assert_serial(300)
        assert report.transactions > 6_500
        assert (db.status().state, db.status().pid) == ("running", pid)


class AsDocumented(Submitted):
    """Created and started by the commands of docs/production.md, as they stand there."""

    def command(self, extra: Iterable[str] = ()) -> list[str]:
        """The commands, with this database's broker and folders."""
        page = (SOURCES / "docs" / "production.md").read_text("utf-8")
        commands = page.split("```sh\n")[1].split("```")[0].rstrip()
        assert "streamydb create" in commands
        assert "spark-submit" in commands
        commands = commands.replace("kafka:9092", self.broker.bootstrap)
        commands = commands.replace("/var/lib/bank", str(self.place.checkpoint))
        more = ["--status-file", self.place.status_file, "--local", self.folder / "local", *extra]
        program = 'streamydb() { python -m streamydb.cli "$@"; }'
        options = " ".join(shlex.quote(str(word)) for word in more)
        return ["bash", "-ec", f"{program}\n{commands} {options}"]


@pytest.mark.long
def test_the_commands_of_the_production_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [str(Path(sys.executable).parent), str(SPARK_HOME / "bin"), os.environ["PATH"]]
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", os.pathsep.join(folders))
    monkeypatch.setenv("STREAMYDB_HOME", str(tmp_path / "home-of-a-user"))
    monkeypatch.setenv("PYTHONPATH", str(SOURCES))
    monkeypatch.chdir(SOURCES)
    runs_stops_and_resumes(AsDocumented(tmp_path, shards=4))


@pytest.mark.long
def test_local_cluster(tmp_path: Path) -> None:
    runs_stops_and_resumes(Database(tmp_path, shards=2, master="local-cluster[2,2,2048]"))
