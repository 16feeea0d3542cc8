"""What is stored is damaged or gone: a start names the file, and a rebuild gives the same again.

FAULTS 15 (poison), 16 (retention), 19 (checkpoint) and 43 (a mended release).
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from streamydb.kafka.clients import administrator
from streamydb.testing.database import Database, wait_for
from tests.support.bank import transfers
from tests.support.faulty import POISONED, TRIED_TWICE, fails, poisoned

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def cut(file: Path) -> None:
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])


def damaged(db: Database, folder: str) -> None:
    """Truncate every file of a folder of the checkpoint; the start names one. Then undo it."""
    checkpoint = db.place.checkpoint
    kept = checkpoint.with_name("kept")
    shutil.copytree(checkpoint, kept)
    files = [file for file in (checkpoint / "query" / folder).glob("[0-9]*") if file.is_file()]
    for file in files:
        cut(file)
    said = fails(db)
    assert any(str(file) in said for file in files), said
    assert "`streamydb rebuild`" in said
    assert "rebuilds from the log" in said
    shutil.rmtree(checkpoint)
    kept.rename(checkpoint)


def delete_unread(db: Database) -> None:
    """What retention does to a log that nobody has read in time."""
    admin = administrator({"bootstrap.servers": db.broker.bootstrap})
    everything = TopicPartition(f"{db.name}.transactions", 0, -1)
    for future in admin.delete_records([everything]).values():
        future.result(30)


@pytest.mark.fault(
    19, "all files of a shard's state truncated",
    "a file and the command are named; undone: equal to the serial replay",
)  # fmt: skip
@pytest.mark.long
def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    with Database(tmp_path) as db:
        db.load(transfers(150))
        assert db.assert_serial().ok
        db.kill_pipeline()
        damaged(db, "state/0/0")
        db.start_pipeline()
        assert db.assert_serial().ok


@pytest.mark.fault(
    15,
    "our code patched to raise in every Python of the pipeline",
    "aborted: internal, dead letter, alarm; equal to the serial replay",
)
@pytest.mark.fault(
    16,
    "delete_records on the log before it was read",
    "stops loudly with the runbook; nothing skipped",
)
@pytest.mark.fault(19, "checkpoint gone while records come")
@pytest.mark.fault(
    43, "a pipeline without those faults rebuilds from the log", "the same verdicts and outputs"
)
def test_faults_of_ours_a_rebuild_from_the_log_and_lost_records(
    tmp_path: Path, injected: Callable[..., None]
) -> None:
    poisons = ExitStack()
    poisons.enter_context(poisoned(tmp_path))
    with poisons, Database(tmp_path, master=TRIED_TWICE) as db:
        db.load(transfers(50))
        db.load(POISONED)
        db.load(transfers(100, seed=2))
        injected(4, 15)
        report = db.assert_serial()
        assert report.faults == 3 + 1
        assert report.deadletters.matched == 4
        said = db.log_file.read_text()
        assert said.count("LookupError") >= 3
        assert sum(map(int, re.findall(r"ruled (\d+) transactions", said))) == 4
        assert "unreadable" not in said

        db.kill_pipeline()
        db.place.checkpoint.rename(tmp_path / "old")
        poisons.close()  # a mended release, on which the same transactions do not fail
        injected(1, 19)
        injected(4, 43)
        db.load(transfers(50, seed=3))
        db.start_pipeline()
        report = db.assert_serial()
        assert report.results.duplicates >= 150
        assert report.faults == 4
        # Results may be in Kafka before the dead letters of the same batch.
        wait_for(lambda: db.assert_serial().deadletters.duplicates == 4, "4 dead letters again")

        db.kill_pipeline()
        db.load(transfers(10, seed=4))
        delete_unread(db)
        injected(1, 16)
        said = fails(db)
        assert "were deleted before the pipeline had read them" in said
        assert "docs/operations.md" in said
