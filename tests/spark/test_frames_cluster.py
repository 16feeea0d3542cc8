"""DataFrames and the snapshot job on a standalone cluster: executors in processes of their own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec
import pytest

from streamydb.backup.snapshots import read_manifest, read_rows
from streamydb.kafka.positions import look
from streamydb.local.jars import resolve
from streamydb.local.resources import shipped_file
from streamydb.testing.database import Database, wait_for
from tests.spark.test_cluster import SOURCES, standalone_cluster
from tests.support.submitted import SPARK_HOME, environment

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

PROGRAM = '''
"""A user's job: a batch and a stream into the database."""
import sys
from pyspark.sql import SparkSession, functions as f
from streamydb.spark import add, content_id, read_changes, submit

database, bootstrap, folder = sys.argv[1:]
place = {"database": database, "bootstrap": bootstrap}
spark = SparkSession.builder.appName("frames").getOrCreate()
rows = spark.range(1000, numPartitions=4)
key = f.concat(f.lit("n/"), (f.col("id") % 7).cast("string"))
submit(rows, [add(key, "id")], id=content_id("id"), **place)
stream = read_changes(spark, stream=True, **place)
again = submit(  # every change of n/… is counted, once
    stream.where("key like 'n/%'"), [add(f.lit("changes"), 1)],
    id=f.concat_ws("/", f.lit("counted"), "seq", "index"),
    checkpoint=folder + "/checkpoint", trigger={"availableNow": True}, **place,
)
again.awaitTermination()
spark.stop()
'''


def submitted(master: str, job: Path, *arguments: str) -> str:
    """Run a job by spark-submit; what it prints."""
    jars = ":".join(str(path) for path in resolve("pipeline"))
    done = subprocess.run(
        [
            str(SPARK_HOME / "bin" / "spark-submit"), "--master", master,
            "--properties-file", str(shipped_file("spark-defaults.conf")),
            "--driver-class-path", jars, "--conf", f"spark.executor.extraClassPath={jars}",
            "--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.executor.memory=1g",
            "--conf", "spark.sql.shuffle.partitions=4", str(job), *arguments,
        ],
        env={**environment(), "PYTHONPATH": str(SOURCES)}, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def settled(db: Database) -> None:
    """Wait until everything in the log is executed and resolved."""
    settings, count = db.settings, db.assert_serial().transactions
    wait_for(lambda: look(settings).seq >= count, "everything resolved")


def test_jobs_on_a_standalone_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", str(SOURCES))
    program = tmp_path / "job.py"
    program.write_text(PROGRAM)
    with Database(tmp_path / "db") as db, standalone_cluster(tmp_path) as cluster:
        master, bootstrap = cluster.url, db.broker.bootstrap
        submitted(master, program, db.name, bootstrap, str(tmp_path))
        settled(db)
        submitted(master, program, db.name, bootstrap, str(tmp_path))  # the rest, and nothing twice
        settled(db)
        place = ("--database", db.name, "--bootstrap", bootstrap, "--to", str(tmp_path / "out"))
        told = msgspec.json.decode(
            submitted(master, SOURCES / "jobs" / "snapshot.py", *place, "--json").splitlines()[-1]
        )
        assert told["fresh"]
        more = ("--at", str(told["seq"]))
        again = submitted(master, SOURCES / "jobs" / "snapshot.py", *place, *more)
        assert "there already" in again
    manifest = read_manifest(told["folder"])
    batches = read_rows(told["folder"], manifest)
    values = {row.key.decode(): int(row.value) for batch in batches for row in batch}
    expected = {f"n/{n}": sum(range(n, 1000, 7)) for n in range(7)}
    assert values == {**expected, "changes": 1000}
