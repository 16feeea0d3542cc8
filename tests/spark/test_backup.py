"""Backup under load, restore at any seq, other shards and partitions, trim: on real parts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from simulator.digests import state_digest
from streamydb.backup import BackupFolder
from streamydb.backup.kafka import BackupLog
from streamydb.kafka import TopicNames
from streamydb.kafka.reader import TopicReader
from streamydb.local.folder import DatabaseFolder, DatabaseRecord
from streamydb.testing.database import Database
from streamydb.verify.oracle.core import Oracle
from streamydb.verify.oracle.order import LogRecord, released
from tests.support.bank import appending, transfers
from tests.support.faulty import POISONED, poisoned, resolved

pytestmark = [pytest.mark.long, pytest.mark.timeout(1_800)]

OPTIONS = ["--digest-interval", "100"]
RULINGS_S = 500
"""Two faults of ours, each in two runs of the query, with four attempts of a task in each run."""


def command(db: Database, *words: str, code: int = 0) -> Any:
    """Run a command of the command line; what it printed as JSON, or its error."""
    name, *rest = words
    place = ["--home", str(db.folder / "home"), "--bootstrap", db.broker.bootstrap]
    done = subprocess.run(
        [sys.executable, "-m", "streamydb.cli", name, *place, *rest, "--json"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done.stderr if not done.stdout else json.loads(done.stdout)


def refused(db: Database, *extra: str) -> str:
    """Start a pipeline on a new checkpoint where it must not start; what it says."""
    done = subprocess.run(
        [
            *db.command(extra),
            "--checkpoint",
            str(db.folder / "refused"),
            "--name",
            "refused",
            "--status-file",
            str(db.folder / "refused.json"),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    return done.stderr


def load(db: Database, seed: int) -> AbstractContextManager[None]:
    """Append transfers in the background while the body runs."""
    return appending(lambda part: db.load(transfers(10, seed=seed * 100_000 + part)))


def oracle_digest(db: Database, seq: int) -> str:
    """The digest of the state that a serial replay of the log has right after a seq."""
    log = BackupLog(db.settings.client_config(), db.name)
    records = {
        number: [
            LogRecord(offset, append_ms, value)
            for piece in log.pieces(number, 0, span.high)
            for offset, append_ms, _, value in piece.rows()
        ]
        for number, span in log.spans().items()
    }
    oracle = Oracle(db.name, rulings=log.rulings())
    for ts_ms, partition, offset, value in released(records, db.partitions)[:seq]:
        oracle.apply(value, partition, offset, ts_ms)
    return state_digest({key.encode(): value for key, value in oracle.state.items()})


def results(db: Database, last: int) -> dict[int, bytes]:
    """The results up to a seq."""
    found = {}
    with TopicReader(db.settings.client_config(), TopicNames(db.name).results) as reader:
        for record in reader.whole():
            value = record.value() or b""
            told = json.loads(value)
            seq = told.get("duplicate", told)["seq"]
            if seq <= last:
                found[seq] = value
    return found


@contextmanager
def database(db: Database, name: str, *extra: str) -> Iterator[Database]:
    """Run the pipeline of another database on the same broker."""
    other = Database(db.folder, options=OPTIONS)
    other.name, other.broker, other.shards = name, db.broker, db.shards
    other.place = DatabaseFolder(db.folder / "home", name)
    other.log_file = db.folder / f"{name}.log"
    other.start_pipeline(extra)
    try:
        yield other
    finally:
        other.kill_pipeline()


@pytest.mark.fault(
    43, "a backup of a database whose pipeline had faults is restored, resized and trimmed by a "
    "mended release", "the same verdicts and states",
)  # fmt: skip
def test_backup_restore_resize_trim(tmp_path: Path, injected: Callable[..., None]) -> None:
    folder = tmp_path / "backup"
    with ExitStack() as stack:
        with poisoned(tmp_path):  # the first pipeline alone
            db = stack.enter_context(Database(tmp_path, options=OPTIONS))
        db.load(POISONED)
        injected(len(POISONED), 43)
        db.place.write_record(
            DatabaseRecord(database=db.name, shards=1, partitions=1, digest_interval=100)
        )
        db.load(transfers(300))
        resolved(db, 250, RULINGS_S)
        with load(db, 2):
            first = command(db, "backup", str(folder))
            resolved(db, first["seq"] + 100)
            second = command(db, "backup", str(folder))
        assert 250 <= first["seq"] < second["seq"]
        assert second["verified"] >= 1
        assert first["digest"] == oracle_digest(db, first["seq"])
        _restore_earlier(db, folder, second)
        last = _resize(db, folder)
        _trim(db, folder, last)


def _restore_earlier(db: Database, folder: Path, newest: dict[str, Any]) -> None:
    """The state before is there again, and another history goes on from it."""
    for at in (0, 137):
        done = command(db, "restore", str(folder), "-d", f"at{at}", "--at", str(at))
        assert (done["seq"], done["digest"]) == (at, oracle_digest(db, at))
    assert command(db, "restore", str(folder), "-d", "at137", "--at", "137")["appended"] == 0
    error = command(db, "restore", str(folder), "-d", "x", "--at", str(newest["seq"] + 1), code=1)
    assert f"has the seqs 1 to {newest['seq']}" in error
    with database(db, "at137") as branch:
        branch.load(transfers(100, seed=9))
        assert branch.assert_serial().ok
        assert results(branch, 137) == results(db, 137)
        aborted = [seq for seq, told in results(branch, 137).items() if b'"internal"' in told]
        assert aborted == [1, 2, 3, 4]
        assert oracle_digest(branch, 137) == oracle_digest(db, 137)


def _resize(db: Database, folder: Path) -> int:
    """1 to 3 partitions while it runs, 1 to 2 shards while it stands still."""
    with load(db, 3):
        command(db, "resize", "--partitions", "3")
    for partition in range(3):
        db.load(transfers(60, seed=20 + partition), partition=partition)
    db.assert_serial()
    assert "a pipeline runs on the checkpoint" in command(db, "resize", "--shards", "2", code=1)
    db.load(transfers(100, seed=30))
    db.kill_pipeline()
    done = command(db, "resize", "--shards", "2")
    assert done["digest"] == oracle_digest(db, done["seq"])
    db.shards = 2
    db.start_pipeline(["--partitions", "1"])
    for partition in range(3):
        db.load(transfers(150, seed=40 + partition), partition=partition)
    report = db.assert_serial()
    taken = command(db, "backup", str(folder), "--keep", "1")
    assert taken["digest"] == oracle_digest(db, taken["seq"])
    assert taken["verified"] >= 1
    _restore_three_partitions(db, folder, report.transactions)
    return report.transactions


def _restore_three_partitions(db: Database, folder: Path, last: int) -> None:
    """A seq in the middle of what lies in all three; each goes on with another history."""
    at = last - 200
    done = command(db, "restore", str(folder), "-d", "three", "--at", str(at))
    assert (done["seq"], done["digest"]) == (at, oracle_digest(db, at))
    assert command(db, "restore", str(folder), "-d", "three", "--at", str(at))["appended"] == 0
    with database(db, "three", "--partitions", "1") as branch:
        sent = sum(
            branch.load(transfers(60, seed=60 + partition), partition=partition)
            for partition in range(3)
        )
        assert branch.assert_serial().transactions == at + sent
        assert results(branch, at) == results(db, at)
        assert oracle_digest(branch, at) == done["digest"]


def _trim(db: Database, folder: Path, last: int) -> None:
    """The log begins later; who is behind is asked for first, who begins anew takes the backup."""
    digest = oracle_digest(db, last)
    told = command(db, "trim", str(folder))
    assert told["refused"] == []
    assert not told["deleted"]
    assert told["records"] >= 1000
    spans = BackupLog(db.settings.client_config(), db.name).spans()
    assert {span.low for span in spans.values()} == {0}
    assert command(db, "trim", str(folder), "--yes")["deleted"]
    spans = BackupLog(db.settings.client_config(), db.name).spans()
    assert {str(n): span.low for n, span in spans.items()} == {
        n: span[1] for n, span in told["deletes"].items()
    }
    assert "was trimmed: partition 0 begins at offset" in refused(db, "--partitions", "1")
    assert "--backup FOLDER" in command(db, "check", code=1)
    report = command(db, "check", "--backup", str(folder))
    assert (report["ok"], report["transactions"]) == (True, last)
    db.kill_pipeline()
    db.start_pipeline(["--partitions", "1"])
    options = ["--standby", "--partitions", "1", "--from-state", str(folder)]
    with db.beside("two", options) as standby:
        db.load(transfers(300, seed=50))
        resolved(db, last + 300)
        resolved(standby, last + 300)
        assert standby.status().alarm is None
    done = command(db, "backup", str(folder), "--keep", "1")
    assert done["verified"] >= 4, "two pipelines, two intervals and more"
    restored = command(db, "restore", str(folder), "-d", "again", "--at", str(last))
    assert restored["digest"] == digest
    assert BackupFolder(folder).manifest().states == [done["state"]]


def test_questions_to_the_past(tmp_path: Path) -> None:
    """A fork, a what-if and an explanation of a running database; none of them touches it."""
    with Database(tmp_path, options=OPTIONS) as db:
        db.load(transfers(300))
        resolved(db, 250)
        with load(db, 2):
            made = command(db, "fork", "copy", "--at", "137")
            answered = command(
                db, "whatif", "--constraint", '{"name":"rich","prefix":"acct/","min":0}',
                "--from-seq", "50", "--to-seq", "250", "--output", str(tmp_path / "all.parquet"),
                code=3,
            )  # fmt: skip
        assert (made["seq"], made["digest"]) == (137, oracle_digest(db, 137))
        assert json.loads(answered["kinds"]["verdict"]["first"]["after"])["code"] == (
            "constraint-violated"
        )
        assert (answered["from_seq"], answered["to_seq"]) == (50, 250)
        assert pq.read_table(tmp_path / "all.parquet").num_rows >= answered["differing"] > 0
        assert "already: name another" in command(db, "fork", "copy", code=1)
        assert "there is no seq 99999" in command(db, "fork", "x", "--at", "99999", code=1)
        _explained(db)
        with database(db, "copy") as branch:
            sent = branch.load(transfers(100, seed=9))
            db.load(transfers(50, seed=8))
            assert branch.assert_serial().transactions == 137 + sent
            assert results(branch, 137) == results(db, 137)
            assert oracle_digest(branch, 137) == made["digest"]
            assert (b"t8-0" in _ids(db), b"t8-0" in _ids(branch)) == (True, False)
            assert (b"t9-0" in _ids(db), b"t9-0" in _ids(branch)) == (False, True)
        db.assert_serial()


def _ids(db: Database) -> set[bytes]:
    """The ids of all results."""
    with TopicReader(db.settings.client_config(), TopicNames(db.name).results) as reader:
        return {record.key() or b"" for record in reader.whole()}


def _explained(db: Database) -> None:
    """A transfer that was sent twice; its life agrees with its result."""
    life = command(db, "explain", "t1-221")
    told = json.loads(results(db, life["order"]["seq"])[life["order"]["seq"]])
    assert life["unknown"] == {}
    assert life["verdict"] == told
    assert [each["executed"] for each in life["appends"]] == [True, False]
    assert life["plan"]["first"] <= told["seq"] <= life["plan"]["last"]
    assert life["plan"]["group"]["transactions"] >= 2
    assert {met["known"] for met in life["met"]} == {"state"}
    assert told["status"] == "committed"
    assert [check["holds"] for check in life["checks"]] == [True]
    assert len(life["writes"]) == 3
    assert life["resolved"]["seq"] >= told["seq"]
    assert {digest["seq"] for digest in life["digests"]} == {300}
