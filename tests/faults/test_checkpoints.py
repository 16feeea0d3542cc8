"""What brings a checkpoint and its topics out of step, on real parts: copies, power cuts, time.

FAULTS 33 to 36 and 40. Power cuts are made of files: what was not synced is empty, or gone.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition

from streamydb.kafka import TopicNames, describe, grow, recall
from streamydb.kafka.admin import change_settings
from streamydb.kafka.clients import administrator
from streamydb.kafka.reader import TopicReader
from streamydb.testing.database import Database, wait_for
from tests.support.bank import transfers
from tests.support.faulty import fails, load, progressed, resolved

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_500)]


def newest(folder: Path, suffix: str = "") -> Path:
    """The file with the highest number."""
    files = [file for file in folder.iterdir() if file.name.removesuffix(suffix).isdigit()]
    return max(files, key=lambda file: int(file.name.removesuffix(suffix)))


def empty(file: Path) -> None:
    """What a power cut leaves of a file whose data was not synced; its checksums are empty, too."""
    file.write_bytes(b"")
    file.with_name(f".{file.name}.crc").write_bytes(b"")


def restored(db: Database, copy: Path) -> None:
    """Put a copy of the checkpoint in its place."""
    db.kill_pipeline()
    shutil.rmtree(db.place.checkpoint)
    shutil.copytree(copy, db.place.checkpoint)


def streamydb(db: Database, *arguments: str) -> str:
    """Run a command on this database; what it prints."""
    options = ["--database", db.name, "--home", str(db.folder / "home")]
    done = subprocess.run(
        [sys.executable, "-m", "streamydb.cli", *arguments, *options],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.long
@pytest.mark.fault(
    33,
    "a copy taken while it ran, put back 300 transactions later; and once more under load",
    "goes on from the copy; equal to the serial replay",
)
@pytest.mark.fault(
    34,
    "newest offsets emptied; newest commit gone and newest state emptied; newest offsets gone",
    "goes on after the newest whole batch; equal to the serial replay",
)
def test_a_checkpoint_is_put_back_and_loses_its_newest_files(
    tmp_path: Path, injected: Callable[..., None]
) -> None:
    copy = tmp_path / "copy"
    with Database(tmp_path) as db:
        query = db.place.checkpoint / "query"
        db.load(transfers(150))
        assert db.assert_serial().ok
        with load(db, seed=2):
            progressed(db, 100)
            subprocess.run(["cp", "-r", db.place.checkpoint, copy], check=False)  # some vanish
            progressed(db, 200)
            db.kill_pipeline()
        for emptied, gone in (
            (("offsets", ""), None),
            (("state/0/0", ".changelog"), "commits"),
            (None, "offsets"),
        ):
            if emptied is not None:
                empty(newest(query / emptied[0], emptied[1]))
            if gone is not None:
                newest(query / gone).unlink()
            injected(1, 34)
            db.load(transfers(40, seed=3))
            db.start_pipeline()
            assert db.assert_serial().ok
            db.kill_pipeline()
        assert "set aside" in db.log_file.read_text()
        for seed in (5, 6):
            restored(db, copy)
            injected(1, 33)
            with load(db, seed=seed, until=5):
                db.start_pipeline()
                assert db.assert_serial().ok
        db.kill_pipeline()


@pytest.mark.long
@pytest.mark.fault(
    35,
    "the feedback's retention of an earlier release; then its records deleted before they are read",
    "kept until read; else one command is named, which rebuilds: equal to the serial replay",
)
def test_feedback_is_kept_or_one_command_rebuilds(
    tmp_path: Path, injected: Callable[..., None]
) -> None:
    with Database(tmp_path) as db:
        connection, names = db.settings.client_config(), TopicNames(db.name)
        admin = administrator(connection)
        db.load(transfers(100))
        assert db.assert_serial().ok
        db.kill_pipeline()
        change_settings(admin, {names.feedback: {"retention.ms": "86400000"}})
        injected(1, 35)
        db.start_pipeline()
        wait_for(
            lambda: describe(connection, db.name)[names.feedback].settings["retention.ms"] == "-1",
            "the retention to be mended",
        )
        with load(db, seed=2):
            progressed(db, 200)
            db.kill_pipeline()
        for future in admin.delete_records([TopicPartition(names.feedback, 0, -1)]).values():
            future.result(30)
        injected(1, 35)
        said = fails(db)
        assert "feedback" in said
        assert "`streamydb rebuild`" in said
        bootstrap, backup = ["--bootstrap", db.broker.bootstrap], str(tmp_path / "backup")
        try:
            told = json.loads(streamydb(db, "rebuild", "--json", *bootstrap))
            assert Path(told["old_checkpoint"]).name == "checkpoint.before-1"
            report = db.assert_serial()
            assert report.results.duplicates >= 100
            streamydb(db, "backup", backup, *bootstrap)
            with pytest.raises(AssertionError, match="stop it first"):
                streamydb(db, "rebuild", "--from-backup", backup, *bootstrap)
            streamydb(db, "down")
            db.load(transfers(50, seed=9))
            streamydb(db, "rebuild", "--from-backup", backup, *bootstrap)
            assert db.assert_serial().transactions >= report.transactions + 50
            assert (db.place.checkpoint / "start").exists()
        finally:
            streamydb(db, "down")


def cut_tail(db: Database, topic: str) -> int:
    """Cut off the last third of a partition's file while the broker is down; bytes left."""
    (file,) = (db.folder / "home/broker/data" / f"{topic}-0").glob("*.log")
    left = 2 * file.stat().st_size // 3
    with file.open("r+b") as log:
        log.truncate(left)
    return left


