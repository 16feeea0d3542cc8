"""The changes in PostgreSQL through a real worker of Kafka Connect, and in other programs' tables.

One database with one history: inserts, updates, deletions, 100,000 changes; the copy and the
sink are killed meanwhile. Each sink then equals the snapshot.
"""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyarrow import parquet

from bench.rest import postgresql
from streamydb.backup.snapshots import read_manifest, read_rows
from streamydb.kafka import TopicNames
from streamydb.kafka.reader import TopicReader
from streamydb.local.broker import free_port
from streamydb.local.jars import resolve
from streamydb.local.launcher import LocalProcess
from streamydb.testing.database import Database, wait_for
from tests.clients.toolchain import needs, node_modules, run
from tests.connect.worker import HERE, ROOT, Worker, query, sink
from tests.support.programs import cli

pytestmark = pytest.mark.timeout(1_800)

KEYS = 5_000
TRANSACTIONS = 6_000
PER_TRANSACTION = 20
CHANGES_MIN = 100_000
EXAMPLES = ROOT / "examples" / "sinks"
NAMES = TopicNames("bank")
State = dict[str, tuple[str, int]]
Updates = list[dict[str, Any]]


class Copy:
    """The service `streamydb connect`, which may be killed."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._process: LocalProcess | None = None

    def start(self) -> None:
        database = self._database
        where = ["--home", database.settings.home, "--bootstrap", database.broker.bootstrap]
        command = [sys.executable, "-m", "streamydb.cli", "connect", *map(str, where)]
        self._process = LocalProcess(
            "connect", command, database.folder / "connect.log", append=True
        )

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill_family()

    def records(self) -> int:
        """How many offsets its topic has."""
        with TopicReader(self._database.settings.client_config(), NAMES.connect) as reader:
            return sum(span.high for span in reader.spans().values())

    def places(self) -> list[tuple[int, int]]:
        """Seq and number of each change, each partition's in the order of offsets."""
        committed = {**self._database.settings.client_config(), "isolation.level": "read_committed"}
        with TopicReader(committed, NAMES.connect) as reader:
            found: dict[int, list[tuple[int, int]]] = {}
            for message in reader.whole():
                if (value := message.value()) is not None:
                    change = json.loads(value)["payload"]
                    place = change["source"]["seq"], change["transaction"]["total_order"]
                    found.setdefault(message.partition() or 0, []).append(place)
        assert all(places == sorted(places) for places in found.values())
        return [place for places in found.values() for place in places]


class History(NamedTuple):
    """A database, its copy, and the state that both should have."""

    database: Database
    copy: Copy
    state: State


def transactions() -> Iterator[dict[str, Any]]:
    """Puts, of objects and of large integers, and deletions."""
    rng = random.Random(19)
    for number in range(TRANSACTIONS):
        updates: Updates = []
        for key in rng.sample(range(KEYS), PER_TRANSACTION):
            name = f"acct/{key}"
            updates.append(rng.choice([
                {"op": "put", "key": name, "value": {"balance": number, "ö": ['"\\\n', None]}},
                {"op": "put", "key": name, "value": 2**62 + number},
                {"op": "delete", "key": name},
            ]))  # fmt: skip
        yield {"id": f"t{number}", "updates": updates}


def snapshot_of(database: Database) -> State:
    """What the database holds, from a snapshot in Parquet."""
    to = str(database.folder / "snapshots")
    told = json.loads(cli(database, "snapshot", "--to", to, "--json"))
    manifest = read_manifest(told["folder"])
    rows = (row for batch in read_rows(told["folder"], manifest) for row in batch)
    return {row.key.decode(): (row.value.decode(), row.version) for row in rows}


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    """A history whose copy was switched on later, and whose copying was killed meanwhile."""
    needs("java", "mvn")
    if (why := postgresql.missing()) is not None:
        pytest.skip(why)
    with Database(tmp_path_factory.mktemp("connect")) as database:
        database.load(transactions())
        made = json.loads(cli(database, "create", "--connect", "--json"))
        assert made["topics"][-1] == NAMES.connect
        copy = Copy(database)
        try:
            copy.start()
            wait_for(lambda: copy.records() > 1_000, "some of the copy", 180)
            copy.kill()
            copy.start()
            state = snapshot_of(database)
            assert len(state) > KEYS / 2
            yield History(database, copy, state)
        finally:
            copy.kill()


