"""The example sinks on Kafka, when their topic goes on and when it is made anew.

`tests/docs/test_sinks.py` has more histories, without Kafka.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka
import pyspark
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyarrow import parquet

from streamydb.local.jars import resolve
from streamydb.local.launcher import LocalProcess
from streamydb.records.connect import connect_key
from streamydb.testing.database import wait_for
from tests.clients.toolchain import needs, node_modules
from tests.connect.worker import HERE, ROOT

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900)]

EXAMPLES = ROOT / "examples" / "sinks"
LIFE = [["a", "b", "__proto__"], [f"n{number}" for number in range(40)], ["z"]]
"""The keys of one topic after another of the same name: more records, then fewer."""


class _Copy:
    """The topic of a copy, which can be made anew."""

    def __init__(self, bootstrap: str, database: str) -> None:
        self._connection = {"bootstrap.servers": bootstrap}
        self._name = f"{database}.connect"
        self._admin = AdminClient(self._connection)

    def make(self, keys: Sequence[str]) -> None:
        """Delete it, if it is there, make it, and give it these keys."""
        if self._name in self._known():
            self._admin.delete_topics([self._name])[self._name].result()
            wait_for(lambda: self._name not in self._known(), "the end of the topic")
        wait_for(self._made, "the new topic")
        producer = confluent_kafka.Producer(self._connection)
        for seq, key in enumerate(keys, 1):
            after = {"key": key, "value": json.dumps(seq), "version": seq}
            change: dict[str, Any] = {
                "op": "c", "before": None, "after": after, "ts_ms": 1, "source": {"seq": seq},
                "transaction": {"id": "t", "total_order": 1},
            }  # fmt: skip
            producer.produce(
                self._name, json.dumps({"payload": change}), connect_key(key),
                headers=[("streamydb", f"id {seq} {seq}".encode())],
            )  # fmt: skip
        assert producer.flush(60) == 0

    def _known(self) -> set[str]:
        return set(self._admin.list_topics(timeout=30).topics)

    def _made(self) -> bool:
        """Kafka may still be deleting the last one."""
        try:
            self._admin.create_topics([NewTopic(self._name, 2, 1)])[self._name].result()
        except confluent_kafka.KafkaException:
            return False
        return True


def keys_of_sqlite(file: Path) -> set[str] | None:
    with closing(sqlite3.connect(file)) as table, suppress(sqlite3.OperationalError):
        return {key for (key,) in table.execute("SELECT key FROM kv")}
    return None


def keys_of_file(file: Path) -> set[str] | None:
    return {*json.loads(file.read_text("utf-8"))["rows"]} if file.exists() else None


def _holds(keys_of: Callable[[Path], set[str] | None], file: Path, keys: set[str]) -> bool:
    return keys_of(file) == keys


@pytest.mark.parametrize(
    ("program", "keys_of"), [("to_sqlite.py", keys_of_sqlite), ("to_file.mjs", keys_of_file)]
)
def test_a_sink_begins_anew_with_its_topic(
    program: str, keys_of: Callable[[Path], set[str] | None], bootstrap: str, database: str,
    tmp_path: Path,
) -> None:  # fmt: skip
    command = [sys.executable]
    if program.endswith(".mjs"):
        needs("node")
        (tmp_path / "node_modules").symlink_to(node_modules(HERE))
        command = ["node"]
    shutil.copy(EXAMPLES / program, tmp_path)
    file, copy = tmp_path / "bank", _Copy(bootstrap, database)
    where = [str(tmp_path / program), bootstrap, database, str(file)]
    for keys in LIFE:
        copy.make(keys)
        for _ in range(2):  # it goes on, too
            process = LocalProcess("sink", [*command, *where], tmp_path / "log", append=True)
            try:
                wait_for(partial(_holds, keys_of, file, {*keys}), "the state of the sink", 120)
            finally:
                process.kill_family()


def test_parquet_refuses_a_topic_that_was_made_anew(
    bootstrap: str, database: str, tmp_path: Path
) -> None:
    jars = ",".join(map(str, resolve("pipeline")))
    command = [
        str(Path(sys.executable).with_name("spark-submit")), "--master", "local[2]", "--jars", jars,
        str(EXAMPLES / "to_parquet.py"), bootstrap, database, str(tmp_path / "changes"),
    ]  # fmt: skip
    home = str(Path(pyspark.__file__).parent)
    environment = {
        **os.environ, "SPARK_HOME": home, "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }  # fmt: skip
    copy = _Copy(bootstrap, database)

    def submit() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=300
        )

    copy.make(["a", "b"])
    done = submit()
    assert done.returncode == 0, done.stderr[-3_000:]
    copy.make(["c", "d", "e"])
    refused = submit()
    assert refused.returncode == 1
    assert "was made anew since" in refused.stdout + refused.stderr
    rows = parquet.read_table(tmp_path / "changes").to_pylist()
    assert {row["key"] for row in rows} == {"a", "b"}