@pytest.mark.long  # the simulator loses tails, too, and a SIGKILL under load is in `make test`
@pytest.mark.fault(
    36,
    "the broker killed, a third of the log's file cut off; then other records up to and past there",
    "each start refuses and names the offsets; nothing is skipped; a rebuild as the docs have it",
)
def test_a_lost_tail_of_the_log_is_found_at_the_start(
    tmp_path: Path, injected: Callable[..., None]
) -> None:
    with Database(tmp_path) as db:
        names, bootstrap = TopicNames(db.name), ["--bootstrap", db.broker.bootstrap]
        log = names.transactions
        for seed in range(6):
            db.load(transfers(50, seed=seed))
        assert db.assert_serial().ok
        db.kill_pipeline()
        with TopicReader(db.settings.client_config(), log) as reader:
            end = reader.span(0).high
        db.broker.kill()
        cut_tail(db, log)
        injected(1, 36)
        db.broker.start()
        with TopicReader(db.settings.client_config(), log) as reader:
            left = reader.span(0).high
        assert left < end
        said = fails(db)
        assert f"ends at offset {left}, but this checkpoint has read up to {end}" in said
        assert "'The end of the log is lost'" in said
        regrow(db, log, end + 20 - left)
        injected(1, 36)
        said = fails(db)
        # The checkpoint tells, or, if its last micro-batch was killed uncommitted, the changes do.
        assert "the last record of partition 0 was at offset" in said or "the log has lost" in said
        assert "'The end of the log is lost'" in said
        with pytest.raises(AssertionError, match="that the log has lost"):
            streamydb(db, "rebuild", *bootstrap)
        assert db.place.checkpoint.exists()
        written = [names.results, names.changes, names.streams, names.control]
        admin = administrator(db.settings.client_config())
        for future in admin.delete_topics(written).values():
            future.result(30)
        try:
            streamydb(db, "create", *bootstrap)
            streamydb(db, "rebuild", *bootstrap)
            assert db.assert_serial().ok
        finally:
            streamydb(db, "down")


def regrow(db: Database, topic: str, count: int) -> None:
    """Append other records."""
    producer = Producer({**db.settings.client_config(), "log_level": 0})
    for i in range(count):
        producer.produce(topic, json.dumps({"id": f"later-{i}"}).encode(), partition=0)
    assert producer.flush(30) == 0


@pytest.mark.long
@pytest.mark.fault(
    40,
    "partitions grow from 1 to 3 under load; then a new checkpoint without any settings",
    "what it was founded with is beside the log; equal to the serial replay",
)
def test_a_grown_log_is_rebuilt_in_the_same_order(tmp_path: Path) -> None:
    with Database(tmp_path) as db:
        connection = db.settings.client_config()
        with load(db, seed=1):
            progressed(db, 100)
            grow(connection, db.name, 3)
            progressed(db, 300)
        last = db.assert_serial().transactions
        db.kill_pipeline()
        record = json.loads((db.place.checkpoint / "streamydb.json").read_bytes())
        assert record["partitions"] == 1
        (log_id,) = (db.place.checkpoint / "log-id").read_text().split()
        assert recall(connection, db.name, log_id).partitions == 1
        shutil.rmtree(db.place.checkpoint)
        db.start_pipeline()
        resolved(db, last)
        report = db.assert_serial()
        assert report.results.duplicates >= last
        record = json.loads((db.place.checkpoint / "streamydb.json").read_bytes())
        assert record["partitions"] == 1