def table_of(dsn: str) -> State:
    """The sink's table."""
    rows = query(dsn, "SELECT key, value::text, version FROM bank")
    return {key: (value, version) for key, value, version in rows}


def test_a_table_of_postgresql_equals_the_snapshot(history: History, tmp_path: Path) -> None:
    database, port = history.database, free_port()
    with postgresql.cluster("SELECT 1", port) as (dsn, _):
        worker = Worker(tmp_path / "worker", database.broker.bootstrap, sink(port, NAMES.connect))

        def becomes(condition: Callable[[State], bool], what: str) -> None:
            def holds() -> bool:
                worker.require_running()
                return condition(table_of(dsn))

            wait_for(holds, what, 300)

        try:
            worker.start()
            becomes(lambda table: len(table) > 500, "some rows")
            worker.kill()
            worker.start()
            becomes(lambda table: table == history.state, "the table as the snapshot has it")
            for key in ("a\0", "\0"):  # PostgreSQL has no such text; the sink passes them over
                for more in ({"op": "put", "value": 1}, {"op": "delete"}):
                    database.load([{"id": f"{key}{more}", "updates": [{**more, "key": key}]}])
            for value in ("one", {"two": [2]}, "nul \0", None):
                op = {"op": "delete"} if value is None else {"op": "put", "value": value}
                database.load([{"id": repr(value), "updates": [{**op, "key": "live"}]}])
                text = None if value is None else json.dumps(value, separators=(",", ":"))
                becomes(partial(_has, "live", text), f"live: {text}")
            assert table_of(dsn) == history.state
        finally:
            worker.kill()


def test_each_change_is_in_the_copy_once(history: History) -> None:
    places = history.copy.places()
    assert len(set(places)) == len(places) >= CHANGES_MIN


def _has(key: str, value: str | None, table: State) -> bool:
    return table.get(key, (None, 0))[0] == value


def followed(command: Sequence[str], folder: Path, state: Callable[[], Any], wanted: Any) -> None:
    """Run a program until it has something, kill it, and run it until it has all."""
    for done in (lambda: state() is not None, lambda: state() == wanted):
        process = LocalProcess("program", command, folder / "log", folder=folder, append=True)
        try:
            wait_for(done, "the state of the program", 300)
        finally:
            process.kill_family()


def test_a_table_of_sqlite_equals_the_snapshot(history: History, tmp_path: Path) -> None:
    file = tmp_path / "bank.sqlite"

    def state() -> State | None:
        with closing(sqlite3.connect(file)) as table, suppress(sqlite3.OperationalError):
            rows = table.execute("SELECT key, value, version FROM kv").fetchall()
            return {key: (value, version) for key, value, version in rows} or None
        return None

    where = [history.database.broker.bootstrap, "bank", str(file)]
    command = [sys.executable, str(EXAMPLES / "to_sqlite.py"), *where]
    followed(command, tmp_path, state, history.state)


def test_a_file_equals_the_snapshot(history: History, tmp_path: Path) -> None:
    (tmp_path / "node_modules").symlink_to(node_modules(HERE))
    shutil.copy(EXAMPLES / "to_file.mjs", tmp_path)
    file, wanted = tmp_path / "bank.json", {key: value for key, (value, _) in history.state.items()}

    def state() -> dict[str, str] | None:
        return json.loads(file.read_text())["rows"] if file.exists() else None

    where = [history.database.broker.bootstrap, "bank", str(file)]
    followed(["node", "to_file.mjs", *where], tmp_path, state, wanted)


def test_parquet_has_each_change_once(history: History, tmp_path: Path) -> None:
    folder = tmp_path / "changes"
    submit = Path(sys.executable).with_name("spark-submit")
    jars = ",".join(map(str, resolve("pipeline")))
    options = ["--master", "local[2]", "--jars", jars, str(EXAMPLES / "to_parquet.py")]
    command = [str(submit), *options, history.database.broker.bootstrap, "bank", str(folder)]
    begun = tmp_path / "changes.checkpoint" / "offsets" / "0"
    process = LocalProcess("spark", command, tmp_path / "log")
    try:
        wait_for(begun.exists, "the first batch", 180)
    finally:
        process.kill_family()
    run(command, tmp_path)
    rows = parquet.read_table(folder).sort_by("seq").to_pylist()
    places = sorted((row["seq"], row["number"]) for row in rows)
    assert places == sorted(history.copy.places())
    last = {row["key"]: (row["after"], row["seq"]) for row in rows}
    assert {key: each for key, each in last.items() if each[0] is not None} == history.state
